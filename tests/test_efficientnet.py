"""EfficientNet-L2 as the comparison network that the paper names."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import efficientnet
from tests.support import forward, to_numpy, without_values


@pytest.fixture
def small(monkeypatch):
    """The same network, narrow and shallow: the published one takes gigabytes."""
    monkeypatch.setattr(efficientnet, "WIDTH", 0.125)
    monkeypatch.setattr(efficientnet, "DEPTH", 0.125)


def outputs(model, x):
    return to_numpy(forward(model, x))


@pytest.mark.any_backend
def test_the_published_parameter_count():
    with without_values():
        model = keras_vit.EfficientNet_L2(image_size=475)
    count = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert count == 480_309_308  # 480M in the paper by Xie et al. (2020)
    assert model.input_shape == (None, 475, 475, 3) and model.output_shape == (None, 1000)


@pytest.mark.slow
def test_images_become_logits_or_features(small):
    images = np.random.default_rng(0).integers(0, 256, (2, 40, 56, 3), dtype="uint8")
    model = keras_vit.EfficientNet_L2(num_classes=7, image_size=(32, 40))
    x = keras_vit.preprocess(images, model)
    assert x.shape == (2, 32, 40, 3)
    logits = outputs(model, x)
    assert logits.shape == (2, 7) and np.isfinite(logits).all()
    features = keras_vit.EfficientNet_L2(num_classes=0, image_size=(32, 40))
    assert outputs(features, x).ndim == 2


@pytest.mark.any_backend
def test_the_network_sees_standardised_colours(small):
    """Behind its own division, the mean colour of ImageNet is 0 and white is what it should be."""
    model = keras_vit.EfficientNet_L2(num_classes=3, image_size=32)
    layers = [x for x in model.layers if isinstance(x, keras.layers.Normalization)]
    seen = keras.Model(model.input, layers[0].output)
    facts = model.preprocessing
    white = keras_vit.preprocess(np.full((1, 32, 32, 3), 255, "uint8"), model)
    expected = (1 - np.array(facts.mean)) / (0.229, 0.224, 0.225)
    np.testing.assert_allclose(outputs(seen, white)[0, 5, 5], expected, rtol=1e-5)


@pytest.mark.any_backend
def test_weights_are_a_file_of_keras(small, tmp_path):
    with pytest.raises(ValueError, match=r"weights.*path of a file.*'imagenet'"):
        keras_vit.EfficientNet_L2(image_size=32, weights="imagenet")
    model = keras_vit.EfficientNet_L2(num_classes=3, image_size=32)
    model.save_weights(tmp_path / "l2.weights.h5")
    again = keras_vit.EfficientNet_L2(3, 32, weights=tmp_path / "l2.weights.h5")
    x = np.full((1, 32, 32, 3), 99, "float32")
    np.testing.assert_array_equal(outputs(model, x), outputs(again, x))
