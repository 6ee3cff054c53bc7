"""What is said of a download that cannot be had, whatever library fails below."""

import importlib

import pytest
import requests
import urllib3

import keras_vit
from keras_vit.weights.downloads import DownloadError, place_of, reason_of
from keras_vit.weights.fetch import fetch
from tests.support import refuses

pytestmark = pytest.mark.any_backend


def test_a_host_that_cannot_be_reached(cache):
    """By https and for Hugging Face: in words for people, and nothing is left behind."""
    with pytest.raises(DownloadError) as error:
        fetch("https://127.0.0.1:9/model.npz", retries=0)
    told = str(error.value)
    assert "https://127.0.0.1:9/model.npz: 127.0.0.1 cannot be reached: check the network" in told
    assert str(place_of("https://127.0.0.1:9/model.npz")) in told
    assert "Pool" not in told and "urllib3" not in told and not [*cache.glob("*")]


def test_weights_without_a_network_are_named(cache, monkeypatch):
    module = importlib.import_module("keras_vit.weights.fetch")  # also a function has its name
    monkeypatch.setattr(module, "fetch", lambda *_, **__: fetch("https://127.0.0.1:9/x", retries=0))
    words = r"^imagenet21k/ViT-B_16: .*127\.0\.0\.1 cannot be reach"
    refuses(words, keras_vit.from_checkpoint, "imagenet21k/ViT-B_16", error=DownloadError)


def test_other_reasons():
    slow = requests.exceptions.ReadTimeout("HTTPSConnectionPool(host='h'): Read timed out.")
    assert reason_of(slow, "https://h/x", retries=2) == "h did not answer in time, tried 3 times"
    certificate = urllib3.exceptions.SSLError("certificate verify failed")
    strange = requests.exceptions.SSLError("HTTPSConnectionPool(host='h')")
    strange.__cause__ = urllib3.exceptions.MaxRetryError(None, "/x", certificate)
    strange.__cause__.__cause__ = certificate
    assert "no certificate that is trusted" in reason_of(strange, "https://h/x")
    told = reason_of(DownloadError("the server answers with HTTP 404"), "https://h/x")
    assert told.endswith("404")
