"""What a run writes of itself."""

import csv
import json

import numpy as np
import pytest

from keras_vit.training import log
from tests.training import resume_case as case


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    output = tmp_path_factory.mktemp("logged")
    history, _ = case.run(output, steps=10, log_every=2, curves=True)
    return output, history


def test_the_lines_have_what_one_wants_to_know(logged):
    output, _ = logged
    records = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records if r["kind"] == "step"] == [2, 4, 5, 6, 8, 10]
    assert [r["epoch"] for r in records if r["kind"] == "epoch"] == [0, 1]
    last = next(r for r in records if r["step"] == 8)
    for name in ("loss", "accuracy", "learning_rate", "gradient_norm", "images_per_second"):
        assert last[name] > 0, name
    assert "val_loss" in records[-1] and records[-1]["time"].startswith("20")
    rate = 0.025 * (1 + np.cos(np.pi * 8 / 30))  # of the ninth update
    assert last["learning_rate"] == pytest.approx(rate, rel=1e-5)


def test_the_table_holds_the_history_and_the_curves_are_drawn(logged):
    pytest.importorskip("matplotlib")
    output, history = logged
    rows = list(csv.DictReader((output / "history.csv").open()))
    for name, column in history.items():
        assert [float(row[name]) for row in rows] == column
    assert history["epoch"] == [0, 1] and history["step"] == [5, 10]
    assert (output / "history.png").read_bytes().startswith(b"\x89PNG")
    assert not list(output.glob("*.partial*"))


def test_the_screen_shows_one_line_for_each_record(tmp_path, capsys):
    case.run(tmp_path, steps=4, log_every=2, validation=None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "\x1b" not in "".join(lines)
    assert lines[0].startswith("epoch 1/1  update 2/4  ") and "learning_rate 0.04945" in lines[0]
    assert lines[2].startswith("epoch 1/1  ended")


@pytest.mark.any_backend
def test_curves_of_any_metrics_and_of_epochs_without_validation(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"epoch": 0, "loss": 1.0}, {"epoch": 1, "loss": 0.5, "val_loss": 0.7, "top5": 0.1}]
    log.plot_history(rows, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_without_matplotlib_the_run_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    case.run(tmp_path, steps=1, curves=True)
    assert "pip install keras3-vit[plot]" in capsys.readouterr().out
    assert not (tmp_path / "history.png").exists()


def test_with_accumulation_updates_are_counted(tmp_path):
    """Steps, log lines and checkpoints count updates, of two batches each."""
    history, _ = case.run(tmp_path, case.fresh(accumulate=2), steps=5, log_every=2)
    records = case.read_log(tmp_path, "step")
    assert [record["step"] for record in records] == [2, 2, 4, 5]
    assert history["step"] == [2, 5] and history["epoch"] == [0, 1]
    assert max((tmp_path / "checkpoints").iterdir()).name == "step-0000000010.npz"


def test_a_terminal_shows_a_bar(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    case.run(tmp_path, steps=5)
    printed = capsys.readouterr().out
    assert "5/5" in printed and "val_loss" in printed and "ended" not in printed


@pytest.mark.any_backend
@pytest.mark.parametrize("epochs", [1, 2, 3, 40])
def test_epochs_are_whole_numbers(tmp_path, monkeypatch, epochs):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(log, "save_figure", lambda figure, path, **_: drawn.append(figure))
    log.plot_history([{"epoch": i, "loss": 1 / (i + 1)} for i in range(epochs)], tmp_path)
    drawn[0].draw_without_rendering()
    ticks = drawn[0].axes[0].get_xticks()
    assert len(ticks) > 0 and (ticks == ticks.round()).all()
