"""Predictions: the right classes, in order, with the right names."""

import dataclasses
import importlib
import json

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import VisionTransformer
from keras_vit.data import Prediction, predict, preprocess
from keras_vit.evaluation import embed
from keras_vit.outputs import reading_of
from keras_vit.preprocessing import GOOGLE
from keras_vit.weights.fetch import DownloadError
from tests.support import assert_close, refuses, tiny_vit

MODULE = importlib.import_module("keras_vit.data.predict")  # the function has the same name

any_backend = pytest.mark.any_backend
COLORS = ("red", "green", "blue")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """No test downloads, finds names of the user's, or is told names by another test."""

    def refuse(*args, **kwargs):
        raise DownloadError("no network in tests")

    monkeypatch.setattr(MODULE, "fetch", refuse)
    monkeypatch.delenv(MODULE.IMAGENET_FILE, raising=False)
    MODULE.imagenet_class_names.cache_clear()


@pytest.fixture(scope="module")
def model():
    """Its logits are the mean of each colour, in [-1, 1], times 1, 2 and 3."""
    images = keras.Input((8, 8, 3))
    x = keras.layers.GlobalAveragePooling2D()(images)
    head = keras.layers.Dense(3, name="head")
    model = keras.Model(images, head(x))
    head.set_weights([np.diag([1.0, 2.0, 3.0]), np.zeros(3)])
    return model


def plain(color, height=4, width=6):
    return np.full((height, width, 3), color, "uint8")


def probabilities(logits):
    values = np.exp(np.array(logits, "float64"))
    return values / values.sum()


def test_order_probabilities_and_names(model):
    images = [plain((255, 0, 0)), Image.new("RGB", (3, 9), (0, 255, 0)), plain(255) / 255]
    first, second, third = predict(model, images, class_names=COLORS)
    assert [p.label for p in first] == ["red", "green", "blue"]
    assert [p.label for p in second] == ["green", "red", "blue"]
    assert [p.index for p in third] == [2, 1, 0]
    expected = probabilities([1, 2, 3])[::-1]
    np.testing.assert_allclose([p.probability for p in third], expected, atol=1e-6)
    for found in (first, second, third):
        assert sum(p.probability for p in found) == pytest.approx(1, abs=1e-12)
        assert all(type(p.probability) is float and type(p.index) is int for p in found)


def test_one_image_a_file_and_top(model, tmp_path):
    Image.new("RGB", (5, 5), (0, 0, 255)).save(tmp_path / "blue.png")
    (only,) = predict(model, tmp_path / "blue.png", top=1, class_names=COLORS)
    assert len(only) == 1 and only[0].label == "blue"
    assert len(predict(model, plain(0), top=2)[0]) == 2
    assert len(predict(model, plain(0), top=500)[0]) == 3


@pytest.mark.parametrize("batch_size", [2, 100])
def test_batches_change_nothing(model, batch_size):
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), "uint8")
    expected = [predict(model, image)[0] for image in images]
    actual = predict(model, images, batch_size=batch_size)
    assert [[p.index for p in one] for one in actual] == [[p.index for p in e] for e in expected]
    np.testing.assert_allclose(
        [[p.probability for p in one] for one in actual],
        [[p.probability for p in one] for one in expected],
        atol=1e-6,
    )
    assert predict(model, images[:0]) == []


@any_backend
def test_equal_logits_come_in_order(model):
    gray = np.full((4, 4, 3), 0.5)
    assert [p.index for p in predict(model, gray)[0]] == [0, 1, 2]


@any_backend
def test_printing():
    prediction = Prediction("tiger cat", 282, 0.93166)
    assert str(prediction) == "tiger cat 93.2%"
    assert repr([prediction]) == "[Prediction('tiger cat', index=282, probability=0.9317)]"
    label, index, probability = prediction
    assert (label, index, probability) == ("tiger cat", 282, 0.93166)


def test_vision_transformer():
    sizes = {"patch_size": 8, "width": 8, "depth": 1, "num_heads": 1, "mlp_dim": 8}
    vit = VisionTransformer(image_size=(16, 8), num_classes=4, **sizes)
    bias = np.array([0.0, 3.0, 1.0, 2.0])
    vit.get_layer("head").set_weights([np.zeros((8, 4)), bias])
    (found,) = predict(vit, plain(9))
    assert [p.label for p in found] == ["1", "3", "2", "0"], "no names: the numbers"
    np.testing.assert_allclose(
        [p.probability for p in found], np.sort(probabilities(bias))[::-1], atol=1e-6
    )
    with pytest.raises(ValueError, match=r"build it with num_classes.*Received: .*num_classes=0"):
        predict(VisionTransformer(image_size=8, num_classes=0, **sizes), plain(9))
    with pytest.raises(ValueError, match=r"pool other than None. Received.*\(None, 4, 3\)"):
        predict(tiny_vit(pool=None, class_token=False), plain(9))


def fresh(model, **attributes):
    """A model with attributes of its own on the shared layers."""
    copy = keras.Model(model.inputs[0], model.outputs[0])
    for name, value in attributes.items():
        setattr(copy, name, value)
    return copy


@any_backend
def test_names_of_the_model(model):
    named = fresh(model, class_names=("r", "g", "b"), label_set="imagenet-1k")
    assert predict(named, plain(255), top=1)[0][0].label == "b"
    assert predict(named, plain(255), top=1, class_names=COLORS)[0][0].label == "blue"
    with pytest.raises(ValueError, match=r"3 names.*Received: \('r', 'g'\), of length 2"):
        predict(fresh(model, class_names=("r", "g")), plain(255))


@any_backend
def test_imagenet_names_from_a_local_file(model, tmp_path, monkeypatch):
    path = tmp_path / "classes.json"
    index = {"0": ["n01", "tench"], "1": ["n02", "goldfish"], "2": ["n03", "great_white_shark"]}
    path.write_text(json.dumps(index))
    monkeypatch.setenv(MODULE.IMAGENET_FILE, str(path))
    imagenet = fresh(model, label_set="imagenet-1k")
    labels = [p.label for p in predict(imagenet, plain(255))[0]]
    assert labels == ["great white shark", "goldfish", "tench"]
    assert predict(model, plain(255))[0][0].label == "2", "another model has no such names"
    two = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"2 names.*'tench'.* of length 3"):
        predict(fresh(two, label_set="imagenet-1k"), plain(255))


@any_backend
@pytest.mark.parametrize("content", ["no json", "[1, 2]", '{"0": 1}', '{"1": ["n01", "tench"]}'])
def test_damaged_file_of_names(tmp_path, content):
    path = tmp_path / "classes.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"must be JSON such as .*Received: .*classes.json"):
        MODULE.imagenet_class_names(str(path))
    with pytest.raises(FileNotFoundError, match=r"KERAS_VIT_IMAGENET_CLASSES=.*absent"):
        MODULE.imagenet_class_names(str(tmp_path / "absent"))


@any_backend
def test_without_a_network_there_is_one_warning(model, recwarn):
    imagenet = fresh(model, label_set="imagenet-1k")
    for _ in range(3):
        assert predict(imagenet, plain(255))[0][0].label == "2"
    messages = [str(w.message) for w in recwarn if "ImageNet" in str(w.message)]
    assert len(messages) == 1
    assert "class_names=" in messages[0] and MODULE.IMAGENET_FILE in messages[0]
    assert "no network in tests" in messages[0]


@any_backend
@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"top": 0}, "top must be a positive integer. Received: top=0"),
        ({"top": 1.5}, "Received: top=1.5"),
        ({"batch_size": 0}, "Received: batch_size=0"),
        ({"class_names": ["a", "b"]}, "sequence of 3 names.*of length 2"),
        ({"class_names": "abc"}, "must be a sequence of 3 names.*Received: 'abc'"),
    ],
)
def test_wrong_arguments(model, arguments, expected):
    refuses(expected, predict, model, plain(0), **arguments)


@any_backend
def test_missing_files_before_any_work(model, tmp_path):
    Image.new("RGB", (5, 5)).save(tmp_path / "here.png")
    paths = [tmp_path / "here.png"] * 3 + [tmp_path / "absent.png"]
    with pytest.raises(FileNotFoundError, match="1 of 4 images do not exist"):
        predict(model, paths, batch_size=1)


@any_backend
def test_images_that_cannot_be_read_have_their_number_among_all(model):
    images = [Image.new("RGB", (5, 5))] * 5 + [Image.new("F", (5, 5))]
    with pytest.raises(ValueError, match=r"1 of 6 images cannot be read.*\n.*images\[5\]: "):
        predict(model, images, batch_size=2)
    with pytest.warns(UserWarning, match=r"images\[5\]: .*it is left out"):
        found = predict(model, images, batch_size=2, skip_corrupt=True)
    assert [best and len(best) for best in found] == [3] * 5 + [None]


def test_logits_that_are_no_numbers(model):
    broken = keras.Model(model.input, keras.layers.Lambda(lambda x: x * np.nan)(model.output))
    refuses(r"must be finite\. Received: NaN or infinity", predict, broken, plain(0))


def test_a_clone_keeps_its_preprocessing_names_and_reading():
    model = tiny_vit(image_size=8, patch_size=4, num_classes=1)
    model.preprocessing = dataclasses.replace(GOOGLE, mean=(0.2, 0.3, 0.4))
    model.class_names, model.reading = ("cat", "dog"), "sigmoid"
    clone, pixels = keras.models.clone_model(model), np.full((8, 8, 3), 99, np.uint8)
    clone.set_weights(model.get_weights())
    assert predict(clone, pixels) == predict(model, pixels)
    assert_close(preprocess(pixels, clone), preprocess(pixels, model), 0)


def test_a_model_without_a_preprocessing_says_so():
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]
    )
    with pytest.warns(UserWarning, match="does not say how its images are prepared"):
        predict(model, np.zeros((8, 8, 3), np.uint8))


@any_backend
def test_outputs_that_nothing_describes_are_read_alike_and_told(model):
    """The first outputs decide of all; what looks like sigmoids is no softmax without a word."""
    black, green = np.zeros((8, 8, 3), "uint8"), np.full((8, 8, 3), (0, 255, 0), "uint8")
    custom = keras.Model(model.input, model.output * 1.0)  # logits from -3 to 3
    custom.preprocessing = GOOGLE
    together = predict(custom, [green, black], reading="sigmoid")
    apart = predict(custom, [green, black], reading="sigmoid", batch_size=1)
    assert together == apart
    sigmoids = keras.Model(model.input, 1.0 / (1.0 + keras.ops.exp(-model.output)))
    sigmoids.preprocessing = GOOGLE
    with pytest.warns(UserWarning, match=r"all lie in \[0, 1\] without a sum of 1"):
        predict(sigmoids, black)


@any_backend
@pytest.mark.parametrize("name", ["hard_sigmoid", "sparsemax"])
def test_other_probabilities_at_the_end(model, name):
    ends = keras.layers.Activation(name)(model.output), getattr(keras.ops, name)(model.output)
    for end in ends:
        other = keras.Model(model.input, end)
        other.preprocessing = GOOGLE
        (found,) = predict(other, np.full((8, 8, 3), 100, "uint8"))
        outputs = other.predict(np.full((1, 8, 8, 3), 100 / 127.5 - 1), verbose=0)[0]
        expected = dict(enumerate(map(float, outputs)))
        assert {one.index: one.probability for one in found} == pytest.approx(expected, abs=1e-6)


@any_backend
def test_members_of_an_ensemble_and_outputs_with_names(model):
    """They are read as the members are, and as the one output is."""
    image, x = np.full((8, 8, 3), 100, "uint8"), keras.Input((8, 8, 3))
    members = [tiny_vit(image_size=8, patch_size=4) for _ in range(2)]
    for member in members:
        member.reading = "sigmoid"
        member.get_layer("head").bias.assign([3.0, 3.0, -3.0])
    expected = {one.index: one.probability for one in predict(members[0], image)[0]}
    outputs = [member(x) for member in members]
    for end in (keras.layers.Average()(outputs), keras.ops.mean(keras.ops.stack(outputs), 0)):
        for model in (keras.Model(x, end), keras.Model(x, {"classes": end})):
            model.preprocessing = GOOGLE
            found = {one.index: one.probability for one in predict(model, image)[0]}
            assert found == pytest.approx(expected, abs=1e-6)
    parts = [keras.layers.Activation("sigmoid")(output) for output in outputs]
    joined = reading_of(keras.Model(x, keras.layers.Concatenate()(parts)))
    assert (joined.name, joined.applied) == ("sigmoid", True)


def test_a_subclass_is_told_what_makes_it_predict():
    class Around(keras.Model):
        def call(self, x):
            return self.vit(x)

    model, x = Around(), keras.Input((16, 16, 3))
    model.vit = tiny_vit()
    refuses(r"make a graph of it, keras\.Model.*shape None", predict, model, plain(9))
    assert predict(keras.Model(x, model(x)), plain(9)) == predict(model.vit, plain(9))


@any_backend
def test_of_a_white_page_that_is_prepared_here_nobody_is_warned(tmp_path, recwarn):
    """All its values are above 0, as those of images without a normalisation are."""
    model, path = tiny_vit(), tmp_path / "page.png"
    Image.fromarray(np.arange(200, 248, dtype="uint8").reshape(4, 4, 3)).save(path)
    predict(model, path)
    embed(model, path)
    assert not [w for w in recwarn if "wants values" in str(w.message)]
