"""The JSON files of a KerasHub preset: what contradicts the weights, or cannot be read."""

import json
import shutil

import pytest

import keras_vit
from keras_vit.weights.files import CheckpointError
from tests.support import ORACLES

pytestmark = pytest.mark.any_backend


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(ORACLES / "keras_hub" / "classifier_token", tmp_path / "preset")


@pytest.mark.parametrize(
    "file, key, value",
    [
        ("config.json", "num_layers", 3),
        ("config.json", "num_heads", 8),
        ("config.json", "hidden_dim", 64),
        ("config.json", "mlp_dim", None),
        ("config.json", "patch_size", [8, 4]),
        ("config.json", "use_class_token", False),
        ("config.json", "use_mlp_bias", False),
        ("config.json", "image_shape", [40, 40, 3]),
        ("config.json", "image_shape", [32, 32, 1]),
        ("config.json", "image_shape", "large"),
        ("config.json", "layer_norm_epsilon", -1),
        ("task.json", "num_classes", 6),
        ("task.json", "intermediate_dim", 6),
    ],
)
def test_a_config_of_another_model(folder, file, key, value):
    content = json.loads((folder / file).read_text())
    content["config"][key] = value
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match={"image_shape": "image", "layer_norm_epsilon": "epsilon"}.get(key, key)
    ):
        keras_vit.from_checkpoint(folder)


@pytest.mark.parametrize("file", ["config.json", "task.json"])
def test_a_config_of_another_class(folder, file):
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, "class_name": "ResNetBackbone"}))
    with pytest.raises(CheckpointError, match=r"must be that of .*'ResNetBackbone'"):
        keras_vit.from_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"config": 3}', "[" * 100_000, "\0"])
@pytest.mark.parametrize("file", ["config.json", "task.json", "preprocessor.json"])
def test_damaged_configs(folder, file, text):
    (folder / file).write_text(text)
    with pytest.raises(CheckpointError, match=file):
        keras_vit.from_checkpoint(folder)
