"""BiT of four codebases is read; damaged and foreign files are refused."""

import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.preprocessing import BIG_VISION, BIT, HUGGING_FACE
from keras_vit.weights.files import Contents, open_checkpoint
from keras_vit.weights.formats import bit
from keras_vit.weights.load import read_contents
from keras_vit.weights.safety import CheckpointError
from tests.support import refuses
from tests.weights.bit_cases import (
    HUGGING,
    OFFICIAL,
    PAPER,
    TIMM,
    V1,
    changed,
    every_case,
    load,
    read,
    same_arrays,
)

pytestmark = pytest.mark.any_backend


# ---- read


@every_case
def test_the_architecture_comes_from_the_file(case):
    canonical = read(case.contents)
    found = canonical.arguments
    assert (found["version"], found["numerics"]) == (case.version, case.numerics)
    assert (found["blocks"], found["width"]) == (case.blocks, 0.5)
    assert (found["channels"], found["image_size"]) == (3, (224, 224))
    assert found["num_classes"] == case.io["output_f64"].shape[1]
    assert canonical.model == "BiT"
    assert "image_size" in canonical.arguments.assumed
    assert sorted(canonical.weights.names_in_file) == sorted(canonical.weights.arrays)
    assert set(canonical.weights.names_in_file.values()) == set(case.contents.arrays)
    known = read(case.contents, {"image_size": 64})
    assert known.arguments["image_size"] == (64, 64) and "image_size" not in known.arguments.assumed


def test_preprocessing_of_the_families():
    expected = {OFFICIAL: BIT, PAPER: BIT, V1: BIG_VISION, HUGGING: HUGGING_FACE}
    for case, preprocessing in expected.items():
        assert read(case.contents).metadata.preprocessing == preprocessing
    timm = read(TIMM.contents).metadata.preprocessing
    assert (timm.resize, timm.crop_fraction, timm.interpolation) == ("shortest", 0.875, "bilinear")


def test_numbered_names():
    """Some published files carry the counters of TensorFlow."""

    def number(name):
        if "head" in name:
            return name
        return name.replace("2d/", "2d_17/").replace("group_norm/", "group_norm_3/")

    numbered = changed(OFFICIAL, number)
    assert "resnet/block1/unit01/a/standardized_conv2d_17/kernel" in numbered.arrays
    same_arrays(read(numbered), read(OFFICIAL.contents))


@pytest.mark.parametrize("case", [PAPER, V1], ids=str)
@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
def test_prefixes_of_big_vision(case, prefix):
    contents = changed(case, lambda name: prefix + name, **{"opt/state/step": np.zeros(())})
    canonical = read_contents(contents, {})
    same_arrays(canonical, read(case.contents))
    assert canonical.weights.ignored == ("opt/state/step",)
    assert canonical.weights.names_in_file["head/kernel"] == f"{prefix}head/kernel"


def test_norms_with_four_axes_in_both_generations():
    norms = {n: a[None, None, None] for n, a in V1.contents.arrays.items() if "gn" in n}
    same_arrays(read(changed(V1, **norms)), read(V1.contents))


def test_what_the_folders_of_hugging_face_and_timm_say(tmp_path):
    head = dict.fromkeys(("classifier.1.weight", "classifier.1.bias"))
    canonical = read(changed(HUGGING, lambda name: name.removeprefix("bit."), **head))
    assert canonical.arguments["num_classes"] == 0
    assert keras_vit.BiT(**canonical.arguments).output_shape == (None, 256)
    names = {str(i): f"class {i}" for i in range(7)}
    found = read_contents(changed(HUGGING, config={"id2label": names}), {})
    assert found.metadata.class_names == tuple(names.values())
    settings = {"input_size": [3, 448, 480], "crop_pct": 1.0, "mean": [0.4, 0.5, 0.6]}
    canonical = read(changed(TIMM, config={"pretrained_cfg": settings}))
    assert canonical.arguments["image_size"] == (448, 480)
    assert canonical.arguments.assumed["image_size"] == "its config.json"
    assert canonical.metadata.preprocessing.crop_fraction == 1.0
    assert canonical.metadata.preprocessing.mean == (0.4, 0.5, 0.6)
    shutil.copy(HUGGING.folder / "model.safetensors", tmp_path)
    same_arrays(read(open_checkpoint(tmp_path)), read(HUGGING.contents))


def test_hugging_face_post_activation():
    """`layer_type="bottleneck"`, which computes as the hybrids' stems do."""
    canonical = read(V1.contents)
    file = bit.HUGGING_FACE.table.write(canonical.weights.arrays)
    padding = {"global_padding": "same", "embedding_dynamic_padding": True}
    config = {**HUGGING.contents.config, "layer_type": "bottleneck", **padding}
    again = read(Contents(HUGGING.folder, file, config))
    same_arrays(again, canonical)
    assert (again.arguments["version"], again.arguments["numerics"]) == ("v1", "timm")
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
        refuses(r"no whole BiT|without one", load, changed(case, **without), error=CheckpointError)
    for name in ("head/kernel", "head/bias"):
        with pytest.raises(CheckpointError, match=r"head|classifier"):
            load(changed(case, **{read(case.contents).weights.names_in_file[name]: None}))


@pytest.mark.parametrize("shape", [(), (7, 7, 3), (7, 7, 3, 0), (7, 7, 3, 40), (5, 5, 3, 32)])
def test_a_root_of_another_shape(shape):
    name = "resnet/root_block/standardized_conv2d/kernel"
    with pytest.raises(ValueError, match=r"root_block|root/conv|multiple of 0.5"):
        load(changed(OFFICIAL, **{name: np.zeros(shape)}))


def test_files_of_something_else():
    kernel = V1.contents.arrays["block1/unit1/conv1/kernel"]
    with pytest.raises(CheckpointError, match="Two arrays"):
        read(changed(V1, **{"block1/unit01/conv1/kernel": kernel}))
    hybrid = {"embedding/kernel": np.zeros((1, 1, 8, 8)), **V1.contents.arrays}
    assert not any(family.recognises(hybrid) for family in bit.FAMILIES)
    with pytest.raises(CheckpointError, match=r"another ResNet.*running_mean"):
        read(changed(TIMM, **{"norm.running_mean": np.zeros(256)}))


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
