"""Runs that are stopped or killed: they continue, and end with the weights of one that was not."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.stop import Signals
from tests import processes
from tests.processes import finish
from tests.support import assert_same
from tests.training import resume_case as case


def start(output, seconds=0, save_every=1):
    """The process of a run, which prints a line for each batch."""
    return processes.start("training/resume_case.py", output, seconds, save_every)


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
    assert_same(undisturbed, final(output))
    return printed


def test_signals_let_the_batch_end_and_save(tmp_path, undisturbed, capfd):
    """Saving only every 600 seconds, so that what continues is what the signal saved."""

    class Send(keras.callbacks.Callback):
        """Sends a signal in the second batch, or in the first validation."""

        def __init__(self, number, in_validation):
            super().__init__()
            self.number, self.in_validation, self.left = number, in_validation, 2

        def on_train_batch_begin(self, batch, logs=None):
            self.left -= 1
            if not (self.left or self.in_validation):
                os.kill(os.getpid(), self.number)

        def on_test_batch_begin(self, batch, logs=None):
            if self.in_validation:
                os.kill(os.getpid(), self.number)

    for number, in_validation in ((signal.SIGTERM, False), (signal.SIGINT, True)):
        callbacks = [training.EvaluateAverages(), Send(number, in_validation)]
        with pytest.raises(training.Interrupted) as error:
            case.run(tmp_path, callbacks=callbacks, save_every="600s")
        assert error.value.code == 128 + number
        printed = capfd.readouterr().out
        assert f"{signal.Signals(number).name}: stopping after this batch" in printed
        assert re.search(r"Stopped and saved: .*npz. The same command continues", printed)
    _, values = case.run(tmp_path, callbacks=[training.EvaluateAverages()], save_every="600s")
    assert "continuing after update 5 of 13" in capfd.readouterr().out
    assert_same(undisturbed, values)


@pytest.mark.slow  # the same in processes, with the codes that a shell sees
def test_a_process_that_gets_a_signal_saves_and_ends(tmp_path, undisturbed):
    for number, batches, code in ((signal.SIGTERM, 3, 143), (signal.SIGINT, 4, 130)):
        process = start(tmp_path, 0.3, "600s")
        assert stop_at(process, batches, number)
        printed, returned = finish(process)
        assert returned == code and "Traceback" not in printed, printed
    printed = assert_finishes_equal(tmp_path, undisturbed, save_every="600s")
    assert "continuing after update" in printed


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(tmp_path):
    process = start(tmp_path, 5)
    assert stop_at(process, 1, signal.SIGINT)
    assert "SIGINT: stopping" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    printed, code = finish(process)
    # Python ends by the signal itself, but with 1 where `torch._dynamo` is imported, as by Keras.
    expected = (1,) if keras.backend.backend() == "torch" else (-signal.SIGINT, 130)
    assert code in expected and "KeyboardInterrupt" in printed, printed


def test_kill_9(tmp_path, undisturbed):
    process = start(tmp_path)
    assert stop_at(process, 7, signal.SIGKILL)
    process.communicate()
    assert "continuing after update" in assert_finishes_equal(tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_kill_9_many_times(tmp_path, undisturbed, seed):
    """After random batches and waits, while it trains, writes checkpoints or starts."""
    rng = random.Random(seed)
    for _ in range(20):
        process = start(tmp_path, rng.choice([0, 0.01]))
        stop_at(process, rng.randint(0, 3))
        try:
            process.wait(rng.uniform(0, 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        if (tmp_path / "final.npz").exists():
            break
    assert_finishes_equal(tmp_path, undisturbed)


@pytest.mark.any_backend
def test_a_signal_within_a_print_and_handlers_that_come_back(capfd):
    """Python's buffer cannot be entered twice: the message of the handler goes past it."""
    with capfd.disabled(), open(os.devnull, "w") as nowhere:
        before, sys.stdout = sys.stdout, nowhere
        try:
            for _ in range(100):
                with Signals() as signals:
                    thread = threading.Timer(2e-4, os.kill, (os.getpid(), signal.SIGINT))
                    thread.start()
                    while signals.asked is None:
                        print("x" * 50, flush=True)
                    thread.join()
                assert signals.asked == signal.SIGINT
        finally:
            sys.stdout = before
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked == signal.SIGTERM
        # The second one stops at once.
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert "SIGTERM: stopping after this batch" in capfd.readouterr().out
