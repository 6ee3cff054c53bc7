"""What a model around a network knows of its classes, wherever names are told."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import evaluation
from keras_vit.ends import known_of_end
from keras_vit.exports.graph import served
from tests.support import refuses, tiny_vit
from tests.test_heads import NAMES, three_heads

pytestmark = pytest.mark.any_backend

CLASSES = ("bird", "cat", "dog")


def around(name):
    """A model around networks of the classes `CLASSES`, of the reverse, and of no names."""
    one, same, reverse, unnamed = (tiny_vit(num_classes=3) for _ in range(4))
    one.class_names = same.class_names = CLASSES
    reverse.class_names = CLASSES[::-1]
    x, layers = keras.Input(one.input_shape[1:]), keras.layers
    if name in ("a softmax in a row", "a Dense in a row"):
        return keras.Sequential([one, layers.Softmax() if "soft" in name else layers.Dense(3)])
    if name == "the layers, a temperature":
        return keras.Model(one.input, one.output / 2.0)
    outputs = {
        "a call": lambda: one(x),
        "a model in a model": lambda: layers.Rescaling(0.5)(keras.Model(x, one(x))(x)),
        "a mean": lambda: (layers.Softmax()(one(x)) + layers.Softmax()(same(x))) / 2,
        "a mean with one unnamed": lambda: layers.Average()([unnamed(x), one(x)]),
        "a mean of other classes": lambda: layers.Average()([one(x), reverse(x)]),
        "other classes": lambda: layers.Dense(3)(one(x)),
        "twice as many": lambda: layers.Concatenate()([one(x), same(x)]),
        "features": lambda: layers.Dense(3)(keras_vit.features(one)(x)),
    }
    return keras.Model(x, outputs[name]())


SAME = ["a call", "a softmax in a row", "the layers, a temperature", "a model in a model"]


@pytest.mark.parametrize("name", [*SAME, "a mean", "a mean with one unnamed"])
def test_a_model_around_a_network_has_its_names_everywhere(name):
    model, pixels = around(name), np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), "uint8")
    assert {each.label for each in keras_vit.predict(model, pixels[:1])[0]} == set(CLASSES)
    report = evaluation.evaluate(model, (pixels, np.arange(6) % 3))
    assert report.confusion.class_names == CLASSES
    assert json.loads(served(model, False).texts["class_names"]) == [*CLASSES]


@pytest.mark.parametrize("name", ["other classes", "a Dense in a row", "twice as many", "features"])
def test_what_follows_a_network_may_be_other_classes(name):
    assert known_of_end(around(name), "class_names") is None


def test_members_of_other_classes_are_refused():
    """Unless names are given: by an argument, or as the model's own."""
    model, pixels = around("a mean of other classes"), np.zeros((3, 16, 16, 3), "uint8")
    data = pixels, [0, 1, 2]
    refuses("must have the same class_names, in one order", keras_vit.predict, model, pixels)
    refuses("must have the same class_names, in one order", evaluation.evaluate, model, data)
    evaluation.evaluate(model, data, class_names=CLASSES)
    model.class_names = CLASSES
    assert evaluation.evaluate(model, data).confusion.class_names == CLASSES


def test_names_of_heads_inside():
    model = three_heads()
    model.class_names = NAMES
    x = keras.Input(model.input_shape[1:])
    assert json.loads(served(keras.Model(x, model(x)), False).texts["class_names"]) == NAMES
