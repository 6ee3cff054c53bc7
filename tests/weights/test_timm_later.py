"""Files of timm's classes `VisionTransformer`, `VisionTransformerDistilled`, `Eva` and `Beit`."""

import json

import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.formats.timm_models import implied
from tests.support import assert_close, forward, randomize, refuses, tiny_vit
from tests.weights import stored
from tests.weights.stored import LATER, changed, refused

pytestmark = pytest.mark.any_backend
CASES = sorted(path.parent.name for path in LATER.glob("timm_*/io.npz"))
each = pytest.mark.parametrize("case", CASES)


@each
def test_timm_opens_what_was_written(tmp_path, case):
    model, io = stored.opened(case), stored.io_of(case)
    keras_vit.save_weights(model, tmp_path / "model.safetensors")
    outputs = stored.output_of_library(model, tmp_path, io["input"])
    assert_close(outputs, io["output"], 1e-5 * max(abs(io["output"]).max(), 1))


@pytest.mark.parametrize(
    "options, name",
    [
        ({"block": "parallel", "qkv_bias": False}, "blocks.1.mlp_bias"),
        ({"pool": "mean", "norm_after_pool": True}, "fc_norm.weight"),
        ({"mlp": "swiglu"}, "blocks.1.mlp.fc1_x.weight"),
        ({"stem": (), "patch_size": 8}, "patch_embed.backbone.conv.weight"),
    ],
)
def test_names_that_depend_on_the_model(tmp_path, options, name):
    path = tmp_path / "m.safetensors"
    model = randomize(tiny_vit(gelu="erf", stem_numerics="timm", image_size=32, **options))
    keras_vit.save_weights(model, path)
    assert name in read_safetensors(path)
    stored.assert_same_weights(keras_vit.from_checkpoint(path), model)


QUICK_GELU = {"rotary": None, "activation": "quick_gelu"}


@pytest.mark.parametrize(
    "name, asked, options",
    [
        ("dinov3_plus", "rotary=", {"rotary": "dinov3", "image_size": (12, 20)}),
        ("rope_axial", "rotary=", {"rotary": "axial", "image_size": (8, 12)}),
        ("clip_quickgelu", "rotary=..., epsilon=..., activation=", QUICK_GELU),
    ],
)
def test_what_arrays_do_not_show_is_asked_for(tmp_path, name, asked, options):
    case = f"timm_{name}"
    (changed(case, tmp_path) / "config.json").unlink()
    path = tmp_path / "model.safetensors"
    refused(asked, path, num_heads=2)
    expected = stored.opened(case)
    pool = {"pool": expected.variant.pool, "epsilon": expected.variant.epsilon}
    model = keras_vit.from_checkpoint(path, num_heads=2, **options, **pool)
    images = stored.io_of(case)["input"]
    assert_close(forward(model, images), forward(expected, images), 1e-6)


@each
def test_a_config_of_another_architecture_with_equal_sizes(tmp_path, case):
    """Each array must have a use in the model that the config names, and none may be missing."""
    folder, config = changed(case, tmp_path), stored.config_of(case)
    others = {stored.config_of(other)["architecture"] for other in CASES}
    # BEiT's arguments say themselves which of its two kinds of biases it has.
    same = [{config["architecture"]}, {"beit_base_patch16_224", "beitv2_base_patch16_224"}]
    for name in others - next((s for s in same[::-1] if config["architecture"] in s), set()):
        (folder / "config.json").write_text(json.dumps({**config, "architecture": name}))
        refused(r"of another model|which no model", folder, **stored.options_of(case))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"rotary": keras_vit.Rotary("centered", reference=(4, 4))}, "rotary=Rotary"),
        ({"rotary": "eva02", "gelu": "tanh"}, "gelu='tanh'"),
        ({"qk_norm": "rms_norm"}, "qk_norm='rms_norm' beside norm='layer_norm'"),
        ({"patch_bias": False}, "patch_bias=False with pre_norm=None"),
        ({"block": "parallel", "mlp": "swiglu"}, "mlp='swiglu'"),
        (
            {"rotary": "dinov3", "biases": "no_key", "qk_norm": "layer_norm", "block": "post_norm"},
            "block='post_norm' with qk_norm='layer_norm'",
        ),
    ],
)
def test_what_timm_has_no_place_for(tmp_path, options, words):
    refuses(words, keras_vit.save_weights, tiny_vit(**options), tmp_path / "model.safetensors")


def test_the_last_norm_of_masked_pre_training(tmp_path):
    """timm takes it for the norm after the pooling, which its architecture has instead."""
    expected = stored.opened("timm_eva02")
    arrays = {n.replace("fc_norm", "norm"): a for n, a in stored.arrays_of("timm_eva02").items()}
    folder = changed("timm_eva02", tmp_path, lambda _: arrays)
    refused("norm=False, and the file has", folder)
    changed("timm_eva02", tmp_path, lambda _: {**arrays, "mask_token": (1, 1, 16)})
    assert keras_vit.from_checkpoint(folder).variant == expected.variant


def test_what_names_imply():
    """`tests/oracles/make_timm.py --check` compares all of timm's; these differ in one letter."""
    assert implied("vit_large_patch16_dinov3.lvd1689m")["rope_type"] == "dinov3"
    assert "use_rot_pos_emb" not in implied("eva_giant_patch14_336")
    assert implied("eva_large_patch14_196")["class"] == "VisionTransformer"
    assert implied("beit3_base_patch16_224")["class"] == "VisionTransformer"
    assert implied("vit_so400m_patch14_siglip_gap_224")["act_layer"] == "gelu"
    assert implied("vit_so400m_patch16_siglip_gap_256")["act_layer"] == "gelu_tanh"
    assert implied("swin_base") == {}
