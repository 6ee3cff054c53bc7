"""Variations of the formats: precision, prefixes, wrappers, parts that are folded or refused."""

import json
import re
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_close, forward, images, read_arrays, values
from tests.weights.stored import assert_same_weights, refused
from tests.weights.test_families import assert_computes

pytestmark = pytest.mark.any_backend


def test_bfloat16_arrays_and_every_prefix_of_big_vision(tmp_path):
    import ml_dtypes

    case = ORACLES / "big_vision_vit" / "map_learn_p16"
    arrays = read_arrays(case / "checkpoint.npz")
    half = {name: array.astype(ml_dtypes.bfloat16) for name, array in arrays.items()}
    for prefix in ("", "params/", "params/img/", "opt/target/", "img/"):
        others = {"params/txt/head/kernel": np.zeros((2, 2), "float32")} if "img" in prefix else {}
        path = tmp_path / "half.npz"
        np.savez(path, **{prefix + name: array for name, array in half.items()}, **others)
        model = keras_vit.from_checkpoint(path)
        assert model.load_report.ignored == tuple(others)
        assert_close(values(model)["head/kernel"], half["head/kernel"].astype("float32"), 0)


def test_an_old_big_vision_file_has_a_position_for_its_class_token(tmp_path):
    case = ORACLES / "big_vision_vit" / "tok_learn_p8"
    arrays = read_arrays(case / "checkpoint.npz")
    first = np.full((1, 1, 48), 0.25, "float32")
    arrays["pos_embedding"] = np.concatenate([first, arrays["pos_embedding"]], axis=1)
    arrays["cls"] = arrays["cls"] - 0.25
    np.savez(tmp_path / "old.npz", **arrays)
    assert_computes(keras_vit.from_checkpoint(tmp_path / "old.npz"), case)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F4"])
def test_values_of_eight_bits_are_called_quantised(tmp_path, dtype):
    row = {"dtype": dtype, "shape": [4], "data_offsets": [0, 2 if dtype == "F4" else 4]}
    header = json.dumps({"F64": {**row, "dtype": "F64"}, "cls_token": row}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    refused(rf"has values of {dtype}, which were quantised", path)


def timm_arrays(case="vit_token_p8"):
    return read_safetensors(ORACLES / "timm" / case / "model.safetensors")


def test_layer_scale_is_kept_or_folded(tmp_path):
    """A branch times gamma is the branch whose last matrix was multiplied by gamma."""
    arrays, rng = timm_arrays(), np.random.default_rng(0)
    expected, scaled = dict(arrays), dict(arrays)
    for i in range(3):
        for which, last in (("1", "attn.proj"), ("2", "mlp.fc2")):
            gamma = rng.uniform(0.5, 2, 48).astype("float32")
            scaled[f"blocks.{i}.ls{which}.gamma"] = gamma
            for name in (f"blocks.{i}.{last}.weight", f"blocks.{i}.{last}.bias"):
                expected[name] = (gamma * arrays[name].T).T
    for name, content in (("folded", expected), ("scaled", scaled)):
        write_safetensors(tmp_path / f"{name}.safetensors", content)
    folded, scaled, plain = (
        keras_vit.from_checkpoint(tmp_path / f"{name}.safetensors", num_heads=4, **options)
        for name, options in (("folded", {}), ("scaled", {}), ("scaled", {"layer_scale": None}))
    )
    assert_same_weights(folded, plain, 1e-7)
    assert_close(values(scaled)["block_2/layer_scale_2/gamma"], gamma, 0)
    assert all(layer.trainable for layer in scaled.layers)
    x = images((2, *scaled.input_shape[1:]))
    assert_close(forward(scaled, x), forward(plain, x), 1e-5)


def test_registers_of_a_timm_file(tmp_path):
    """As in DINOv2: positions belong to the patches alone."""
    arrays = timm_arrays()
    registers = np.random.default_rng(0).normal(size=(1, 4, 48)).astype("float32")
    arrays |= {"reg_token": registers, "pos_embed": arrays["pos_embed"][:, 1:]}
    write_safetensors(tmp_path / "registers.safetensors", arrays)
    model = keras_vit.from_checkpoint(tmp_path / "registers.safetensors", num_heads=4)
    loaded = values(model)
    assert (model.variant.registers, model.image_size) == (4, (32, 32))
    assert_close(loaded["patch_encoder/registers"], registers, 0)
    assert_close(loaded["patch_encoder/position/embedding"][:, :5], np.zeros((1, 5, 48)), 0)


def test_names_of_transformers_5_modules(tmp_path):
    """Files keep the older names; a state dict that was saved by hand has the modules' names."""
    case, renamed = ORACLES / "hf_transformers5" / "vit_cls_p8", {}
    for name, array in read_safetensors(case / "model.safetensors").items():
        name = name.replace("encoder.layer.", "layers.")
        name = re.sub(r"attention\.attention\.([qkv])\w+", r"attention.\1_proj", name)
        name = name.replace("attention.output.dense", "attention.o_proj")
        name = name.replace("intermediate.dense", "mlp.fc1").replace("output.dense", "mlp.fc2")
        renamed[name] = array
    write_safetensors(tmp_path / "model.safetensors", renamed)
    shutil.copy(case / "config.json", tmp_path)
    assert_computes(keras_vit.from_checkpoint(tmp_path), case)


def test_class_names_and_preprocessing_of_a_folder(tmp_path):
    folder = shutil.copytree(ORACLES / "hf_transformers5" / "vit_cls_p8", tmp_path / "model")
    model = keras_vit.from_checkpoint(folder)
    assert model.class_names == tuple(f"L{i}" for i in range(10))
    assert model.preprocessing == keras_vit.Preprocessing(library="transformers")
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2] * 3, "resample": 3})
    )
    facts = keras_vit.from_checkpoint(folder, num_classes=3)
    assert facts.preprocessing == keras_vit.Preprocessing(
        (0.4, 0.5, 0.6), (0.2, 0.2, 0.2), interpolation="bicubic", library="transformers"
    )
    assert facts.class_names is None, "names belong to the head that they came with"
