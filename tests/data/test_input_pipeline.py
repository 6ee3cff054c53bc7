"""Pipelines: what their batches hold, of whatever split, share and number of threads."""

import warnings

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.data import Transform, pipeline
from tests.data.pipeline_cases import (
    RANDOM,
    assert_same,
    class_folders,
    numbered,
    numbers,
    recipe,
    seen,
)
from tests.support import refuses, run_in_fresh_process, tiny_vit

any_backend = pytest.mark.any_backend
BATCH = 8


@any_backend
def test_an_epoch_of_training_shows_every_example_once_in_an_order_of_its_own():
    train = pipeline(numbered(300), recipe(32, seed=4))
    epochs = [seen(train), seen(train.from_step(9))]
    assert train.steps_per_epoch == len(train) == 9
    for found in epochs:
        assert len(set(found)) == len(found) == 288 and found != sorted(found)
    assert epochs[0] != epochs[1] and set(epochs[0]) != set(epochs[1])
    assert seen(pipeline(numbered(300), recipe(32), seed=5)) != epochs[0]


@any_backend
def test_labels_stay_with_their_images():
    for images, labels in pipeline(numbered(40), recipe()):
        assert labels.shape == (8, 5) and labels.dtype == np.float32
        assert labels.sum(-1).tolist() == [1.0] * 8
        assert labels.argmax(-1).tolist() == [number % 5 for number in numbers(images)]


@any_backend
def test_evaluation_goes_through_everything_in_order():
    test = pipeline(numbered(27), recipe(), "test")
    batches = list(test)
    assert seen(test) == list(range(27))
    assert np.concatenate([labels for _, labels in batches]).tolist() == [i % 5 for i in range(27)]
    assert batches[0][1].dtype == np.int32
    assert [len(labels) for _, labels in batches] == [8, 8, 8, 3]
    assert (test.num_examples, test.num_classes, test.steps_per_epoch) == (27, 5, 4)
    assert_same(test, batches)  # a second pass is the same
    assert_same(test.from_step(2), batches[2:])


@pytest.mark.parametrize("mix", [{"mixup": 0.3}, {"cutmix": 1.0}, {}], ids=str)
@any_backend
def test_a_batch_is_a_function_of_seed_and_step(mix):
    """Shuffled, cropped, flipped, mixed, over the end of an epoch; for any number of threads."""
    made = recipe(BATCH, train=RANDOM, seed=2, **mix)
    train = pipeline("digits", made, "train[:40]")
    undisturbed = list(train.from_step(0, steps=13))
    for step in (0, 3, 5, 11):
        assert_same(train.from_step(step, steps=2), undisturbed[step : step + 2])
        assert_same([train.from_step(step)[0]], undisturbed[step : step + 1])
    assert_same(pipeline("digits", made, "train[:40]", threads=7), undisturbed[:5])
    assert undisturbed[0][0].shape == (8, 12, 12, 1)


@pytest.mark.parametrize("processes, mixup", [(2, 0.0), (4, 0.0), (4, 0.5)])
@any_backend
def test_shards_are_parts_of_every_batch(processes, mixup):
    """Over the end of an epoch, from the middle of one, and of a last batch smaller than them."""
    made = recipe(BATCH, train=RANDOM, mixup=mixup)
    whole = {"train": pipeline("digits", made, "train[:37]").from_step(3, 4)}
    whole["test"] = pipeline("digits", made, "test[:26]")
    for part, batches in whole.items():
        shards = [list(batches.shard(i, processes)) for i in range(processes)]
        for step, (images, labels) in enumerate(batches):
            cuts = [shard[step] for shard in shards]
            np.testing.assert_array_equal(np.concatenate([x for x, _ in cuts]), images)
            np.testing.assert_array_equal(np.concatenate([y for _, y in cuts]), labels)
            sizes = [len(x) for x, _ in cuts]
            assert max(sizes) - min(sizes) <= 1, part
    refuses(r"multiple of processes\. Received: process=0", whole["train"].shard, 0, 3)


@any_backend
def test_unmixed_images_are_read_by_one_process_each(tmp_path):
    folder = tmp_path / "train"
    class_folders(folder, per_class=8)
    read = []
    train = pipeline(tmp_path, recipe(8, train=RANDOM), threads=1)
    source = train.source

    class Counting(type(source)):
        def __getitem__(self, row):
            read.append(int(row))
            return super().__getitem__(row)

    source.__class__ = Counting
    for process in range(2):
        list(train.shard(process, 2))
    assert sorted(read) == list(range(16))


@any_backend
@pytest.mark.parametrize("of", ["arrays", "files"])
def test_images_to_train_on_and_to_validate_on_are_warned_of(tmp_path, of):
    """All names of parts mean the same arrays, and a slice lies in its part."""
    made, source = recipe(4, Transform((16, 16))), tmp_path / "folder"
    class_folders(source, per_class=8, classes="abc")
    model = tiny_vit()
    model.compile("sgd", training.SoftmaxLoss())
    for splits, expected in (
        (("train", "train[50%:]"), True),
        (("train", "test"), of == "arrays"),
        (("train[:50%]", "train[50%:]"), False),
    ):
        data, held_out = (
            pipeline(numbered(20, classes=3) if of == "arrays" else source, made, split)
            for split in splits
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(data, validation_data=held_out, verbose=0)
            training.fit(model, data, tmp_path / str(splits), steps=1, validation=held_out)
        told = ["should not be trained on" in str(each.message) for each in caught]
        assert sum(told) == 2 * expected


def test_a_fresh_process_without_tensorflow():
    """Which packages an import loads; digits and a folder feed a model; a silent end."""
    if keras.backend.backend() == "tensorflow":
        pytest.skip("TensorFlow is the backend")
    errors = run_in_fresh_process(WITHOUT_TENSORFLOW, check=False, TF_CPP_MIN_LOG_LEVEL="1")
    assert errors.splitlines()[-1:] == ["done"], errors
    assert "Exception" not in errors and "Traceback" not in errors, errors


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
import keras, numpy, PIL.Image
before = set(sys.modules)
from keras_vit.data import Transform, pipeline
new = {name.split(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
assert new <= {"keras_vit", "PIL", "defusedxml", "safetensors"}, new
from tests.data.pipeline_cases import class_folders, recipe

crop = Transform((8, 8), crop="pad_random", padding=1)
train = pipeline("digits", recipe(16, train=crop, mixup=0.2))
assert next(iter(train))[0].shape == (16, 8, 8, 1)
with tempfile.TemporaryDirectory() as folder:
    class_folders(pathlib.Path(folder))
    made = recipe(4, train=Transform((8, 8), crop="inception", flip=True, randaugment=(2, 10)))
    train = pipeline(folder, made, threads=2)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(train, epochs=1, verbose=0)
    assert len(train) == 2
    batches = iter(train)  # neither this nor the next is read to its end
    next(batches)
    for batch in train:
        break
assert "tensorflow" not in sys.modules
print("done", file=sys.stderr)
"""
