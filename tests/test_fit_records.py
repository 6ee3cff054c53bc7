"""What `fit` records of its data in a model, or in a network inside of it."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.data import ImageDataset, pipeline, preprocess
from keras_vit.evaluation import evaluate
from keras_vit.models import add_heads
from keras_vit.preprocessing import Preprocessing
from tests.class_cases import ABC, LABELS, PIXELS, RECIPE, fed, stored
from tests.support import refuses, tiny_bit, tiny_vit


@pytest.mark.parametrize("around", ["none", "softmax", "dense"])
def test_fit_gives_a_model_without_names_those_of_its_data(around, tmp_path):
    """The same images are later read with their classes in another order."""
    network = model = tiny_vit(depth=1, num_classes=0 if around == "dense" else 3)
    if around == "softmax":
        model = keras.Sequential([network, keras.layers.Softmax()])
    if around == "dense":
        model = keras.Sequential([network, keras.layers.Dense(3)])
    loss = keras.losses.CategoricalCrossentropy(from_logits=around != "softmax")
    model.compile("sgd", loss)
    training.fit(model, fed(training=True), tmp_path / "run", epochs=1)
    assert (model if around == "dense" else network).class_names == ABC
    before, after = (evaluate(model, fed(names), progress=False) for names in (ABC, ABC[::-1]))
    assert (before.top1, before.loss) == (after.top1, pytest.approx(after.loss))
    if around == "softmax":  # which Keras saves with the network inside
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        assert evaluate(again, fed(ABC[::-1]), progress=False).top1 == before.top1


def test_keras_own_fit_of_a_model_around_a_network_is_looked_at():
    """Keras tells a data set nothing of the model, whose `fit` knows nothing of pipelines."""
    network = tiny_vit(depth=1, num_classes=3)
    network.preprocessing, network.weights_from = (
        Preprocessing(mean=(0.4,), std=(0.2,)),
        "somewhere",
    )
    model = keras.Sequential([network, keras.layers.Rescaling(0.5)])  # by a temperature of 2
    model.compile("sgd", training.SoftmaxLoss())
    data, held_out = fed(training=True), pipeline(stored(), RECIPE, "test")
    with pytest.warns(UserWarning, match="the data's, which the model keeps") as warned:
        model.fit(data, validation_data=held_out, epochs=2, verbose=0)
    assert len([each for each in warned if "normalised" in str(each.message)]) == 1
    assert network.preprocessing == data.preprocessing
    assert (network.class_names, network.reading) == (ABC, "softmax")
    refuses(r"Received: 'c' as 0, which is 2 of the model", model.evaluate, fed(ABC[::-1]))
    model.preprocessing = network.preprocessing = Preprocessing(mean=(0.4,), std=(0.2,))
    for call in (model.predict, model.evaluate, network.predict):
        with pytest.warns(UserWarning, match="normalised as (sequential|vision_transf)"):
            call(pipeline(stored(), RECIPE, "test"), verbose=0)


class OfUser(keras.Model):
    """A user's own class around a network, without a graph, with attributes of its own."""

    def __init__(self, network, heads=(), **attributes):
        super().__init__()
        self.network, self.heads = network, [keras.layers.Dense(3, name=name) for name in heads]
        for name, value in attributes.items():
            setattr(self, name, value)

    def call(self, x):
        x = self.network(x)
        return {head.name: head(x) for head in self.heads} or x


@pytest.mark.any_backend
@pytest.mark.parametrize("make", [OfUser, lambda network: keras.Sequential([network])])
def test_a_model_that_is_built_by_its_first_batch_is_looked_at(make):
    network = tiny_vit(depth=1, num_classes=3)
    network.preprocessing = Preprocessing(mean=(0.4,), std=(0.2,))
    model, data = make(network), fed(training=True)
    model.compile("sgd", training.SoftmaxLoss())
    with pytest.warns(UserWarning, match="the data's, which the model keeps"):
        model.fit(data, verbose=0)
    assert network.preprocessing == data.preprocessing
    assert make is OfUser or network.class_names == ABC


@pytest.mark.any_backend
def test_keras_own_fit_leaves_what_the_user_has():
    """Attributes of these names may mean something else, and heads may be known to code alone."""
    network, data = tiny_vit(depth=1, num_classes=3), fed(training=True)
    rescale = keras.layers.Rescaling(1.0)
    named = {"preprocessing": rescale, "class_names": np.array(ABC)}
    model = OfUser(network, **named)
    model.compile("sgd", training.SoftmaxLoss())
    for _ in range(2):
        model.fit(data, verbose=0)
    assert model.preprocessing is rescale and model.class_names.tolist() == list(ABC)
    labels = {"one": LABELS, "two": LABELS}
    names, problem = dict.fromkeys(labels, ABC), dict.fromkeys(labels, "single_label")
    data = ImageDataset("set", PIXELS, labels, PIXELS, labels, names, problem=problem)
    model = OfUser(tiny_vit(depth=1, num_classes=0), heads=("one", "two"))
    model.compile("sgd", {head: training.SoftmaxLoss() for head in labels})
    model.fit(pipeline(data, RECIPE, "train", training=True), verbose=0)


@pytest.mark.parametrize("around", [False, True])
def test_classes_that_fit_recorded_give_way_to_those_of_the_next_fit(around):
    network = model = tiny_vit(depth=1, num_classes=3)
    if around:
        model = keras.Sequential([network, keras.layers.Rescaling(0.5)])
    model.compile("sgd", training.SoftmaxLoss())
    for names in (ABC, ("x", "a", "b"), ("p", "q", "r")):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            model.fit(fed(names, names, "single_label", names, training=True), verbose=0)
        assert network.class_names == names
    turned = ("r", "q", "p")
    data = fed(turned, turned, "single_label", turned, training=True)
    refuses("Received: 'r' as 0", model.fit, data, verbose=0)
    network.class_names = ABC  # which the user says
    refuses("Received: 'c' as 0", model.fit, fed(ABC[::-1], training=True), verbose=0)


@pytest.mark.any_backend
def test_fit_gives_each_head_without_names_those_of_its_data():
    model = add_heads(tiny_vit(depth=1, num_classes=0), {"letter": 3, "even": 2})
    model.class_names = {"even": ("no", "yes")}
    model.compile("sgd", {head: training.SoftmaxLoss() for head in ("letter", "even")})
    labels = {"letter": LABELS, "even": LABELS % 2}
    names = {"letter": ABC, "even": ("no", "yes")}
    problem = dict.fromkeys(names, "single_label")
    data = ImageDataset("set", PIXELS, labels, PIXELS, labels, names, problem=problem)
    model.fit(pipeline(data, RECIPE, "train", training=True), verbose=0)
    assert model.class_names == names
    for others in ({"letter": ("x", "b", "c")}, {"letter": ("p", "q", "r"), "even": ("yes", "no")}):
        later = ImageDataset("set", *[PIXELS, labels] * 2, {**names, **others}, problem=problem)
        later = pipeline(later, RECIPE, "train", training=True)
        if "even" in others:  # which the user has named
            refuses("Head 'even'.*Received: 'yes' as 0", model.fit, later)
        else:
            model.fit(later, verbose=0)
        assert model.class_names == {**names, "letter": ("x", "b", "c")}


def fit_any_size(data, around=lambda model: model):
    model = around(tiny_bit(image_size=24))
    model.compile("sgd", training.SoftmaxLoss())
    model.fit(*data, verbose=0)
    return model


def test_a_model_of_any_size_predicts_at_the_size_of_its_training(tmp_path):
    data = map(keras.ops.convert_to_tensor, (preprocess(PIXELS), LABELS))
    model, pixels = fit_any_size(data), np.zeros((40, 40, 3), "uint8") + 9
    model.save(tmp_path / "model.keras")
    again, size = keras.saving.load_model(tmp_path / "model.keras"), PIXELS.shape[1:3]
    assert preprocess(pixels, again).shape[1:3] == model.image_size == size != (24, 24)
    gray = np.zeros((4, 28, 28), "float32")
    refuses("incompatible|shape|expected", model.fit, gray, LABELS[:4], error=Exception)
    assert model.image_size == size


@pytest.mark.any_backend
def test_data_of_any_form_and_models_around_tell_the_size_of_training():
    size, generator = PIXELS.shape[1:3], ((preprocess(PIXELS), LABELS) for _ in range(1))
    for data in ([generator], [fed(training=True)], [preprocess(PIXELS), LABELS]):
        assert fit_any_size(data).image_size == size
    for around in (keras.models.clone_model, lambda model: keras.Model(model.input, model.output)):
        model = fit_any_size([fed(training=True)], around)
        assert preprocess(np.zeros((40, 40, 3), "uint8") + 9, model).shape[1:3] == size
    model = tiny_vit(image_size=24, variable_size=True)
    model.compile("sgd", training.SoftmaxLoss())
    with pytest.warns(UserWarning, match=r"another size than .*\(24, 24\); .*resize\(model"):
        model.fit(*data, verbose=0)
    assert model.image_size == (24, 24)
