"""Stored checkpoints come back as they were: names, values and configs of their library."""

import re

import pytest

import keras_vit
from keras_vit.weights.files import open_checkpoint
from tests.support import ORACLES, assert_same
from tests.weights.stored import LATER, assert_same_weights, options_of

pytestmark = pytest.mark.any_backend

FORMATS = {"flax_vit": "model.npz", "bit_official": "model.npz", "timm": "model.safetensors"}
FORMATS |= dict.fromkeys(("hf_transformers4", "hf_transformers5", "bit_hf"), "folder")
CASES = [path.parent for family in FORMATS for path in sorted((ORACLES / family).glob("*/io.npz"))]
CASES += [path.parent for path in sorted(LATER.glob("timm_*/io.npz"))]
CASES += sorted(LATER.glob("hf_*"))
CASES += [LATER / f"tower_{n}" for n in "clip clip_classes siglip siglip_classes aimv2".split()]
# What of a config passes with a version, a training or a class around the model.
PASSING = {"transformers_version", "dtype", "encoder_stride", "initializer_factor"}
PASSING |= {"initializer_range", "projection_dim", "attention_dropout", "text_config"}
PASSING |= {"logit_scale_init_value"}
CLASS = {"architectures", "model_type"}
CHANGED = {  # in what is written as another class, or in words for the same activation
    "hf_beit": {"drop_path_rate"},
    "hf_beit_shared": {"drop_path_rate"},
    "hf_data2vec": CLASS | {"drop_path_rate", "hidden_act"},
    "hf_dinov2_swiglu": {"hidden_act"},
    "hf_mae": CLASS,
    "tower_siglip_classes": {"vision_use_head"},
}


def stored_at(case):
    return next(p for p in (case / "checkpoint.npz", case / "model", case) if p.exists())


def as_written(case, name):
    """The name of an array in the class that is written."""
    if case.name == "hf_mae":  # a ViTModel
        return name.removeprefix("vit.")
    return name.replace("data2vec_vision.", "beit.")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_a_checkpoint_comes_back(tmp_path, case):
    later, of_timm = case.parent == LATER, case.name.startswith("timm_")
    name = FORMATS.get(case.parent.name, FORMATS["timm"] if of_timm else "folder")
    source, options = stored_at(case), options_of(case.name) if later else {}
    model = keras_vit.from_checkpoint(source, **options)
    path = keras_vit.save_weights(model, tmp_path / name)
    file, again = open_checkpoint(source), open_checkpoint(path)
    if not (later and of_timm):  # which names some arrays in several ways
        kept = [n for n in file.arrays if n not in model.load_report.ignored]
        expected = {as_written(case, n): file.arrays[n] for n in kept}
        for extra in again.arrays.keys() - expected.keys():
            assert re.search("mask_token|post_layernorm", extra), "which the class has all the same"
        assert_same({n: again.arrays[n] for n in expected}, expected)
        assert all(again.arrays[n].dtype == a.dtype for n, a in expected.items())
    if name == "folder":
        theirs, ours = ({**c.pop("vision_config", {}), **c} for c in (file.config, again.config))
        changed = {key for key in theirs.keys() & ours.keys() if theirs[key] != ours[key]}
        labels = set() if model.num_classes else {"id2label", "label2id"}
        assert changed <= CHANGED.get(case.name, set()) | labels
        assert case.name.startswith("hf_") or theirs.keys() - ours.keys() <= PASSING | labels
    if name.endswith(".npz"):  # which says neither
        options = {"image_size": model.image_size}
        options |= {"pool": None} if getattr(model.variant, "pool", "") is None else {}
    elif case.name.startswith("tower_"):
        options["pool"] = model.variant.pool
    read = keras_vit.from_checkpoint(path, **options)
    assert read.variant == model.variant and read.preprocessing == model.preprocessing
    assert_same_weights(read, model)
