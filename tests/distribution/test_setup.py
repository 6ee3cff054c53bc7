"""What `setup` takes; and the parts of a batch, of which none is read twice."""

import numpy as np
import pytest

import keras_vit
from keras_vit import distribution, recipes
from keras_vit.distribution.devices import Devices
from keras_vit.distribution.processes import gather_texts
from tests.support import BACKEND, refuses


def test_one_device_changes_nothing():
    with distribution.setup("single") as devices:
        assert distribution.current() is devices
        assert (devices.replicas, devices.processes, devices.process) == (1, 1, 0)
        assert devices.writes and gather_texts(devices, "a") == ["a"]
    assert distribution.current().mode == "single"


def test_what_another_setup_has_replaced_ends_nothing():
    first, second = distribution.setup("single"), distribution.setup("single")
    first.close()
    assert distribution.current() is second
    second.close()
    assert distribution.current() is not second


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
    """One of several processes, each with a device, without an engine."""

    def __init__(self, process, processes):
        self.process, self.processes = process, processes
        self.replicas = processes


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
def test_data_that_cannot_be_cut_are_told():
    arrays = np.zeros((4, 2)), np.zeros(4)
    refuses("need data with shard", OneOf(0, 2).local_shard, arrays, error=TypeError)
