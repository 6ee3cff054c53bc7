"""Pipelines: which batches there are, in threads, processes and shards; unreadable images."""

import os
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest

from keras_vit.data import pipeline
from tests.data.pipeline_cases import RANDOM, class_folders, numbered, numbers, recipe
from tests.support import ROOT

pytestmark = pytest.mark.any_backend
BATCH = 8


def assert_same(first, second):
    for (images, labels), (other_images, other_labels) in zip(first, second, strict=True):
        np.testing.assert_array_equal(images, other_images)
        np.testing.assert_array_equal(labels, other_labels)
        assert images.dtype == other_images.dtype == np.float32
        assert labels.dtype == other_labels.dtype


def seen(pipeline):
    return [number for images, _ in pipeline for number in numbers(images)]


def test_an_epoch_of_training_shows_every_example_once_in_an_order_of_its_own():
    train = pipeline(numbered(300), recipe(32, seed=4))
    epochs = [seen(train), seen(train.from_step(9))]
    assert train.steps_per_epoch == len(train) == 9
    for found in epochs:
        assert len(set(found)) == len(found) == 288 and found != sorted(found)
    assert epochs[0] != epochs[1] and set(epochs[0]) != set(epochs[1])
    assert seen(pipeline(numbered(300), recipe(32), seed=5)) != epochs[0]


def test_labels_stay_with_their_images():
    for images, labels in pipeline(numbered(40), recipe()):
        assert labels.shape == (8, 5) and labels.dtype == np.float32
        assert labels.sum(-1).tolist() == [1.0] * 8
        assert labels.argmax(-1).tolist() == [number % 5 for number in numbers(images)]


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


@pytest.mark.slow
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
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert out.stdout == "same 5\n", out.stderr


@pytest.mark.parametrize("processes", [1, 2, 4])
@pytest.mark.parametrize("mixup", [0.0, 0.5])
def test_shards_are_parts_of_every_batch(processes, mixup):
    """Over the end of an epoch, from the middle of one, and of a last batch smaller than them."""
    made = recipe(BATCH, train=RANDOM, evaluate=RANDOM.__class__((12, 12)), mixup=mixup)
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
    with pytest.raises(ValueError, match=r"multiple of processes\. Received: process=0"):
        whole["train"].shard(0, 3)


def test_unmixed_images_are_read_by_one_process_each(tmp_path):
    folder = tmp_path / "train"
    class_folders(folder, per_class=8)
    read = []
    train = pipeline(tmp_path, recipe(8, train=RANDOM), threads=1)
    source = train._source

    class Counting(type(source)):
        def __getitem__(self, row):
            read.append(int(row))
            return super().__getitem__(row)

    source.__class__ = Counting
    for process in range(2):
        list(train.shard(process, 2))
    assert sorted(read) == list(range(16))


def test_slices_of_training_data_stay_apart():
    train = pipeline(numbered(100), recipe(10), "train[:80%]")
    held_out = pipeline(numbered(100), recipe(10), "train[80%:]")
    assert train.training and not held_out.training
    assert set(seen(train)) == set(range(80)) and seen(held_out) == list(range(80, 100))


def damage(path):
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("archive", [False, True])
def test_unreadable_images_are_named_and_others_stand_in_for_training(tmp_path, archive):
    damaged = class_folders(tmp_path / "set" / "train", per_class=8)[4]
    damage(damaged)
    class_folders(tmp_path / "set" / "test", per_class=2)
    source = tmp_path / "set"
    if archive:
        source = tmp_path / "set.zip"
        with zipfile.ZipFile(source, "w") as file:
            for path in (tmp_path / "set").rglob("*.jpg"):
                file.write(path, path.relative_to(tmp_path))
    train = pipeline(source, recipe(8, train=RANDOM), "train")
    assert train.skipped == ()
    with pytest.warns(UserWarning, match=f"{damaged.name} is left out"):
        batches = list(train)
    assert [len(images) for images, _ in batches] == [8, 8]
    assert train.skipped == (f"{source}/train/{damaged.parent.name}/{damaged.name}",)
    # A run that begins later finds the same stand-in.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(pipeline(source, recipe(8, train=RANDOM)).from_step(1, steps=1), batches[1:])


def test_unreadable_images_are_left_out_of_evaluation(tmp_path):
    paths = class_folders(tmp_path / "train", per_class=8)
    damage(paths[3])
    (tmp_path / "train" / "cat" / "zz.webp").write_bytes(b"")
    test = pipeline(tmp_path, recipe(5), "train", training=False)
    with pytest.warns(UserWarning, match="is left out"):
        batches = list(test)
    assert sum(len(images) for images, _ in batches) == 15 and len(batches) == 4
    assert len(test.skipped) == 2


def test_too_many_unreadable_images_are_an_error(tmp_path):
    for path in class_folders(tmp_path / "train", per_class=8)[::2]:
        damage(path)
    train = pipeline(tmp_path, recipe(8, train=RANDOM))
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"5 of 16 examples cannot be"):
        list(train)


def test_pipes_and_devices_among_images_are_not_read(tmp_path):
    class_folders(tmp_path / "train", per_class=4)
    os.mkfifo(tmp_path / "train" / "cat" / "pipe.jpg")
    (tmp_path / "train" / "dog" / "endless.jpg").symlink_to("/dev/zero")
    assert pipeline(tmp_path, recipe(4, train=RANDOM)).num_examples == 8
