"""How outputs are read: by record, end, loss; the same by predictions, reports, files and cards."""

import functools
import json
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import evaluation, recipes, training
from keras_vit.outputs import Reading, reading_of, reading_of_loss
from keras_vit.training.feed import check_labels
from tests.support import every_backend, images, refuses, tiny_vit

pytestmark = pytest.mark.any_backend

LOGITS = np.array([3.0, 3.0, -3.0])
SIGMOIDS = 1 / (1 + np.exp(-LOGITS))
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum()
PICTURE = np.full((1, 16, 16, 3), 100, "uint8")


def model_with(logits=LOGITS, **options):
    """A model whose outputs are these, whatever it sees: its kernel is zero."""
    model = tiny_vit(num_classes=len(logits), **options)
    model.get_layer("head").bias.assign(logits)
    return model


def told(model, **options):
    (found,) = keras_vit.predict(model, PICTURE, **options)
    return {one.index: one[2] for one in found}


def close(found, expected):
    np.testing.assert_allclose([found[i] for i in range(len(found))], expected, atol=1e-5)


LOSSES = {
    "sigmoid": [
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.losses.BinaryFocalCrossentropy(from_logits=True),
        training.SigmoidLoss(),
        functools.partial(keras.losses.binary_crossentropy, from_logits=True),
        [keras.losses.BinaryCrossentropy(from_logits=True)],
        type("Weighted", (keras.losses.BinaryCrossentropy,), {})(from_logits=True),
    ],
    "softmax": [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.losses.CategoricalFocalCrossentropy(from_logits=True),
        training.SoftmaxLoss(0.1),
    ],
    "values": ["mse", "mean_absolute_error", keras.losses.Huber(), keras.losses.LogCosh()],
}


@pytest.mark.parametrize("reading", LOSSES)
def test_the_compiled_loss_tells(reading):
    expected = {"sigmoid": SIGMOIDS, "softmax": SOFTMAX, "values": LOGITS}[reading]
    for loss in LOSSES[reading]:
        model = model_with()
        model.compile(loss=loss)
        assert model.reading == reading
        close(told(model), expected)
        outer = keras.Sequential([keras.Input((16, 16, 3)), model_with()])  # has no record
        outer.compile(loss=loss)
        outer.preprocessing = model.preprocessing
        close(told(outer), expected)


def test_losses_that_tell_nothing():
    for loss in (None, "hinge", lambda y, z: z, ["mse", "mse"], {"a": "mse", "b": "bce"}):
        assert reading_of_loss(loss) == (None, None)
    assert reading_of_loss("binary_crossentropy") == ("sigmoid", False)
    assert reading_of_loss(keras.losses.CategoricalCrossentropy()) == ("softmax", False)
    model = model_with()
    model.compile(loss=lambda y, z: keras.ops.mean(y * z))  # of several labels at once, say
    with pytest.warns(UserWarning, match="taken for those of a softmax.*Received: loss=<function"):
        close(told(model), SOFTMAX)
    model.reading = "sigmoid"
    close(told(model), SIGMOIDS)


@every_backend
def test_a_single_logit_is_asked_about():
    """A softmax of one number is 1 whatever the image shows."""
    model = model_with([-2.0])
    for use in (told, lambda m: keras_vit.export(m, "never.onnx", preprocess=True)):
        refuses(r"nothing says which.*model\.reading = 'sigmoid'", use, model)
    with pytest.raises(ValueError, match="nothing says which"):
        evaluation.evaluate(model, (images((4, 16, 16, 3)), np.array([0, 1, 0, 1])))
    refuses("A softmax of one output is always 1", told, model, reading="softmax")
    assert told(model, reading="sigmoid")[0] == pytest.approx(0.1192, abs=1e-4)
    model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    assert told(model)[0] == pytest.approx(0.1192, abs=1e-4)
    (((label, _, value),),) = keras_vit.predict(model, PICTURE, reading="values")
    assert (label, value) == ("0", pytest.approx(-2))
    ((yes,),) = keras_vit.predict(model, PICTURE)
    assert yes.label == "1", "what a sigmoid gives is the probability of class 1"
    model.class_names = ("cat", "dog")
    first, second = keras_vit.predict(model, PICTURE)[0]
    assert (first.label, second.label) == ("cat", "dog")
    assert first.probability == pytest.approx(0.8808, abs=1e-4)


def test_an_activation_at_the_end_is_not_applied_again():
    inner = model_with()
    for activation, expected in (("softmax", SOFTMAX), ("sigmoid", SIGMOIDS)):
        of_op = {"softmax": keras.ops.softmax, "sigmoid": keras.ops.sigmoid}[activation]
        x = keras.Input((16, 16, 3))
        dense = keras.layers.Dense(3, activation, kernel_initializer="zeros")
        parts = [keras.layers.Flatten(), dense, keras.layers.Dropout(0.5)]
        flat = keras.models.Sequential([keras.Input((16, 16, 3)), *parts])
        dense.bias.assign(LOGITS)
        for model in (
            keras.Sequential([inner, keras.layers.Activation(activation)]),
            keras.Model(inner.input, keras.layers.Activation(activation)(inner.output)),
            keras.Model(x, of_op(inner(x))),
            keras.Model(x, keras.layers.Identity()(flat(x))),
        ):
            model.preprocessing = inner.preprocessing
            close(told(model), expected)
            if activation == "softmax":
                model.compile(loss="binary_crossentropy")  # of a distribution, none the less
                close(told(model), expected)
            other = {"softmax": "sigmoid", "sigmoid": "softmax"}[activation]
            refuses(f"ends with a {activation}", told, model, reading=other)
    ended = keras.Sequential([inner, keras.layers.Softmax()])
    ended.preprocessing = inner.preprocessing
    close(told(ended), SOFTMAX)


def test_the_record_of_the_model_inside():
    inner = model_with()
    inner.reading = "sigmoid"
    outer = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Identity(), inner])
    outer.preprocessing = inner.preprocessing
    close(told(outer), SIGMOIDS)
    outer.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    close(told(outer), SOFTMAX)
    outer.reading = "values"
    close(told(outer), LOGITS)


def test_outputs_of_a_model_without_a_graph_tell_themselves():
    class Opaque(keras.Model):
        def __init__(self, end):
            super().__init__()
            self.end = end

        def call(self, x):
            return self.end(keras.ops.zeros((keras.ops.shape(x)[0], 3)) + LOGITS)

    x, y = images((4, 16, 16, 3)), np.array([0, 1, 2, 0])
    for end in (keras.ops.softmax, lambda z: z):
        report = evaluation.evaluate(Opaque(end), (x, y))
        assert report.loss == pytest.approx(-np.log(SOFTMAX)[y].mean(), abs=1e-4)
    assert Reading("sigmoid", None).scores([[0.2, 0.7]]).tolist() == [[0.2, 0.7]]
    refuses(r"lie in \[0, 1\].*from_logits=True", Reading("sigmoid", True).scores, [[2.0]])


@every_backend
def test_the_record_travels(tmp_path):
    """Through saving, cloning, and the config beside weights; a compiled file compiles again."""
    model = model_with()
    model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    model.train_on_batch(images((2, 16, 16, 3)), np.ones((2, 3)))  # so that the optimizer is built
    model.get_layer("head").bias.assign(LOGITS)
    model.get_layer("head").kernel.assign(np.zeros(model.get_layer("head").kernel.shape))
    model.save(tmp_path / "a.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = keras.saving.load_model(tmp_path / "a.keras")
    assert again.compiled and again.loss.from_logits
    bare = keras.saving.load_model(tmp_path / "a.keras", compile=False)
    for other in (again, bare, type(model).from_config(model.get_config())):
        assert other.reading == "sigmoid"
    close(told(bare), SIGMOIDS)
    keras_vit.save_weights(model, tmp_path / "hf", format="huggingface", force=True)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    loaded = keras_vit.from_checkpoint(tmp_path / "hf")
    assert loaded.reading == "sigmoid"
    close(told(loaded), SIGMOIDS)

    def opened(problem, **options):
        (tmp_path / "hf/config.json").write_text(json.dumps({**config, "problem_type": problem}))
        return keras_vit.from_checkpoint(tmp_path / "hf", **options).reading

    assert opened("regression") == "values"
    assert opened("single_label_classification") == "softmax"
    refuses(r"problem_type.*ranking", opened, "ranking")
    # A new head is for other classes, of which the file says nothing.
    assert opened("multi_label_classification", num_classes=5) is opened(None) is None


def test_losses_and_metrics_of_probabilities_on_logits_are_warned_of():
    model = model_with()
    for loss in ("binary_crossentropy", keras.losses.SparseCategoricalCrossentropy()):
        with pytest.warns(UserWarning, match=r"gives logits.*from_logits=True"):
            model.compile(loss=loss)
        assert model.reading == reading_of_loss(loss)[0]
        assert reading_of(model).applied is False
    # BinaryAccuracy counts outputs above 0.5, which is a probability of 0.62.
    m, loss = keras.metrics, keras.losses.BinaryCrossentropy(from_logits=True)
    for metric in ("accuracy", m.BinaryAccuracy(), m.AUC(), m.Precision(), m.Recall(0.5)):
        with pytest.warns(UserWarning, match=r"gives logits.*threshold=0"):
            model_with().compile(loss=loss, metrics=[metric])
    right = [m.BinaryAccuracy(threshold=0), m.AUC(from_logits=True), m.Precision(0), m.F1Score()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_with().compile(loss=loss, metrics=right)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model_with().compile("sgd", loss, metrics={"head": ["accuracy"]})


def test_thresholds():
    model = model_with([3.0, 0.0, -3.0])
    model.reading = "sigmoid"
    (found,) = keras_vit.predict(model, PICTURE, threshold=0.5)
    assert [one.index for one in found] == [0, 1]
    assert keras_vit.predict(model, PICTURE, threshold=0.99) == [[]]
    for wrong, reading in ((1.5, None), (0.5, "values")):
        with pytest.raises(ValueError, match=r"threshold must be a probability"):
            keras_vit.predict(model, PICTURE, threshold=wrong, reading=reading)
    refuses("reading", keras_vit.predict, model, PICTURE, reading="sigmoids")


def test_one_logit_of_yes_or_no():
    """Its labels are 0 and 1: as class numbers of one class they would be taken upside down."""
    labels, logits = np.array([0, 1, 1, 0]), np.array([[-2.0], [3.0], [-1.0], [0.5]], "float32")
    expected = keras.losses.BinaryCrossentropy(from_logits=True)(labels[:, None], logits)
    for shape in (labels, labels[:, None], labels.astype("float32")):
        assert float(training.SigmoidLoss()(shape, logits)) == pytest.approx(float(expected))
        metric = training.Accuracy()
        metric.update_state(shape, logits)
        assert float(metric.result()) == 0.5
    refuses("A softmax of one logit", training.SoftmaxLoss(), labels, logits)
    model = tiny_vit(num_classes=1)
    model.compile(loss=training.SigmoidLoss())
    check_labels(model, (None, labels))
    refuses(r"numbers from 0 to 1, .*Received: .*2", check_labels, model, (None, labels * 2))
    x = images((4, 16, 16, 3))
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(0).normal(size=kernel.shape))
    p = 1 / (1 + np.exp(-keras.ops.convert_to_numpy(model(x))[:, 0].astype("float64")))
    report = evaluation.evaluate(model, (x, labels))
    assert report.num_classes == 2 and report.top1 == ((p > 0.5) == labels).mean()
    assert report.loss == pytest.approx(-np.log(np.where(labels, p, 1 - p)).mean(), abs=1e-5)
    model.reading = "values"
    errors = np.log(p / (1 - p)) - labels
    report = evaluation.evaluate(model, (x, labels))
    assert report.mean_absolute_error == pytest.approx(np.abs(errors).mean(), abs=1e-4)
    assert report.r2 == pytest.approx(1 - (errors**2).mean() / labels.var(), abs=1e-3)


@every_backend
def test_labels_and_losses_of_another_problem_are_refused():
    recipe = recipes.get("digits").replace(steps=5, warmup_steps=1, batch_size=4)
    arrays = np.repeat(PICTURE, 4, axis=0), np.ones((4, 3))
    data = keras_vit.data.pipeline(arrays, recipe, problem="multi_label")
    model = recipe.compile(tiny_vit(num_classes=3))
    for fit in (model.fit, lambda data: training.fit(model, data, "never", epochs=1)):
        refuses(r"problem='multi_label'.*recipe\.for_problem", fit, data)
    model = recipe.for_problem("multi_label").compile(model)
    history = model.fit(data, verbose=0).history
    assert model.reading == "sigmoid" and history["mean_average_precision"] == [1.0]
    model = tiny_vit(num_classes=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    refuses(r"always 1.*Received: loss=.*'mse'", model.compile, loss=loss)
    model.compile(loss="mse")
    assert model.reading == "values"
