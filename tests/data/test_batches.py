"""Batches: unreadable images; mixup and CutMix, whose labels follow pixels."""

import os
import warnings
import zipfile

import numpy as np
import pytest

from keras_vit.data import pipeline
from keras_vit.data.mixing import cutmix, mix, mixup
from tests.data.pipeline_cases import RANDOM, assert_same, class_folders, recipe

pytestmark = pytest.mark.any_backend

BATCH, CLASSES = 6, 5


def batch(seed=0, size=(20, 30)):
    images = np.random.default_rng(seed).integers(0, 256, (BATCH, *size, 3), "uint8")
    return images, np.eye(BATCH, CLASSES, dtype="float32")


def generators(count):
    return [np.random.default_rng([4, step]) for step in range(count)]


def test_mixup_is_a_weighted_mean_with_the_image_before():
    images, labels = batch()
    for rng in generators(20):
        mixed, mixed_labels = mixup(images, labels, rng, 0.5)
        a = mixed_labels[0, 0]  # the first image's own class, which its partner does not have
        assert 0.5 <= a <= 1 and mixed.dtype == mixed_labels.dtype == np.float32
        for actual, x in ((mixed, images), (mixed_labels, labels)):
            expected = a * x + (1 - a) * np.roll(x, 1, axis=0)
            np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_cutmix_puts_in_a_box_and_labels_follow_its_area():
    images, labels = batch()
    before = images.copy()
    for rng in generators(40):
        mixed, mixed_labels = cutmix(images, labels, rng, 1.0)
        foreign = (mixed == np.roll(images, 1, axis=0)).all((0, 3))
        own = (mixed == images).all((0, 3))
        assert (foreign ^ own).all() and mixed.dtype == np.uint8
        rows, columns = foreign.any(1), foreign.any(0)
        assert foreign[np.ix_(rows, columns)].all() and foreign.sum() == rows.sum() * columns.sum()
        np.testing.assert_allclose(mixed_labels[0, 0], 1 - foreign.mean(), atol=1e-6)
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("size", [(7, 9), (32, 32), (1, 1)])
def test_labels_keep_their_sum(size):
    images, labels = batch(size=size)
    for rng in generators(20):
        mixed, mixed_labels = mix(images, labels, rng, 0.2, 1.0)
        assert mixed.shape == images.shape and mixed_labels.dtype == np.float32
        np.testing.assert_allclose(mixed_labels.sum(), labels.sum(), rtol=1e-6)


def test_shares_have_their_distribution():
    """max(a, 1 - a) of a uniform a has the mean 3/4; Beta(0.2, 0.2) the variance 1 / 5.6."""
    images, labels = batch()
    shares = [float(mixup(images, labels, rng, 1.0)[1][0, 0]) for rng in generators(300)]
    assert abs(np.mean(shares) - 0.75) < 5 * (1 / 48 / 300) ** 0.5
    wide = [float(mixup(images, labels, rng, 0.2)[1][0, 0]) for rng in generators(300)]
    assert abs(np.mean((np.array(wide) - 0.5) ** 2) - 1 / (4 * 1.4)) < 0.02


def test_with_both_each_takes_half_of_the_batches():
    images, labels = batch()
    boxes = [mix(images, labels, rng, 1.0, 1.0)[0].dtype == np.uint8 for rng in generators(200)]
    assert 0.3 < np.mean(boxes) < 0.7
    same, _ = mix(images, labels, np.random.default_rng(0))
    assert same is images


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
