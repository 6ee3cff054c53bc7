"""Which class is which, by name: in measuring, in probes and in training."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.class_names import class_map
from keras_vit.data import ImageDataset, Transform, pipeline
from keras_vit.evaluation import evaluate, fewshot, probe
from keras_vit.models import add_heads
from keras_vit.preprocessing import Preprocessing
from tests.data.pipeline_cases import recipe
from tests.support import images, refuses, tiny_vit

SIZE, ABC = 16, ("a", "b", "c")
LABELS = (np.arange(12) % 3).astype("int32")
PIXELS = np.random.default_rng(0).integers(0, 256, (12, SIZE, SIZE, 3), "uint8")
PIXELS //= 1 + LABELS[:, None, None, None].astype("uint8")  # so that classes are to be told
RECIPE = recipe(4, Transform(SIZE, "squash"))


def stored(names=ABC, kept=ABC, problem="single_label", order=ABC):
    """The images of some classes: `names` call them in the order of their numbers there."""
    rows = np.flatnonzero(np.isin(np.array(order)[LABELS], kept))
    labels = np.array([names.index(order[label]) for label in LABELS[rows]])
    if problem == "multi_label":
        labels = np.eye(len(names))[labels]
    parts = (PIXELS[rows], labels) * 2
    return ImageDataset("set", *parts, names, problem=problem)


def fed(*names, **options):
    return pipeline(stored(*names), RECIPE, "train", training=options.pop("training", False))


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


@pytest.mark.any_backend
def test_outputs_and_weights_of_other_classes_are_refused():
    for outputs in (2, 5):
        model = tiny_vit(depth=1, num_classes=outputs)
        model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
        message = f"Received: {outputs} of 'vision_transformer.*' for 3 classes; give the model"
        refuses(message, model.fit, fed(training=True), verbose=0)
    # Keras would give weights to other classes.
    x, y = images((4, 16, 16, 3)), np.array([0, 1, 2, 0])
    several = keras.losses.BinaryCrossentropy(from_logits=True)
    for loss, labels, weights, message in (
        (training.SoftmaxLoss(), y, {"cat": 2.0}, "numbers of classes, 0..2.*Received: 'cat'"),
        (training.SoftmaxLoss(), y, {1: 2.0, 3: 1.0}, "Received: 3"),
        (training.SoftmaxLoss(), y, {1: 2.0, 2: -1.0}, "class_weight must.*Received: -1"),
        (several, np.ones((4, 3)), {0: 1.0, 1: 2.0}, "one class of several.*sample_weight"),
        ("mse", np.ones((4, 3)), {0: 1.0, 1: 2.0}, "one class of several"),
    ):
        model = tiny_vit()
        model.compile("sgd", loss=loss)
        refuses(message, model.fit, x, labels, class_weight=weights, verbose=0)
    model.compile("sgd", loss=training.SoftmaxLoss())
    model.fit(x, y, class_weight={1: 2.0}, verbose=0)


@pytest.mark.any_backend
def test_values_and_images_that_are_no_numbers_are_told_of():
    x, y, model = images((4, 16, 16, 3)), np.array([1.0, 2.0, 3.0, np.inf]), tiny_vit(num_classes=1)
    model.compile("sgd", "mse")
    refuses("one finite value.*Received: inf", model.fit, x, y, verbose=0)
    refuses("one finite value.*Received: nan", model.evaluate, x, y * np.nan, verbose=0)
    x[2, 3, 4, 1] = np.nan
    with pytest.warns(UserWarning, match="Received: values from nan to nan"):
        model.predict(x, verbose=0)


@pytest.mark.any_backend
def test_a_metric_of_labels_of_another_form_is_refused(named, tmp_path):
    """Images to train on have rows, as they are mixed, and those of a validation set numbers."""
    data, held_out = fed(training=True), fed()
    around = keras.Sequential([named, keras.layers.Dense(3)])
    around.compile("sgd", training.SoftmaxLoss(), metrics=["accuracy"])
    run, options = training.fit, {"epochs": 1, "validation": held_out}
    refuses("'accuracy'.*Received.*Accuracy", run, around, data, tmp_path / "run", **options)
    named.compile("sgd", training.SoftmaxLoss(), metrics=["accuracy"])
    fit = named.fit
    refuses("'accuracy'.*Received.*Accuracy", fit, data, validation_data=held_out, verbose=0)
    named.compile("sgd", training.SoftmaxLoss(), metrics=[training.Accuracy()])
    history = fit(data, validation_data=held_out, verbose=0).history
    report = evaluate(named, held_out, progress=False)
    assert history["val_top_1_accuracy"] == [pytest.approx(report.top1)]
    named.compile("sgd", training.SoftmaxLoss(), metrics=["accuracy"])
    images = PIXELS / np.float32(127.5) - 1
    named.evaluate(images, LABELS, verbose=0)
    refuses("'accuracy'.*Received.*Accuracy", named.evaluate, images, np.eye(3)[LABELS], verbose=0)
