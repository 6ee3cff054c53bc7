"""Damaged and foreign BiT checkpoints: errors that say what is wrong."""

import shutil

import numpy as np
import pytest

from keras_vit.weights import bit
from keras_vit.weights.files import CheckpointError, open_checkpoint
from tests.weights.bit_cases import (
    HUGGING,
    OFFICIAL,
    PAPER,
    TIMM,
    V1,
    load,
    read,
    renamed,
    same_arrays,
)

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
damaged = pytest.mark.parametrize("case", UNITS, ids=str)


@damaged
def test_a_missing_array(case):
    name = UNITS[case][0]
    contents = renamed(case, str)
    del contents.arrays[name]
    with pytest.raises(CheckpointError, match="stage_2_unit_1/norm2/gamma"):
        load(contents)


@damaged
def test_an_array_of_another_shape(case):
    name = UNITS[case][0]
    for wrong in (np.zeros(5), np.zeros((1, 5)), np.zeros(())):
        contents = renamed(case, str)
        contents.arrays[name] = wrong
        with pytest.raises(CheckpointError, match=rf"{name}|stage_2_unit_1/norm2"):
            load(contents)


@damaged
def test_an_array_of_no_model(case):
    contents = renamed(case, str)
    contents.arrays["something/else"] = np.zeros(3)
    with pytest.raises(CheckpointError, match="something/else"):
        load(contents)


@damaged
@pytest.mark.parametrize("place", [1, 2])
def test_a_missing_part(case, place):
    """The root, or the first stage: the others are then no stages 1, 2 and so on."""
    start = UNITS[case][place]
    contents = renamed(case, str)
    for name in [name for name in contents.arrays if name.startswith(start)]:
        del contents.arrays[name]
    with pytest.raises(CheckpointError, match=r"no whole BiT|without one"):
        load(contents)


@damaged
@pytest.mark.parametrize("name", ["head/kernel", "head/bias"])
def test_half_a_head(case, name):
    contents = renamed(case, str)
    del contents.arrays[read(case.contents).origin[name]]
    with pytest.raises(CheckpointError, match=r"head|classifier"):
        load(contents)


@pytest.mark.parametrize("shape", [(), (7, 7, 3), (7, 7, 3, 0), (7, 7, 3, 40), (5, 5, 3, 32)])
def test_a_root_of_another_shape(shape):
    contents = renamed(OFFICIAL, str)
    contents.arrays["resnet/root_block/standardized_conv2d/kernel"] = np.zeros(shape)
    with pytest.raises(ValueError, match=r"root_block|root/conv|multiple of 0.5"):
        load(contents)


def test_two_arrays_for_one_variable():
    contents = renamed(V1, str)
    contents.arrays["block1/unit01/conv1/kernel"] = contents.arrays["block1/unit1/conv1/kernel"]
    with pytest.raises(CheckpointError, match="Two arrays"):
        read(contents)


def test_a_hybrid_is_no_bit():
    hybrid = {"embedding/kernel": np.zeros((1, 1, 8, 8)), **V1.contents.arrays}
    assert not any(family.recognises(hybrid) for family in bit.FAMILIES)


def test_another_resnet_of_timm():
    contents = renamed(TIMM, str)
    contents.arrays["norm.running_mean"] = np.zeros(256)
    with pytest.raises(CheckpointError, match=r"another ResNet.*running_mean"):
        read(contents)


WRONG_CONFIGS = {
    "layer_type": "bottleneck",
    "global_padding": "SAME",
    "embedding_dynamic_padding": True,
    "depths": [2, 1],
    "hidden_sizes": [128, 512],
    "num_groups": 16,
    "width_factor": 2,
    "hidden_act": "gelu",
    "output_stride": 4,
}


@pytest.mark.parametrize("key", WRONG_CONFIGS)
def test_a_hugging_face_config_of_another_model(key):
    with pytest.raises(CheckpointError, match=f"{key}.*expected"):
        read(renamed(HUGGING, str, **{key: WRONG_CONFIGS[key]}))


def test_a_hugging_face_folder_without_its_config(tmp_path):
    shutil.copy(HUGGING.folder / "model.safetensors", tmp_path)
    same_arrays(read(open_checkpoint(tmp_path)), read(HUGGING.contents))
