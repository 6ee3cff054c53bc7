"""Adapters of PEFT: merged into the model that they name, or refused with what to do."""

import json
import re
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_close, values
from tests.weights.stored import refused

pytestmark = pytest.mark.any_backend

BASE = ORACLES / "hf_transformers5" / "vit_cls_p8"
START = "base_model.model."
LAYER = "vit.encoder.layer.{}.attention.attention.{}"
SETTINGS = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "bias": "none", "fan_in_fan_out": False}
SETTINGS |= {"target_modules": ["query", "value"], "modules_to_save": ["classifier"]}
SETTINGS |= {"use_dora": False, "use_rslora": False, "inference_mode": True}
SETTINGS |= {"task_type": None, "revision": None}


def adapter(folder, base=BASE, changes=None, classes=3, **settings):
    """A folder of PEFT, and its matrices by layer."""
    rng, arrays, pairs = np.random.default_rng(0), {}, {}
    draw = lambda *shape: (0.1 * rng.normal(size=shape)).astype("float32")  # noqa: E731
    for i in range(3):
        for part in ("query", "value"):
            pairs[i, part] = draw(4, 48), draw(48, 4)
            for which, matrix in zip("AB", pairs[i, part]):
                arrays[f"{START}{LAYER.format(i, part)}.lora_{which}.weight"] = matrix
    arrays[START + "classifier.weight"] = draw(classes, 48)
    arrays[START + "classifier.bias"] = draw(classes)
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", {**arrays, **(changes or {})})
    settings = {**SETTINGS, "base_model_name_or_path": base and str(base), **settings}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    (folder / "training_args.bin").write_bytes(b"not read")
    return folder, pairs, arrays


def assert_merged(model, pairs, arrays, scale):
    before, after = values(keras_vit.from_checkpoint(BASE)), values(model)
    for name, value in after.items():
        parts = name.split("/")
        key = (int(parts[0].removeprefix("block_")), parts[2]) if "attention" in name else None
        if name.startswith("head/"):
            expected = arrays[START + "classifier." + ("weight" if "kernel" in name else "bias")].T
        elif key in pairs and name.endswith("kernel"):
            a, b = (matrix.astype("float64") for matrix in pairs[key])
            expected = before[name] + scale(key) * (b @ a).T.reshape(before[name].shape)
        else:
            expected = before[name]
        assert_close(value, expected, 1e-6)


@pytest.mark.parametrize(
    "settings, scale",
    [
        ({}, lambda key: 6 / 4),
        ({"use_rslora": True, "init_lora_weights": "gaussian"}, lambda key: 6 / 2),
        ({"alpha_pattern": {"layer.1.attention.attention.query": 2}},
         lambda key: 2 / 4 if key == (1, "query") else 6 / 4),
    ],
    ids=["plain", "rslora", "alpha_pattern"],
)  # fmt: skip
def test_an_adapter_is_added_to_its_model(tmp_path, settings, scale):
    folder, pairs, arrays = adapter(tmp_path / "adapter", **settings)
    model = keras_vit.from_checkpoint(folder)
    assert model.num_classes == 3 and model.class_names is None
    assert_merged(model, pairs, arrays, scale)
    assert "adapter of PEFT" in str(model.load_report) and str(BASE) in model.load_report.family
    other = keras_vit.from_checkpoint(BASE, num_classes=3)
    keras_vit.load_weights(other, folder / "adapter_model.safetensors")
    assert_merged(other, pairs, arrays, scale)


def older(name):
    name = name.replace(".weight", ".default.weight")
    return name.replace("classifier.", "classifier.modules_to_save.")


def of_transformers_5(name):
    layer = r"encoder\.layer\.(\d)\.attention\.attention\.(q|v)\w+"
    return re.sub(layer, r"layers.\1.attention.\2_proj", name)


@pytest.mark.parametrize("renamed", [older, of_transformers_5])
def test_names_of_other_versions(tmp_path, renamed):
    """Older ones of PEFT, and modules of transformers 5, which its files do not have."""
    folder, pairs, arrays = adapter(tmp_path / "adapter")
    file = {renamed(name): array for name, array in arrays.items()}
    assert file.keys() != arrays.keys()
    write_safetensors(folder / "adapter_model.safetensors", file)
    assert_merged(keras_vit.from_checkpoint(folder), pairs, arrays, lambda key: 6 / 4)


def test_biases_that_were_trained_too(tmp_path):
    bias = np.full(48, 0.5, "float32")
    name = START + LAYER.format(1, "query") + ".base_layer.bias"
    folder, _, _ = adapter(tmp_path / "adapter", changes={name: bias}, bias="lora_only")
    loaded = values(keras_vit.from_checkpoint(folder))
    assert_close(loaded["block_1/attention/query/bias"].reshape(-1), bias, 0)


def test_a_model_without_a_head_and_its_pooler(tmp_path):
    """The class with a head does not use the pooler that the encoder's file has."""
    base = tmp_path / "base"
    shutil.copytree(BASE, base)
    tensors = {
        name.removeprefix("vit."): a
        for name, a in read_safetensors(BASE / "model.safetensors").items()
        if not name.startswith("classifier")
    }
    tensors |= {"pooler.dense.weight": np.ones((48, 48), "float32")}
    tensors |= {"pooler.dense.bias": np.ones(48, "float32")}
    write_safetensors(base / "model.safetensors", tensors)
    folder, pairs, arrays = adapter(tmp_path / "adapter", base=base)
    model = keras_vit.from_checkpoint(folder)
    assert model.variant.representation_size is None
    assert_merged(model, pairs, arrays, lambda key: 6 / 4)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"use_dora": True}, r"'use_dora': True"),
        ({"peft_type": "ADALORA"}, r"ADALORA"),
        ({"fan_in_fan_out": True}, r"fan_in_fan_out"),
        # Its matrices begin as a part of the kernels, which then lack it.
        ({"init_lora_weights": "pissa_niter_4"}, r"'init_lora_weights': 'pissa_niter_4'"),
        ({"base": None}, r"base_model_name_or_path=None"),
        ({"base": "/no/such/folder"}, r"neither on this disk.*'/no/such/folder'"),
        ({"alpha_pattern": {"(a+)+$": 3}}, r"has patterns"),
        ({"alpha_pattern": [1]}, r"settings of an adapter"),
        ({"lora_alpha": "six"}, r"settings of an adapter"),
        ({"changes": {START + LAYER.format(9, "query") + ".lora_A.weight": np.ones((4, 48))}},
         r"layer\.9.*none of this name"),
        ({"changes": {START + LAYER.format(1, "query") + ".lora_A.weight": np.ones((4, 40))}},
         r"layer\.1.*shapes"),
        ({"changes": {START + LAYER.format(1, "query") + ".lora_magnitude_vector": np.ones(48)}},
         r"lora_magnitude_vector"),
    ],
    ids=range(12),
)  # fmt: skip
def test_other_adapters_are_refused(tmp_path, options, words):
    folder, _, _ = adapter(tmp_path / "adapter", **options)
    with pytest.raises(keras_vit.CheckpointError, match=words) as error:
        keras_vit.from_checkpoint(folder)
    text = str(error.value)
    assert "adapter" in text
    assert "merge_and_unload()" in text or "settings of an adapter" in text


def test_matrices_without_their_settings(tmp_path):
    folder, _, _ = adapter(tmp_path / "adapter")
    (folder / "adapter_config.json").unlink()
    refused(r"no adapter_config\.json.*merge_and_unload", folder)


def test_other_kinds_of_adapters(tmp_path):
    for kind, name in (("IA3", START + LAYER.format(0, "key") + ".ia3_l"),
                       ("PROMPT_TUNING", "prompt_embeddings")):  # fmt: skip
        folder, _, _ = adapter(tmp_path / "adapter", peft_type=kind)
        write_safetensors(folder / "adapter_model.safetensors", {name: np.ones(3, "float32")})
        refused(rf"{kind}.*merge_and_unload", folder)


def test_the_model_of_an_adapter_comes_from_the_hub(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "keras_vit.weights.formats.peft.fetch", lambda name: asked.append(name) or BASE
    )
    for revision, end in ((None, ""), ("v1", "@v1")):
        folder, pairs, arrays = adapter(tmp_path / "adapter", base="google/vit", revision=revision)
        assert_merged(keras_vit.from_checkpoint(folder), pairs, arrays, lambda key: 6 / 4)
        assert asked.pop() == "hf://google/vit" + end
