"""Checkpoints: whole or not there, and what happens to damaged ones, full disks and NaN."""

import errno
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.checkpoint import (
    Checkpoints,
    assign_state,
    build_state,
    read_state,
    sync,
    value_of,
)
from keras_vit.training.stop import only_run_in
from tests.support import assert_same, every_backend, refuses
from tests.training import resume_case as case

pytestmark = pytest.mark.any_backend


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {"model/0000": rng.normal(size=(5, 3)), "empty": np.zeros(0), "scalar": np.int64(3)}


def newest(folder):
    return max(pathlib.Path(folder, "checkpoints").glob("*.npz"))


def test_a_file_gives_back_what_was_written(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(3, arrays().items(), {"step": 3, "text": "ä"})
    found, meta, read = checkpoints.latest()
    assert found == path and meta == {"step": 3, "text": "ä"} and read.keys() == arrays().keys()
    assert_same(read, arrays())
    with np.load(path) as file:  # anyone can read it
        np.testing.assert_array_equal(file["model/0000"], arrays()["model/0000"])
    # A file of another name is no checkpoint.
    (tmp_path / "step-best.npz").write_bytes(path.read_bytes())
    assert Checkpoints(tmp_path).paths() == [path]


def test_damage_is_seen_or_changes_nothing(tmp_path):
    """Whichever bit is flipped, and wherever the file is cut: no other values are read."""
    path = Checkpoints(tmp_path).save(3, arrays().items(), {"step": 3})
    whole = path.read_bytes()
    rng, seen = np.random.default_rng(0), 0
    damaged = [whole[:length] for length in (0, 10, 71, 200, len(whole) - 1)]
    for place in [0, len(whole) - 1, *rng.integers(0, len(whole), 200)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        damaged.append(flipped)
    for content in damaged:
        path.write_bytes(content)
        try:
            _, meta, read = Checkpoints(tmp_path).latest()
        except training.CheckpointError:
            seen += 1
            continue
        assert meta == {"step": 3} and read.keys() == arrays().keys()
        assert_same(read, arrays())
    assert seen > 100


def test_a_checkpoint_that_cannot_be_opened_is_not_called_damaged(tmp_path):
    """Such as on a disk that is not there: the run must not go on from an older one."""
    Checkpoints(tmp_path).save(1, arrays().items(), {"step": 1})
    checkpoints = Checkpoints(tmp_path)
    (tmp_path / "step-0000000002.npz").symlink_to(tmp_path / "absent" / "step-0000000002.npz")
    with pytest.raises(FileNotFoundError, match="step-0000000002"):
        checkpoints.latest()


def test_the_last_ones_are_kept_and_partial_files_removed(tmp_path):
    (tmp_path / ".step-0000000007.npz.abcd_123" / "checkpoints").mkdir(parents=True)
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest() is None
    for step in (1, 2, 10, 300):
        checkpoints.save(step, arrays(step).items(), {"step": step})
    names = [path.name for path in tmp_path.iterdir()]
    assert sorted(names) == ["step-0000000010.npz", "step-0000000300.npz"]
    assert checkpoints.latest()[1] == {"step": 300}


def test_a_full_disk_leaves_the_earlier_checkpoint_and_says_what_is_needed(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    first = checkpoints.save(1, arrays().items(), {"step": 1})

    def full():
        yield from arrays().items()
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(training.CheckpointError) as error:
        checkpoints.save(2, full(), {})
    assert error.value.errno == errno.ENOSPC
    for part in ("step-0000000002.npz could", "No space left", "bytes are free", f"{first} is un"):
        assert part in str(error.value)
    assert list(tmp_path.iterdir()) == [first] and checkpoints.latest()[1] == {"step": 1}


def test_what_comes_after_a_checkpoint_that_is_saved_again_goes(tmp_path):
    """A run whose newest checkpoints were damaged writes earlier ones again, and keeps them."""
    checkpoints = Checkpoints(tmp_path)
    for step in (5, 65):
        path = checkpoints.save(step, arrays().items(), {"step": step})
    path.write_bytes(b"")
    checkpoints.latest()
    path = checkpoints.save(5, arrays().items(), {"step": 5})
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_belongs_to_one_run(tmp_path):
    with only_run_in(tmp_path), pytest.raises(ValueError, match=r"Another run.*Received: output="):
        case.run(tmp_path)
    case.run(tmp_path, steps=1)


@pytest.mark.parametrize("damaged", ["flipped", "cut", "empty"])
def test_a_damaged_checkpoint_is_passed_over_with_a_message(tmp_path, capsys, damaged):
    _, expected = case.run(tmp_path / "whole", steps=6)
    case.run(tmp_path / "run", steps=6)
    path = newest(tmp_path / "run")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes({"flipped": content, "cut": content[:-900], "empty": b""}[damaged])
    capsys.readouterr()
    _, values = case.run(tmp_path / "run", steps=6)
    printed = capsys.readouterr().out
    assert f"{path} is damaged: " in printed and "continuing after update 5 of 6" in printed
    assert_same(expected, values)
    assert newest(tmp_path / "run").stat().st_size > 1000


@every_backend
def test_a_run_can_be_moved_and_stops_where_every_checkpoint_is_damaged(tmp_path):
    case.run(tmp_path / "a", steps=3)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    history, _ = case.run(tmp_path / "b", steps=3)
    assert history["step"] == [3]
    for path in (tmp_path / "b" / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(training.CheckpointError, match=r"Every checkpoint.*Delete the folder"):
        case.run(tmp_path / "b", steps=3)


@every_backend
def test_another_model_is_refused(tmp_path):
    model = case.fresh()
    case.run(tmp_path, model, steps=2)
    _, _, saved = Checkpoints(tmp_path / "checkpoints").latest()
    with pytest.raises(ValueError, match=r"model/0000.*\(192, 9\) there. Received: \(192, 8\)"):
        assign_state(model, {**saved, "model/0000": np.zeros((192, 9))})
    saved.pop("optimizer/0003")
    refuses(r"optimizer/0003.*None there", assign_state, model, saved)


@every_backend
def test_bfloat16_variables_go_through_a_file_exactly(tmp_path):
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, dtype="bfloat16")])
    model.compile("sgd", "mse")
    before = value_of(model.weights[0]).copy()
    build_state(model, (np.zeros((2, 3)), np.zeros((2, 4))))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, read_state(model), {})
    model.weights[0].assign(keras.ops.zeros((3, 4)))
    assign_state(model, checkpoints.latest()[2])
    np.testing.assert_array_equal(value_of(model.weights[0]), before)


@every_backend
def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_batch(tmp_path):
    model, pipeline = case.fresh(), case.Pipeline(broken_step=6)
    # TensorFlow's relu makes 0 of NaN: there the loss stays finite, and the weights show it.
    message = r"At update 7 \(epoch 2\).*(loss is nan|is not finite)"
    refuses(message, case.run, tmp_path, model, pipeline, error=training.DivergenceError)
    with np.load(tmp_path / "nan_batch.npz") as file:
        np.testing.assert_array_equal(file["arr_1"], pipeline.labels[pipeline.rows(6)])
    _, meta, saved = Checkpoints(tmp_path / "checkpoints").latest()
    assert meta["batch"] == 6
    assert all(np.isfinite(value).all() for value in saved.values())


@every_backend
def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    class Breaks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                sync(self.model)
                self.model.weights[0].assign(np.full(self.model.weights[0].shape, np.nan))

    with pytest.raises(training.DivergenceError, match=r"the weight sequential.* is not finite"):
        case.run(tmp_path, callbacks=[Breaks()])
    assert Checkpoints(tmp_path / "checkpoints").latest()[1]["batch"] == 3


def test_an_output_that_is_no_folder_is_named_before_the_training(tmp_path):
    (tmp_path / "output").touch()
    refuses(r"must be a folder.*output', which is a file", case.run, tmp_path / "output")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["checkpoints/step-0000000099.npz", "log.jsonl", "nan_batch.npz"])
def test_what_is_no_file_is_named_before_the_training(tmp_path, make, name):
    """A pipe would keep the run waiting for ever, and a folder stop it at its next save."""
    (tmp_path / "checkpoints").mkdir()
    make(tmp_path / name)
    refuses(rf"{name}', which is a (pipe|folder); move it away", case.run, tmp_path)
