"""Which class is which, by name: in measuring, in probes and in training."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.class_names import class_map
from keras_vit.data import ImageDataset, pipeline
from keras_vit.evaluation import evaluate, fewshot, probe
from tests.class_cases import ABC, LABELS, PIXELS, RECIPE, SIZE, fed, stored
from tests.support import refuses, tiny_vit


@pytest.fixture(scope="module")
def model():
    model = tiny_vit(depth=1, num_classes=3)
    kernel = np.random.default_rng(1).normal(size=(8, 3))
    model.get_layer("head").set_weights([kernel, np.zeros(3)])
    return model


@pytest.fixture
def named(model):
    model.class_names = ABC
    yield model
    model.class_names = model.reading = None


@pytest.mark.any_backend
def test_classes_of_one_name_values_and_a_single_sigmoid():
    """ImageNet has two cranes, a bird and a machine, and two maillots."""
    model = ("crane", "dog", "crane")
    assert class_map("single_label", model, model, (3,)) is None
    data = ("dog", "crane", "crane")
    assert class_map("single_label", model, data, (3,)).tolist() == [1, 0, 2]
    assert class_map("single_label", model, ("dog",), (3,)).tolist() == [1]
    for known, data in ((model, ("crane", "dog")), (("crane", "dog"), model)):
        with pytest.raises(ValueError, match=r"Received: \d and \d of 'crane'; give them diff"):
            class_map("single_label", known, data, (len(known),))
    targets = ("height", "weight")
    assert class_map("regression", targets, targets[::-1], (2,)).tolist() == [1, 0]
    assert class_map("regression", targets, ("x", "weight"), (2,)) is None
    refuses("must have the same places", class_map, "regression", targets, ("weight", "x"), (2,))
    yes = class_map("single_label", ("cat",), ("cat", "other"), (1, 2))
    assert yes.tolist() == [1, 0]
    assert class_map("single_label", ("cat",), ("any", "cat"), (1, 2)) is None
    assert class_map("single_label", ("cat",), ("cat",), (1, 2)).tolist() == [1]
    assert class_map("multi_label", ("cat",), ("cat",), (1, 2)) is None


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_the_same_classes_in_another_order_have_the_same_figures(named, problem):
    named.reading = "sigmoid" if problem == "multi_label" else "softmax"
    expected = evaluate(named, stored(problem=problem)).figures
    assert evaluate(named, stored(("c", "a", "b"), problem=problem)).figures == expected
    named.class_names = ABC[::-1]  # the model calls its first class c: other figures, by name
    by_name = evaluate(named, stored(problem=problem, order=ABC[::-1], names=ABC[::-1])).figures
    assert evaluate(named, stored(problem=problem, order=ABC[::-1])).figures == by_name == expected


def test_a_pipeline_and_some_of_the_classes(named):
    part = stored(("b", "c"), kept=("b", "c"))
    report = evaluate(named, pipeline(part, RECIPE, "test"))
    assert report.confusion.matrix.sum(axis=1).tolist() == [0, 4, 4]
    assert report.confusion.class_names == ABC
    same = evaluate(named, stored(kept=("b", "c")))
    assert report.confusion.matrix.tolist() == same.confusion.matrix.tolist()


@pytest.mark.any_backend
def test_names_that_the_model_lacks_and_names_that_are_all_others(named):
    unknown = r"does not know, \['x'\]; the data has 3 and the model 3"
    refuses(unknown, evaluate, named, stored(("a", "b", "x"), order=("a", "b", "x")))
    others, known = ("n01", "n02", "n03"), evaluate(named, stored()).figures
    with pytest.warns(UserWarning, match=r"order decides. Received: 'n01' for 'a' of the model"):
        assert evaluate(named, stored(others, others, order=others)).figures == known
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        numbers = ("0", "1", "2")  # data without names
        assert evaluate(named, stored(numbers, numbers, order=numbers)).figures == known
        named.class_names = None
        assert evaluate(named, stored(ABC[::-1], order=ABC[::-1])).figures == known


@pytest.mark.any_backend
def test_numbers_as_names_in_the_order_of_text_are_told_of():
    """Folders 0 to 10 are sorted so; a model that learned from arrays has "10" as class 10."""
    in_order = tuple(map(str, range(11)))
    folders = tuple(sorted(in_order))
    with pytest.warns(UserWarning, match=r"order of text.* Received: '10' as class 2; set model"):
        assert class_map("single_label", None, folders, (11,)) is None
    with warnings.catch_warnings(action="error"):
        class_map("single_label", None, in_order, (11,))
        assert class_map("single_label", in_order, folders, (11,)).tolist()[:4] == [0, 1, 10, 2]


@pytest.mark.any_backend
def test_values_are_not_the_numbers_of_classes(named):
    """A model that estimates three values has no place for two classes."""
    named.reading = "values"
    data = stored(ABC[:2], ABC[:2])
    refuses(r"a sequence of 3 names .* Received: \('a', 'b'\), of length 2", evaluate, named, data)


def test_each_head_has_names_and_numbers_of_its_own():
    x = keras.Input((SIZE, SIZE, 3))
    flat = keras.layers.Flatten()(x)
    dense = {head: keras.layers.Dense(3, name=head)(flat) for head in ("first", "second")}
    model = keras.Model(x, dense)
    model.reading, model.preprocessing = "softmax", tiny_vit(depth=1).preprocessing
    model.class_names = {"first": ABC, "second": ABC}

    names = {"first": ABC, "second": ABC[::-1]}
    labels = {"first": LABELS, "second": 2 - LABELS}  # the same classes
    problem = dict.fromkeys(dense, "single_label")
    data = ImageDataset("set", *(PIXELS, labels) * 2, names, problem=problem)
    expected = evaluate(model, (PIXELS, dict.fromkeys(dense, LABELS)))
    assert evaluate(model, data).figures == expected.figures


def test_probes_match_the_images_to_test_on(named):
    part = stored(("b", "c"), kept=("b", "c"))
    arrays = stored(kept=("b", "c"))
    train = (stored().train_images, stored().train_labels)
    expected = fewshot(named, train, (arrays.test_images, arrays.test_labels), 2)
    assert fewshot(named, stored(), part, 2).accuracy == expected.accuracy
    assert probe(named, stored(), part, 2).mean[2] == expected.accuracy[2][0]
    unknown = r"training data does not know, \['a'\]"
    refuses(unknown, fewshot, named, part, stored(), 2)
    refuses(unknown, probe, named, part, stored())


@pytest.mark.any_backend
def test_training_refuses_classes_with_other_numbers(named, tmp_path):
    named.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    def fit(data, validation=None):
        named.fit(data, validation_data=validation, verbose=0)

    def fit_in_run(data, validation=None):
        training.fit(named, data, tmp_path, epochs=1, validation=validation)

    for train in (fit, fit_in_run):
        refuses(r"Received: 'c' as 0, which is 2 of the model", train, fed(ABC[::-1]))
        refuses(r"the model does not know, \['x'\]", train, fed((*ABC, "x")))
        refuses(r"'b' as 0, which is 1 of the training data", train, fed(), fed(("b", "a", "c")))
        wrong = pipeline(stored(("b", "c"), ("b", "c")), RECIPE, "test")
        refuses(r"'b' as 0, which is 1 of the training data", train, fed(), wrong)
    refuses(r"Received: 'c' as 0, which is 2 of the model", named.evaluate, fed(ABC[::-1]))
    assert len(named.evaluate(fed(), verbose=0, return_dict=True)) == 1


def test_training_goes_on_with_the_same_names_and_without(named, tmp_path):
    named.compile("sgd", training.SoftmaxLoss())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        held_out = pipeline(stored(), RECIPE, "test[8:]")  # other images than those of training
        train = pipeline(stored(), RECIPE, "train[:8]", training=True)
        assert "val_loss" in named.fit(train, validation_data=held_out, verbose=0).history
        named.class_names = None
        named.fit(fed(ABC[::-1], training=True), verbose=0)
