"""Processes that are killed: they continue, and end with the weights of one that was not."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from keras_vit import training
from tests.support import BACKEND, ROOT
from tests.training import resume_case as case


def start(output, seconds=0, save_every=1, **environment):
    """The process of a run, which prints a line for each batch."""
    script = ROOT / "tests" / "training" / "resume_case.py"
    return subprocess.Popen(
        [sys.executable, script, str(output), str(seconds), str(save_every)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **os.environ,
            "KERAS_BACKEND": BACKEND,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OMP_NUM_THREADS": "1",
            **environment,
        },
    )


def finish(process):
    """All that it printed, and its code."""
    printed, _ = process.communicate(timeout=200)
    return printed, process.returncode


def stop_at(process, batches, *numbers):
    """Sends signals after so many batches. Returns whether they were reached."""
    for line in process.stdout:
        batches -= line.startswith("batch")
        if batches <= 0:
            for number in numbers:
                process.send_signal(number)
            return True
    return False


def final(output):
    with np.load(pathlib.Path(output) / "final.npz") as file:
        return [file[name] for name in file.files]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    callbacks = [training.EvaluateAverages()]
    return case.run(tmp_path_factory.mktemp("undisturbed"), callbacks=callbacks)[1]


def assert_finishes_equal(output, undisturbed, **options):
    printed, code = finish(start(output, **options))
    assert code == 0, printed
    for a, b in zip(undisturbed, final(output), strict=True):
        np.testing.assert_array_equal(a, b)
    return printed


def test_signals_let_the_batch_end_and_save(tmp_path, undisturbed):
    """Saving only every 600 seconds, so that what continues is what the signal saved."""
    for number, batches, code in ((signal.SIGTERM, 3, 143), (signal.SIGINT, 4, 130)):
        process = start(tmp_path, 0.3, "600s")
        assert stop_at(process, batches, number)
        printed, returned = finish(process)
        assert returned == code, printed
        assert f"{signal.Signals(number).name}: stopping after this batch" in printed
        assert re.search(r"Stopped and saved: .*npz. The same command continues", printed)
        assert "Traceback" not in printed
    printed = assert_finishes_equal(tmp_path, undisturbed, save_every="600s")
    assert "continuing after update" in printed


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(tmp_path):
    process = start(tmp_path, 5)
    assert stop_at(process, 1, signal.SIGINT)
    assert "SIGINT: stopping" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    printed, code = finish(process)
    assert code in (-signal.SIGINT, 130) and "KeyboardInterrupt" in printed, printed


def test_kill_9_three_times(tmp_path, undisturbed):
    kill_at_random(tmp_path, undisturbed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_kill_9_many_times(tmp_path, undisturbed, seed):
    kill_at_random(tmp_path, undisturbed, 20, seed)


def kill_at_random(output, undisturbed, times, seed=0):
    """Kills after random batches and waits, while it trains, writes checkpoints or starts."""
    rng = random.Random(seed)
    for _ in range(times):
        process = start(output, rng.choice([0, 0.01]))
        stop_at(process, rng.randint(0, 3))
        try:
            process.wait(rng.uniform(0, 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        if (output / "final.npz").exists():
            break
    assert_finishes_equal(output, undisturbed)


@pytest.mark.slow  # `test_checkpoint` has the same within one process
def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(tmp_path, undisturbed):
    printed, code = finish(start(tmp_path, FILE_SIZE_LIMIT="2000"))
    assert code == 1 and re.search(r"CheckpointError: .*File too large.*bytes are free", printed)
    assert not list((tmp_path / "checkpoints").iterdir())
    assert_finishes_equal(tmp_path, undisturbed)
