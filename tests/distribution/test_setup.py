"""What `setup` takes; and the parts of a batch, of which none is read twice."""

import numpy as np
import pytest

import keras_vit
from keras_vit import distribution, recipes
from keras_vit.distribution.devices import Devices
from keras_vit.distribution.evaluating import shards
from tests.support import BACKEND, refuses


def test_one_device_changes_nothing():
    with distribution.setup("single") as devices:
        assert distribution.current() is devices
        assert (devices.replicas, devices.processes, devices.process) == (1, 1, 0)
        assert devices.writes and devices.gather("a") == ["a"]
    assert distribution.current().mode == "single"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mode": "fast"}, "Unknown mode. Received: mode='fast'"),
        ({"mode": "data_parallel", "devices": 0}, "Received: devices=0"),
        ({"mode": "data_parallel", "model_devices": 2}, "are for mode='model_parallel'"),
    ],
)
def test_what_it_does_not_take_is_told(options, message):
    refuses(message, distribution.setup, **options)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has every mode")
def test_a_mode_that_the_backend_has_not_is_told():
    with pytest.raises(ValueError, match=f"The {BACKEND} backend has no mode 'fully_sharded'"):
        distribution.setup("fully_sharded")


IMAGES = 26


class OneOf(Devices):
    """One of several processes, without an engine."""

    def __init__(self, process, processes):
        self.process, self.processes = process, processes


def load(part, **changes):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES, 12, 12, 3), np.uint8)
    source = [(images, np.arange(IMAGES) % 3)] * 2
    recipe = recipes.get("digits").replace(image_size=8, **changes)
    return keras_vit.data.pipeline(tuple(source), recipe, part, 12, training=part == "train")


def some(pipeline, start, count=4):
    return [batch for batch, _ in zip(pipeline.from_step(start), range(count))]


@pytest.mark.any_backend
@pytest.mark.parametrize("processes", [1, 3, 4])
@pytest.mark.parametrize("mixup", [0.0, 0.5])
def test_training_batches_are_cut_without_overlap_or_loss(mixup, processes):
    """Over the end of an epoch, and from the middle of one."""
    whole = load("train", mixup=mixup)
    parts = [OneOf(i, processes).local_shard(load("train", mixup=mixup)) for i in range(processes)]
    assert {part.steps_per_epoch for part in parts} == {whole.steps_per_epoch} == {2}
    for start in (0, 3):
        cuts = [some(part, start, 2) for part in parts]
        for step, (images, labels) in enumerate(some(whole, start, 2)):
            assert {len(of[step][0]) for of in cuts} == {12 // processes}
            np.testing.assert_array_equal(np.concatenate([of[step][0] for of in cuts]), images)
            np.testing.assert_array_equal(np.concatenate([of[step][1] for of in cuts]), labels)


@pytest.mark.any_backend
@pytest.mark.parametrize("processes", [1, 2, 4, 5])
def test_evaluation_covers_every_image_once(processes):
    """26 images in batches of 12: the last one has 2, so that of four processes two have none."""
    whole = list(load("test"))
    parts = [list(shards(load("test"), i, processes)) for i in range(processes)]
    assert {len(part) for part in parts} == {len(whole)} == {3}
    for step, (images, _) in enumerate(whole):
        cuts = [part[step][0] for part in parts]
        np.testing.assert_array_equal(np.concatenate(cuts), images)


@pytest.mark.any_backend
def test_arrays_are_cut_too_and_what_cannot_be_is_told():
    arrays = np.arange(70).reshape(35, 2), np.arange(35)
    read = [label for i in range(2) for _, labels in shards(arrays, i, 2) for label in labels]
    assert sorted(read) == list(range(35))
    refuses("Received: generator", list, shards((i for i in ()), 0, 2), error=TypeError)
    refuses("need data with shard", OneOf(0, 2).local_shard, arrays, error=TypeError)
