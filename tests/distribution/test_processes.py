"""Two processes over loopback: what one device computes, and what happens without one of them."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_vit import distribution
from tests.distribution.processes import (
    all_printed,
    assert_agree,
    free_addresses,
    free_port,
    kill_at,
    launch,
    result,
    start,
    trained,
    trained_together,
    variables,
)
from tests.processes import environment_with, finish
from tests.support import BACKEND, ROOT, refuses

# JAX draws one mask of dropout for the whole batch, however many processes have a part of it.
OPTIONS = {"evaluate": True, "save": True, "dropout": 0.1 if BACKEND == "jax" else 0.0}
UNEVEN, OTHER = {"batch_size": 7}, {"clip_norm": 9}
LOCAL = 2 if BACKEND == "jax" else 1  # devices of a process
only = {
    name: pytest.mark.skipif(BACKEND != name, reason=f"is about {name}")
    for name in ("jax", "tensorflow", "torch")
}


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("one"), OPTIONS)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The folder and the output of two processes, in which one run comes after the other."""
    folder, addresses = tmp_path_factory.mktemp("two"), free_addresses(2)
    both = [
        *launch(folder, [OPTIONS, UNEVEN, {}], [0], addresses=addresses, devices=LOCAL),
        *launch(folder, [OPTIONS, UNEVEN, OTHER], [1], addresses=addresses, devices=LOCAL),
    ]
    return folder, all_printed(both, 0)


def test_two_processes_train_the_same(one_device, two_processes):
    """Clipping, average, metrics of all images, and a last batch of 3 that is 1 and 2."""
    folder, printed = two_processes
    assert ["update" in text for text in printed] == [True, False]  # one of them writes
    for i in range(2):
        assert_agree(one_device, result(folder / "0", i))
        assert_is_saved(folder / "0", result(folder / "0", i))
    assert min(one_device["history/gradient_norm"]) > 0.5  # so that clipping took part
    last = one_device["history/val_loss"][-1]  # of the averages, which the model then has
    np.testing.assert_allclose(one_device["evaluate/loss"], last, rtol=1e-6)


def test_what_does_not_fit_all_is_told_before_the_first_step(two_processes):
    """A batch that does not divide; and other settings in one process."""
    for printed in two_processes[1]:
        assert printed.count("batch 0\n") == 2  # the epochs of the run before
        assert f"batch of 7 images, {2 * LOCAL} devices" in printed, printed
        assert "optimizer.global_clipnorm is 0.5 in process 0" in printed, printed
        assert "optimizer.global_clipnorm is 9.0 in process 1" in printed, printed


def assert_is_saved(folder, results):
    saved = keras.saving.load_model(folder / "run" / "model.keras")
    for v, value in zip(saved.weights, saved.get_weights()):
        np.testing.assert_array_equal(value, results[f"weight/{v.path}"], err_msg=v.path)


@pytest.mark.slow
def test_four_processes_train_the_same(one_device, tmp_path):
    """One of them has nothing of a last batch of 3."""
    for results in trained_together(tmp_path, OPTIONS, world=4):
        assert_agree(one_device, results)


@only["jax"]
@pytest.mark.slow
@pytest.mark.parametrize(
    "setup, devices",
    [
        ({"mode": "fully_sharded"}, 2),
        ({"mode": "model_parallel", "model_devices": 2}, 2),
        ({"mode": "model_parallel", "model_devices": 2}, 1),
    ],
    ids=["fully sharded", "a model in each process", "one model in both"],
)
def test_variables_that_are_cut_over_processes(setup, devices, one_device, tmp_path):
    """Their values, averages, checkpoints, files and predictions are whole in every process."""
    options = {**OPTIONS, "setup": setup, "save_every": 4}
    for results in trained_together(tmp_path, options, devices=devices):
        assert_agree(one_device, results)
        assert_is_saved(tmp_path, results)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="tf.distribute cannot accumulate")
@pytest.mark.parametrize("changes", [{"accumulate": 2, "steps": 6}, {"mixup": 0.5}], ids=str)
def test_options_mean_the_same(changes, tmp_path):
    one = trained(tmp_path / "one", changes)
    assert_agree(one, trained_together(tmp_path / "two", changes)[1])


@only["torch"]
def test_noise_is_the_same_after_a_pause(tmp_path):
    """Stopped by a signal to one of two, with dropout; then by two as if it had not been."""
    options = {"dropout": 0.3, "save_every": 1, "stochastic": 0.2}
    undisturbed = trained_together(tmp_path / "undisturbed", options)
    stopped = {**options, "stop_after": 3, "stop_process": 1}
    assert all_printed(launch(tmp_path / "two", stopped), 143)
    for a, b in zip(undisturbed, trained_together(tmp_path / "two", options)):
        assert_agree(a, b, tolerance=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["data_parallel", pytest.param("fully_sharded", marks=only["jax"])]
)
def test_a_signal_to_one_stops_both_and_other_numbers_go_on(mode, one_device, tmp_path):
    """Stopped in the middle of an epoch in two processes, continued on one device."""
    options = {**OPTIONS, "save_every": 1}
    stopped = {**options, "setup": {"mode": mode}, "stop_after": 3, "stop_process": 1}
    assert all_printed(launch(tmp_path, stopped), 143)
    assert_agree(one_device, trained(tmp_path, options))


@pytest.mark.slow
@pytest.mark.parametrize("lost, error", [(0, False), (1, False), (0, True)])
def test_one_is_lost_the_other_ends_and_the_same_command_goes_on(lost, error, one_device, tmp_path):
    """By `kill -9` or an error; `-s` shows the seconds, of which docs/distribution.md speaks."""
    options = {**OPTIONS, "save_every": 1}
    failing = {"stop_after": 3, "stop_process": lost, "stop_by": "error"} if error else {}
    both = launch(tmp_path, {**options, **failing, "seconds": 0.5})
    if error:
        finish(both[lost])
    else:
        kill_at(both[lost], "batch 2")
    begin = time.monotonic()
    printed, code = finish(both[1 - lost])
    seconds = time.monotonic() - begin
    print(f"\n{BACKEND}: without process {lost} the other ended after {seconds:.1f} s with {code}")
    assert code != 0 and seconds < 60, printed
    last = "".join(printed.splitlines()[-2:])  # below what the engine itself prints
    assert "lost another one" in last and "Start all again with the same command" in last, printed
    for results in trained_together(tmp_path, options):
        assert_agree(one_device, results)


@pytest.mark.slow
def test_one_that_is_frozen_is_given_up_after_the_timeout(tmp_path):
    first, second = launch(tmp_path, {"seconds": 0.3, "setup": {"timeout": 10}})
    kill_at(second, "batch 2", signal.SIGSTOP)
    begin = time.monotonic()
    printed, code = finish(first)
    os.kill(second.pid, signal.SIGKILL)
    finish(second)
    assert code != 0 and time.monotonic() - begin < 10 + 30, printed


@only["jax"]
@pytest.mark.slow
def test_groups_that_begin_in_one_process_and_end_in_another_are_told(tmp_path):
    options = {"setup": {"mode": "model_parallel", "model_devices": 2}}
    for printed in all_printed(launch(tmp_path, options, devices=3), 1):
        assert "model_devices=2, 6 devices, 2 processes of 3" in printed, printed


@only["jax"]
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"PROCESS_ID": "2"}, "numbered from 0 to"),
        ({"NUM_PROCESSES": "two"}, "'KERAS_DISTRIBUTION_NUM_PROCESSES': 'two'"),
        ({"JOB_ADDRESSES": ""}, "Received: no ['KERAS_DISTRIBUTION_JOB_ADDRESSES']"),
    ],
)
def test_variables_that_contradict_each_other_are_told(changes, message, monkeypatch):
    usual = {"JOB_ADDRESSES": "127.0.0.1:1", "NUM_PROCESSES": "2", "PROCESS_ID": "0"}
    for name, value in {**usual, **changes}.items():
        monkeypatch.setenv(f"KERAS_DISTRIBUTION_{name}", value)
    refuses(re.escape(message), distribution.setup, "data_parallel")


@only["tensorflow"]
@pytest.mark.parametrize(
    "task", [{}, {"type": "worker"}, {"type": "worker", "index": 2}, {"type": "ps", "index": 0}]
)
def test_a_config_that_names_no_worker_is_told(task, monkeypatch):
    cluster = {"worker": ["a:1", "b:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    refuses("with the index of this process among the workers", distribution.setup, "data_parallel")


@pytest.mark.skipif(BACKEND == "tensorflow", reason="waits without a limit")
def test_one_that_never_comes_ends_the_other(tmp_path):
    """JAX ends the process itself; the line before tells where it looked."""
    options, addresses = {"setup": {"mode": "data_parallel", "timeout": 2}}, free_addresses(2)
    (alone,) = launch(tmp_path, options, [0], addresses=addresses)
    printed, code = finish(alone)
    assert code != 0 and addresses[0] in printed and "within 2 s" in printed, printed


@only["torch"]
def test_no_launcher_is_told(tmp_path):
    printed, code = finish(start(tmp_path, {"setup": {"mode": "data_parallel"}}))
    assert code == 1 and "start the command with torchrun" in printed, printed


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="has one CPU unless a program says otherwise")
def test_the_main_job_on_two_devices(tmp_path):
    command = [sys.executable]
    if BACKEND == "torch":
        ports = f"--master-port={free_port()}"
        command += ["-m", "torch.distributed.run", "--nproc-per-node=2", ports]
    command += [str(ROOT / "tutorials" / "train.py"), "--distribute", "data_parallel"]
    command += ["--epochs", "2", "--batch-size", "256", "--output", str(tmp_path)]
    flags = "--xla_force_host_platform_device_count=2"
    environment = environment_with(XLA_FLAGS=flags)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert_tested_once(tmp_path, ended.stdout)


def assert_tested_once(output, *printed):
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["test_accuracy"] == metrics["test_accuracy_reloaded"]
    assert [text.count("Test accuracy") for text in printed] == [1, 0][: len(printed)]


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "torch", reason="is what torchrun does above")
def test_the_main_job_in_two_processes(tmp_path):
    """With the seeds, recipe and data that come before `setup`; one process writes and tests."""
    command = [sys.executable, str(ROOT / "tutorials" / "train.py"), "--steps", "4"]
    command += ["--distribute", "data_parallel", "--output", str(tmp_path)]
    addresses = free_addresses(2)
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    both = [
        subprocess.Popen(command, env=environment_with(**variables(i, addresses)), **options)
        for i in range(2)
    ]
    assert_tested_once(tmp_path, *all_printed(both, 0))
