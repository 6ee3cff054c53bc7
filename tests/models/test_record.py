"""What a model keeps besides its graph: how it is read, and what its outputs are called."""

import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.outputs import reading_of
from tests.support import refuses, tiny_vit
from tests.test_outputs import PICTURE, model_with

pytestmark = pytest.mark.any_backend


def test_records_that_cannot_be_are_refused_where_they_are_set():
    model, heads = tiny_vit(), keras_vit.models.add_heads(tiny_vit(num_classes=0), {"a": 3, "b": 1})
    for reading in ("multi_label", "Sigmoid", {"head": "sigmoid"}):
        refuses("Unknown reading. Received", setattr, model, "reading", reading)
    names = ("cat", "dog", "owl")
    by_number, indices = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    for wrong in (by_number, indices, set(names), "cdo", names[:2], 3):
        refuses("a sequence of 3 names in the order", setattr, model, "class_names", wrong)
        match = "A dict as class_names|a sequence of 3 names"
        refuses(match, keras_vit.predict, model, PICTURE, class_names=wrong)
    assert model.class_names is model.reading is None, "nothing was kept"
    for names_of_data in (list(names), np.array(names)):
        model.class_names = names_of_data
        assert model.class_names == names
    for name, wrong, match in [
        ("reading", {"b": "value"}, "Head 'b': Unknown reading"),
        ("reading", {"c": "values"}, "as reading must name heads.*'a', 'b'. Received: 'c'"),
        ("class_names", {"a": names[:2]}, "Head 'a': class_names, .* must be a sequence of 3"),
        ("class_names", {"c": names}, "as class_names must name heads"),
    ]:
        refuses(match, setattr, heads, name, wrong)
    heads.reading, heads.class_names = {"b": "values"}, {"a": list(names), "b": None}
    assert heads.reading == {"b": "values"} and heads.class_names == {"a": names, "b": None}
    plain = keras.Model(model.input, model.output)
    plain.reading = "multi_label"
    refuses("Unknown reading. Received: reading='multi_label'", reading_of, plain)
    plain = keras.Model(heads.input, heads.output)
    plain.reading = {"a": "softmax", "c": "values"}
    refuses("as reading must name heads", keras_vit.predict, plain, PICTURE)


def test_a_file_with_a_record_that_cannot_be_still_opens():
    model = tiny_vit()
    config = model.get_config() | {"reading": "multi_label", "class_names": ["cat", "dog"]}
    with pytest.warns(UserWarning) as caught:
        opened = type(model).from_config(config)
    told_of = [str(each.message) for each in caught]
    assert opened.reading is opened.class_names is None
    assert any("without its reading. Unknown reading" in text for text in told_of)
    assert any("without its class_names" in text for text in told_of)


def test_a_reading_that_outlives_its_loss_is_warned_of():
    model, unknown = model_with(), lambda y, z: keras.ops.mean(z)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.reading = "values"  # by the user, for a loss that says nothing
        for loss in (unknown, unknown, "mse", "mae", None):
            model.compile(loss=loss)
        for loss in ("mse", keras.losses.CategoricalCrossentropy(from_logits=True)):
            model.compile(loss=loss)
    with pytest.warns(UserWarning, match="still read as 'softmax', by the loss before"):
        model.compile(loss=unknown)
    assert model.reading == "softmax"
