"""Pipelines under `fit`, `evaluate` and `predict`: what Keras really receives, on each backend."""

import keras
import numpy as np
import pytest

from keras_vit.data import pipeline
from tests.data.pipeline_cases import class_folders, numbered, numbers, recipe
from tests.support import run_in_fresh_process, to_numpy

BATCH = 8


class MeanPixel(keras.layers.Layer):
    """The mean of an image, times a weight."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(1,), initializer="zeros", name="weight")

    def call(self, images):
        return keras.ops.mean(images, axis=(1, 2, 3))[:, None] * self.weight


def trained(data, **options):
    """The mean pixel of each batch of `fit`: the gradient of the only weight."""
    model = keras.Sequential([keras.Input((4, 4, 3)), MeanPixel()])
    model.compile(
        keras.optimizers.SGD(1.0), loss=lambda y, out: -keras.ops.mean(out), jit_compile=False
    )
    history = [0.0]

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            history.append(float(to_numpy(self.model.trainable_variables[0].value)[0]))

    model.fit(data, verbose=0, callbacks=[Recorder()], **options)
    return np.diff(history)


def means(batches):
    return np.array([images.mean() for images, _ in batches])


def test_fit_shows_an_epoch_of_batches_in_each_epoch():
    """Which one it begins with depends on whether Keras builds the model from a first batch."""
    train = pipeline(numbered(43), recipe(BATCH))
    found = trained(train, epochs=3, shuffle=False)
    starts = [np.abs(found - means(train.from_step(5 * e, 15))).max() for e in (0, 1)]
    assert min(starts) < 1e-5
    shuffled = np.sort(trained(train, epochs=1))  # Keras's default: the batches in another order
    epochs = [np.sort(means(train.from_step(5 * e, 5))) for e in range(8)]
    assert min(np.abs(shuffled - epoch).max() for epoch in epochs) < 1e-5


def test_evaluate_and_predict_see_everything_once():
    test = pipeline(numbered(19), recipe(BATCH), "test")
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Lambda(lambda x: x[:, 0, 0])])
    model.compile(loss=lambda y, out: 0.0 * out[:, 0] + keras.ops.cast(y, "float32"))
    for _ in range(2):
        pixels = model.predict(test, verbose=0)
        assert numbers(pixels[:, None, None]) == list(range(19))
        loss = model.evaluate(test, verbose=0)
        assert abs(loss - np.mean(np.arange(19) % 5)) < 1e-5


def test_without_tensorflow():
    """Digits and a folder feed a model where TensorFlow cannot be imported."""
    if keras.backend.backend() == "tensorflow":
        pytest.skip("TensorFlow is the backend")
    out = run_in_fresh_process(WITHOUT_TENSORFLOW)
    assert out.split() == ["(16,", "8,", "8,", "1)", "2", "1.0", "done"]


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
from keras_vit.data import Transform, pipeline
from tests.data.pipeline_cases import class_folders, recipe

crop = Transform((8, 8), crop="pad_random", padding=1)
train = pipeline("digits", recipe(16, train=crop, mixup=0.2))
print(next(iter(train))[0].shape)
with tempfile.TemporaryDirectory() as folder:
    class_folders(pathlib.Path(folder))
    made = recipe(4, train=Transform((8, 8), crop="inception", flip=True, randaugment=(2, 10)))
    train = pipeline(folder, made)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(train, epochs=1, verbose=0)
    print(len(train), float(next(iter(train))[1].sum(-1).max()))
assert "tensorflow" not in sys.modules
print("done")
"""


@pytest.mark.any_backend
def test_a_pipeline_that_was_not_read_to_its_end_lets_python_end_in_silence(tmp_path):
    class_folders(tmp_path / "train", per_class=20)
    code = f"""
from keras_vit import data
from tests.data.pipeline_cases import RANDOM, recipe

train = data.pipeline({str(tmp_path)!r}, recipe(4, train=RANDOM), threads=2)
batches = iter(train)
next(batches)
for batch in train:
    break
"""
    errors = run_in_fresh_process(code, check=False, TF_CPP_MIN_LOG_LEVEL="1")
    assert "Exception" not in errors and "Traceback" not in errors, errors
