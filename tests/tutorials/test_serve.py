"""The example that serves an exported model answers real requests, and refuses what is no image."""

import http.client
import importlib
import io
import json
import threading

import keras
import numpy as np
import onnx
import pytest
from PIL import Image

from keras_vit import Preprocessing, export
from keras_vit.data import preprocess
from tests.support import ROOT, randomize, tiny_vit

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def model():
    model = randomize(tiny_vit())
    model.class_names = ("cat", "dog", "owl")
    model.preprocessing = Preprocessing(
        resize="shortest", interpolation="bicubic", library="pillow"
    )
    return model


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("serve") / "model.onnx"
    return export(model, path, preprocess=True).path


@pytest.fixture(scope="module")
def server(path):
    serve = importlib.import_module("tutorials.serve")
    with serve.serve(str(path), port=0, top=2) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def post(server, body, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("POST", "/", body, headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_an_image_is_answered_with_names_and_probabilities(server, model):
    """As this library computes them from the same file."""
    pixels = np.random.default_rng(0).integers(0, 256, (37, 53, 3), "uint8")
    status, answer = post(server, png(pixels))
    logits = model.predict_on_batch(preprocess(pixels, model))
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(logits))[0]
    best = np.argsort(-expected)[:2]
    assert status == 200
    assert [each["name"] for each in answer["predictions"]] == [model.class_names[i] for i in best]
    received = [each["probability"] for each in answer["predictions"]]
    np.testing.assert_allclose(received, expected[best], atol=0.02)  # bytes are rounded once more


def test_what_is_no_image_is_refused(server):
    whole = png(np.zeros((40, 40, 3), "uint8"))
    for body in (b"not an image", whole[: len(whole) // 2]):
        status, answer = post(server, body)
        assert status == 400 and "no image" in answer["error"]
    assert post(server, b"")[0] == 411
    assert post(server, None, **{"Content-Length": str(10**9)})[0] == 413
    assert post(server, whole)[0] == 200  # and it goes on


def test_a_file_without_preprocessing_is_refused(path, tmp_path):
    serve, plain = importlib.import_module("tutorials.serve"), onnx.load(path)
    del plain.metadata_props[:]
    onnx.save(plain, tmp_path / "model.onnx")
    with pytest.raises(SystemExit, match="preprocess=True"):
        serve.Classifier(str(tmp_path / "model.onnx"))


def test_the_example_needs_neither_keras_nor_this_library():
    source = (ROOT / "tutorials" / "serve.py").read_text()
    assert "import keras" not in source and "from keras" not in source
