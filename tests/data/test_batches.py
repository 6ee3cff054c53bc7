"""Batches as Keras takes them: by number, epoch after epoch, and read ahead in processes."""

import copy
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_vit.data import batches, pipeline
from keras_vit.models.trainer import Trainer
from tests.data.pipeline_cases import assert_same, class_folders, numbered, numbers, recipe
from tests.support import ROOT, refuses, to_numpy

any_backend = pytest.mark.any_backend
BATCH = 8


class MeanPixel(keras.layers.Layer):
    """The mean of an image, times a weight."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(1,), initializer="zeros", name="weight")

    def call(self, images):
        return keras.ops.mean(images, axis=(1, 2, 3))[:, None] * self.weight


class ModelOfImages(Trainer, keras.Sequential):
    pass


def trained(data, made, *options):
    """The mean pixel of each batch of `fit`: the gradient of the only weight."""
    model = made([keras.Input((4, 4, 3)), MeanPixel()])
    model.compile(
        keras.optimizers.SGD(1.0), loss=lambda y, out: -keras.ops.mean(out), jit_compile=False
    )
    history = [0.0]

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            history.append(float(to_numpy(self.model.trainable_variables[0].value)[0]))

    model.fit(data, None, None, 3, 0, [Recorder()], *options)
    return np.diff(history)


def means(batches):
    return np.array([images.mean() for images, _ in batches])


@pytest.mark.parametrize("shuffle", [None, False, True])
@pytest.mark.parametrize("made", [keras.Sequential, ModelOfImages])
def test_fit_shows_an_epoch_of_batches_in_each_epoch(made, shuffle):
    """Which one it begins with depends on whether Keras builds the model from a first batch."""
    train = pipeline(numbered(43), recipe(BATCH))
    found = trained(train, made, *(() if shuffle is None else (0.0, None, shuffle))).reshape(3, 5)
    epochs = means(train.from_step(0, 20)).reshape(4, 5)
    assert np.abs(epochs[0] - epochs[1]).max() > 1e-3  # each has an order of its own
    sets = [np.sort(found) - np.sort(epochs[first : first + 3]) for first in (0, 1)]
    first = np.argmin(np.abs(sets).max((1, 2)))
    assert np.abs(sets[first]).max() < 1e-5
    in_order = np.abs(found - epochs[first : first + 3]).max() < 1e-5
    shuffled_by_default = made is keras.Sequential  # whereas a model of images reads ahead
    assert in_order != (shuffled_by_default if shuffle is None else shuffle)


def test_images_that_come_in_order_are_shuffled_by_keras():
    test = pipeline(numbered(40), recipe(BATCH), "test")
    with pytest.warns(UserWarning, match="training=True"):
        found = trained(test, ModelOfImages)
    assert np.abs(found.reshape(3, 5) - means(test)).max() > 1e-3


@pytest.fixture
def opened(monkeypatch):
    """An item for each reader that reads ahead."""
    calls, import_grain = [], batches.import_grain
    monkeypatch.setattr(batches, "import_grain", lambda: calls.append(1) or import_grain())
    return calls


def test_evaluate_and_predict_see_everything_once_with_one_reader(opened):
    test = pipeline(numbered(19), recipe(BATCH), "test")
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Lambda(lambda x: x[:, 0, 0])])
    model.compile(loss=lambda y, out: 0.0 * out[:, 0] + keras.ops.cast(y, "float32"))
    for _ in range(2):
        del opened[:]
        pixels = model.predict(test, verbose=0)
        assert len(opened) in (1, 2)  # TensorFlow looks at a batch before
        assert numbers(pixels[:, None, None]) == list(range(19))
        loss = model.evaluate(test, verbose=0)
        assert abs(loss - np.mean(np.arange(19) % 5)) < 1e-5


@any_backend
@pytest.mark.parametrize("order", [range(5), (3, 4, 0, 2, 1), (4, 0, 1, 2, 3), (1, 1, 2, 2, 3)])
@pytest.mark.parametrize("split", ["train", "test"])
def test_batches_by_number_are_those_of_a_pass(order, split):
    data = pipeline(numbered(40), recipe(BATCH), split, threads=2)
    whole = list(data)
    assert_same([data[i] for i in order], [whole[i] for i in order])
    refuses("Batch 5 is outside", data.__getitem__, 5, error=IndexError)


@any_backend
def test_batches_whose_numbers_follow_each_other_are_read_ahead(opened):
    train, undisturbed = (pipeline(numbered(40), recipe(BATCH)) for _ in range(2))
    undisturbed = list(undisturbed.from_step(0, 10))
    for epoch in range(2):
        del opened[:]
        assert_same([train[i] for i in range(5)], undisturbed[5 * epoch :][:5])
        assert len(opened) == 1
        train.on_epoch_end()
    one = pipeline(numbered(40), recipe(BATCH))
    assert_same([one[0], one[1]], undisturbed[:2])
    other = copy.copy(one)  # which does not take what the first one reads
    assert_same([other[2], one[2], other[3], one[3]], [undisturbed[i] for i in (2, 2, 3, 3)])


@any_backend
def test_a_batch_out_of_order_is_read_in_this_process(opened):
    """Processes for each would start for seconds."""
    helped = pipeline(numbered(20), recipe(BATCH), "test", workers=2)
    whole = list(pipeline(numbered(20), recipe(BATCH), "test"))
    del opened[:]
    assert_same([helped[2], helped[0]], [whole[2], whole[0]])
    assert not opened


@pytest.mark.slow
@any_backend
def test_worker_processes_make_the_same_batches(tmp_path):
    """A script of its own, because workers import the main module again."""
    class_folders(tmp_path, per_class=12)
    code = f"""
import numpy as np
from keras_vit.data import pipeline
from tests.data.pipeline_cases import RANDOM, recipe

if __name__ == "__main__":
    made = recipe(4, train=RANDOM, mixup=0.2)
    alone, helped = (pipeline({str(tmp_path)!r}, made, workers=n) for n in (0, 2))
    for (x, y), (u, v) in zip(alone, helped, strict=True):
        np.testing.assert_array_equal(x, u)
        np.testing.assert_array_equal(y, v)
    print("same", len(alone))
"""
    done = run_script(tmp_path / "script.py", code)
    assert done.stdout == "same 5\n", done.stderr


def run_script(path, code):
    path.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


WORKERS_THAT_END = [
    "if __name__ != '__main__': sys.exit()",
    pytest.param("if __name__ != '__main__': import no_such_module", marks=pytest.mark.slow),
    pytest.param("", marks=pytest.mark.slow),  # the script has no guard
]


@pytest.mark.parametrize("start", WORKERS_THAT_END)
@any_backend
def test_workers_that_end_at_their_start_are_an_error(tmp_path, start):
    """Whatever their exit code; the error says what to do."""
    done = run_script(
        tmp_path / "script.py",
        f"""
import sys
import tests.bare
{start}
from keras_vit.data import pipeline
from tests.data.pipeline_cases import numbered, recipe
list(pipeline(numbered(16), recipe(), "test", workers=1))
""",
    )
    assert done.returncode == 1
    told = "A worker process of the pipeline has ended with exit code"
    assert told in done.stderr and '`if __name__ == "__main__":`' in done.stderr, done.stderr
