"""What the arrays of a timm file do not tell: from its config, its architecture, or refused."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors, write_safetensors
from keras_vit.weights.timm import preprocessing_of
from tests.support import assert_close, forward, images, randomize, tiny_vit

pytestmark = pytest.mark.any_backend


def written(tmp_path, changes=None, **options):
    """A model, and the path of its timm file; `changes` are made in its `model_args`."""
    model = randomize(tiny_vit(**options))
    path = keras_vit.save_weights(model, tmp_path / "model.safetensors")
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["model_args"] |= changes or {}
    file.write_text(json.dumps(config))
    return model, path


def hub_file(tmp_path, architecture, **options):
    """The same with a config as hubs have it: it names the architecture, and no arguments."""
    model, path = written(tmp_path, **options)
    config = {"architecture": architecture, "num_features": model.variant.width}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return model, path


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"global_pool": "max"}, "global_pool='max'"),
        ({"global_pool": "avg", "pool_include_prefix": True}, "also over its class token"),
        ({"block_fn": "ResPostBlock"}, "block_fn='ResPostBlock'"),
        ({"norm_layer": "rmsnorm"}, "norm_layer='rmsnorm'"),
        ({"act_layer": "quick_gelu"}, "'quick_gelu'"),
    ],
)
def test_a_config_names_what_no_model_here_has(tmp_path, changes, words):
    _, path = written(tmp_path, changes)
    with pytest.raises(keras_vit.CheckpointError, match=words):
        keras_vit.from_checkpoint(path)


def test_attention_pooling_over_patches_alone_is_refused(tmp_path):
    """timm leaves the learned tokens out unless it is told otherwise, and only a config tells."""
    model, path = written(tmp_path, pool="map", registers=2)
    x = images((2, 16, 16, 3))
    assert_close(forward(keras_vit.from_checkpoint(path), x), forward(model, x), 1e-6)
    (tmp_path / "config.json").unlink()
    with pytest.raises(keras_vit.CheckpointError, match="without looking at its class token"):
        keras_vit.from_checkpoint(path, num_heads=model.variant.num_heads)


def test_an_architecture_implies_what_its_arrays_do_not_tell(tmp_path):
    name = "vit_giantopt_patch16_siglip_gap_256.v2_webli"
    _, path = hub_file(tmp_path, name, width=32, num_heads=16, gelu="tanh")
    variant = keras_vit.from_checkpoint(path).variant
    assert (variant.num_heads, variant.gelu) == (16, "tanh")
    _, path = hub_file(tmp_path, "vit_base_patch16_siglip_gap_256", num_heads=2)
    assert keras_vit.from_checkpoint(path, num_heads=2).variant.gelu == "erf"
    _, path = hub_file(tmp_path, "vit_base_patch16_rpn_224.sw_in1k")
    with pytest.raises(keras_vit.CheckpointError, match="ResPostBlock"):
        keras_vit.from_checkpoint(path, num_heads=2)


def test_what_is_assumed_without_a_config_is_reported(tmp_path):
    model, path = written(tmp_path, gelu="erf")
    (tmp_path / "config.json").unlink()
    report = keras_vit.from_checkpoint(path, num_heads=model.variant.num_heads).load_report
    rule = "the family's, as no config.json says it"
    assert {("pool", "token", rule), ("gelu", "erf", rule)} <= set(report.assumed)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda n, a: None if n.endswith("norm.bias") or "norm1.b" in n or "norm2.b" in n else a,
         "norms without a bias"),
        (lambda n, a: None if n.endswith(("proj.bias", "fc1.bias", "fc2.bias")) else a,
         "layers without a bias"),
        (lambda n, a: a[:, ::2] if n.endswith("fc2.weight") else a, "a gated MLP"),
    ],
)  # fmt: skip
def test_parts_that_show_only_in_what_is_missing(tmp_path, change, words):
    _, path = written(tmp_path)
    arrays = {n: change(n, a) for n, a in read_safetensors(path).items()}
    patches = "patch_embed.proj.bias"
    arrays[patches] = np.zeros(16, "float32") if arrays[patches] is None else arrays[patches]
    write_safetensors(path, {n: a for n, a in arrays.items() if a is not None})
    with pytest.raises(keras_vit.CheckpointError, match=words):
        keras_vit.from_checkpoint(path)


def test_positions_of_patches_alone_are_asked_for(tmp_path):
    """16 positions and a class token: 4 x 4 patches, as in DeiT III, or 3 x 5 and the token."""
    model, path = written(tmp_path, image_size=16, patch_size=4)
    arrays = read_safetensors(path)
    write_safetensors(path, {**arrays, "pos_embed": arrays["pos_embed"][:, 1:]})
    (tmp_path / "config.json").unlink()
    heads = model.variant.num_heads
    with pytest.raises(keras_vit.CheckpointError, match=r"file_image_size=\(16, 16\)"):
        keras_vit.from_checkpoint(path, num_heads=heads)
    again = keras_vit.from_checkpoint(path, num_heads=heads, file_image_size=16)
    assert again.image_size == (16, 16)


def test_a_squash_before_a_crop_is_kept():
    recipe, unsaid = preprocessing_of({"crop_mode": "squash", "crop_pct": 0.95})
    assert (recipe.resize, recipe.crop_fraction, unsaid) == ("squash", 0.95, ())


def test_what_no_recipe_can_say_is_named(tmp_path):
    assert len(preprocessing_of({"crop_mode": "border", "interpolation": "lanczos"})[1]) == 2
    _, path = written(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"]["interpolation"] = "lanczos"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "interpolation='lanczos'" in str(keras_vit.from_checkpoint(path).load_report)
