"""Two processes of TensorFlow over loopback: what one computes, and one without the other."""

import json
import time

import numpy as np
import pytest

from keras_vit import distribution
from keras_vit.distribution.tensorflow_processes import Shares
from tests.distribution.processes import (
    assert_agree,
    finish,
    free_port,
    kill_at,
    launch,
    trained,
    trained_together,
)
from tests.support import BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's processes")

OPTIONS = {"evaluate": True}


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("one"), OPTIONS)


def test_two_processes_train_the_same(one_device, tmp_path):
    """Clipping, average, metrics of all images, and a last batch of 3 that is 1 and 2."""
    for found in trained_together(tmp_path, OPTIONS):
        assert_agree(one_device, found)
    assert min(one_device["history/gradient_norm"]) > 0.5  # so that clipping took part


@pytest.mark.slow
def test_four_processes_train_the_same(one_device, tmp_path):
    """One of them has nothing of a last batch of 3."""
    for found in trained_together(tmp_path, OPTIONS, world=4):
        assert_agree(one_device, found)


class FourReplicas:
    """Stands for the strategy of two processes with two GPUs each: a CPU is one replica."""

    num_replicas_in_sync = 4

    def distribute_datasets_from_function(self, function):
        return function(None)


def test_replicas_of_a_process_share_its_part():
    """In the order of the whole batch; the last one of 3 leaves nothing for the first replica."""
    import tensorflow as tf

    images, labels = np.arange(70).reshape(35, 2), np.arange(35)  # in batches of 32
    both = [Shares(FourReplicas(), i, 2) for i in range(2)]
    part = tf.data.Dataset.from_tensors((images[4:8], labels[4:8]))
    assert rows(both[1].training(part)) == [[4, 5], [6, 7]]
    first, second = (rows(shares.evaluation((images, labels))) for shares in both)
    assert first == [list(range(8)), list(range(8, 16)), [], [32]]
    assert second == [list(range(16, 24)), list(range(24, 32)), [33], [34]]


def rows(dataset):
    return [labels.tolist() for _, labels in dataset.as_numpy_iterator()]


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
def test_a_signal_to_one_stops_both_and_other_numbers_go_on(one_device, tmp_path):
    """Stopped in the middle of an epoch in two processes, continued on one device."""
    options = {**OPTIONS, "save_every": 1}
    stopped = launch(tmp_path, {**options, "stop_after": 3, "stop_process": 1})
    for printed, code in map(finish, stopped):
        assert code == 143, printed
    assert_agree(one_device, trained(tmp_path, options))


@pytest.mark.slow
def test_a_batch_that_does_not_divide_is_told(tmp_path):
    for printed, code in map(finish, launch(tmp_path, {"batch_size": 7})):
        assert code == 1 and "batch of 7 images, 2 devices" in printed, printed


@pytest.mark.parametrize(
    "task", [{}, {"type": "worker"}, {"type": "worker", "index": 2}, {"type": "ps", "index": 0}]
)
def test_a_config_that_names_no_worker_is_told(task, monkeypatch):
    cluster = {"worker": ["a:1", "b:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(ValueError, match="with the index of this process among the workers"):
        distribution.setup("data_parallel")


def test_a_missing_worker_is_told_with_its_address(monkeypatch):
    port = free_port()
    cluster = {"worker": [f"127.0.0.1:{port}", "10.255.0.9:29500"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    with pytest.raises(ConnectionError, match=r"process 1 at 10\.255\.0\.9:29500"):
        distribution.setup("data_parallel", timeout=1)
