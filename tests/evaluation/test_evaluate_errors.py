"""What `evaluate` refuses, before anything comes from below."""

import keras
import numpy as np
import pytest

from keras_vit.evaluation import evaluate, extract_features
from tests.support import every_backend, images, refuses

pytestmark = pytest.mark.any_backend

LABELS = np.array([0, 1, 2, 0])


@pytest.fixture(scope="module")
def model():
    inputs = keras.Input((16, 16, 3))
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(inputs)))


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 1, 2, 3], r"labels of batch 0 must be whole numbers in 0\.\.2. .*3 at index 3"),
        ([0, 1, -1, 2], r"the first -1 at index 2"),
        ([0, 1, 0.5, 2], "the first 0.5 at index 2"),
        (["a", "b", "c", "a"], "class numbers, not names"),
        ([["a"], ["b", "c"], [], ["a"]], "rows of one length.*'b', 'c'"),
        (np.eye(4), r"one column for each of the 3 classes.*shape \(4, 4\)"),
        (np.full((4, 3), 1 / 3), r"Mixup.*4 others, the first .* at index 0"),
        ([[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]], r"see real_accuracy.*2 others, the first"),
        ([0, 1, 2], r"one label for each image.*Received: 4 images and labels of shape \(3,\)"),
    ],
)
def test_bad_labels(model, labels, message):
    refuses(message, evaluate, model, (images(), labels))


@pytest.mark.parametrize(
    "data, error, message",
    [
        ((np.zeros((0, 16, 16, 3)), []), ValueError, "at least one image"),
        ([], ValueError, "at least one image"),
        ((images(), LABELS, LABELS), TypeError, r"tuple of \['ndarray', 'ndarray', 'ndarray'\]"),
        ((images(), 3), TypeError, "'ndarray', 'int'"),
        ("images/", TypeError, "pair .images, labels.*Received: str"),
        ({"image": images()}, TypeError, "Received: dict"),
        (None, TypeError, "Received: NoneType"),
        ([images()], ValueError, r"must be \(images, labels\).*ndarray as batch 0"),
        ([{"image": 1, "label": 2}], ValueError, r"dataset.map.*dict as batch 0"),
        ([(images()[0], 1)], ValueError, r"call \.batch.*labels of shape \(\) in batch 0"),
        ([(images(), LABELS, [1, 1, 0.5, 0])], ValueError, "must be 0 or 1.*from 0 to 1"),
    ],
)
def test_bad_data(model, data, error, message):
    refuses(message, evaluate, model, data, error=error)


@every_backend
def test_outputs_that_are_not_finite(model):
    damaged = images()
    damaged[1, 3, 3, 0] = np.nan
    with pytest.raises(ValueError, match=r"3 NaN or infinite values in batch 1.* its image 1"):
        evaluate(model, [(images(), LABELS), (damaged, LABELS)])
    refuses(r"must be finite.*first in row 1", extract_features, model, (damaged, LABELS))


@every_backend
def test_bad_models(model):
    data = images(), LABELS
    no_model = r"must be a Keras model. Received: function"
    refuses(no_model, evaluate, lambda x: x, data, error=TypeError)
    no_classes = keras.Model(model.input, model.layers[0].output)
    refuses(r"two or more classes.*\(4, 16, 16, 3\)", evaluate, no_classes, data)
    twice = keras.Model(model.input, [model.output, model.output])
    refuses(r"must have different names.*\(None, 3\), \(None, 3\)", evaluate, twice, data)
    small = images((4, 8, 8, 3)), LABELS
    refuses(r"takes images of shape .*\(4, 8, 8, 3\)", evaluate, model, small)


def test_bad_arguments(model):
    data = images(), LABELS
    refuses("top must be a positive integer", evaluate, model, data, top=(0,))
    refuses("sequence of 3 names.*Received: 'abc'", evaluate, model, data, class_names="abc")
    refuses("of length 2", evaluate, model, data, class_names=("a", "b"))
    refuses("Unknown from_logits", evaluate, model, data, from_logits="no")
    refuses("batch_size must be a positive integer", evaluate, model, data, batch_size=0)
    no_list = r"ReaL labels must be a list.*Received: 65 for image 0"
    refuses(no_list, evaluate, model, data, real=[65])


def test_data_without_an_end_and_steps(model):
    batches = [(images(), LABELS)] * 2
    assert evaluate(model, batches, steps=1).examples == 4
    for data in (batches, iter(batches)):
        assert evaluate(model, data, steps=3).examples == 8, "3 at most"

    class Endless(keras.utils.PyDataset):
        num_batches = None

        def __getitem__(self, index):
            return images(), LABELS

    refuses(r"never ends.*steps=", evaluate, model, Endless())
    assert evaluate(model, Endless(), steps=3).examples == 12


@pytest.mark.parametrize("reading", ["sigmoid", "values", "softmax"])
def test_options_that_a_report_has_no_place_for(model, reading):
    exclusive = reading == "softmax"
    data = images(), LABELS if exclusive else np.eye(3)[LABELS]
    wrong = {"threshold": 0.9} if reading != "sigmoid" else {}
    wrong |= {} if exclusive else {"top": 2, "confusion": True, "real": [[0]] * 4}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=f"{name} is for .*Received: {name}=.*leave it out"):
            evaluate(model, data, reading=reading, **{name: value})


def test_values_and_labels_of_sigmoids_are_finite_and_none_is_lost(model):
    labels = np.eye(3)[LABELS]
    with pytest.raises(ValueError, match=r"must be finite\. Received: NaN .* in batch 0"):
        evaluate(model, (images(), labels * np.nan), reading="values")
    names = {"class_names": ("crane", "dog", "crane")}
    report = evaluate(model, (images(), labels), reading="sigmoid", **names)
    assert list(report.average_precision) == ["crane (0)", "dog", "crane (2)"]
    report = evaluate(model, (images(), labels), reading="values", **names)
    assert list(report.outputs) == ["crane (0)", "dog", "crane (2)"]


def test_one_hot_labels_of_yes_or_no(model):
    """A single sigmoid has two classes, however they are labelled."""
    one = keras.Model(model.input, model.output[:, :1])
    labels = np.array([0, 1, 1, 0])
    expected = evaluate(one, (images(), labels), reading="sigmoid", from_logits=True)
    found = evaluate(one, (images(), np.eye(2)[labels]), reading="sigmoid", from_logits=True)
    assert found.figures == expected.figures
