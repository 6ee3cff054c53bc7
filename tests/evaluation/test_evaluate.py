"""`evaluate` over every kind of data and model, against scikit-learn on all scores at once."""

import gc
import itertools
import json
import re
import sys
import warnings
import weakref

import keras
import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics

from keras_vit.data import ImageDataset, Transform, pipeline, preprocess
from keras_vit.evaluation import calibration, confusion_matrix, evaluate, real_accuracy
from keras_vit.preprocessing import Preprocessing
from tests.data.pipeline_cases import recipe
from tests.support import images, refuses, tiny_vit

CLASSES, IMAGES = 7, 23


@pytest.fixture(scope="module")
def model():
    """Seven classes, so that the 5 best are a choice; as little as a model can be."""
    inputs = keras.Input((16, 16, 3))
    head = keras.layers.Dense(CLASSES)
    model = keras.Model(inputs, head(keras.layers.Flatten()(inputs)))
    kernel = np.random.default_rng(3).normal(size=(768, CLASSES)) / 16
    head.set_weights([kernel, np.zeros(CLASSES)])
    model.preprocessing = Preprocessing()
    return model


@pytest.fixture(scope="module")
def data():
    return images((IMAGES, 16, 16, 3)), np.random.default_rng(0).integers(0, CLASSES, IMAGES)


@pytest.fixture(scope="module")
def logits(model, data):
    return keras.ops.convert_to_numpy(model.predict(data[0], verbose=0)).astype("float64")


class Sequence(keras.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def in_batches(images, labels, sizes=(8, 8, 7)):
    edges = np.cumsum((0, *sizes))
    return [(images[a:b], labels[a:b]) for a, b in itertools.pairwise(edges)]


def same(report, other):
    """Equal but for the time and for what the size of a batch changes in the last digits."""
    a, b = report.to_dict(), other.to_dict()
    assert a["correct"] == b["correct"] and a["confusion"] == b["confusion"]
    assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
    assert a["examples"] == b["examples"] == IMAGES


def test_as_scikit_learn_on_all_scores(model, data, logits, tmp_path):
    report = evaluate(model, data, batch_size=8)
    labels = data[1]
    p = softmax(logits, axis=1)
    assert report.top1 == metrics.accuracy_score(labels, logits.argmax(axis=1))
    assert report.top5 == metrics.top_k_accuracy_score(labels, logits, k=5, labels=range(CLASSES))
    assert report.loss == pytest.approx(metrics.log_loss(labels, p, labels=range(CLASSES)), 1e-5)
    whole = calibration(logits, labels)
    assert report.calibration.expected_error == pytest.approx(whole.expected_error, abs=1e-5)
    np.testing.assert_array_equal(report.calibration.counts, whole.counts)
    expected = confusion_matrix(labels, logits.argmax(axis=1), CLASSES)
    np.testing.assert_array_equal(report.confusion.matrix, expected.matrix)
    assert report.from_logits and report.examples == IMAGES and report.num_classes == CLASSES
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == report.to_dict()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert f"of {IMAGES}" in str(report) and "top-5 accuracy" in str(report)


def test_every_kind_of_data(model, data):
    expected = evaluate(model, data, batch_size=8)
    batches = in_batches(*data)
    one_hot = [(x, np.eye(CLASSES, dtype="float32")[y]) for x, y in batches]
    column = [(x, y[:, None].astype("float32")) for x, y in batches]
    padded = [(x, y, np.ones(len(y))) for x, y in batches[:2]]
    filled = np.concatenate([batches[2][0], np.zeros((1, 16, 16, 3), "float32")])
    padded.append((filled, np.append(batches[2][1], 0), np.append(np.ones(7), 0)))
    for kind in (Sequence(batches), iter(batches), one_hot, column, padded):
        same(evaluate(model, kind), expected)
    same(evaluate(model, in_batches(*data, sizes=(5, 9, 9))), expected)  # cut and filled up
    same(evaluate(model, (data[0], data[1].tolist()), batch_size=100), expected)
    tensors = [tuple(map(keras.ops.convert_to_tensor, batch)) for batch in batches]
    same(evaluate(model, tensors), expected)


def test_tf_data_and_torch_loaders(model, data):
    expected = evaluate(model, data, batch_size=8)
    if keras.backend.backend() != "torch":
        tf = pytest.importorskip("tensorflow")
        dataset = tf.data.Dataset.from_tensor_slices(data)
        same(evaluate(model, dataset.batch(8)), expected)
        same(evaluate(model, dataset.repeat().batch(IMAGES), steps=1), expected)
        refuses(r"never ends.*steps=", evaluate, model, dataset.repeat().batch(8))
        refuses(r"call \.batch", evaluate, model, dataset)
    else:  # elsewhere its import alone takes longer than the test
        torch = pytest.importorskip("torch")
        pairs = torch.utils.data.TensorDataset(*map(torch.from_numpy, data))
        same(evaluate(model, torch.utils.data.DataLoader(pairs, batch_size=8)), expected)


def test_a_pipeline_of_the_library(model, data):
    pixels, labels = (127.5 * (data[0] + 1)).astype("uint8"), data[1]
    stored = ImageDataset("set", pixels, labels, pixels, labels, tuple("abcdefg"))
    batches = pipeline(stored, recipe(8, Transform(16, "squash")), "test")
    same(evaluate(model, batches), evaluate(model, stored))
    assert evaluate(model, batches).confusion.class_names == tuple("abcdefg")
    assert evaluate(model, batches, steps=1).examples == 8


@pytest.mark.any_backend
def test_every_batch_has_one_size(model, data):
    """So that no backend compiles twice, and no filler is counted."""
    sizes = []

    class Counting(keras.Model):
        def predict_on_batch(self, x):
            sizes.append(len(x))
            return model.predict_on_batch(x)

    same(evaluate(Counting(), data, batch_size=8), evaluate(model, data, batch_size=8))
    assert sizes == [8, 8, 8]
    evaluate(Counting(), in_batches(*data, sizes=(8, 10, 5)))
    assert sizes[3:] == [8, 8, 8, 8]


@pytest.mark.any_backend
def test_batches_are_forgotten(model, data):
    """Memory does not grow with the data: an old batch is gone when the next but one is read."""
    read = []

    def batches():
        for x, y in in_batches(*data, sizes=(6, 6, 6, 5)):
            x = x.copy()
            read.append(weakref.ref(x))
            gc.collect(1)  # on torch, a Functional model leaves cycles behind
            assert not any(old() is not None for old in read[:-2])
            yield x, y
            del x

    assert evaluate(model, batches()).examples == IMAGES and len(read) == 4


def test_probabilities_are_recognised(model, data, logits):
    ended = keras.Model(model.input, keras.layers.Softmax()(model.output))
    given = evaluate(ended, data)
    assert not given.from_logits
    same(given, evaluate(model, data))
    sigmoid = keras.Model(model.input, keras.layers.Activation("sigmoid")(model.output))
    given = evaluate(sigmoid, data)
    assert given.top1 == (logits.argmax(axis=1) == data[1]).mean() and not given.from_logits
    p = expit(logits)  # each class by itself
    right = np.eye(CLASSES)[data[1]]
    loss = metrics.log_loss(right.ravel(), p.ravel(), normalize=False) / IMAGES
    assert given.loss == pytest.approx(loss, 1e-5)
    assert given.calibration.brier == pytest.approx(((p - right) ** 2).sum(axis=1).mean(), 1e-5)
    refuses(r"sum to 1 for each image.*from_logits=True", evaluate, model, data, from_logits=False)


@pytest.mark.any_backend
def test_stored_images_are_prepared(model, data):
    stored = np.random.default_rng(1).integers(0, 256, (IMAGES, 16, 16, 3), "uint8")
    labels = data[1]
    expected = evaluate(model, (preprocess(stored), labels))
    same(evaluate(model, (stored, labels)), expected)
    same(evaluate(model, in_batches(stored, labels)), expected)
    names = tuple("abcdefg")
    dataset = ImageDataset("set", stored[:1], labels[:1], stored, labels, names)
    report = evaluate(model, dataset)
    assert report.loss == pytest.approx(expected.loss, abs=1e-5)
    assert report.confusion.class_names == names
    wrong = ImageDataset("set", stored[:1], labels[:1], stored, labels, (*names, "h"))
    refuses(r"sequence of 7 names.*of length 8", evaluate, model, wrong)


@pytest.mark.any_backend
def test_files_and_real_labels(model, tmp_path):
    image = pytest.importorskip("PIL.Image")
    stored = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), "uint8")
    for i, pixels in enumerate(stored):
        image.fromarray(pixels).save(tmp_path / f"{i}.png")
    paths, labels = [str(tmp_path / f"{i}.png") for i in range(5)], [0, 1, 2, 3, 4]
    lists = [[0, 3], [2, 5, 6], [], [1], [4]]
    (tmp_path / "real.json").write_text(json.dumps(lists))
    report = evaluate(model, (paths, labels), batch_size=2, real=tmp_path / "real.json")
    in_memory = evaluate(model, (stored, labels))
    assert report.correct == in_memory.correct
    filled = [([*paths, ""], [*labels, 0], [1] * 5 + [0])]  # as a loader fills the last batch
    assert evaluate(model, filled).correct == in_memory.correct
    predictions = keras.ops.convert_to_numpy(model(preprocess(stored))).argmax(axis=1)
    assert report.real == real_accuracy(predictions, lists) and report.real.left_out == 1
    with pytest.raises(ValueError, match=r"5 predictions and labels of 4 images"):
        evaluate(model, (paths, labels), real=lists[:4])


def test_a_vision_transformer(data):
    model = tiny_vit(depth=1, num_classes=2)
    model.get_layer("head").set_weights([np.zeros((8, 2)), np.log([1, 3])])
    model.class_names = ("no", "yes")
    report = evaluate(model, (data[0], data[1] % 2), batch_size=IMAGES)
    share = (data[1] % 2).mean()
    assert report.top1 == share
    assert report.loss == pytest.approx(share * np.log(4 / 3) + (1 - share) * np.log(4), abs=1e-6)
    assert report.calibration.expected_error == pytest.approx(abs(share - 0.75), abs=1e-6)
    assert report.confusion.class_names == model.class_names


@pytest.mark.any_backend
def test_other_models_and_few_or_many_classes(model, data, monkeypatch):
    net = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Flatten()])
    net.add(keras.layers.Dense(3))
    report = evaluate(net, (data[0], data[1] % 3))
    assert list(report.correct) == [1] and report.top5 is None, "of 3 classes there are no 5 best"
    assert list(evaluate(net, (data[0], data[1] % 3), top=2).correct) == [2]
    refuses(r"Of 3 classes.*top=\(5,\)", evaluate, net, (data[0], data[1] % 3), top=[5])
    # Of many classes there is no confusion matrix unless it is asked for.
    assert evaluate(model, data, confusion=False).confusion is None
    monkeypatch.setattr(sys.modules[evaluate.__module__], "_FEW_CLASSES", 6)
    assert evaluate(model, data).confusion is None
    assert evaluate(model, data, confusion=True).confusion is not None


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "change, warns",
    [
        (lambda x: 1.05 * x, None),  # [-1, 1], as the weights want, but for a bicubic overshoot
        (lambda x: (127.5 * (x + 1)).astype("int32"), "values from 0 to 25"),
        (lambda x: (x + 1) / 2, "values from \\S+ to (1|0.999), which go into"),
        (lambda x: (127.5 * (x + 1)).astype("uint8"), None),  # preprocessed
    ],
)
@pytest.mark.parametrize("wraps", [False, True])
def test_a_warning_of_values_that_the_model_was_not_trained_on(model, data, change, warns, wraps):
    if wraps:
        x = keras.Input(model.input_shape[1:])
        model = keras.Model(x, tiny_vit(num_classes=CLASSES)(x))
    images_ = np.interp(data[0], (data[0].min(), data[0].max()), (-1, 1)).astype("float32")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(model, (change(images_), data[1]), batch_size=8)
    found = [str(w.message) for w in caught if "wants values from" in str(w.message)]
    assert len(found) == (warns is not None), "once, not for each batch"
    assert all(re.search(warns, message) for message in found)


@pytest.mark.any_backend
def test_progress(model, data, capsys):
    evaluate(model, data, batch_size=8)
    assert capsys.readouterr() == ("", ""), "quiet where there is no terminal and no notebook"
    for shown in (data, iter(in_batches(*data))):
        evaluate(model, shown, batch_size=8, progress=True)
        out, err = capsys.readouterr()
        assert model.name in err and not out, "what is read by programs has no bars"
