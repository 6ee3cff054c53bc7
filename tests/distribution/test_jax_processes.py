"""Two processes of JAX over loopback: what one device computes, and what happens without one."""

import re
import time

import keras
import numpy as np
import pytest

from keras_vit import distribution
from tests.distribution.processes import (
    assert_agree,
    finish,
    kill_at,
    launch,
    trained,
    trained_together,
)
from tests.support import BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "jax", reason="JAX's processes")

# With dropout: JAX draws one mask for the whole batch, however many processes have a part.
OPTIONS = {"dropout": 0.1, "evaluate": True, "save": True}


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("one"), OPTIONS)


def test_two_processes_of_two_devices_train_the_same(one_device, tmp_path):
    """Clipping, average, metrics of all images, and a last batch of 3 that 4 devices cannot cut."""
    for found in trained_together(tmp_path, OPTIONS, devices=2):
        assert_agree(one_device, found)
    assert min(one_device["history/gradient_norm"]) > 0.5  # so that clipping took part
    last = one_device["history/val_loss"][-1]  # of the averages, which the model then has
    np.testing.assert_allclose(one_device["evaluate/loss"], last, rtol=1e-6)


@pytest.mark.parametrize(
    "setup, devices",
    [
        ({"mode": "fully_sharded"}, 2),
        pytest.param({"mode": "model_parallel", "model_devices": 2}, 2, marks=pytest.mark.slow),
        pytest.param({"mode": "model_parallel", "model_devices": 2}, 1, marks=pytest.mark.slow),
    ],
    ids=["fully sharded", "a model in each process", "one model in both"],
)
def test_variables_that_are_cut_over_processes(setup, devices, one_device, tmp_path):
    """Their values, averages, checkpoints, files and predictions are whole in every process."""
    options = {**OPTIONS, "setup": setup, "save_every": 4}
    for i, found in enumerate(trained_together(tmp_path, options, devices=devices)):
        assert_agree(one_device, found)
        assert "let every process make copy = devices.local_copy(model)" in str(found["refused"])
        saved = keras.saving.load_model(tmp_path / "run" / f"process_{i}.keras")
        for v, value in zip(saved.weights, saved.get_weights()):
            np.testing.assert_array_equal(value, found[f"weight/{v.path}"], err_msg=v.path)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"accumulate": 2, "steps": 6}, {"mixup": 0.5}], ids=str)
def test_options_mean_the_same(changes, tmp_path):
    one = trained(tmp_path / "one", changes)
    assert_agree(one, trained_together(tmp_path / "two", changes)[1])


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_one_is_killed_the_other_ends_and_the_same_command_goes_on(killed, one_device, tmp_path):
    options = {**OPTIONS, "save_every": 1, "setup": {"timeout": 60}}
    both = launch(tmp_path, {**options, "seconds": 0.5})
    kill_at(both[killed], "batch 2")
    begin = time.monotonic()
    printed, code = finish(both[1 - killed])
    assert time.monotonic() - begin < 30
    assert code != 0 and f"lost process {killed}" in printed, printed
    for found in trained_together(tmp_path, options):
        assert_agree(one_device, found)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["data_parallel", "fully_sharded"])
def test_a_signal_to_one_stops_both_and_other_numbers_go_on(mode, one_device, tmp_path):
    """Stopped in the middle of an epoch in two processes, continued on one device."""
    options = {**OPTIONS, "save_every": 1, "setup": {"mode": mode}}
    for printed, code in map(
        finish, launch(tmp_path, {**options, "stop_after": 3, "stop_process": 1})
    ):
        assert code == 143, printed
    assert_agree(one_device, trained(tmp_path, {**OPTIONS, "save_every": 1}))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"PROCESS_ID": "2"}, "use 0 to 1"),
        ({"NUM_PROCESSES": "two"}, "must be a whole number. Received: 'two'"),
        ({"JOB_ADDRESSES": ""}, "Received: no ['KERAS_DISTRIBUTION_JOB_ADDRESSES']"),
        ({"JOB_ADDRESSES": "a:1,b:1,c:1"}, "3 addresses"),
    ],
)
def test_variables_that_contradict_each_other_are_told(changes, message, monkeypatch):
    usual = {"JOB_ADDRESSES": "127.0.0.1:1", "NUM_PROCESSES": "2", "PROCESS_ID": "0"}
    for name, value in {**usual, **changes}.items():
        monkeypatch.setenv(f"KERAS_DISTRIBUTION_{name}", value)
    with pytest.raises(ValueError, match=re.escape(message)):
        distribution.setup("data_parallel")


@pytest.mark.slow
def test_what_does_not_fit_is_told_before_the_first_step(tmp_path):
    """And by the process that fails alone the others are ended."""
    cases = {
        "batch of 7 images, 2 devices": {"batch_size": 7},
        "model_devices=2, 2 processes of 3": {
            "setup": {"mode": "model_parallel", "model_devices": 2}
        },
    }
    for devices, (message, options) in zip((1, 3), cases.items()):
        for printed, code in map(finish, launch(tmp_path, options, devices=devices)):
            assert code == 1 and message in printed and "batch 0" not in printed, printed


@pytest.mark.slow
def test_other_settings_in_one_process_are_told(tmp_path):
    both = [launch(tmp_path, o, [i], port=29611)[0] for i, o in enumerate([{}, {"clip_norm": 9}])]
    for printed, code in map(finish, both):
        assert code == 1 and "same run. Received:\n  process 0" in printed, printed
