"""BiT checkpoints of four families: the model computes what the authors' code computes.

The expected values were computed by the code of big_transfer, big_vision, timm and Hugging Face
transformers in float64. Features are stored as float32, which bounds what can be said about them.
"""

import functools
import json

import keras
import numpy as np
import pytest

from keras_vit.models.bit import BiT
from keras_vit.preprocessing import BIG_VISION, BIT, HUGGING_FACE
from keras_vit.weights import bit
from keras_vit.weights.files import (
    CheckpointError,
    Contents,
    open_checkpoint,
    write_npz,
    write_safetensors,
)
from tests.support import (
    assert_close,
    forward,
    largest,
    precision,
    to_numpy,
    values,
    without_values,
)
from tests.weights.bit_cases import (
    CASES,
    HUGGING,
    OFFICIAL,
    PAPER,
    TIMM,
    V1,
    read,
    renamed,
    same_arrays,
)

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def model_of(canonical, dtype="float32"):
    model = BiT(**canonical.architecture, dtype=dtype)
    assert {v.path for v in model.weights} == set(canonical.arrays)
    for variable in model.weights:
        variable.assign(canonical.arrays[variable.path])
    return model


@functools.cache
def computed(case, dtype):
    """Name in the io file -> what the model computes for it."""
    with precision(dtype):
        model = model_of(read(case.contents), dtype)
        tensors = {"output": model.output}
        tensors.update({name: model.get_layer(layer).output for layer, name in case.features})
        inner = keras.Model(model.input, list(tensors.values()))
        outputs = forward(inner, case.io["input"].astype(dtype))
    return {name: to_numpy(x) for name, x in zip(tensors, outputs)}


@every_case
def test_outputs_in_float64(case):
    output, expected = computed(case, "float64")["output"], case.io["output_f64"]
    assert output.dtype == "float64"
    assert_close(output, expected, 1e-12 * largest(expected))


@every_case
def test_outputs_in_float32(case):
    """Eight times what float32 costs the authors' own code."""
    exact = case.io["output_f64"]
    noise = max(largest(case.io["output_f32"] - exact), np.finfo("float32").eps * largest(exact))
    assert noise < 1e-5 * largest(exact)
    assert_close(computed(case, "float32")["output"], exact, 8 * noise)


@every_case
def test_features(case):
    for _, name in case.features:
        expected = case.feature(name)
        assert_close(computed(case, "float64")[name], expected, 1e-6 * largest(expected))


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


def test_preprocessing_of_the_families():
    expected = {OFFICIAL: BIT, PAPER: BIT, V1: BIG_VISION, HUGGING: HUGGING_FACE}
    for case, preprocessing in expected.items():
        assert read(case.contents).preprocessing == preprocessing
    timm = read(TIMM.contents).preprocessing
    assert (timm.resize, timm.crop_fraction, timm.interpolation) == ("shortest", 0.875, "bilinear")


def test_an_image_size_that_the_caller_knows():
    canonical = read(OFFICIAL.contents, {"image_size": 64})
    assert canonical.architecture["image_size"] == (64, 64)
    assert "image_size" not in canonical.assumed


def test_numbered_names():
    """Some published files carry the counters of TensorFlow."""

    def number(name):
        if "head" in name:
            return name
        return name.replace("2d/", "2d_17/").replace("group_norm/", "group_norm_3/")

    numbered = renamed(OFFICIAL, number)
    assert "resnet/block1/unit01/a/standardized_conv2d_17/kernel" in numbered.arrays
    same_arrays(read(numbered), read(OFFICIAL.contents))


@pytest.mark.parametrize("case", [PAPER, V1], ids=str)
@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
def test_prefixes_of_big_vision(case, prefix):
    contents = renamed(case, lambda name: prefix + name)
    contents.arrays["opt/state/step"] = np.zeros(())
    canonical = read(contents)
    same_arrays(canonical, read(case.contents))
    assert canonical.ignored == ("opt/state/step",)
    assert canonical.origin["head/kernel"] == f"{prefix}head/kernel"


def test_norms_with_four_axes_in_both_generations():
    contents = renamed(V1, str)
    for name, array in contents.arrays.items():
        if "gn" in name:
            contents.arrays[name] = array[None, None, None]
    same_arrays(read(contents), read(V1.contents))


def test_a_hugging_face_model_without_its_head():
    contents = renamed(HUGGING, lambda name: name.removeprefix("bit."))
    for name in ("classifier.1.weight", "classifier.1.bias"):
        del contents.arrays[name]
    canonical = read(contents)
    assert canonical.architecture["num_classes"] == 0
    assert model_of(canonical).output_shape == (None, 256)


def test_hugging_face_class_names():
    names = {str(i): f"class {i}" for i in range(7)}
    canonical = read(renamed(HUGGING, str, id2label=names))
    assert canonical.class_names == tuple(names.values())


def test_a_timm_config():
    settings = {"input_size": [3, 448, 480], "crop_pct": 1.0, "mean": [0.4, 0.5, 0.6]}
    canonical = read(renamed(TIMM, str, pretrained_cfg=settings))
    assert canonical.architecture["image_size"] == (448, 480)
    assert canonical.assumed["image_size"] == "its config.json"
    assert canonical.preprocessing.crop_fraction == 1.0
    assert canonical.preprocessing.mean == (0.4, 0.5, 0.6)


def write_official(model, arrays, folder):
    write_npz(folder / "model.npz", bit.BIG_TRANSFER.write(model, arrays))
    return folder / "model.npz"


def write_timm(model, arrays, folder):
    write_safetensors(folder / "model.safetensors", bit.TIMM.write(model, arrays))
    (folder / "config.json").write_text(json.dumps(bit.TIMM.json_files(model)["config.json"]))
    return folder


@pytest.mark.parametrize("case", [OFFICIAL, TIMM], ids=str)
@pytest.mark.parametrize("write", [write_official, write_timm])
def test_written_files(case, write, tmp_path):
    """Read back without a difference; of its own family, under the very names of the file."""
    canonical = read(case.contents)
    model = model_of(canonical)
    path = write(model, values(model), tmp_path)
    again = read(open_checkpoint(path))
    same_arrays(again, canonical)
    if (case is OFFICIAL) == (write is write_official):
        written = open_checkpoint(path).arrays
        assert set(written) == set(case.contents.arrays)
        for name, array in case.contents.arrays.items():
            np.testing.assert_array_equal(written[name], array)


def test_what_other_libraries_cannot_hold():
    def against(family, **options):
        model = BiT(**{"blocks": (1,), "width": 0.5, "num_classes": 2, **options})
        return family.impossible(model) + family.obstacles(model)

    assert against(bit.BIG_TRANSFER) == []
    assert against(bit.BIG_TRANSFER, version="v1", numerics="google") == [
        "version='v1'",
        "numerics='google'",
    ]
    assert against(bit.TIMM) == ["blocks=(1,) with width=0.5"]
    assert "numerics='bit_paper'" in against(bit.TIMM, numerics="bit_paper")


def test_the_name_of_a_published_size_in_timm():
    with without_values():
        config = bit.TIMM.json_files(BiT("R152x2", image_size=448))["config.json"]
    assert config["architecture"] == "resnetv2_152x2_bit"
    assert config["pretrained_cfg"]["input_size"] == [3, 448, 448]


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
