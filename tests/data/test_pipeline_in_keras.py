"""Pipelines under `fit`, `evaluate` and `predict`: what Keras really receives, on each backend."""

import importlib.util

import keras
import numpy as np
import pytest

from keras_vit.data import load
from tests.data.pipeline_cases import numbered, numbers, recipe
from tests.support import run_in_fresh_process, to_numpy

ENGINE = "grain" if importlib.util.find_spec("grain") else "tensorflow"
BATCH = 8


class Recorder(keras.callbacks.Callback):
    """Collects the batches that a model has been trained on, by way of a running sum.

    The model's only weight takes, with plain gradient descent, the mean pixel of each batch, so
    that its history tells the batches apart.
    """

    def on_train_begin(self, logs=None):
        self.history = []

    def on_train_batch_end(self, batch, logs=None):
        self.history.append(float(to_numpy(self.model.trainable_variables[0].value)[0]))


class MeanPixel(keras.layers.Layer):
    """The mean of an image, times a weight."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(1,), initializer="zeros", name="weight")

    def call(self, images):
        return keras.ops.mean(images, axis=(1, 2, 3))[:, None] * self.weight


def trained(pipeline, **options):
    """The sums of mean pixels after each step of `fit`."""
    model = keras.Sequential([keras.Input((4, 4, 3)), MeanPixel()])
    # The gradient of the mean output is the mean pixel of the batch.
    model.compile(
        keras.optimizers.SGD(1.0), loss=lambda y, out: -keras.ops.mean(out), jit_compile=False
    )
    recorder = Recorder()
    model.fit(pipeline, verbose=0, callbacks=[recorder], **options)
    return np.array(recorder.history)


def expected(pipeline, steps, start=0):
    batches = pipeline.from_step(start, steps=steps)
    return np.cumsum([images.mean() for images, _ in batches])


def test_fit_receives_every_batch_in_order_over_epochs():
    train = load(numbered(43), recipe(BATCH), engine=ENGINE)
    history = trained(train, epochs=3)
    np.testing.assert_allclose(history, expected(train, 15), atol=1e-5)
    # A second fit goes on.
    np.testing.assert_allclose(trained(train, epochs=1), expected(train, 5, start=15), atol=1e-5)


def test_fit_resumes_within_an_epoch():
    train = load(numbered(43), recipe(BATCH), engine=ENGINE)
    rest = train.from_step(7, steps=3)
    history = trained(rest, initial_epoch=1, epochs=2)
    np.testing.assert_allclose(history, expected(train, 3, start=7), atol=1e-5)
    whole = trained(train.from_step(7), epochs=2)
    np.testing.assert_allclose(whole, expected(train, 10, start=7), atol=1e-5)


def test_fit_with_steps_of_its_own_loses_no_batch():
    train = load(numbered(48), recipe(BATCH), engine=ENGINE)  # 6 steps
    history = trained(train, epochs=4, steps_per_epoch=3)
    np.testing.assert_allclose(history, expected(train, 12), atol=1e-5)


def test_a_reader_ahead_of_the_epochs_of_keras():
    """What TensorFlow does with `steps_per_epoch`, call by call, in the worst order."""
    train = load(numbered(48), recipe(BATCH), engine=ENGINE)  # 6 steps
    wanted = [numbers(images) for images, _ in train.from_step(0, steps=18)]
    assert train.workers == 1
    train[0], train[1]  # the signature
    train.on_epoch_begin()
    train[4]  # the model is built
    train.on_epoch_end()
    seen = []

    def read(count):
        seen.extend(numbers(train[5 - len(seen) % 6][0]) for _ in range(count))

    for ahead in (3, 2, 1, 4, 2, 6):  # 3 are used in each epoch
        train.on_epoch_begin()
        read(ahead)
        train.on_epoch_end()
    assert seen == wanted


def test_fit_after_one_that_was_stopped_within_an_epoch():
    """It goes on behind what the stopped one has requested: nothing is seen twice."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    train = load(numbered(48), recipe(BATCH), engine=ENGINE)
    model = keras.Sequential([keras.Input((4, 4, 3)), MeanPixel()])
    model.compile(loss=lambda y, out: -keras.ops.mean(out))
    model.fit(train, callbacks=[Stop()], verbose=0)
    history = trained(train, epochs=1)
    starts = [2] if keras.backend.backend() != "tensorflow" else [2, 3, 4, 5, 6]
    matches = [np.allclose(history, expected(train, 6, start), atol=1e-5) for start in starts]
    assert sum(matches) == 1


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow")
def test_fit_with_tf_data_validates_after_each_epoch():
    train = load(numbered(43), recipe(BATCH), engine="tensorflow")
    test = load(numbered(11), recipe(BATCH), "test", engine="tensorflow")
    history = trained(train, epochs=2, validation_data=test)
    np.testing.assert_allclose(history, expected(train, 10), atol=1e-5)


def test_evaluate_and_predict_see_everything_once():
    test = load(numbered(19), recipe(BATCH), "test", engine=ENGINE)
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Lambda(lambda x: x[:, 0, 0])])
    model.compile(loss=lambda y, out: 0.0 * out[:, 0] + keras.ops.cast(y, "float32"))
    for _ in range(2):
        pixels = model.predict(test, verbose=0)
        assert numbers(pixels[:, None, None]) == list(range(19))
        loss = model.evaluate(test, verbose=0)
        assert abs(loss - np.mean(np.arange(19) % 5)) < 1e-5


@pytest.mark.skipif(importlib.util.find_spec("grain") is None, reason="needs Grain")
def test_without_tensorflow():
    """Digits and a folder feed a model where TensorFlow cannot be imported."""
    if keras.backend.backend() == "tensorflow":
        pytest.skip("TensorFlow is the backend")
    out = run_in_fresh_process(WITHOUT_TENSORFLOW)
    assert out.split() == ["numpy", "(16,", "8,", "8,", "1)", "grain", "2", "1.0", "done"]


WITHOUT_TENSORFLOW = """
import sys
from importlib.machinery import PathFinder

class WithoutTensorFlow(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_datasets"):
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutTensorFlow
import pathlib, tempfile
import keras
from keras_vit.data import Transform, load
from tests.data.pipeline_cases import class_folders, recipe

train = load("digits", recipe(16, train=Transform((8, 8), crop="pad_random", padding=1), mixup=0.2))
print(train.engine, next(iter(train))[0].shape)
with tempfile.TemporaryDirectory() as folder:
    class_folders(pathlib.Path(folder))
    made = recipe(4, train=Transform((8, 8), crop="inception", flip=True, randaugment=(2, 10)))
    pipeline = load(folder, made)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(pipeline, epochs=1, verbose=0)
    print(pipeline.engine, len(pipeline), float(next(iter(pipeline))[1].sum(-1).max()))
assert "tensorflow" not in sys.modules
print("done")
"""


@pytest.mark.any_backend
def test_a_pipeline_that_was_not_read_to_its_end_lets_python_end_in_silence():
    pytest.importorskip("tensorflow")
    code = """
from keras_vit import data
from tests.data.pipeline_cases import numbered, recipe

pipeline = data.load(numbered(40), recipe(8), engine="tensorflow")
batches = iter(pipeline)
next(batches)
pipeline.batch(2)
for batch in pipeline:
    break
"""
    errors = run_in_fresh_process(code, check=False, TF_CPP_MIN_LOG_LEVEL="1")
    assert "Exception ignored" not in errors and "GeneratorDataset" not in errors, errors
