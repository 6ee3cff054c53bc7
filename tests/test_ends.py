"""How a model is read that is made of others: of one and a layer more, or of several."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import evaluation
from keras_vit.ends import known_of_end
from keras_vit.exports.graph import served
from keras_vit.layers import StdConv2D
from keras_vit.outputs import Reading, reading_of
from tests.support import images, refuses, tiny_bit, tiny_vit
from tests.test_outputs import LOGITS, PICTURE, SIGMOIDS, SOFTMAX, close, model_with, told

pytestmark = pytest.mark.any_backend


def members(*readings):
    """Models of the same outputs that are read as given, each called with the same images."""
    networks, x = [model_with() for _ in readings], keras.Input((16, 16, 3))
    for network, reading in zip(networks, readings):
        network.reading = reading
    return x, networks, [network(x) for network in networks]


def around(network, of=keras.Model):
    """A user's own model or layer, which calls a network in its code."""

    class Around(of):
        def call(self, x):
            return self.network(x)

    outer = Around()
    outer.network = network
    return outer


def test_what_may_change_how_the_model_inside_is_read_is_asked_about():
    """As a temperature may, or a function of the user's; a softmax is what is taken anyway."""
    layers, ask = keras.layers, r"read as \w+, a layer follows that may change.*set model\.reading"
    for reading, expected in (("sigmoid", SIGMOIDS), ("values", LOGITS), ("softmax", SOFTMAX)):
        x, (inner, _), (y, z) = members(reading, reading)
        for outer in (
            keras.Model(inner.input, inner.output / 1.0),
            keras.Model(x, y / 1.0),
            keras.Sequential([inner, layers.Rescaling(1.0)]),
            keras.Sequential([inner, layers.Lambda(lambda x: x)]),
            keras.Sequential([keras.Model(inner.input, inner.output * 1.0), layers.Identity()]),
            keras.Model(x, (y + z) / 2),
            keras.Model(x, around(inner)(x)),
            keras.Model(x, around(inner, keras.Layer)(x)),
        ):
            outer.preprocessing = inner.preprocessing
            if reading == "softmax":
                close(told(outer), expected)
                continue
            refuses(ask, told, outer)
            close(told(outer, reading=reading), expected)
            outer.reading = reading
            close(told(outer), expected)
        ended = keras.Sequential([outer, layers.Softmax()])  # its end tells
        ended.preprocessing = inner.preprocessing
        assert reading_of(ended).name == "softmax"
        assert reading_of(keras.Sequential([inner, layers.Dense(3)])).name == "softmax"
        if reading != "softmax":
            refuses(ask, reading_of, around(inner), outputs=3)


def test_members_that_are_read_differently_or_name_their_outputs_differently():
    for readings in (("sigmoid", "softmax"), ("softmax", "sigmoid"), ("sigmoid", None)):
        x, (first, second), outputs = members(*readings)
        for end in (keras.layers.Average()(outputs), keras.layers.Concatenate()(outputs)):
            refuses("are read as sigmoid and softmax, at once", reading_of, keras.Model(x, end))
    ends = [keras.layers.Softmax()(outputs[0]), keras.layers.Activation("sigmoid")(outputs[1])]
    refuses("at once", reading_of, keras.Model(x, keras.layers.Average()(ends)))
    for readings in (("sigmoid", "sigmoid"), ("softmax", None)):
        x, (first, second), outputs = members(*readings)
        mean = keras.Model(x, keras.layers.Average()(outputs))
        mean.preprocessing = first.preprocessing
        assert reading_of(mean).name == readings[0] and not reading_of(mean).applied
    first.class_names = ("x", "y", "z")
    assert {one.label for one in keras_vit.predict(mean, PICTURE)[0]} == {"x", "y", "z"}
    second.class_names = ("z", "y", "x")
    refuses(r"same class_names.*set model\.class_names", keras_vit.predict, mean, PICTURE)
    mean.class_names = ("x", "y", "z")
    keras_vit.predict(mean, PICTURE)


@pytest.mark.parametrize("make", ["picked", "called", "reopened", "passed on"])
def test_one_of_several_heads_keeps_its_reading_and_names(make, tmp_path):
    heads = keras_vit.add_heads(tiny_vit(num_classes=0), {"tags": 3, "age": 3, "x": 3, "kind": 3})
    heads.reading = {"tags": "sigmoid", "age": "values", "kind": "softmax"}
    heads.class_names = {"tags": ("a", "b", "c"), "kind": ("d", "e", "f")}

    def one(name):
        x = keras.Input((16, 16, 3))
        y = {"called": heads(x), "passed on": heads(x)}.get(make, heads.output)[name]
        y = keras.layers.Dropout(0.1)(y) if make == "passed on" else y
        model = keras.Model(heads.input if make in ("picked", "reopened") else x, y)
        if make == "reopened":
            model.save(tmp_path / "one.keras")
            model = keras.saving.load_model(tmp_path / "one.keras")
        return model

    for name, reading in heads.reading.items():
        assert reading_of(one(name)) == Reading(reading, False)
        assert known_of_end(one(name), "class_names") == heads.class_names.get(name)
    refuses("Each head has a reading of its own.*with no loss for 'x'", reading_of, one("x"))
    x = keras.Input((16, 16, 3))
    both = keras.layers.Concatenate()([heads(x)["tags"], heads(x)["age"]])
    refuses("read as sigmoid and values, at once", reading_of, keras.Model(x, both))


def test_a_model_inside_that_was_trained_is_read_by_its_loss():
    x = keras.Input((4,))
    for loss, reading in (("mse", "values"), (keras.losses.BinaryCrossentropy(True), "sigmoid")):
        inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        inner.compile("sgd", loss)
        for outer in (keras.Model(x, inner(x)), keras.Sequential([x, inner])):
            assert reading_of(outer) == Reading(reading, False)
        several = keras.Model(x, {"a": inner(x), "b": keras.layers.Dense(2)(x)})
        several.compile("sgd", {"a": loss, "b": "mae"})
        assert reading_of(keras.Model(x, several(x)["a"])).name == reading
        assert reading_of(keras.Model(x, several(x)["b"])).name == "values"


@pytest.mark.parametrize("name", ["relu", "tanh", "exponential", "softplus"])
def test_an_activation_makes_no_logits(name):
    layers = keras.layers
    for end in (
        [layers.Dense(3, activation=name)],
        [layers.Dense(3), layers.Activation(name)],
        [layers.Dense(3, activation=name), layers.Identity()],
        [layers.Dense(3), getattr(keras.activations, name)],
    ):
        x = y = keras.Input((4,))
        for layer in end:
            y = layer(y)
        model = keras.Model(x, y)
        refuses("makes no logits.*set model.reading", reading_of, model)
        assert reading_of(model, "values") == Reading("values", False)
        model.compile("sgd", "mse")
        assert reading_of(model).name == "values"
    for end in (layers.PReLU(), layers.LeakyReLU(), keras.ops.abs):
        model = keras.Model(x, end(layers.Dense(3)(x)))
        refuses("makes no logits", reading_of, model)
    for logits in (layers.Dense(3), layers.Dense(3, activation="log_softmax")):
        assert reading_of(keras.Sequential([keras.Input((4,)), logits])) == Reading("softmax")


@pytest.mark.parametrize("around", [0, 1, 2])
def test_features_are_no_classes(around):
    """A softmax of features looks like probabilities."""
    model = tiny_vit(num_classes=0) if around else evaluation.features(tiny_vit())
    for _ in range(around):
        x = keras.Input((16, 16, 3))
        end = keras.layers.Dropout(0.1) if around == 1 else keras.layers.UnitNormalization()
        model = keras.Model(x, end(model(x)))
    labelled = images((1, 16, 16, 3)), np.array([0])
    refuses("Features are no classes", evaluation.evaluate, model, labelled)
    refuses("no classes|shape .batch, classes", keras_vit.predict, model, PICTURE)
    graph = served(model, takes_pixels=True)
    assert graph.texts["output"] == "features" and "reading" not in graph.texts
    features = model.predict_on_batch((PICTURE / 127.5 - 1).astype("float32"))
    np.testing.assert_allclose(graph.model.predict_on_batch(PICTURE), features, atol=1e-5)
    assert (reading_of(model, "values").scores(features) == features).all()


@pytest.mark.parametrize("make", [tiny_vit, tiny_bit])
def test_a_network_that_is_cut_before_its_head_gives_features(make):
    network = make()
    cut = keras.Model(network.input, network.layers[-2].output)
    labelled = images((1, 16, 16, 3)), np.array([0])
    refuses("Features are no classes", evaluation.evaluate, cut, labelled)
    refuses("Features are no classes", keras_vit.predict, cut, PICTURE)
    assert served(cut, takes_pixels=True).texts["output"] == "features"
    assert "into features" in keras_vit.model_card(cut).text
    as_list = keras.Sequential([network.input, *network.layers[1:-1]])
    refuses("Features are no classes", reading_of, as_list)
    headed = keras.Model(network.input, keras.layers.Dense(3)(cut.output))
    assert reading_of(headed).name == "softmax"
    cut.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    keras_vit.predict(cut, PICTURE)
    assert f"into logits of {cut.output_shape[-1]} classes" in keras_vit.model_card(cut).text


def test_a_network_that_is_cut_and_has_another_head_is_taken_for_one_of_classes():
    """Prototypes of classes, or a convolution whose map is averaged; but not a pool alone."""
    layers, ops = keras.layers, keras.ops
    vit, bit = tiny_vit(num_classes=0), tiny_bit()
    tokens, maps = vit.get_layer("block_1").output, bit.get_layer("relu").output
    prototypes = np.ones((vit.output_shape[-1], 3), "float32")
    for x, end in (
        (vit.input, ops.matmul(ops.normalize(vit.output), prototypes)),
        (bit.input, layers.GlobalAveragePooling2D()(StdConv2D(3, 1)(maps))),
    ):
        model = keras.Model(x, end)
        assert reading_of(model).name == "softmax"
        assert len(keras_vit.predict(model, PICTURE)[0]) == 3
    pooled = layers.GlobalAveragePooling2D()(maps), tokens[:, 0]
    for x, end in zip((bit.input, vit.input), pooled):
        refuses("Features are no classes", reading_of, keras.Model(x, end))


def test_a_sigmoid_that_is_changed_is_asked_about():
    """Percent were taken for logits of a softmax."""
    vit, layers = tiny_vit(num_classes=0), keras.layers
    p = layers.Dense(3, "sigmoid")(vit.output)
    for end in (layers.Rescaling(100.0)(p), keras.ops.cast(p > 0.5, "float32")):
        model = keras.Model(vit.input, end)
        refuses(r"makes no logits.*set model\.reading", reading_of, model)
        texts = served(model, takes_pixels=False).texts
        assert (texts["output"], texts["reading"]) == ("unknown", "unknown")
    gated = layers.Multiply()([layers.Dense(3)(vit.output), p])
    assert reading_of(keras.Model(vit.input, gated)).name == "softmax"
    learned = keras.Model(vit.input, layers.BatchNormalization()(p))
    assert reading_of(learned).name == "softmax"
