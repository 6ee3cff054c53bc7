"""What a run writes of itself."""

import csv
import json
import struct

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training import curves, log_files, tensorboard
from tests.training import resume_case as case


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    output = tmp_path_factory.mktemp("logged")
    history, _ = case.run(output, steps=10, log_every=2, curves=True, tensorboard=True)
    return output, history


def test_the_lines_have_what_one_wants_to_know(logged):
    output, _ = logged
    records = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "step"] == [2, 4, 5, 6, 8, 10]
    assert [r["epoch"] for r in records if r["kind"] == "epoch"] == [0, 1]
    last = next(r for r in records if r["step"] == 8)
    for name in ("loss", "accuracy", "learning_rate", "gradient_norm", "images_per_second"):
        assert last[name] > 0, name
    assert last["seconds_left"] >= 0 and last["peak_memory"] > 1e7
    assert "val_loss" in records[-1] and records[-1]["time"].startswith("20")
    rate = 0.025 * (1 + np.cos(np.pi * 7 / 30))  # of the eighth update
    assert last["learning_rate"] == pytest.approx(rate, rel=1e-5)


def test_the_table_holds_the_history(logged):
    output, history = logged
    with (output / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name, column in history.items():
        assert [float(row[name]) for row in rows] == column
    assert history["epoch"] == [0, 1] and history["step"] == [5, 10]


def test_the_screen_shows_one_line_for_each_record(tmp_path, capsys):
    case.run(tmp_path, steps=4, log_every=2, validation=None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "\x1b" not in "".join(lines)
    assert lines[0].startswith("epoch 1/1  update 2/4  ") and "lr 0.04986" in lines[0]
    assert lines[2].startswith("epoch 1/1  ended")


def test_the_curves_are_drawn(logged):
    pytest.importorskip("matplotlib")
    output, _ = logged
    assert (output / "history.png").read_bytes().startswith(b"\x89PNG")
    assert not list(output.glob("*.partial*"))


@pytest.mark.any_backend
def test_curves_of_any_metrics_and_of_epochs_without_validation(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"epoch": 0, "loss": 1.0}, {"epoch": 1, "loss": 0.5, "val_loss": 0.7, "top5": 0.1}]
    curves.plot_curves(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


@pytest.mark.any_backend
def test_without_matplotlib_the_curves_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"keras3-vit\[plot\]"):
        curves.plot_curves([{"epoch": 0, "loss": 1.0}], tmp_path / "a.png")


@pytest.mark.any_backend
def test_lines_after_the_checkpoint_and_broken_ones_are_dropped(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    log_files.JSONLines(path, lambda record: record["step"] <= 2).append({"step": 3})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.any_backend
def test_a_column_that_comes_late_is_empty_before(tmp_path):
    log_files.write_csv(tmp_path / "a.csv", [{"a": 1}, {"a": 2, "b": 3}])
    assert (tmp_path / "a.csv").read_text() == "a,b\n1,\n2,3\n"


@pytest.mark.any_backend
def test_the_checksum_is_the_one_of_the_standard():
    """CRC-32C of "123456789" is e3069283 (RFC 3720, B.4, gives it for other data)."""
    crc = struct.unpack("<I", tensorboard._checksum(b"123456789"))[0] - 0xA282EAD8 & 0xFFFFFFFF
    assert (crc << 15 | crc >> 17) & 0xFFFFFFFF == 0xE3069283


def test_tensorflow_reads_the_events(logged):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("read with the backend that has the reader")
    output, history = logged
    (path,) = (output / "tensorboard").iterdir()
    events = list(tf.compat.v1.train.summary_iterator(str(path)))
    assert events[0].file_version == "brain.Event:2"
    values = {(e.step, v.tag): v.simple_value for e in events for v in e.summary.value}
    for step, loss in zip(history["step"], history["val_loss"]):
        assert values[step, "epoch/val_loss"] == pytest.approx(loss, rel=1e-6)
    writer = tensorboard.TensorBoardWriter(output / "again", first_step=300)
    (_, start) = tf.compat.v1.train.summary_iterator(str(writer.path))
    assert start.step == 300 and start.session_log.status == start.session_log.START


@pytest.mark.parametrize("accumulate", [None, 2])
def test_the_norm_is_the_one_of_the_gradients(accumulate):
    """Of a linear model with a closed form: d/dw of mean (wx - y)² is 2 · mean x(wx - y)."""
    model = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )
    optimizer = keras.optimizers.SGD(
        0.25, global_clipnorm=1e-3, gradient_accumulation_steps=accumulate
    )
    norm = training.track_gradient_norm(optimizer)
    assert training.track_gradient_norm(optimizer) is norm
    model.compile(optimizer, "mse")
    x, y = np.array([[1, 2], [3, -1]], "float32"), np.array([[0], [1]], "float32")
    for _ in range(accumulate or 1):
        model.train_on_batch(x, y)
    gradient = 2 * np.mean(x * (x.sum(1, keepdims=True) - y), 0)
    assert float(norm.numpy()) == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    assert float(optimizer.applied_learning_rate.numpy()) == 0.25
    assert sum(variable is norm for variable in optimizer.variables) == 1


def test_a_saved_optimizer_does_not_hold_the_norm(tmp_path):
    model = case.build()
    training.track_gradient_norm(model.optimizer)
    model.train_on_batch(*case.Pipeline().batch(0))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 1
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables) - 2
    model.load_weights(tmp_path / "model.keras")  # and back into one that has it
