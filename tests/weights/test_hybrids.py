"""Hybrids: a ResNet stem before the Transformer, with the numbers of three libraries' own code."""

import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from tests.support import (
    ORACLES,
    assert_close,
    forward,
    images,
    largest,
    precision,
    randomize,
    read_arrays,
    to_numpy,
    values,
)

CASES = sorted(path.parent for path in (ORACLES / "hybrids").glob("*/io.npz"))
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
R22 = ORACLES / "hybrids" / "flax_vit-hybrid_r22_w05_odd45"


def checkpoint_of(case):
    if case.name.startswith("hf"):
        return case
    return case / ("model.safetensors" if case.name.startswith("timm") else "checkpoint.npz")


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs(case, dtype):
    io = read_arrays(case / "io.npz")
    with precision(dtype):
        model = keras_vit.from_checkpoint(checkpoint_of(case), dtype=dtype)
        outputs = forward(model, io["input"].astype(dtype))
    noise = 8 * largest(io["output_f32"] - io["output_f64"])
    assert_close(outputs, io["output_f64"], 1e-11 if dtype == "float64" else noise)
    assert {v.dtype for v in model.weights} == {dtype}
    assert len(model.load_report.loaded) == len(model.weights)
    assert model.load_report.differs == ()


@every_case
def test_feature_maps(case):
    """Stored as float32, which bounds what can be said."""
    io = read_arrays(case / "io.npz")
    with precision("float64"):
        model = keras_vit.from_checkpoint(checkpoint_of(case), dtype="float64")
        last = model.layers[model.layers.index(model.get_layer("patches")) - 1]
        named = {"backbone_nhwc_f64": last.output}
        for i, units in enumerate(model.variant.stem, 1):
            named[f"feat_f64/block{i}"] = model.get_layer(f"stage_{i}_unit_{units}").output
        stored = {name: output for name, output in named.items() if name in io}
        if not stored:
            return
        outputs = forward(keras.Model(model.input, stored), io["input"].astype("float64"))
    for name in stored:
        assert_close(outputs[name], io[name], 1e-6 * largest(io[name]))


def test_the_constants_of_each_family():
    found = {case.name: keras_vit.from_checkpoint(checkpoint_of(case)).variant for case in CASES}
    for name, v in found.items():
        google = name.startswith("flax")
        assert v.stem_numerics == ("google" if google else "timm")
        assert v.stem_width == 0.5
        assert v.gelu == ("tanh" if google else "erf")
    assert {v.stem for v in found.values()} == {(), (1, 1), (1, 1, 1), (2, 2)}


def test_an_odd_image_without_a_config(tmp_path):
    """45 pixels give a grid of 6 x 6, as 48 do: the file cannot tell, and either computes it."""
    path = shutil.copy(R22 / "checkpoint.npz", tmp_path)
    io = read_arrays(R22 / "io.npz")
    assert keras_vit.from_checkpoint(path).image_size == (48, 48)
    model = keras_vit.from_checkpoint(path, image_size=45)
    assert_close(forward(model, io["input"]), io["output_f64"], 4e-5)
    assert model.load_report.resized == ()


def test_a_resolution_at_load_time_and_after():
    path = checkpoint_of(R22)
    loaded = keras_vit.from_checkpoint(path, image_size=(63, 33), file_image_size=45)
    assert loaded.grid == (8, 5)
    assert loaded.load_report.resized[0][1:3] == ((6, 6), (8, 5))
    source = keras_vit.from_checkpoint(path)
    later = keras_vit.resize(source, image_size=(63, 33))
    any_size = keras_vit.resize(source, variable_size=True)
    x = images((2, 63, 33, 3))
    for model in (later, any_size):
        assert_close(forward(model, x), forward(loaded, x), 2e-5)
    assert_close(any_size.predict(x, verbose=0), forward(loaded, x), 2e-5)


def test_published_names_come_back_to_the_byte(tmp_path):
    for case in CASES:
        if not case.name.startswith("flax"):
            continue
        keras_vit.save_weights(keras_vit.from_checkpoint(checkpoint_of(case)), tmp_path / "a.npz")
        again, file = read_arrays(tmp_path / "a.npz"), read_arrays(checkpoint_of(case))
        assert set(again) == set(file)
        for name, array in file.items():
            np.testing.assert_array_equal(again[name], array, err_msg=name)


def small(name, **options):
    """A published stem in front of a short Transformer."""
    return randomize(
        keras_vit.VisionTransformer(
            name, image_size=64, depth=1, num_classes=3, **options, name="small"
        )
    )


def test_timm_writes_and_reads(tmp_path):
    model = small("R+Ti/16", stem_numerics="timm", gelu="erf")
    path = keras_vit.save_weights(model, tmp_path / "model.safetensors")
    assert json.loads((tmp_path / "config.json").read_text())["architecture"] == (
        "vit_tiny_r_s16_p8_224"
    )
    x = images((2, 64, 64, 3))
    assert_close(forward(keras_vit.from_checkpoint(path), x), forward(model, x), 1e-6)


@pytest.mark.parametrize("name", ["R+Ti/16", "R26+S/32", "R50+B/16"])
def test_timm_opens_what_was_written(tmp_path, name):
    timm, torch = pytest.importorskip("timm"), pytest.importorskip("torch")
    model = small(name, stem_numerics="timm", gelu="erf")
    keras_vit.save_weights(model, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    theirs = timm.create_model(config["architecture"], **config["model_args"])
    timm.models.load_checkpoint(theirs, str(tmp_path / "model.safetensors"), strict=True)
    x = images((2, 64, 64, 3))
    with torch.no_grad():
        outputs = theirs.eval()(torch.tensor(x.transpose(0, 3, 1, 2)))
    expected = to_numpy(forward(model, x))
    assert_close(outputs.numpy(), expected, 2e-5 * max(largest(expected), 1))


def test_what_other_libraries_cannot_hold(tmp_path):
    model = small("R+Ti/16")
    with pytest.raises(ValueError, match=r"stem_numerics='google'"):
        keras_vit.save_weights(model, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"stem=\(\) \(transformers 5 has removed ViTHybrid\)"):
        keras_vit.save_weights(model, tmp_path / "folder")
    odd = randomize(keras_vit.VisionTransformer("R+Ti/16", 64, 3, depth=1, stem=(1, 2)))
    with pytest.raises(ValueError, match=r"stem=\(1, 2\)"):
        keras_vit.save_weights(odd, tmp_path / "model.safetensors")


def test_a_fresh_stem_starts_as_the_authors():
    model = keras_vit.VisionTransformer("R26+S/32", image_size=64, depth=1, num_classes=2)
    weights = values(model)
    assert not weights["stage_4_unit_2/norm3/gamma"].any()
    assert weights["stage_4_unit_1/norm_proj/gamma"].all()
    kernel = weights["stage_2_unit_1/conv2/kernel"]
    assert abs(kernel.std() * np.prod(kernel.shape[:3]) ** 0.5 - 1) < 0.05  # lecun_normal


def test_a_hybrid_is_saved_and_trained(tmp_path):
    model = keras_vit.VisionTransformer("R+Ti/16", 64, 3, depth=1, stem=(1, 1), stem_width=0.5)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = values(model)["stage_1_unit_1/conv1/kernel"].copy()
    model.fit(images((4, 64, 64, 3)), np.arange(4) % 3, epochs=2, verbose=0)
    model.fit(images((4, 64, 64, 3)), np.arange(4) % 3, verbose=0)
    assert (values(model)["stage_1_unit_1/conv1/kernel"] != before).any()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x = images((2, 64, 64, 3))
    assert_close(loaded(x), model(x), 1e-6)
    assert loaded.variant == model.variant


@pytest.mark.parametrize(
    "options, text",
    [
        ({"stem": 3}, "such as (3, 4, 9)"),
        ({"stem": (0,)}, "each number of stem"),
        ({"stem": (1,), "stem_width": 0.3}, "must divide the channels"),
        ({"stem": (1,), "stem_width": -1}, "stem_width"),
        ({"stem": (1,), "stem_numerics": "keras"}, "'google', 'timm'"),
        ({"stem": (), "patch_size": 8, "image_size": 40}, "multiple of patch_size"),
    ],
    ids=str,
)
def test_stems_that_cannot_be(options, text):
    with pytest.raises(ValueError) as error:
        keras_vit.VisionTransformer(
            **{"image_size": 64, "patch_size": 1, "width": 8, "depth": 1, "num_heads": 2, **options}
        )
    assert text in str(error.value)


def test_folded_kernels_compute_the_same(tmp_path):
    """Standardised once, in place of at every call; no checkpoint of the family any more."""
    model = small("R26+S/32", stem_width=0.5)
    folded, x = keras_vit.fold(model), images((2, 64, 64, 3))
    expected = forward(model, x)
    assert_close(forward(folded, x), expected, 1e-5 * max(largest(expected), 1))
    assert folded.variant.stem_folded and not folded.trainable_variables
    kernel = values(folded)["stage_2_unit_1/conv2/kernel"]
    assert_close(kernel.mean(axis=(0, 1, 2)), 0 * kernel[0, 0, 0], 1e-6)
    assert_close(kernel.std(axis=(0, 1, 2)), 0 * kernel[0, 0, 0] + 1, 1e-3)
    folded.save(tmp_path / "folded.keras")
    loaded = keras.saving.load_model(tmp_path / "folded.keras")
    assert_close(forward(loaded, x), forward(folded, x), 1e-6)
    with pytest.raises(ValueError, match="standardised twice"):
        keras_vit.save_weights(folded, tmp_path / "model.npz")
    with pytest.raises(ValueError, match="is folded"):
        keras_vit.fold(folded)
    with pytest.raises(ValueError, match="has no stem"):
        keras_vit.fold(keras_vit.VisionTransformer("Ti/16", 32, 2, depth=1))
