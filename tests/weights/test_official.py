"""Authors' own files beside what test_later.py compares: wrappers, configs, refusals."""

import json
import re

import numpy as np
import pytest

import keras_vit
from keras_vit.extensions import Rotary
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.readers import FAMILIES
from keras_vit.weights.save import write_safetensors
from tests.support import assert_close, forward, images, refuses
from tests.weights.stored import LATER, arrays_of, model_of, opened, refused

pytestmark = pytest.mark.any_backend

ONES = np.ones(16, "float32")


def config_of(name):
    return json.loads((model_of(name) / "open_clip_config.json").read_text())


def saved(tmp_path, arrays, config=None):
    tmp_path.mkdir(exist_ok=True)
    write_safetensors(tmp_path / "model.safetensors", arrays)
    if config:
        (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    return tmp_path


def output_of(folder, **options):
    model = keras_vit.from_checkpoint(folder, **options)
    return forward(model, images((2, 8, 8, 3)))


@pytest.mark.parametrize("prefix", ["module.", "teacher.backbone."])
def test_weights_under_the_name_of_a_wrapper(prefix, tmp_path):
    plain = arrays_of("tower_dinov2")
    blocks = {re.sub(r"blocks\.(\d)\.\1\.", r"blocks.\1.", n): a for n, a in plain.items()}
    assert len(set(blocks) - set(plain)) > 20
    wrapped = {prefix + name: a for name, a in blocks.items()}
    wrapped[prefix + "dino_head.last_layer.weight"] = ONES
    expected = output_of(saved(tmp_path / "plain", plain), num_heads=2)
    found = output_of(saved(tmp_path / "wrapped", wrapped), num_heads=2)
    assert_close(found, expected, 0)


def test_torchscript_is_refused_before_it_is_opened(tmp_path):
    """OpenAI's own files are such archives."""
    torch = pytest.importorskip("torch")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "clip.pt")
    refuses(r"TorchScript.*state_dict\(\)", keras_vit.from_checkpoint, tmp_path / "clip.pt")


def test_an_autoencoder_without_its_decoder(tmp_path):
    arrays = {n: a for n, a in arrays_of("tower_dinov2").items() if "register" not in n}
    arrays["decoder_embed.weight"] = arrays["decoder_blocks.0.norm1.weight"] = ONES
    model = keras_vit.from_checkpoint(saved(tmp_path, arrays), num_heads=2)
    assert "decoder_embed.weight" in model.load_report.ignored


def test_what_the_arrays_of_dinov3_tell():
    model = keras_vit.from_checkpoint(model_of("tower_dinov3"))
    v = model.variant
    assert v.rotary == Rotary("centered", 100.0, pairs="halves")
    assert (v.num_heads, v.registers, v.biases, v.mlp) == (2, 2, "no_key", "swiglu")
    assert model.image_size == (224, 224)
    assert "local_cls_norm.weight" in model.load_report.ignored
    assert ("num_heads", 2) in [row[:2] for row in model.load_report.assumed]


APPLE = (
    ("embeddings.patch_embed.", "preprocessor.patchifier.proj."),
    ("embeddings.rms_norm.", "preprocessor.patchifier.norm."),
    ("embeddings.position_embedding.weight", "preprocessor.pos_embed"),
    ("encoder.layers.", "trunk.blocks."),
    ("attention.out_proj.", "attn.proj."),
    ("rms_norm1.", "norm_1."),
    ("rms_norm2.", "norm_2."),
    ("ffn.gate_proj.", "mlp.fc1."),
    ("ffn.down_proj.", "mlp.fc2."),
    ("ffn.up_proj.", "mlp.fc3."),
    ("rms_norm.weight", "trunk.post_trunk_norm.weight"),
    ("k_proj.", "k."),
    ("v_proj.", "v."),
    ("output_proj.", "linear."),
    ("vision_model.", "image_encoder."),
    ("visual_projection.", "image_projector."),
    ("text_model.", "text_encoder."),
    ("text_projection.", "text_projector."),
    ("logit_scale", "log_logit_scale"),
)


def stored_by_apple(name):
    """The arrays of a case under Apple's names, with query, key and value as one."""
    arrays = {}
    for part, array in arrays_of(name).items():
        for theirs, apple in APPLE:
            part = part.replace(theirs, apple)
        arrays[part] = array[None] if part.endswith("pos_embed") else array
    for q in [part for part in arrays if "attention.q_proj." in part]:
        parts = [arrays.pop(q.replace("q_proj", name)) for name in ("q_proj", "k", "v")]
        arrays[q.replace("attention.q_proj", "attn.qkv")] = np.concatenate(parts)
    return arrays


@pytest.mark.parametrize("name", ["tower_aimv2", "tower_aimv2_both_towers"])
def test_aimv2_as_apple_stores_it(name, tmp_path):
    folder, x = saved(tmp_path, stored_by_apple(name)), images((2, 12, 12, 3))
    expected = forward(keras_vit.from_checkpoint(model_of(name)), x)
    assert_close(forward(keras_vit.from_checkpoint(folder, num_heads=2), x), expected, 0)
    start = "image_encoder." if "both" in name else ""
    extra = {start + "trunk.blocks.0.norm_1.bias": ONES}
    refused("first AIM", saved(tmp_path, {**stored_by_apple(name), **extra}))


def test_the_heads_of_aimv2(tmp_path):
    wider = {16: 256, 48: 768}  # 2 heads of 128 units
    arrays = stored_by_apple("tower_aimv2")
    for name, array in arrays.items():
        arrays[name] = np.zeros([wider.get(n, n) for n in array.shape], "float32")
    model = keras_vit.from_checkpoint(saved(tmp_path, arrays))
    assert model.variant.num_heads == 2
    assert "128" in str(model.load_report)


def test_files_of_openai_compute_quick_gelu(tmp_path):
    arrays = arrays_of("tower_open_clip")
    exact = keras_vit.from_checkpoint(saved(tmp_path / "exact", arrays), num_heads=2)
    assert (exact.variant.activation, exact.variant.gelu) == (None, "erf")
    assert "gelu" in [row[0] for row in exact.load_report.assumed]
    arrays["input_resolution"] = np.array(8)
    quick = keras_vit.from_checkpoint(saved(tmp_path / "quick", arrays), num_heads=2)
    assert quick.variant.activation == "quick_gelu"
    assert quick.preprocessing.mean[0] == 0.48145466


def test_what_a_config_of_open_clip_says(tmp_path):
    config = config_of("tower_open_clip")
    config["model_cfg"]["vision_cfg"]["norm_kwargs"] = {"eps": 1e-3}
    config["model_cfg"] |= {"quick_gelu": False}
    config["model_cfg"]["vision_cfg"]["act_kwargs"] = {"approximate": "tanh"}
    config["preprocess_cfg"] |= {"resize_mode": "squash", "interpolation": "bilinear"}
    model = keras_vit.from_checkpoint(saved(tmp_path, arrays_of("tower_open_clip"), config))
    v, facts = model.variant, model.preprocessing
    assert (v.epsilon, v.gelu, v.pool, v.norm_after_pool) == (1e-3, "tanh", "mean", True)
    assert (facts.mean[0], facts.resize, facts.interpolation) == (0.4, "squash", "bilinear")
    assert "logit_scale" in model.load_report.ignored
    config["preprocess_cfg"]["resize_mode"] = "longest"  # with borders
    folder = saved(tmp_path / "b", arrays_of("tower_open_clip"), config)
    bordered = keras_vit.from_checkpoint(folder)
    with pytest.warns(UserWarning, match="otherwise than they are prepared.*'longest'"):
        keras_vit.preprocess([np.zeros((9, 9, 3), "uint8")], bordered)


def test_towers_without_a_norm_before_the_blocks(tmp_path):
    arrays = {n: a for n, a in arrays_of("tower_open_clip").items() if "ln_pre" not in n}
    v = keras_vit.from_checkpoint(saved(tmp_path, arrays, config_of("tower_open_clip"))).variant
    assert (v.pre_norm, v.patch_bias) == (None, False)


def test_a_perception_encoder_without_a_head(tmp_path):
    """Those for language and for places end after their last block."""
    ends, arrays = ("attn_pool.", "ln_post.", "proj"), arrays_of("tower_perception_encoder")
    arrays = {name: array for name, array in arrays.items() if not name.startswith(ends)}
    v = keras_vit.from_checkpoint(saved(tmp_path, arrays), num_heads=2).variant
    assert (v.pool, v.final_norm, v.projection) == ("mean", False, None)
    assert v.rotary == Rotary(offset=1.0, order="columns")


def test_the_heads_of_trunks(tmp_path):
    model = opened("tower_open_clip_trunk")
    assert (model.num_classes, model.variant.projection) == (0, 12)
    assert model.preprocessing.mean == (0.4, 0.4, 0.4)
    assert "logit_scale" in model.load_report.ignored
    biased = {**arrays_of("tower_open_clip_trunk"), "visual.head.proj.bias": ONES[:12]}
    folder = saved(tmp_path, biased, config_of("tower_open_clip_trunk"))
    model = keras_vit.from_checkpoint(folder)
    assert (model.num_classes, model.variant.projection) == (12, None)
    refused("no Vision Transformer", saved(tmp_path / "x", {"visual.trunk.stem.weight": ONES}))


def test_periods_of_another_base(tmp_path):
    periods = {"rope_embed.periods": np.array([1.0, 9.9], "float32")}
    folder = saved(tmp_path, {**arrays_of("tower_dinov3"), **periods})
    assert keras_vit.from_checkpoint(folder).variant.rotary.temperature == 98.01


@pytest.mark.parametrize("path", sorted(LATER.glob("tower_*")), ids=lambda p: p.name)
def test_one_family_recognises_a_file(path):
    names = read_safetensors(path / "model" / "model.safetensors")
    found = [family.name for family in FAMILIES if family.recognises(names)]
    assert len(set(found) - {"timm"}) == 1
