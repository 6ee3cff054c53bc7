"""BiT of four codebases: read, loaded, written, damaged.

The expected values are outputs of big_transfer, big_vision, timm and Hugging Face transformers in
float64. Features are stored as float32, which bounds what can be said about them.
"""

import dataclasses
import functools
import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.preprocessing import BIG_VISION, BIT, HUGGING_FACE
from keras_vit.weights import bit
from keras_vit.weights.assign import assign
from keras_vit.weights.canonical import check_architecture
from keras_vit.weights.files import CheckpointError, Contents, open_checkpoint, read_safetensors
from tests.support import (
    ORACLES,
    assert_close,
    forward,
    images,
    largest,
    precision,
    randomize,
    read_arrays,
    tiny_vit,
    to_numpy,
    values,
    without_values,
)

SIZE = (48, 40)


@dataclasses.dataclass(frozen=True)
class Case:
    """A checkpoint: where it is, its constants, and layer -> feature in its io file."""

    path: str
    version: str
    numerics: str
    blocks: tuple
    features: dict = dataclasses.field(hash=False)

    def __str__(self):
        return self.path

    @property
    def folder(self):
        return ORACLES / self.path

    @property
    def checkpoint(self):
        file = self.folder / "checkpoint.npz"
        return file if file.is_file() else self.folder

    @functools.cached_property
    def contents(self):
        return open_checkpoint(self.checkpoint)

    @functools.cached_property
    def io(self):
        return read_arrays(self.folder / "io.npz")

    def feature(self, name):
        x = self.io[name]
        return np.moveaxis(x, 1, -1) if "hidden" in name else x


OFFICIAL = Case(
    "bit_official/r1111_w05",
    "v2",
    "bit",
    (1, 1, 1, 1),
    {
        "root": "feat_f64/root",
        "stage_3_unit_1": "feat_f64/block3",
        "stage_4_unit_1": "feat_f64/block4",
        "pool": "feat_f64/pre_logits",
    },
)
PAPER = Case(
    "big_vision_bit/bit_paper_d21_w05",
    "v2",
    "bit_paper",
    (2, 1),
    {
        "root": "feat_f64/stem",
        "stage_2_unit_1": "feat_f64/stage2/unit01",
        "norm": "feat_f64/norm_pre_head",
        "pool": "feat_f64/pre_logits",
    },
)
ODD = Case(
    "big_vision_bit/bit_paper_d11_w05_odd",
    "v2",
    "bit_paper",
    (1, 1),
    {"root": "feat_f64/stem", "stage_1_unit_1": "feat_f64/stage1/unit01"},
)
V1 = Case(
    "big_vision_bit/bit_v1_d11_w05",
    "v1",
    "google",
    (1, 1),
    {
        "root": "feat_f64/stem",
        "stage_2_unit_1": "feat_f64/stage2",
        "pool": "feat_f64/pre_logits",
    },
)
TIMM = Case("bit_timm/resnetv2_bit_11_w05", "v2", "timm", (1, 1), {"pool": "pre_logits_f64"})
HUGGING = Case(
    "bit_hf/bit_preact",
    "v2",
    "timm",
    (1, 1),
    {"root": "hidden_f64/0", "stage_2_unit_1": "hidden_f64/2"},
)
CASES = [OFFICIAL, PAPER, ODD, V1, TIMM, HUGGING]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def read(contents, hints=None):
    """What the one family that recognises the names reads."""
    (family,) = [family for family in bit.FAMILIES if family.recognises(contents.arrays)]
    return family.read(contents, hints or {})


def load(contents, dtype="float32"):
    """A model with the weights, in which every array must have its place."""
    canonical = read(contents)
    check_architecture(canonical)
    model = keras_vit.BiT(**canonical.architecture, dtype=dtype)
    assign(model, canonical)
    return model


def changed(case, rename=str, config=None, **arrays):
    """The checkpoint with other names, other arrays (`None` for none), another config."""
    found = {rename(name): array for name, array in case.contents.arrays.items()} | arrays
    found = {name: array for name, array in found.items() if array is not None}
    return Contents(case.folder, found, {**case.contents.config, **(config or {})})


def same_arrays(a, b):
    assert set(a.arrays) == set(b.arrays)
    for name, array in a.arrays.items():
        np.testing.assert_array_equal(array, b.arrays[name])


@every_case
def test_outputs_and_features_in_float64(case):
    with precision("float64"):
        model = load(case.contents, "float64")
        tensors = {name: model.get_layer(layer).output for layer, name in case.features.items()}
        inner = keras.Model(model.input, {"output_f64": model.output, **tensors})
        outputs = forward(inner, case.io["input"].astype("float64"))
    output, expected = outputs.pop("output_f64"), case.io["output_f64"]
    assert_close(output, expected, 1e-12 * largest(expected))
    for name, output in outputs.items():
        expected = case.feature(name)
        assert_close(output, expected, 1e-6 * largest(expected))


@pytest.mark.parametrize("case", [PAPER, V1, TIMM, HUGGING], ids=str)
def test_outputs_in_float32(case):
    """Eight times what float32 costs the authors' own code."""
    exact = case.io["output_f64"]
    noise = max(largest(case.io["output_f32"] - exact), np.finfo("float32").eps * largest(exact))
    assert noise < 1e-5 * largest(exact)
    model = keras_vit.from_checkpoint(case.checkpoint)
    assert_close(forward(model, case.io["input"]), exact, 8 * noise)
    assert len(model.load_report.loaded) == len(model.weights)


# ---- read


@pytest.mark.any_backend
@every_case
def test_the_architecture_comes_from_the_file(case):
    canonical = read(case.contents)
    found = canonical.architecture
    assert (found["version"], found["numerics"]) == (case.version, case.numerics)
    assert (found["blocks"], found["width"]) == (case.blocks, 0.5)
    assert (found["channels"], found["image_size"]) == (3, (224, 224))
    assert found["num_classes"] == case.io["output_f64"].shape[1]
    assert canonical.model == "BiT"
    assert "image_size" in canonical.assumed
    assert sorted(canonical.origin) == sorted(canonical.arrays)
    assert set(canonical.origin.values()) == set(case.contents.arrays)
    known = read(case.contents, {"image_size": 64})
    assert known.architecture["image_size"] == (64, 64) and "image_size" not in known.assumed


@pytest.mark.any_backend
def test_preprocessing_of_the_families():
    expected = {OFFICIAL: BIT, PAPER: BIT, V1: BIG_VISION, HUGGING: HUGGING_FACE}
    for case, preprocessing in expected.items():
        assert read(case.contents).preprocessing == preprocessing
    timm = read(TIMM.contents).preprocessing
    assert (timm.resize, timm.crop_fraction, timm.interpolation) == ("shortest", 0.875, "bilinear")


@pytest.mark.any_backend
def test_numbered_names():
    """Some published files carry the counters of TensorFlow."""

    def number(name):
        if "head" in name:
            return name
        return name.replace("2d/", "2d_17/").replace("group_norm/", "group_norm_3/")

    numbered = changed(OFFICIAL, number)
    assert "resnet/block1/unit01/a/standardized_conv2d_17/kernel" in numbered.arrays
    same_arrays(read(numbered), read(OFFICIAL.contents))


@pytest.mark.any_backend
@pytest.mark.parametrize("case", [PAPER, V1], ids=str)
@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
def test_prefixes_of_big_vision(case, prefix):
    contents = changed(case, lambda name: prefix + name, **{"opt/state/step": np.zeros(())})
    canonical = read(contents)
    same_arrays(canonical, read(case.contents))
    assert canonical.ignored == ("opt/state/step",)
    assert canonical.origin["head/kernel"] == f"{prefix}head/kernel"


@pytest.mark.any_backend
def test_norms_with_four_axes_in_both_generations():
    norms = {n: a[None, None, None] for n, a in V1.contents.arrays.items() if "gn" in n}
    same_arrays(read(changed(V1, **norms)), read(V1.contents))


@pytest.mark.any_backend
def test_what_the_folders_of_hugging_face_and_timm_say(tmp_path):
    head = dict.fromkeys(("classifier.1.weight", "classifier.1.bias"))
    canonical = read(changed(HUGGING, lambda name: name.removeprefix("bit."), **head))
    assert canonical.architecture["num_classes"] == 0
    assert keras_vit.BiT(**canonical.architecture).output_shape == (None, 256)
    names = {str(i): f"class {i}" for i in range(7)}
    assert read(changed(HUGGING, config={"id2label": names})).class_names == tuple(names.values())
    settings = {"input_size": [3, 448, 480], "crop_pct": 1.0, "mean": [0.4, 0.5, 0.6]}
    canonical = read(changed(TIMM, config={"pretrained_cfg": settings}))
    assert canonical.architecture["image_size"] == (448, 480)
    assert canonical.assumed["image_size"] == "its config.json"
    assert canonical.preprocessing.crop_fraction == 1.0
    assert canonical.preprocessing.mean == (0.4, 0.5, 0.6)
    shutil.copy(HUGGING.folder / "model.safetensors", tmp_path)
    same_arrays(read(open_checkpoint(tmp_path)), read(HUGGING.contents))


@pytest.mark.any_backend
def test_hugging_face_post_activation():
    """`layer_type="bottleneck"`, which computes as the hybrids' stems do."""
    canonical = read(V1.contents)
    file = bit.HUGGING_FACE.table.write(canonical.arrays)
    padding = {"global_padding": "same", "embedding_dynamic_padding": True}
    config = {**HUGGING.contents.config, "layer_type": "bottleneck", **padding}
    again = read(Contents(HUGGING.folder, file, config))
    same_arrays(again, canonical)
    assert (again.architecture["version"], again.architecture["numerics"]) == ("v1", "timm")
    with pytest.raises(CheckpointError, match="global_padding"):
        read(Contents(HUGGING.folder, file, {**config, "global_padding": None}))


# ---- damaged and foreign

# A norm, the root, and the first stage.
UNITS = {
    OFFICIAL: ("resnet/block2/unit01/b/group_norm/gamma", "resnet/root_block/", "resnet/block1/"),
    PAPER: ("block2/unit01/gn2/scale", "root_block/", "block1/unit01/"),
    V1: ("block2/unit1/gn2/scale", "conv_root/", "block1/"),
    TIMM: ("stages.1.blocks.0.norm2.weight", "stem.conv.", "stages.0."),
    HUGGING: (
        "bit.encoder.stages.1.layers.0.norm2.weight",
        "bit.embedder.convolution.",
        "bit.encoder.stages.0.",
    ),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("case", UNITS, ids=str)
def test_damage(case):
    norm, root, stage = UNITS[case]
    with pytest.raises(CheckpointError, match="stage_2_unit_1/norm2/gamma"):
        load(changed(case, **{norm: None}))
    for wrong in (np.zeros(5), np.zeros((1, 5)), np.zeros(())):
        with pytest.raises(CheckpointError, match=rf"{norm}|stage_2_unit_1/norm2"):
            load(changed(case, **{norm: wrong}))
    with pytest.raises(CheckpointError, match="something/else"):
        load(changed(case, **{"something/else": np.zeros(3)}))
    # Without the first stage, the others are no stages 1, 2 and so on.
    for start in (root, stage):
        without = dict.fromkeys(n for n in case.contents.arrays if n.startswith(start))
        with pytest.raises(CheckpointError, match=r"no whole BiT|without one"):
            load(changed(case, **without))
    for name in ("head/kernel", "head/bias"):
        with pytest.raises(CheckpointError, match=r"head|classifier"):
            load(changed(case, **{read(case.contents).origin[name]: None}))


@pytest.mark.any_backend
@pytest.mark.parametrize("shape", [(), (7, 7, 3), (7, 7, 3, 0), (7, 7, 3, 40), (5, 5, 3, 32)])
def test_a_root_of_another_shape(shape):
    name = "resnet/root_block/standardized_conv2d/kernel"
    with pytest.raises(ValueError, match=r"root_block|root/conv|multiple of 0.5"):
        load(changed(OFFICIAL, **{name: np.zeros(shape)}))


@pytest.mark.any_backend
def test_files_of_something_else():
    kernel = V1.contents.arrays["block1/unit1/conv1/kernel"]
    with pytest.raises(CheckpointError, match="Two arrays"):
        read(changed(V1, **{"block1/unit01/conv1/kernel": kernel}))
    hybrid = {"embedding/kernel": np.zeros((1, 1, 8, 8)), **V1.contents.arrays}
    assert not any(family.recognises(hybrid) for family in bit.FAMILIES)
    with pytest.raises(CheckpointError, match=r"another ResNet.*running_mean"):
        read(changed(TIMM, **{"norm.running_mean": np.zeros(256)}))


@pytest.mark.any_backend
def test_a_hugging_face_config_of_another_model():
    for key, value in {
        "layer_type": "bottleneck",
        "global_padding": "SAME",
        "embedding_dynamic_padding": True,
        "depths": [2, 1],
        "hidden_sizes": [128, 512],
        "num_groups": 16,
        "width_factor": 2,
        "hidden_act": "gelu",
        "output_stride": 4,
    }.items():
        with pytest.raises(CheckpointError, match=f"{key}.*expected"):
            read(changed(HUGGING, config={key: value}))


# ---- the calls of the Vision Transformer


def model_of(**options):
    default = {"blocks": (1, 1), "width": 0.5, "image_size": SIZE, "num_classes": 3}
    return randomize(keras_vit.BiT(**{**default, **options}))


@pytest.mark.any_backend
def test_loading_and_another_head():
    target = keras_vit.BiT(blocks=(1, 1), width=0.5, num_classes=7, numerics="timm")
    keras_vit.load_weights(target, HUGGING.checkpoint)
    source = keras_vit.from_checkpoint(HUGGING.checkpoint)
    for a, b in zip(target.weights, source.weights, strict=True):
        assert_close(a, b, 0)
    with pytest.warns(UserWarning, match=r"numerics: 'timm' in the checkpoint, 'bit'"):
        other = keras_vit.BiT(blocks=(1, 1), width=0.5, num_classes=7)
        keras_vit.load_weights(other, HUGGING.checkpoint)
    model = keras_vit.from_checkpoint(HUGGING.checkpoint, num_classes=3, image_size=128)
    assert not values(model)["head/kernel"].any()
    assert "7 classes in the file, 3 classes in the model" in str(model.load_report)
    features = keras_vit.from_checkpoint(HUGGING.checkpoint, include_top=False)
    assert features.output_shape == (None, 256)


@pytest.mark.any_backend
def test_what_does_not_fit():
    with pytest.raises(ValueError, match=r"holds a BiT; the model .* is a VisionTransformer"):
        keras_vit.load_weights(tiny_vit(), HUGGING.checkpoint)
    with pytest.raises(ValueError, match=r"holds a BiT; this builder makes a VisionTransformer"):
        keras_vit.ViT_Ti16(weights=HUGGING.checkpoint, depth=1)
    with pytest.raises(ValueError, match=r"blocks=\(1, 1\) in the file, \(1, 1, 1\) in"):
        keras_vit.load_weights(keras_vit.BiT(blocks=(1, 1, 1), width=0.5), HUGGING.checkpoint)


@pytest.mark.any_backend
def test_a_builder_takes_the_family_s_constants(tmp_path):
    options = {"blocks": (1, 1), "width": 0.5, "num_classes": 3}
    source = model_of(numerics="bit_paper")
    path = keras_vit.save_weights(source, tmp_path / "model.npz", force=True)
    assert keras_vit.BiT_R50x1(weights=path, **options).variant.numerics == "bit"
    chosen = keras_vit.BiT_R50x1(weights=path, numerics="bit_paper", **options)
    assert chosen.variant.numerics == "bit_paper"
    for a, b in zip(chosen.weights, source.weights, strict=True):
        assert_close(a, b, 0)


def test_folded_kernels_compute_the_same(tmp_path):
    model, x = model_of(), images((2, *SIZE, 3))
    folded = keras_vit.fold(model)
    assert_close(forward(folded, x), forward(model, x), 1e-5 * max(largest(forward(model, x)), 1))
    folded.save(tmp_path / "folded.keras")
    loaded = keras.saving.load_model(tmp_path / "folded.keras")
    assert loaded.variant == folded.variant and loaded.variant.folded
    for a, b in zip(loaded.weights, folded.weights, strict=True):
        assert_close(a, b, 0)


@pytest.mark.any_backend
def test_another_resolution_changes_no_weight():
    model = model_of()
    resized = keras_vit.resize(model, image_size=64)
    assert resized.image_size == (64, 64)
    for a, b in zip(resized.weights, model.weights, strict=True):
        assert_close(a, b, 0)
    with pytest.raises(ValueError, match="neither patches nor position embeddings"):
        keras_vit.resize(model, patch_size=8)


@pytest.mark.any_backend
def test_predictions_and_preprocessing_are_for_bit_too():
    model = model_of()
    photograph = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype="uint8")
    assert keras_vit.preprocess(photograph, model).shape == (1, *SIZE, 3)
    (best,) = keras_vit.predict(model, photograph, top=2, class_names=("a", "b", "c"))
    assert len(best) == 2 and best[0].probability >= best[1].probability


# ---- written

# Options of a model; the constants of "bit" and of "timm" differ by less than float32 shows.
MODELS = {
    "head": {},
    "timm": {"numerics": "timm"},
    "no_head": {"num_classes": 0},
    "gray": {"channels": 1},
    "units": {"blocks": (2, 1, 1)},
    "one_stage": {"blocks": (1,)},
    "five_stages": {"blocks": (1, 1, 1, 1, 1)},
    "after": {"version": "v1", "numerics": "timm"},
}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.mark.any_backend
@every_model
def test_round_trip_of_hugging_face(tmp_path, name):
    """The same weights in a model that computes the same."""
    model, folder = model_of(**MODELS[name]), tmp_path / "folder"
    assert keras_vit.save_weights(model, folder) == folder
    again = keras_vit.from_checkpoint(folder)
    assert again.load_report.initial == again.load_report.resized == ()
    assert again.get_config()["blocks"] == model.get_config()["blocks"]
    assert (again.image_size, again.channels) == (SIZE, model.channels)
    assert again.variant.replace(numerics="timm") == model.variant.replace(numerics="timm")
    for a, b in zip(again.weights, model.weights, strict=True):
        assert_close(a, b, 0)


@pytest.mark.any_backend
@pytest.mark.parametrize("case", [OFFICIAL, HUGGING], ids=str)
def test_published_files_come_back_to_the_byte(tmp_path, case):
    is_folder = case is HUGGING
    target = keras_vit.save_weights(
        keras_vit.from_checkpoint(case.checkpoint), tmp_path / ("a" if is_folder else "a.npz")
    )
    again = read_safetensors(target / "model.safetensors") if is_folder else read_arrays(target)
    assert set(again) == set(case.contents.arrays)
    for name, array in case.contents.arrays.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array, err_msg=name)
    if is_folder:
        said, wrote = (json.loads((p / "config.json").read_text()) for p in (case.folder, target))
        wrote.pop("torch_dtype")
        assert set(wrote) == set(said) - {"dtype", "transformers_version"}
        assert {key: said[key] for key in wrote} == wrote


@pytest.mark.any_backend
def test_timm_writes_what_it_reads(tmp_path):
    canonical = read(TIMM.contents)
    model = load(TIMM.contents)
    file = bit.TIMM.write(model, canonical.arrays)
    assert set(file) == set(TIMM.contents.arrays)
    for name, array in TIMM.contents.arrays.items():
        np.testing.assert_array_equal(file[name], array)
    with without_values():
        large = keras_vit.BiT("R152x2", image_size=448)
    config = bit.TIMM.json_files(large)["config.json"]
    assert config["architecture"] == "resnetv2_152x2_bit"
    assert config["pretrained_cfg"]["input_size"] == [3, 448, 448]


@pytest.mark.any_backend
def test_what_belongs_to_the_weights_is_written_too(tmp_path):
    model = model_of(image_size=(64, 48))
    model.class_names = ("cat", "dog", "bird")
    crop = {"resize": "shortest", "crop_fraction": 0.75, "interpolation": "bicubic"}
    for facts in ({}, {**crop, "mean": (0.4, 0.5, 0.6)}):
        model.preprocessing = keras_vit.Preprocessing(library="transformers", **facts)
        keras_vit.save_weights(model, tmp_path)
        again = keras_vit.from_checkpoint(tmp_path)
        assert again.preprocessing == model.preprocessing
        assert again.class_names == model.class_names
        processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
        assert processor["image_processor_type"] == "BitImageProcessor"
        assert processor["do_center_crop"] == (facts != {})


@pytest.mark.any_backend
def test_what_is_not_written(tmp_path):
    npz, timm, folder = (tmp_path / name for name in ("a.npz", "a.safetensors", "folder"))
    paper, google = model_of(numerics="bit_paper"), model_of(version="v1", numerics="google")
    for model, path, words in (
        (paper, folder, r"numerics='bit_paper'\. Choose another of the ways"),
        (paper, npz, r"numerics='bit_paper'\. Choose another of the ways"),
        (model_of(), timm, r"blocks=\(1, 1\).*formats, 'google' or 'huggingface',"),
        (google, npz, r"version='v1'.*Choose another of"),
        (google, folder, r"numerics='google'.*force=True"),
        (keras_vit.fold(model_of()), folder, r"standardised twice.*model\.save"),
    ):
        with pytest.raises(ValueError, match=words):
            keras_vit.save_weights(model, path)
        assert not path.exists()
    keras_vit.save_weights(google, folder, force=True)
    assert keras_vit.from_checkpoint(folder).variant.numerics == "timm"


@pytest.mark.any_backend
def test_timm_opens_what_was_written(tmp_path):
    timm, torch = pytest.importorskip("timm"), pytest.importorskip("torch")
    model = randomize(keras_vit.BiT("R50x1", num_classes=3, numerics="timm"))
    keras_vit.save_weights(model, tmp_path / "model.safetensors")
    theirs = timm.create_model("resnetv2_50x1_bit", num_classes=3)
    timm.models.load_checkpoint(theirs, str(tmp_path / "model.safetensors"), strict=True)
    x = images((2, 64, 64, 3))
    with torch.no_grad():
        outputs = theirs.eval()(torch.tensor(x.transpose(0, 3, 1, 2)))
    expected = forward(model, x)
    assert_close(outputs.numpy(), expected, 3e-5 * max(largest(expected), 1))


@pytest.mark.any_backend
@every_model
def test_transformers_opens_what_was_written(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = model_of(**MODELS[name])
    keras_vit.save_weights(model, tmp_path)
    architecture = json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    kind = getattr(transformers, architecture)
    theirs, info = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    x = images((2, *SIZE, model.channels))
    with torch.no_grad():  # in float64: through five stages float32 alone costs them 1.4e-5
        outputs = theirs.eval().double()(torch.tensor(x.transpose(0, 3, 1, 2)).double())
    outputs = outputs.logits if model.num_classes else outputs.pooler_output[:, :, 0, 0]
    expected = to_numpy(forward(model, x))
    assert_close(outputs.numpy(), expected, 1e-5 * max(largest(expected), 1))


@pytest.mark.any_backend
@pytest.mark.parametrize("resize", ["squash", "shortest"])
def test_the_image_processor_of_transformers_opens_what_was_written(tmp_path, resize):
    transformers = pytest.importorskip("transformers")
    model = model_of(image_size=48)
    crop = {"crop_fraction": 0.75} if resize == "shortest" else {}
    model.preprocessing = keras_vit.Preprocessing(resize=resize, library="transformers", **crop)
    keras_vit.save_weights(model, tmp_path)
    theirs = transformers.BitImageProcessorPil.from_pretrained(tmp_path)
    photograph = np.random.default_rng(0).integers(0, 256, (90, 60, 3), dtype="uint8")
    pixels = theirs(photograph, return_tensors="np")["pixel_values"].transpose(0, 2, 3, 1)
    assert_close(pixels, keras_vit.preprocess(photograph, model), 1e-6)
