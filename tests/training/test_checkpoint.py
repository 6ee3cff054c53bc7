"""Checkpoints: whole or not there, and what happens to damaged ones, full disks and NaN."""

import errno
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training import checkpoint_file, state
from keras_vit.training.checkpoints import Checkpoints
from tests.training import resume_case as case


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return {"model/0000": rng.normal(size=(5, 3)), "empty": np.zeros(0), "scalar": np.int64(3)}


def newest(folder):
    return max(pathlib.Path(folder, "checkpoints").glob("*.npz"))


@pytest.mark.any_backend
def test_a_file_gives_back_what_was_written(tmp_path):
    path = tmp_path / "a.npz"
    checkpoint_file.write(path, arrays().items(), {"step": 3, "text": "ä"})
    meta, read = checkpoint_file.read(path)
    assert meta == {"step": 3, "text": "ä"} and read.keys() == arrays().keys()
    for name, value in arrays().items():
        np.testing.assert_array_equal(read[name], value)
    with np.load(path) as file:  # anyone can read it
        np.testing.assert_array_equal(file["model/0000"], arrays()["model/0000"])


@pytest.mark.any_backend
def test_any_damage_is_seen(tmp_path):
    path, damaged = tmp_path / "a.npz", tmp_path / "b.npz"
    checkpoint_file.write(path, arrays().items(), {})
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [0, len(whole) - 1, *rng.integers(0, len(whole), 60)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(flipped)
        with pytest.raises(checkpoint_file.DamagedCheckpoint):
            checkpoint_file.read(damaged)
    for content in [whole[:length] for length in (0, 10, 71, 200, len(whole) - 1)] + [whole + b"x"]:
        damaged.write_bytes(content)
        with pytest.raises(checkpoint_file.DamagedCheckpoint):
            checkpoint_file.read(damaged)


@pytest.mark.any_backend
def test_the_last_ones_are_kept_and_partial_files_removed(tmp_path):
    (tmp_path / "step-0000000007.npz.partial").write_bytes(b"of a run that was killed")
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest() is None
    for step in (1, 2, 10, 300):
        checkpoints.save(step, arrays(step).items(), {"step": step})
    names = [path.name for path in tmp_path.iterdir()]
    assert sorted(names) == ["step-0000000010.npz", "step-0000000300.npz"]
    assert checkpoints.latest()[1] == {"step": 300}


@pytest.mark.any_backend
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
    assert f"needs {first.stat().st_size} bytes" in str(error.value)
    assert list(tmp_path.iterdir()) == [first] and checkpoints.latest()[1] == {"step": 1}
    # A disk that forgets what it was given is noticed before anything is replaced.
    monkeypatch.setattr(checkpoint_file, "verify", lambda path: damage("it has only 3 bytes"))
    with pytest.raises(training.CheckpointError, match="only 3 bytes"):
        checkpoints.save(2, arrays().items(), {})
    assert list(tmp_path.iterdir()) == [first]


def damage(reason):
    raise checkpoint_file.DamagedCheckpoint(reason)


@pytest.mark.any_backend
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
    assert f"{path} is damaged: it" in printed and "continuing after update 5 of 6" in printed
    for a, b in zip(expected, values):
        np.testing.assert_array_equal(a, b)
    checkpoint_file.read(newest(tmp_path / "run"))


def test_every_checkpoint_damaged_stops_the_run(tmp_path):
    case.run(tmp_path, steps=3)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(training.CheckpointError, match=r"Every checkpoint.*Delete the folder"):
        case.run(tmp_path, steps=3)


def test_another_model_under_the_same_settings_is_refused(tmp_path):
    model = case.build()
    case.run(tmp_path, model, steps=2)
    saved = state.describe(model)
    saved["model"][0][1] = [192, 9]
    with pytest.raises(ValueError, match=r"another model.*\(192, 9\).*Received.*\(192, 8\)"):
        state.check(model, saved)
    saved = state.describe(model)
    saved["optimizer"].pop()
    with pytest.raises(ValueError, match="another optimizer: it has"):
        state.check(model, saved)


def test_bfloat16_variables_go_through_a_file_exactly(tmp_path):
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, dtype="bfloat16")])
    model.compile("sgd", "mse")
    before = state.value_of(model.weights[0]).copy()
    checkpoint_file.write(tmp_path / "a.npz", state.capture(model), {})
    model.weights[0].assign(keras.ops.zeros((3, 4)))
    state.restore(model, checkpoint_file.read(tmp_path / "a.npz")[1])
    np.testing.assert_array_equal(state.value_of(model.weights[0]), before)


@pytest.mark.any_backend
def test_the_random_generators_go_on():
    np.random.normal()  # one of a pair: the other waits
    states = state.capture_generators()
    first = np.random.normal(size=3)
    state.restore_generators(states)
    np.testing.assert_array_equal(np.random.normal(size=3), first)


@pytest.mark.parametrize("indices", [True, False])
def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_batch(tmp_path, indices):
    model, pipeline = case.build(), case.Pipeline(broken_step=6, indices=indices)
    # TensorFlow's relu makes 0 of NaN: there the loss stays finite, and the weights show it.
    message = r"At update 7 \(epoch 2\).*(loss is nan|is not finite)"
    with pytest.raises(training.DivergenceError, match=message):
        case.run(tmp_path, model, pipeline)
    facts = json.loads((tmp_path / "nan_batch.json").read_text())
    assert (facts["step"], facts["epoch"]) == (7, 1)
    assert facts["learning_rate"] == pytest.approx(0.025 * (1 + np.cos(np.pi * 6 / 30)), rel=1e-5)
    if indices:
        assert facts["indices"] == pipeline.rows(6).tolist()
    else:
        with np.load(tmp_path / "nan_batch.npz") as file:
            np.testing.assert_array_equal(file["arr_1"], pipeline.labels[pipeline.rows(6)])
    meta, saved = checkpoint_file.read(newest(tmp_path))
    assert meta["step"] == 6
    assert all(np.isfinite(value).all() for value in saved.values())


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    class Breaks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                state.sync(self.model)
                self.model.weights[0].assign(np.full(self.model.weights[0].shape, np.nan))

    with pytest.raises(training.DivergenceError, match=r"the weight sequential.* is not finite"):
        case.run(tmp_path, callbacks=[Breaks()])
    assert checkpoint_file.read(newest(tmp_path))[0]["step"] == 3


def test_a_checkpoint_can_be_moved(tmp_path):
    case.run(tmp_path / "a", steps=3)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    history, _ = case.run(tmp_path / "b", steps=3)
    assert history["step"] == [3]
