"""A network with several heads: what it is made of, and what its file holds."""

import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training
from keras_vit.models import add_heads
from tests.support import images, precision, randomize, refuses, tiny_vit, to_numpy

HEADS = {"breed": 3, "age": 1}


def two_heads(**options):
    model = add_heads(tiny_vit(num_classes=0, **options), HEADS)
    model.reading = {"breed": "softmax", "age": "values"}
    model.class_names = {"breed": ("cat", "pug", "yak"), "age": None}
    return model


def test_each_head_is_a_layer_of_its_name_that_begins_at_zero():
    model = two_heads()
    assert not any(to_numpy(x).any() for x in model(images()).values())
    randomize(model)
    features = keras.Model(model.input, model.get_layer("breed").input)(images())
    for name, units in HEADS.items():
        layer = model.get_layer(name)
        expected = to_numpy(features) @ to_numpy(layer.kernel) + to_numpy(layer.bias)
        np.testing.assert_allclose(to_numpy(model(images())[name]), expected, atol=1e-5)
        assert model.num_classes[name] == units
    assert model.image_size == (16, 16) and model.channels == 3 and model.variant.width == 8


def test_its_file_says_how_each_head_is_read_and_what_images_it_wants(reopened):
    model = randomize(two_heads())
    model.preprocessing = keras_vit.Preprocessing(mean=(0.1,), std=(0.3,))
    opened = reopened(model)
    for name in ("preprocessing", "reading", "class_names", "num_classes", "name"):
        assert getattr(opened, name) == getattr(model, name)
    told = keras_vit.predict(opened, np.zeros((1, 16, 16, 3), "uint8"))
    assert {one.label for one in told["breed"][0]} == {"cat", "pug", "yak"}
    age = float(model(np.full((1, 16, 16, 3), -1 / 3, "float32"))["age"][0, 0])
    assert told["age"][0][0].value == pytest.approx(age, rel=1e-4)


@pytest.mark.parametrize("is_quantised", [False, True])
def test_its_file_keeps_what_is_frozen_adapted_and_quantised(reopened, is_quantised):
    model = randomize(two_heads())
    if is_quantised:
        model.quantize("int8")
        training.enable_lora(model, 2, ("attention", "breed"), alpha=3.0, train=())
    else:
        training.freeze(model, ("block_0", "bias", "age"))
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape) / 5)
    opened = reopened(model)
    trained, expected = ([v.path for v in m.trainable_variables] for m in (opened, model))
    assert trained == expected
    assert opened.get_layer("age").trainable == model.get_layer("age").trainable
    for name, outputs in opened(images()).items():
        np.testing.assert_allclose(to_numpy(outputs), to_numpy(model(images())[name]), atol=1e-6)


def test_its_losses_say_how_each_head_is_read(reopened):
    model = add_heads(tiny_vit(num_classes=0), HEADS)
    assert model.reading is None
    model.compile("sgd", {"breed": keras_vit.training.SoftmaxLoss(), "age": "mse"})
    for compiled in (True, False):
        opened = reopened(model, compile=compiled)
        assert opened.reading == {"breed": "softmax", "age": "values"}
        assert opened.compiled is compiled


@pytest.mark.parametrize("wrong", [-1, 3])
def test_labels_of_a_head_that_are_numbers_of_no_class(wrong):
    model = two_heads()
    model.compile("sgd", {"breed": training.SoftmaxLoss(), "age": "mse"})
    labels = {"breed": np.array([0, 1, 2, wrong]), "age": np.arange(4.0)}
    refuses(rf"'breed'.*from 0 to 2.*Received: {wrong}", model.fit, images(), labels, verbose=0)


def test_an_accuracy_of_a_head_takes_labels_of_one_form():
    model, age = two_heads(), np.arange(4.0)
    loss = {"breed": training.SoftmaxLoss(), "age": "mse"}
    model.compile("sgd", loss, metrics={"breed": ["accuracy"]})
    rows = {"breed": np.eye(3)[[0, 1, 2, 0]], "age": age}
    assert model.evaluate(images(), rows, verbose=0) == model.evaluate(images(), rows, verbose=0)
    numbers = {"breed": np.array([0, 1, 2, 0]), "age": age}
    refuses("'accuracy'.*one form.*Accuracy", model.evaluate, images(), numbers, verbose=0)


@pytest.mark.any_backend
def test_what_takes_the_logits_of_a_head_for_probabilities_is_warned_of():
    """As that of a network with one head; lists have Keras's order, which is that of letters."""
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    exclusive = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    auc, right = keras.metrics.AUC(), keras.metrics.AUC(from_logits=True)
    cases = (
        ({"tag": "binary_crossentropy", "age": "mse"}, None, "tag"),
        ({"tag": binary, "breed": "sparse_categorical_crossentropy"}, None, "breed"),
        ({"tag": binary, "age": "mse"}, {"tag": ["mse", auc], "age": auc}, "tag"),
        ({"age": "mse", "tag": binary}, [auc, [right], ["accuracy"]], "tag"),
        ({"breed": exclusive, "tag": binary}, [["mse"], [auc], [right]], "breed"),
    )
    for loss, metrics, head in cases:
        model = add_heads(tiny_vit(num_classes=0), {"tag": 2, **HEADS})
        assert model.output_names == ["age", "breed", "tag"]
        for argument in ("metrics", "weighted_metrics"):
            with pytest.warns(UserWarning, match=f"^Head '{head}' of .* gives logits") as caught:
                model.compile("sgd", loss, **{argument: metrics})
            assert len(caught) == 1 and caught[0].filename == __file__
        assert model.reading["tag"] == "sigmoid"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = {"breed": exclusive, "tag": binary, "age": "mse"}
        model.compile("sgd", loss, metrics=[["mse", auc], ["accuracy"], [right]])
    assert model.reading == {"breed": "softmax", "tag": "sigmoid", "age": "values"}


@pytest.mark.any_backend
def test_a_softmax_of_a_head_with_one_output_is_refused(reopened):
    """By `compile`; a file of before, which has such a loss, opens with a warning."""
    loss = {"breed": "mse", "age": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}
    model, message = randomize(two_heads()), r"^Head 'age': A softmax of one output is always 1"
    refuses(message, model.compile, "adam", loss)
    assert model.compiled
    with pytest.warns(UserWarning, match=message):
        opened = reopened(model)
    assert opened.compiled and opened.optimizer.built and opened.reading == model.reading
    np.testing.assert_array_equal(opened.get_weights()[0], model.get_weights()[0])


@pytest.mark.any_backend
def test_heads_keep_their_precision_beside_a_network_in_half():
    with precision("mixed_bfloat16"):
        outputs = two_heads()(images())
    assert {keras.backend.standardize_dtype(x.dtype) for x in outputs.values()} == {"float32"}


@pytest.mark.any_backend
def test_features_are_what_all_heads_read():
    model = two_heads()
    assert keras_vit.evaluation.features(model).output is model.get_layer("age").input
    assert keras_vit.evaluation.embed(model, images()).shape == (4, 8)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["patches", "block_0", "the breed", "a/b", "größe", ""])
def test_names_that_no_head_can_have(name):
    with pytest.raises(ValueError, match=rf"Received: '{name}', which .* rename the column"):
        add_heads(tiny_vit(num_classes=0), {name: 2, "age": 1})


@pytest.mark.any_backend
def test_networks_that_take_no_heads():
    distiller = training.Distiller(tiny_vit(), tiny_vit())
    for network in (tiny_vit(), tiny_vit(num_classes=0, pool=None), distiller):
        refuses(r"num_classes=0, and with a pool\. Received: ", add_heads, network, HEADS)
    refuses("two or more; of one output", add_heads, tiny_vit(num_classes=0), {"age": 1})
