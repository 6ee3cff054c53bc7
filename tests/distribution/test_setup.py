"""What `setup` takes."""

import pytest

from keras_vit import distribution
from tests.support import BACKEND


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
    with pytest.raises(ValueError, match=message):
        distribution.setup(**options)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has every mode")
def test_a_mode_that_the_backend_has_not_is_told():
    with pytest.raises(ValueError, match=f"The {BACKEND} backend has no mode 'fully_sharded'"):
        distribution.setup("fully_sharded")
