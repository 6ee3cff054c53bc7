"""Hugging Face's families after ViT: other sizes of images, written folders, what is refused.

Their outputs, features and gradients are in test_later.py; make_transformers.py made the files.
"""

import json
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy

import keras_vit
from keras_vit.weights.readers import FAMILIES
from tests.support import (
    ORACLES,
    assert_close,
    forward,
    read_arrays,
    slow_unless_torch,
    to_numpy,
    values,
)

FOLDER = ORACLES / "later"
CASES = sorted(path.name for path in FOLDER.glob("hf_*"))
RESIZED = [name for name in CASES if (FOLDER / name / "resized.npz").exists()]


@pytest.fixture
def change(tmp_path):
    """A copy of a case's checkpoint, with other arrays and keys of its config; `None` removes."""

    def copy(case, arrays=None, **config):
        folder = tmp_path / "changed"
        shutil.copytree(FOLDER / case / "model", folder, dirs_exist_ok=True)
        path = folder / "model.safetensors"
        file = {**safetensors.numpy.load_file(path), **(arrays or {})}
        safetensors.numpy.save_file({n: a for n, a in file.items() if a is not None}, path)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
        return folder

    return copy


def arrays_of(case):
    return safetensors.numpy.load_file(FOLDER / case / "model" / "model.safetensors")


# ---- images of another size


@slow_unless_torch
@pytest.mark.parametrize("case", RESIZED)
def test_another_size(case):
    file = read_arrays(FOLDER / case / "resized.npz")
    size = file["input"].shape[1:3]
    loaded = keras_vit.from_checkpoint(FOLDER / case / "model", image_size=size)
    resized = keras_vit.resize(keras_vit.from_checkpoint(FOLDER / case / "model"), size)
    assert_close(forward(loaded, file["input"]), file["output"], 1e-5)
    for name, array in values(resized).items():
        assert_close(array, values(loaded)[name], 1e-6)
    report = keras_vit.load_weights(resized, FOLDER / case / "model")
    assert bool(report.resized) == (case != "hf_dinov3")


@slow_unless_torch
def test_rotary_positions_of_any_grid():
    file = read_arrays(FOLDER / "hf_dinov3" / "resized.npz")
    model = keras_vit.from_checkpoint(FOLDER / "hf_dinov3" / "model", variable_size=True)
    assert_close(forward(model, file["input"]), file["output"], 1e-5)


@pytest.mark.any_backend
def test_positions_are_of_a_square_whatever_the_config(change):
    """transformers takes 9 positions for 3 x 3 and resamples them for images of 1 x 9 patches."""
    folder = change("hf_dinov2", image_size=[4, 36])
    expected = keras_vit.from_checkpoint(FOLDER / "hf_dinov2" / "model", image_size=(4, 36))
    for model in (
        keras_vit.from_checkpoint(folder),
        keras_vit.from_checkpoint(folder, image_size=(4, 36)),
    ):
        assert model.image_size == (4, 36)
        for name, array in values(model).items():
            assert_close(array, values(expected)[name], 1e-6)


@pytest.mark.any_backend
def test_biases_of_a_grid_that_is_not_square(change):
    """transformers takes a table of 2 x 3 patches for one of 3 x 2, and resizes it."""
    file = read_arrays(FOLDER / "hf_beit" / "wide.npz")
    names = [name for name in arrays_of("hf_beit") if name.endswith("bias_table")]
    folder = change("hf_beit", dict.fromkeys(names, file["table"]), image_size=[8, 12])
    for options in ({}, {"image_size": (8, 12)}):
        model = keras_vit.from_checkpoint(folder, **options)
        bias = model.get_layer("position_1")(keras.ops.zeros((1, 7, 16)))
        assert_close(bias, file["bias"], 1e-6)


# ---- what is written


@pytest.mark.any_backend
@pytest.mark.parametrize("case", CASES)
def test_what_was_read_is_written(case, tmp_path):
    """Names, values and config are those of transformers."""
    model = keras_vit.from_checkpoint(FOLDER / case / "model")
    keras_vit.save_weights(model, tmp_path / "folder")
    written = safetensors.numpy.load_file(tmp_path / "folder" / "model.safetensors")
    expected = {n.replace("data2vec_vision.", "beit."): a for n, a in arrays_of(case).items()}
    if case == "hf_mae":  # which is written as a ViTModel
        expected = {n.removeprefix("vit."): a for n, a in expected.items() if "decoder" not in n}
    assert set(written) == set(expected)
    for name, array in written.items():
        assert_close(array, 0 * array if "mask_token" in name else expected[name], 1e-7)
    ours, theirs = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "folder", FOLDER / case / "model")
    )
    names = {"architectures", "model_type", "hidden_act", "id2label", "label2id"}
    starts = {"layerscale_value", "layer_scale_init_value", "drop_path_rate"}
    for key in set(ours) & set(theirs) - names - starts:
        assert ours[key] == theirs[key], key
    if case != "hf_mae":
        kind = "Beit" if case == "hf_data2vec" else theirs["architectures"][0]
        assert ours["architectures"][0].startswith(kind)
    again = keras_vit.from_checkpoint(tmp_path / "folder")
    assert again.variant == model.variant and again.preprocessing == model.preprocessing


@pytest.mark.any_backend
@pytest.mark.parametrize("case", CASES)
def test_transformers_opens_what_was_written(case, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model = keras_vit.from_checkpoint(FOLDER / case / "model")
    keras_vit.save_weights(model, tmp_path / "folder")
    (kind,) = json.loads((tmp_path / "folder" / "config.json").read_text())["architectures"]
    theirs, info = getattr(transformers, kind).from_pretrained(
        tmp_path / "folder", output_loading_info=True
    )
    missing = [name for name in info["missing_keys"] if not name.startswith("pooler.")]
    assert not missing and not info["unexpected_keys"]
    x = read_arrays(FOLDER / case / "io.npz")["input"]
    with torch.no_grad():
        outputs = theirs.eval()(torch.tensor(x.transpose(0, 3, 1, 2)))
    if case == "hf_mae":
        outputs = outputs.last_hidden_state[:, 0]
    else:
        outputs = outputs.logits if "logits" in outputs else outputs.pooler_output
    assert_close(outputs.numpy(), forward(model, x), 1e-5)


@pytest.mark.any_backend
def test_registers_take_their_positions_with_them(tmp_path):
    """The files of Dinov2WithRegisters have none, and a model trained further has."""
    model = keras_vit.from_checkpoint(FOLDER / "hf_dinov2_registers" / "model")
    position = model.get_layer("patch_encoder").position.embedding
    position.assign(position + 1.0)
    keras_vit.save_weights(model, tmp_path / "folder")
    again = keras_vit.from_checkpoint(tmp_path / "folder")
    x = read_arrays(FOLDER / "hf_dinov2_registers" / "io.npz")["input"]
    assert_close(forward(again, x), forward(model, x), 1e-5)


@pytest.mark.any_backend
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
    config = keras_vit.from_checkpoint(FOLDER / case / "model").get_config()
    model = keras_vit.VisionTransformer.from_config({**config, **options})
    with pytest.raises(ValueError, match=words):
        keras_vit.save_weights(model, tmp_path / "folder")


# ---- what is read in another way, or refused


@pytest.mark.any_backend
def test_a_bias_that_only_some_layers_have(change):
    """DINOv3's config has a switch for each; the missing ones are zeros here."""
    names = [name for name in arrays_of("hf_dinov3") if name.endswith("o_proj.bias")]
    without = keras_vit.from_checkpoint(change("hf_dinov3", dict.fromkeys(names), proj_bias=False))
    for name, array in values(without).items():
        if name.endswith("out/bias"):
            assert not to_numpy(array).any()
    assert "zeros" in dict((n, why) for n, _, why in without.load_report.assumed)["biases"]


@pytest.mark.any_backend
def test_biases_that_all_layers_have_or_none(change):
    names = [n for n in arrays_of("hf_dinov3_gated") if "mlp" in n and n.endswith("bias")]
    folder = change("hf_dinov3_gated", dict.fromkeys(names), mlp_bias=False)
    model = keras_vit.from_checkpoint(folder)
    assert model.variant.biases == "attention" and model.variant.qkv_bias
    assert not any("mlp" in name and name.endswith("bias") for name in values(model))


@pytest.mark.any_backend
def test_beit_without_any_name_of_its_own(change):
    """Its keys alone tell it from a ViT: they have no bias."""
    names = [n for n in arrays_of("hf_beit_shared") if n.endswith("bias_table")]
    said = {"use_shared_relative_position_bias": False}
    model = keras_vit.from_checkpoint(change("hf_beit_shared", dict.fromkeys(names), **said))
    assert model.load_report.family == "Hugging Face Beit"
    assert model.variant.position == "none" and model.variant.biases == "no_key"


@pytest.mark.any_backend
def test_tokens_of_a_model_whose_last_norm_is_in_its_pooler():
    model = keras_vit.from_checkpoint(FOLDER / "hf_beit" / "model", pool=None, num_classes=0)
    assert not model.variant.final_norm
    assert any("pooler.layernorm" in name for name in model.load_report.ignored)


@pytest.mark.any_backend
def test_newer_names_of_rotary_parameters(change):
    rope = {"rope_theta": 30.0, "rope_type": "default"}
    model = keras_vit.from_checkpoint(change("hf_dinov3", rope_parameters=rope))
    assert model.variant.rotary.temperature == 30.0


@pytest.mark.any_backend
@pytest.mark.parametrize("case", CASES)
def test_a_config_that_contradicts_the_arrays(change, case):
    """What a config says of parts is as in the file, and so is the type of its model."""
    family = keras_vit.from_checkpoint(FOLDER / case / "model").load_report.family
    config = json.loads((FOLDER / case / "model" / "config.json").read_text())
    (own,) = {f.model_types for f in FAMILIES if f.name == family}
    (parts,) = {tuple(f.parts) for f in FAMILIES if f.name == family}
    for key in set(parts) & set(config):
        with pytest.raises(keras_vit.CheckpointError, match=f"another model.* says {key}="):
            keras_vit.from_checkpoint(change(case, **{key: 0 if config[key] else 0.1}))
    for model_type in {name for f in FAMILIES for name in f.model_types} - set(own):
        with pytest.raises(keras_vit.CheckpointError, match="another model"):
            keras_vit.from_checkpoint(change(case, model_type=model_type))
    if "vit" in own:
        other = {"vit": "ijepa", "ijepa": "vit"}.get(config["model_type"], "ijepa")
        with pytest.raises(keras_vit.CheckpointError, match="another model"):
            keras_vit.from_checkpoint(change(case, model_type=other))


BEIT = "beit.encoder.layer.0."


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "case, arrays, config, words",
    [
        ("hf_dinov2", {}, {"hidden_act": "relu"}, "hidden_act='relu'"),
        ("hf_dinov2", {}, {"mlp_ratio": 3}, "mlp_ratio=3"),
        ("hf_dinov3", {}, {"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ("hf_dinov3", {}, {"query_bias": False}, "of another model"),
        ("hf_beit", {}, {"use_mean_pooling": False}, "use_mean_pooling"),
        ("hf_beit", {}, {"use_mean_pooling": "first"}, "use_mean_pooling='first'"),
        ("hf_beit_shared", {}, {"use_mean_pooling": True}, "use_mean_pooling=True, and the file"),
        ("hf_beit", {"decode_head.classifier.weight": (3, 3)}, {}, "segments"),
        (
            "hf_beit",
            {"beit.embeddings.position_embeddings": (1, 10, 16)},
            {"use_absolute_position_embeddings": True},
            "kinds of positions",
        ),
        ("hf_beit", {"layernorm.weight": (16,)}, {}, "Two arrays"),
        ("hf_beit_shared", {"beit.layernorm.weight": (16,)}, {}, "layernorm.weight"),
        ("hf_beit", {BEIT + "attention.attention.key.bias": (16,)}, {}, "key.bias"),
        ("hf_deit", {"deit.embeddings.unknown": (1, 1, 16)}, {}, "embeddings.unknown"),
        ("hf_deit_pooler", {}, {"pooler_act": "relu"}, "relu"),
    ],
)
def test_what_is_refused(change, case, arrays, config, words):
    arrays = {name: np.ones(shape, "float32") for name, shape in arrays.items()}
    with pytest.raises(keras_vit.CheckpointError, match=words):
        keras_vit.from_checkpoint(change(case, arrays, **config))
