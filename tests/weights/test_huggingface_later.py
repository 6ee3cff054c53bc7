"""Hugging Face's families after ViT: other sizes of images, written folders, what is refused.

Their outputs, features and gradients are in test_later.py; make_transformers.py made the files.
"""

import keras
import pytest

import keras_vit
from keras_vit.weights.readers import FAMILIES
from tests.support import assert_close, forward, read_arrays, refuses, to_numpy, values
from tests.weights import stored
from tests.weights.stored import LATER, changed, refused

pytestmark = pytest.mark.any_backend

CASES = sorted(path.name for path in LATER.glob("hf_*"))


def test_positions_are_of_a_square_whatever_the_config(tmp_path):
    """transformers takes 9 positions for 3 x 3 and resamples them for images of 1 x 9 patches."""
    folder = changed("hf_dinov2", tmp_path, image_size=[4, 36])
    expected = stored.opened("hf_dinov2", image_size=(4, 36))
    for options in ({}, {"image_size": (4, 36)}):
        model = keras_vit.from_checkpoint(folder, **options)
        assert model.image_size == (4, 36)
        stored.assert_same_weights(model, expected, 1e-6)


def test_biases_of_a_grid_that_is_not_square(tmp_path):
    """transformers takes a table of 2 x 3 patches for one of 3 x 2, and resizes it."""
    file = read_arrays(LATER / "hf_beit" / "wide.npz")
    names = [name for name in stored.arrays_of("hf_beit") if name.endswith("bias_table")]
    folder = changed("hf_beit", tmp_path, dict.fromkeys(names, file["table"]), image_size=[8, 12])
    for options in ({}, {"image_size": (8, 12)}):
        model = keras_vit.from_checkpoint(folder, **options)
        bias = model.get_layer("position_1")(keras.ops.zeros((1, 7, 16)))
        assert_close(bias, file["bias"], 1e-6)


# ---- what is written


@pytest.mark.parametrize("case", CASES)
def test_transformers_opens_what_was_written(case, tmp_path):
    model, x = stored.opened(case), stored.io_of(case)["input"]
    keras_vit.save_weights(model, tmp_path / "folder")
    assert_close(stored.output_of_library(model, tmp_path / "folder", x), forward(model, x), 1e-5)


def test_registers_take_their_positions_with_them(tmp_path):
    """The files of Dinov2WithRegisters have none, and a model trained further has."""
    model = stored.opened("hf_dinov2_registers")
    position = model.get_layer("patch_encoder").position.embedding
    position.assign(position + 1.0)
    keras_vit.save_weights(model, tmp_path / "folder")
    again = keras_vit.from_checkpoint(tmp_path / "folder")
    x = stored.io_of("hf_dinov2_registers")["input"]
    assert_close(forward(again, x), forward(model, x), 1e-5)


@pytest.mark.parametrize(
    "case, options, words",
    [
        ("hf_dinov3", {"num_classes": 3}, "a head"),
        ("hf_dinov3", {"rotary": "axial", "num_classes": 0}, "rotary="),
        ("hf_dinov2", {"image_size": (8, 24)}, "no square"),
        ("hf_dinov2", {"mlp_dim": 30, "num_classes": 5}, "mlp_dim=30"),
        ("hf_beit", {"norm_after_pool": False}, "norm_after_pool"),
        ("hf_deit", {"registers": 1}, "registers=1"),
    ],
)
def test_what_a_folder_cannot_hold(case, options, words, tmp_path):
    config = stored.opened(case).get_config()
    model = keras_vit.VisionTransformer.from_config({**config, **options})
    refuses(words, keras_vit.save_weights, model, tmp_path / "folder")


# ---- what is read in another way, or refused


def test_a_bias_that_only_some_layers_have(tmp_path):
    """DINOv3's config has a switch for each; the missing ones are zeros here."""
    names = [name for name in stored.arrays_of("hf_dinov3") if name.endswith("o_proj.bias")]
    folder = changed("hf_dinov3", tmp_path, dict.fromkeys(names), proj_bias=False)
    without = keras_vit.from_checkpoint(folder)
    assert not any(to_numpy(a).any() for n, a in values(without).items() if n.endswith("out/bias"))
    assert "zeros" in dict((n, why) for n, _, why in without.load_report.assumed)["biases"]


def test_biases_that_all_layers_have_or_none(tmp_path):
    names = [n for n in stored.arrays_of("hf_dinov3_gated") if "mlp" in n and n.endswith("bias")]
    folder = changed("hf_dinov3_gated", tmp_path, dict.fromkeys(names), mlp_bias=False)
    model = keras_vit.from_checkpoint(folder)
    assert model.variant.biases == "attention" and model.variant.qkv_bias
    assert not any("mlp" in name and name.endswith("bias") for name in values(model))


def test_beit_without_any_name_of_its_own(tmp_path):
    """Its keys alone tell it from a ViT: they have no bias."""
    names = [n for n in stored.arrays_of("hf_beit_shared") if n.endswith("bias_table")]
    stated = {"use_shared_relative_position_bias": False}
    folder = changed("hf_beit_shared", tmp_path, dict.fromkeys(names), **stated)
    model = keras_vit.from_checkpoint(folder)
    assert model.load_report.family == "Hugging Face Beit"
    assert model.variant.position == "none" and model.variant.biases == "no_key"


def test_tokens_of_a_model_whose_last_norm_is_in_its_pooler():
    model = stored.opened("hf_beit", pool=None, num_classes=0)
    assert not model.variant.final_norm
    assert any("pooler.layernorm" in name for name in model.load_report.ignored)


def test_newer_names_of_rotary_parameters(tmp_path):
    rope = {"rope_theta": 30.0, "rope_type": "default"}
    model = keras_vit.from_checkpoint(changed("hf_dinov3", tmp_path, rope_parameters=rope))
    assert model.variant.rotary.temperature == 30.0


@pytest.mark.parametrize("case", CASES)
def test_a_config_that_contradicts_the_arrays(tmp_path, case):
    """What a config says of parts is as in the file, and so is the type of its model."""
    family = stored.opened(case).load_report.family
    config = stored.config_of(case)
    (own,) = {f.model_types for f in FAMILIES if f.name == family}
    (parts,) = {tuple(f.arrays_by_key) for f in FAMILIES if f.name == family}
    for key in set(parts) & set(config):
        with pytest.raises(keras_vit.CheckpointError, match=f"another model.* says {key}="):
            keras_vit.from_checkpoint(changed(case, tmp_path, **{key: 0 if config[key] else 0.1}))
    for model_type in {name for f in FAMILIES for name in f.model_types} - set(own):
        refused("another model", changed(case, tmp_path, model_type=model_type))
    if "vit" in own:
        other = {"vit": "ijepa", "ijepa": "vit"}.get(config["model_type"], "ijepa")
        refused("another model", changed(case, tmp_path, model_type=other))
