"""Keras's `fit`, `evaluate` and `predict` as the models have them: values looked at, threads."""

import concurrent.futures
import contextlib
import importlib.util
import pathlib
import warnings

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import recipes, training
from keras_vit.data import pipeline
from keras_vit.evaluation import evaluate
from keras_vit.inspection import attention_maps, position_similarity
from keras_vit.preprocessing import Preprocessing
from tests.arrays import assert_same, images, to_numpy
from tests.support import BACKEND, randomize, refuses, slow_unless_torch, tiny_vit

IMAGES, LABELS = images((12, 16, 16, 3)), np.arange(12) % 3
PIXELS = 127.5 * IMAGES + 127.5


@pytest.fixture(scope="module")
def model():
    made = tiny_vit()
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y=LABELS, **options):
        super().__init__(**options)
        self.x, self.y, self.asked = x, y, []

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.asked.append(index)
        rows = slice(4 * index, 4 * index + 4)
        return self.x[rows], self.y[rows]


def generator(x):
    for start in (0, 4, 8):
        yield x[start : start + 4], LABELS[start : start + 4]


def loader(x):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.from_numpy(x), torch.from_numpy(LABELS))
    return DataLoader(data, batch_size=4, shuffle=True)


def tf_data(x):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, LABELS)).shuffle(12).batch(4)


def grain_data(x):
    import grain

    return grain.MapDataset.source(list(zip(x, LABELS))).batch(4)


FEEDS = {
    "arrays": lambda x: (x, LABELS),
    "list": lambda x: ([x], LABELS),
    "tensors": lambda x: (keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(LABELS)),
    "PyDataset": lambda x: (Batches(x),),
    "threads": lambda x: (Batches(x, workers=2),),
    "generator": lambda x: (generator(x),),
    "torch": lambda x: (loader(x),),
    "tensorflow": lambda x: (tf_data(x),),
    "grain": lambda x: (grain_data(x),),
}


@contextlib.contextmanager
def warned():
    """The names of the files to which warnings of values are put down."""
    files = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield files
    about = [w for w in caught if "wants values from -1 to 1" in str(w.message)]
    files.extend(pathlib.Path(w.filename).name for w in about)


@pytest.mark.parametrize("feed", FEEDS)
def test_the_first_batch_of_whatever_comes_is_looked_at(model, feed):
    """Once in a call, of training as of validation; the warning points at the line of the call."""
    if feed in ("torch", "tensorflow", "grain") and not importlib.util.find_spec(feed):
        pytest.skip(f"{feed} is not installed")
    for call in (model.fit, model.evaluate, model.predict):
        for x, expected in ((PIXELS, ["test_trainer.py"]), (IMAGES, [])):
            data = FEEDS[feed](x)
            with warned() as files:
                call(*(data[:1] if call == model.predict else data), verbose=0)
            assert files == expected, call
    data = FEEDS[feed](PIXELS)
    with warned() as files:
        repeated = {} if feed == "generator" else {"epochs": 2}
        validation = data if len(data) == 2 else data[0]
        model.fit(IMAGES, LABELS, validation_data=validation, verbose=0, **repeated)
    assert files == ["test_trainer.py"]


def test_a_folder_as_keras_reads_it(model, tmp_path):
    """`image_dataset_from_directory` gives floats from 0 to 255."""
    pytest.importorskip("tensorflow")
    for name in "abc":
        (tmp_path / name).mkdir()
        Image.fromarray(PIXELS[0].astype("uint8")).save(tmp_path / name / "0.png")
    data = keras.utils.image_dataset_from_directory(tmp_path, image_size=(16, 16), verbose=False)
    with warned() as files:
        model.fit(data, verbose=0)
    assert files == ["test_trainer.py"]
    with warned() as files:
        model.fit(data.map(lambda x, y: (x / 127.5 - 1, y)), verbose=0)
    assert not files


class Epochs:
    """What `training.fit` takes."""

    steps_per_epoch = 3

    def from_step(self, step):
        return list(generator(PIXELS))[step % 3 :]


# Keras gives these another form on TensorFlow.
WITHOUT_WEIGHTS = [(x, y, None) for x, y in generator(PIXELS)]
CALLS = {
    "uint8": lambda m, _: m.predict(PIXELS.astype("uint8"), verbose=0),
    "validation": lambda m, _: m.fit(PIXELS, LABELS, validation_split=0.25, epochs=2, verbose=0),
    "without weights": lambda m, _: m.fit((each for each in WITHOUT_WEIGHTS), verbose=0),
    "a run": lambda m, path: training.fit(m, Epochs(), path, epochs=2, curves=False),
    "an evaluation": lambda m, _: evaluate(m, list(generator(PIXELS)), progress=False),
    "train_on_batch": lambda m, _: m.train_on_batch(PIXELS[:4], LABELS[:4]),
    "test_on_batch": lambda m, _: m.test_on_batch(PIXELS[:4], LABELS[:4]),
    "predict_on_batch": lambda m, _: m.predict_on_batch(PIXELS[:4]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_warns_once(model, tmp_path, call):
    with warned() as files:
        CALLS[call](model, tmp_path)
    assert files == ["test_trainer.py"]


def test_the_values_are_those_of_the_preprocessing():
    model = tiny_vit()
    model.preprocessing = Preprocessing(mean=(0.0,) * 3, std=(1 / 255,) * 3)
    with warned() as files:
        model.predict(Batches(PIXELS), verbose=0)
    assert not files
    with pytest.warns(UserWarning, match="wants values from 0 to 255.*from -"):
        model.predict(Batches(100 * IMAGES), verbose=0)


@slow_unless_torch
def test_models_around_a_model_look_as_it_does():
    decoder = {"decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}
    autoencoder = training.MaskedAutoencoder(tiny_vit(patch_size=4), **decoder)
    for model in (training.Distiller(tiny_vit(), tiny_vit()), autoencoder):
        model.compile("sgd")
        with warned() as files:
            model.fit(generator(PIXELS), verbose=0)
        assert files == ["test_trainer.py"]


@pytest.mark.parametrize("form", ["array", "generator", "dataset"])
@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("loss", ["own", "keras"])
def test_labels_that_are_numbers_of_no_class_are_refused(form, shift, loss):
    """JAX and TensorFlow would train with them in silence."""
    model = tiny_vit()
    keras_loss = keras.losses.SparseCategoricalCrossentropy
    model.compile("sgd", training.SoftmaxLoss() if loss == "own" else keras_loss(from_logits=True))
    labels = LABELS + shift

    data = {
        "array": (IMAGES, labels),
        "generator": ((each for each in [(IMAGES, labels)]),),
        "dataset": (Batches(IMAGES, labels),),
    }[form]
    call = model.evaluate if form == "array" else model.fit
    refuses(rf"from 0 to 2.*Received: {3 if shift == 1 else -1}", call, *data, verbose=0)
    model.compile("sgd", keras_loss(from_logits=True, ignore_class=-1))
    model.fit(IMAGES, np.where(LABELS == 2, -1, LABELS), verbose=0)


@pytest.mark.any_backend
def test_parts_that_are_no_parts_and_orders_that_are_none():
    (model := tiny_vit(depth=1)).compile("sgd", training.SoftmaxLoss())

    def told(call, *data, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call(*data, verbose=0, **options)
        ours = ("not be trained on", "takes the last", "order of the images", "training=False")
        return [text for text in ours if any(text in str(each.message) for each in caught)]

    for rows, held, expected in (
        (slice(8), slice(7, 12), ["not be trained on"]),
        (slice(8), slice(8, 12), []),
        (slice(0, 12, 2), slice(1, 12, 2), []),
    ):
        held_out = IMAGES[held], LABELS[held]
        assert told(model.fit, IMAGES[rows], LABELS[rows], validation_data=held_out) == expected
    assert told(model.fit, IMAGES, LABELS, validation_data=(IMAGES, LABELS)) == []
    for labels in (np.sort(LABELS), np.sort(LABELS)[::-1, None]):
        assert told(model.fit, IMAGES, labels, validation_split=0.25) == ["takes the last"]
    assert told(model.fit, IMAGES, LABELS.astype("uint8"), validation_split=0.25) == []
    digits = recipes.get("digits").replace(num_classes=3, image_size=16, batch_size=4)
    train = pipeline((IMAGES * 0.5 + 0.5, LABELS), digits, training=True)
    assert told(model.predict, train) == told(model.evaluate, train) == ["training=False"]
    if importlib.util.find_spec("torch"):
        assert told(model.predict, loader(IMAGES)) == ["order of the images"]


@pytest.mark.parametrize("steps", [1, 2])
def test_looking_loses_no_batch_and_compiles_nothing_twice(steps):
    """A run whose values are looked at is the run whose values are not."""
    if BACKEND == "torch" and steps > 1:
        pytest.skip("Keras has one step per execution on PyTorch")
    runs = []
    for looks in (True, False):
        model, traces, batches = randomize(tiny_vit()), [], Batches(IMAGES)
        if not looks:
            model.preprocessing = None
        train_step = model.train_step
        model.train_step = lambda *a, _step=train_step, _t=traces: (_t.append(1), _step(*a))[1]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, steps_per_execution=steps)
        history = model.fit(batches, epochs=2, verbose=0, shuffle=False).history
        model.fit(generator(IMAGES), verbose=0)
        runs.append((len(traces), batches.asked, history["loss"], model.get_weights()))
    (*found, weights), (*expected, expected_weights) = runs
    assert found == expected
    assert_same(weights, expected_weights)


def test_threads_predict_and_evaluate_with_one_model():
    """Keras on JAX gives the buffers of the variables away in each call."""
    model = randomize(tiny_vit())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    pixels = PIXELS[:4].astype("uint8")
    logits = model.predict(IMAGES[:4], verbose=0)
    scores = model.evaluate(IMAGES[:4], LABELS[:4], verbose=0)
    found = keras_vit.predict(model, pixels, top=1)
    maps, positions = attention_maps(model, IMAGES[:4]), position_similarity(model)
    other = keras.Model(model.inputs, model.outputs)  # with the same layers
    other.preprocessing = model.preprocessing

    def work(number):
        for _ in range(3):
            if number % 4 == 0:
                assert keras_vit.predict(other if number else model, pixels, top=1) == found
                np.testing.assert_array_equal(attention_maps(model, IMAGES[:4]), maps)
                np.testing.assert_array_equal(position_similarity(model), positions)
            elif number % 4 == 1:
                np.testing.assert_array_equal(model.predict_on_batch(IMAGES[:4]), logits)
            elif number % 4 == 2:
                assert model.evaluate(IMAGES[:4], LABELS[:4], verbose=0) == scores
            else:
                np.testing.assert_array_equal(model.predict(IMAGES[:4], verbose=0), logits)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert to_numpy(model(IMAGES[:4])).shape == (4, 3)
