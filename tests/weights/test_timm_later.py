"""Files of timm's classes `VisionTransformer`, `VisionTransformerDistilled`, `Eva` and `Beit`."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.formats.timm_models import implied
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_close, forward, read_arrays, tiny_vit

pytestmark = pytest.mark.any_backend
CASES = sorted(path.parent for path in (ORACLES / "later").glob("timm_*/io.npz"))
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def options_of(case):
    return json.loads((case / "case.json").read_text())["options"]


def copied(name, folder):
    """The model of a case, with or without its config.json, to be changed."""
    shutil.copytree(ORACLES / "later" / f"timm_{name}" / "model", folder, dirs_exist_ok=True)
    return folder


def alone(name, folder):
    (copied(name, folder) / "config.json").unlink()
    return folder / "model.safetensors"


def with_arguments(name, folder, **arguments):
    config = json.loads((copied(name, folder) / "config.json").read_text())
    config["model_args"] |= arguments
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def written(case, folder):
    model = keras_vit.from_checkpoint(case / "model", **options_of(case))
    keras_vit.save_weights(model, folder / "model.safetensors")
    return model


@each
def test_what_was_read_is_written(tmp_path, case):
    model = written(case, tmp_path)
    again = keras_vit.from_checkpoint(tmp_path, **options_of(case))
    assert again.variant == model.variant
    for a, b in zip(again.weights, model.weights, strict=True):
        assert_close(a, b, 0)


@each
def test_timm_opens_what_was_written(tmp_path, case):
    timm, torch = pytest.importorskip("timm"), pytest.importorskip("torch")
    written(case, tmp_path)
    io = read_arrays(case / "io.npz")
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.no_grad():
        outputs = theirs(torch.tensor(io["input"].transpose(0, 3, 1, 2)))
    assert_close(outputs.numpy(), io["output"], 1e-5 * max(abs(io["output"]).max(), 1))


@pytest.mark.parametrize(
    "name, asked, options",
    [
        ("dinov3_plus", "rotary=", {"rotary": "dinov3", "image_size": (12, 20)}),
        ("rope_axial", "rotary=", {"rotary": "axial", "image_size": (8, 12)}),
        (
            "clip_quickgelu",
            "rotary=..., epsilon=..., activation=",
            {"rotary": None, "activation": "quick_gelu"},
        ),
    ],
)
def test_what_arrays_do_not_show_is_asked_for(tmp_path, name, asked, options):
    path, case = alone(name, tmp_path), ORACLES / "later" / f"timm_{name}"
    with pytest.raises(keras_vit.CheckpointError, match=asked):
        keras_vit.from_checkpoint(path, num_heads=2)
    expected = keras_vit.from_checkpoint(case / "model", **options_of(case))
    pool = {"pool": expected.variant.pool, "epsilon": expected.variant.epsilon}
    model = keras_vit.from_checkpoint(path, num_heads=2, **options, **pool)
    images = read_arrays(case / "io.npz")["input"]
    assert_close(forward(model, images), forward(expected, images), 1e-6)


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("dinov3_plus", {"rope_type": "mrope"}, "rope_type='mrope'"),
        ("dinov3_plus", {"num_kv_heads": 1}, "num_kv_heads=1"),
        ("dinov3_plus", {"attn_only_layer_scale": True}, "attn_only_layer_scale=True"),
        ("eva02", {"rope_type": "mixed"}, "of another model"),
        ("aimv2", {"norm_layer": "simplenorm"}, "norm_layer='simplenorm'"),
        ("aimv2", {"norm_layer": "rmsnorm"}, "epsilons 1e-05 and 1e-06"),
        ("pe_core", {"global_pool": "prr"}, "global_pool='prr'"),
        ("deit3", {"use_naflex": True}, "use_naflex=True"),
    ],
)
def test_arguments_that_no_model_here_follows(tmp_path, name, arguments, words):
    with pytest.raises(keras_vit.CheckpointError, match=words):
        keras_vit.from_checkpoint(with_arguments(name, tmp_path, **arguments))


@pytest.mark.parametrize(
    "name, change, arguments, words",
    [
        (
            "beit",
            {"rel_pos_bias.relative_position_bias_table": (6, 2)},
            {"use_shared_rel_pos_bias": True},
            "beside others",
        ),
        ("eva02", {"norm.weight": (16,)}, {}, "norm/gamma"),
        (
            "deit_distilled",
            {"reg_token": (1, 1, 16)},
            {"reg_tokens": 1},
            "registers beside a distillation token",
        ),
        (
            "rope_axial",
            {"blocks.0.gamma_2": None, "blocks.1.gamma_2": None},
            {},
            "none after the MLP",
        ),
        ("dinov3_plus", {"blocks.1.attn.gate.weight": (16, 16)}, {}, "a gate after its attention"),
        ("so150m_map", {"attn_pool.norm.bias": None}, {}, "without a LayerNorm"),
    ],
)
def test_arrays_that_no_model_here_has(tmp_path, name, change, arguments, words):
    path = with_arguments(name, tmp_path, **arguments) / "model.safetensors"
    arrays = read_safetensors(path) | {
        key: shape and np.zeros(shape, "float32") for key, shape in change.items()
    }
    write_safetensors(path, {key: a for key, a in arrays.items() if a is not None})
    with pytest.raises(keras_vit.CheckpointError, match=words):
        keras_vit.from_checkpoint(tmp_path)


@each
def test_a_config_of_another_architecture_with_equal_sizes(tmp_path, case):
    """Each array must have a use in the model that the config names, and none may be missing."""
    folder = copied(case.name.removeprefix("timm_"), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    others = {json.loads((c / "model" / "config.json").read_text())["architecture"] for c in CASES}
    # BEiT's arguments say themselves which of its two kinds of biases it has.
    same = [{config["architecture"]}, {"beit_base_patch16_224", "beitv2_base_patch16_224"}]
    for name in others - next((s for s in same[::-1] if config["architecture"] in s), set()):
        (folder / "config.json").write_text(json.dumps({**config, "architecture": name}))
        with pytest.raises(keras_vit.CheckpointError, match=r"of another model|which no model"):
            keras_vit.from_checkpoint(folder, **options_of(case))


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("deit3", {"qk_norm": True}, "qk_norm=True, and the file has no .*query_norm"),
        ("deit3", {"init_values": 0.0}, r"init_values=0.0, and the file has 'blocks.0.ls1.gamma'"),
        ("deit3", {"fc_norm": True}, "norm=False, and the file has 'norm.weight'"),
        ("deit3", {"global_pool": "map"}, "attention_pooling=True"),
        ("eva02", {"scale_mlp": False}, "scale_mlp_norm=False.*blocks.0.mlp.norm.weight"),
        ("eva02", {"attn_type": "rope"}, "key_bias=True"),
        ("beit", {"use_rel_pos_bias": False}, "use_rel_pos_bias=False"),
        ("clip_quickgelu", {"pre_norm": False}, "pre_norm=False, and the file has 'norm_pre"),
        ("xp", {"qkv_bias": True}, "of another model.*qkv_bias"),
        ("beit", {"num_heads": 4}, r"loaded\. Its arrays contradict each other, or the config"),
        ("rope_mixed_ape", {"num_heads": 4}, r"loaded\. Its arrays contradict each other, or"),
    ],
)
def test_arguments_that_the_arrays_contradict(tmp_path, name, arguments, words):
    with pytest.raises(keras_vit.CheckpointError, match=words):
        keras_vit.from_checkpoint(with_arguments(name, tmp_path, **arguments))


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
    with pytest.raises(ValueError, match=words):
        keras_vit.save_weights(tiny_vit(**options), tmp_path / "model.safetensors")


def test_the_last_norm_of_masked_pre_training(tmp_path):
    """timm takes it for the norm after the pooling, which its architecture has instead."""
    folder = copied("eva02", tmp_path)
    expected = keras_vit.from_checkpoint(folder)
    arrays = read_safetensors(folder / "model.safetensors")
    arrays = {name.replace("fc_norm", "norm"): array for name, array in arrays.items()}
    write_safetensors(folder / "model.safetensors", arrays)
    with pytest.raises(keras_vit.CheckpointError, match="norm=False, and the file has"):
        keras_vit.from_checkpoint(folder)
    mask = {"mask_token": np.zeros((1, 1, 16), "float32")}
    write_safetensors(folder / "model.safetensors", arrays | mask)
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
