"""The weights that come with the package: they are those that were trained, and need no network."""

import hashlib
import importlib
import re
import shutil

import huggingface_hub
import pytest

import keras_vit
from keras_vit.weights import catalog, fetch
from tests.support import ROOT, refuses
from tests.weights.stored import assert_same_weights

FOLDER = ROOT / "keras_vit" / "weights" / "digits"
SHA256 = "ab88b39ae197e5cdb7668d2b55e97842211aeb600720820a2e6135cc09bf24d8"
ADDRESS = "package://digits/model.safetensors"
OPTIONS = {"image_size": 16, "patch_size": 4, "channels": 1, "num_classes": 10, "pool": "mean"}
OPTIONS |= {"width": 64, "depth": 3, "num_heads": 4, "mlp_dim": 256}
module = importlib.import_module("keras_vit.weights.fetch")
pytestmark = pytest.mark.any_backend


@pytest.fixture(autouse=True)
def nothing_from_outside(cache, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    yield
    assert not cache.exists()


def test_the_file_its_row_and_its_card_agree():
    file, record = FOLDER / "model.safetensors", catalog.find("digits")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256
    assert record.size == file.stat().st_size <= 350_000
    assert sum(path.stat().st_size for path in FOLDER.glob("*.png")) <= 5_000
    card = huggingface_hub.ModelCard.load(FOLDER / "README.md")
    result = card.data.eval_results[0]
    assert (result.metric_name, result.dataset_split) == ("top-1 accuracy", "test")
    assert dict(record.accuracy) == {"digits test top-1": round(result.metric_value * 100, 2)}
    assert card.data.license == record.licence.lower() == "apache-2.0"
    script = re.search(r"python (tutorials/\w+\.py)`", card.content)[1]
    assert (ROOT / script).is_file()


@pytest.mark.parametrize("weights", ["digits", ADDRESS])
def test_every_way_in(weights):
    model = keras_vit.VisionTransformer(**OPTIONS)
    assert keras_vit.load_weights(model, weights).differs == ()
    built = keras_vit.build("B/16", weights=weights, **OPTIONS)
    assert built.label_set == model.label_set == "digits"
    assert_same_weights(built, model)
    tuned = keras_vit.from_checkpoint(weights, num_classes=3, image_size=32)
    assert tuned.load_report.resized and tuned.class_names is None


def test_the_card_of_the_loaded_model_says_what_the_catalogue_does():
    card = keras_vit.model_card(keras_vit.from_checkpoint("digits"))
    assert "As published for `digits`" in card.content and "| 97.49 % |" in card.content
    assert card.data.license == "apache-2.0" and card.data.datasets == ["digits"]


def test_its_images_are_the_digits_that_they_are_called():
    model = keras_vit.from_checkpoint("digits")
    for digit in range(3):
        ((best,),) = keras_vit.predict(model, fetch(f"package://digits/{digit}.png"), top=1)
        assert best.label == str(digit) and best.probability > 0.5


@pytest.mark.parametrize(
    "name", ["package://digits/none", "package://digits/..", "package://../load.py", "package://x"]
)
def test_what_does_not_come_with_it(name):
    refuses(r"Received: 'package://.*install keras3-vit", fetch, name, error=FileNotFoundError)


def test_a_damaged_installation(monkeypatch, tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "digits")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "fetch.py"))
    (folder / "model.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(OSError, match=r"(?s)Install keras3-vit anew.*309340.*100"):
        keras_vit.from_checkpoint("digits")
    (folder / "model.safetensors").unlink()
    refuses("install keras3-vit anew", keras_vit.from_checkpoint, "digits", error=FileNotFoundError)


def test_a_file_of_ones_own_comes_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no checkpoint file or folder 'digits\.npz'"):
        keras_vit.from_checkpoint("digits.npz")
    keras_vit.save_weights(keras_vit.from_checkpoint("digits"), "digits.npz")
    assert keras_vit.from_checkpoint("digits.npz").weights_from == "digits.npz"
