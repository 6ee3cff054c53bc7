"""What a whole BiT keeps in its config, how it is trained, and what it refuses."""

import json
import re

import keras
import numpy as np
import pytest

from keras_vit.models.bit import BiT
from keras_vit.preprocessing import Preprocessing
from tests.support import BACKEND, assert_close, images, randomize, tiny_bit

OPTIONS = [
    {},
    {
        "image_size": (16, 24),
        "channels": 1,
        "num_classes": 7,
        "version": "v1",
        "numerics": "google",
        "blocks": (2, 1),
        "name": "everything",
        "dtype": "mixed_bfloat16",
    },
    {"num_classes": 0, "numerics": "bit_paper"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_config_round_trip(options):
    model = tiny_bit(**options)
    model.preprocessing = Preprocessing(crop_fraction=0.875, resize="shortest")
    model.class_names, model.label_set = ("a", "b", "c"), "abc"
    model.get_layer("root").trainable = False
    config = json.loads(json.dumps(model.get_config()))
    twin = BiT.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    assert (twin.variant, twin.preprocessing) == (model.variant, model.preprocessing)
    assert (twin.class_names, twin.label_set) == (model.class_names, model.label_set)
    assert [(v.path, v.shape, v.trainable) for v in twin.weights] == [
        (v.path, v.shape, v.trainable) for v in model.weights
    ]
    assert not twin.get_layer("root").trainable
    for name in set(options) - {"dtype"}:
        assert model.get_config()[name] == options[name], name


def test_one_step_of_training():
    model = tiny_bit(blocks=(1,))
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    labels = np.arange(4) % 3
    before = model.evaluate(images(), labels, verbose=0)
    assert before == pytest.approx(np.log(3), abs=1e-5)
    model.fit(images(), labels, epochs=2, verbose=0)
    assert model.evaluate(images(), labels, verbose=0) < before
    assert model.predict(images(), verbose=0).shape == (4, 3)


WRONG_IMAGES = {
    "channels_first": (2, 3, 16, 16),
    "grayscale": (2, 16, 16, 1),
    "no_batch": (16, 16, 3),
    "video": (2, 4, 16, 16, 3),
}
MESSAGE = r"takes images of shape \('batch', 'height', 'width', 3\), channels last. Received: shape"


def compiled():
    model = tiny_bit()
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("shape", WRONG_IMAGES.values(), ids=WRONG_IMAGES)
def test_wrong_images(shape):
    with pytest.raises(ValueError, match=MESSAGE):
        compiled()(np.zeros(shape, "float32"))
    with pytest.raises(ValueError, match=MESSAGE):
        compiled()(keras.Input(shape[1:]))


@pytest.mark.parametrize("name", ["channels_first", "grayscale"])
def test_wrong_images_in_fit_and_predict(name):
    x = np.zeros(WRONG_IMAGES[name], "float32")
    with pytest.raises(ValueError, match=MESSAGE):
        compiled().fit(x, np.zeros((2, 3)), verbose=0)
    with pytest.raises(ValueError, match=MESSAGE):
        compiled().predict(x, verbose=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the other backends know every shape")
def test_a_pipeline_that_does_not_know_its_shapes():
    import tensorflow as tf

    model, x = randomize(tiny_bit()), images()
    signature = tf.TensorSpec((None, None, None, None), "float32")
    compute = tf.function(lambda images: model(images), input_signature=[signature])
    assert_close(compute(x), model(x), 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        compute(x[..., :1])


WRONG_ARGUMENTS = [
    ({"variant": "R34x1"}, "variant='R34x1'", "'R50x1'"),
    ({"variant": 224}, "variant=224", "'R152x4'"),
    ({"depth": 3}, "['depth']", "'blocks'"),
    ({"blocks": ()}, "blocks=()", "(3, 4, 6, 3)"),
    ({"blocks": 50}, "blocks=50", "(3, 4, 6, 3)"),
    ({"blocks": (1, 0)}, "each number of blocks=0", "positive integer"),
    ({"width": 0.3}, "width=0.3", "multiple of 0.5"),
    ({"width": -1}, "width=-1", "positive number"),
    ({"version": "v3"}, "version='v3'", "('v1', 'v2')"),
    ({"numerics": "float"}, "numerics='float'", "'bit_paper'"),
    ({"num_classes": -1}, "num_classes=-1", "positive integer"),
    ({"channels": 0}, "channels=0", "positive integer"),
    ({"image_size": (1, 2, 3)}, "image_size=(1, 2, 3)", "pair (height, width)"),
]


@pytest.mark.parametrize("options, received, remedy", WRONG_ARGUMENTS, ids=lambda x: str(x)[:40])
def test_wrong_arguments(options, received, remedy):
    with pytest.raises(ValueError, match=re.escape(received)) as error:
        tiny_bit(**options)
    assert remedy in str(error.value)
