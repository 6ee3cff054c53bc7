"""Two processes of PyTorch over loopback: what one computes."""

import pytest

from tests.distribution.processes import (
    assert_agree,
    finish,
    free_port,
    kill_at,
    launch,
    start,
    trained,
    trained_together,
)
from tests.support import BACKEND

pytestmark = pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's processes")


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("one"))


def test_two_processes_train_the_same(one_process, tmp_path):
    """Clipping, average, metrics of all images, and a last batch of 3 that is 1 and 2."""
    for found in trained_together(tmp_path):
        assert_agree(one_process, found)
    assert min(one_process["history/gradient_norm"]) > 0.5  # so that clipping took part


@pytest.mark.slow
def test_four_processes_train_the_same(one_process, tmp_path):
    """One of them has nothing of a last batch of 3."""
    for found in trained_together(tmp_path, world=4):
        assert_agree(one_process, found)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"accumulate": 2, "steps": 6}, {"mixup": 0.5}], ids=str)
def test_options_mean_the_same(changes, tmp_path):
    one = trained(tmp_path / "one", changes)
    assert_agree(one, trained_together(tmp_path / "two", changes)[1])


def test_a_run_goes_on_and_with_other_processes(tmp_path):
    """Stopped by a signal to one of two, with dropout; then by two as if it had not been."""
    options = {"dropout": 0.3, "save_every": 1, "stochastic": 0.2}
    undisturbed = trained_together(tmp_path / "undisturbed", options)
    stopped = launch(tmp_path / "two", {**options, "stop_after": 3, "stop_process": 1})
    for printed, code in map(finish, stopped):
        assert code == 143, printed
    resumed = trained_together(tmp_path / "two", options)
    for a, b in zip(undisturbed, resumed):
        assert_agree(a, b, tolerance=1e-6)


def test_a_batch_that_does_not_divide_is_told(tmp_path):
    for printed, code in map(finish, launch(tmp_path, {"batch_size": 7})):
        assert code == 1 and "batch of 7 images, 2 devices" in printed, printed


@pytest.mark.slow
def test_one_of_two_is_killed_and_the_other_ends(tmp_path):
    first, second = launch(tmp_path, {"seconds": 0.3, "setup": {"timeout": 10}})
    kill_at(second, "batch 2")
    printed, code = finish(first)
    assert code != 0 and "lost another process" in printed, printed


def test_what_is_missing_is_told(tmp_path):
    """A process that never comes, a second launcher on the port, and no launcher at all."""
    options = {"setup": {"mode": "data_parallel", "timeout": 4}}
    port = free_port()
    (alone,) = launch(tmp_path, options, ranks=[0], port=port)
    printed, code = finish(alone)
    assert code == 1 and f"did not meet at 127.0.0.1:{port} within 4 s" in printed, printed
    printed, code = finish(start(tmp_path, options))
    assert code == 1 and "start the command with torchrun" in printed, printed
