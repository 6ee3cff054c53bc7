"""A model that is pushed comes back as it was, and what cannot be pushed is refused in one line."""

import warnings

import pytest
from huggingface_hub import ModelCard

import keras_vit
from keras_vit import evaluation
from tests.support import assert_close, forward, images, randomize, refuses, tiny_vit
from tests.test_heads import LABELS, PIXELS, three_heads

pytestmark = pytest.mark.any_backend
WRITER = {"token": "hf_writer"}


@pytest.fixture
def model():
    return randomize(tiny_vit(name="tiny"))


def test_files_of_other_libraries_hold_one_head(hub, tmp_path):
    """What no file can say is refused before anything is written or sent."""
    model = three_heads()
    words = r"the heads 'species', 'weight', 'marks'; give .*backbone\(model\).*model\.save"
    for path in ("m.npz", "m.safetensors", "folder"):
        refuses(words, keras_vit.save_weights, model, tmp_path / path, force=True)
        keras_vit.save_weights(keras_vit.backbone(model), tmp_path / path, force=True)
        refuses(words, keras_vit.model_card, model, file=tmp_path / path)
    refuses(words, keras_vit.push_to_hub, model, "user/model", token="hf_writer")
    assert not hub.repositories
    alone = evaluation.evaluate(three_heads(), (PIXELS, LABELS))["species"]
    with pytest.raises(ValueError, match=r"report of 3 classes, for 'functional.*' with 0"):
        keras_vit.model_card(model, report=alone)


@pytest.mark.parametrize("format", ["huggingface", "timm", "google"])
def test_what_is_pushed_comes_back(hub, model, format):
    url = keras_vit.push_to_hub(
        model, "user/model-1.5", format, token="hf_writer", private=True, force=True, license="mit"
    )
    assert url == f"{hub.at}/user/model-1.5" and hub.private == {"user/model-1.5"}
    names = {
        "huggingface": {"model.safetensors", "config.json", "preprocessor_config.json"},
        "timm": {"model.safetensors", "config.json"},
        "google": {"model.npz"},
    }
    files = hub.repositories["user/model-1.5"]
    assert set(files) == names[format] | {"README.md"}
    assert sum(path.endswith("/commit/main") for path, _ in hub.posted) == 1
    card = ModelCard(files["README.md"].decode())
    assert card.data.license == "mit" and card.data.model_name == "model-1.5"
    assert "'hf://user/model-1.5'" in card.text
    read = keras_vit.from_checkpoint("hf://user/model-1.5")
    assert_close(*(forward(m, images((2, 16, 16, 3))) for m in (read, model)), 2e-6)
    assert "hf://user/model-1.5" in keras_vit.model_card(read).text
    refuses(r"hf://user/model-1\.5 would be", keras_vit.from_checkpoint, "user/model-1.5")


def test_a_card_that_somebody_wrote_is_kept(hub, model):
    push = {"token": "hf_writer", "format": "timm"}
    keras_vit.push_to_hub(model, "user/model", **push)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        keras_vit.push_to_hub(model, "user/model", **push, license="mit")  # ours, not edited
    files = hub.repositories["user/model"]
    assert b"license: mit" in files["README.md"]
    files["README.md"] = b"My words."
    with pytest.warns(UserWarning, match="replace_card=True"):
        keras_vit.push_to_hub(model, "user/model", **push)
    assert files["README.md"] == b"My words."
    keras_vit.push_to_hub(model, "user/model", **push, replace_card=True)
    assert files["README.md"].startswith(b"---\n")
    with pytest.raises(ValueError, match=r"holds \['model.safetensors'\]"):
        keras_vit.push_to_hub(model, "user/model", "google", token="hf_writer")


@pytest.mark.parametrize(
    "repository, options, error, words",
    [
        ("user/model", {}, PermissionError, "no token"),
        ("user/model", {"token": "hf_wrong"}, PermissionError, "401.*Invalid username"),
        ("other/model", WRITER, PermissionError, "403.*rights"),
        ("model", WRITER, ValueError, "'ORG/NAME'"),
        ("user/model", {"format": "onnx"}, ValueError, "onnx.*huggingface"),
        ("user/model", {**WRITER, "format": "google"}, ValueError, "computes something"),
        ("user/model", {**WRITER, "license_": "mit"}, TypeError, "license_"),
    ],
)
def test_a_push_that_cannot_be_says_why_in_one_line(hub, repository, options, error, words):
    exact = tiny_vit(gelu="erf")
    with pytest.raises(error, match=words) as caught:
        keras_vit.push_to_hub(exact, repository, **options)
    assert "\n" not in str(caught.value) and not any(hub.repositories.values())


def test_a_hub_that_is_not_there(hub, model, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConnectionError, match="Could not upload to user/model") as caught:
        keras_vit.push_to_hub(model, "user/model", "timm", token="hf_writer")
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(ConnectionError, match="KERAS_VIT_OFFLINE"):
        keras_vit.push_to_hub(model, "user/model", "timm", token="hf_writer")
