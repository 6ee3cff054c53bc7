"""Columns of a file of labels as heads of one model: every command, from training to a file."""

import json
import os
import signal

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.recipes import Recipe
from keras_vit_cli import main
from tests.cli.test_cli import run
from tests.data.pipeline_cases import as_csv, halves
from tests.test_job_runs import TINY, repeated_test

QUIET = pytest.mark.filterwarnings("ignore:.*'note' are not read:UserWarning")
COUNT = 36
HEADS = "breed=single_label,age=regression,tags=multi_label"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Pictures that are dark or bright, of ages by the thousand; each fifth has no age."""
    rows = [("file", "breed", "age", "tags", "note")]
    for i, tags in enumerate(halves(tmp_path / "photos", COUNT)):
        age = "" if i % 5 == 0 else 9000 + 100 * (i % 4)
        rows.append((f"{i}.png", "pug" if i % 2 else "cat", age, tags, "seen"))
    as_csv(tmp_path / "labels.csv", *rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("keras_vit_cli.train_command.test_again", repeated_test)
    return rows


def command(name, *more):
    data = ["--dataset", "photos", "--labels", "labels.csv", "--problem", HEADS]
    size = ["--image-size", "16", "--batch-size", "8", "--steps", "8"]
    return [name, *data, *size, "--set", f"architecture={TINY}", *more]


@QUIET
def test_from_a_table_to_a_file(photos, capsys, tmp_path):
    options = "--class-weights balanced --loss-weights age=0.5 --early-stopping 9".split()
    more = ["mixup=0.2", "cutmix=1.0", "keep_best=val_breed_accuracy"]
    code, out, _ = run(capsys, *command("train", *more, *options, "-o", "run"))
    assert code == 0 and "split by breed" in out and "without age" in out
    assert "Targets are age 91" in out and "the best on validation: val_breed_accuracy" in out
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    measured = {name for name in metrics if name.startswith("test_")}
    assert measured >= {"test_breed_accuracy", "test_age_r2", "test_tags_mean_average_precision"}
    assert metrics["test_images"] == 8 and "best_val_breed_accuracy" in metrics
    assert metrics["test_age_mean_absolute_error"] < 1000, "in the units of the labels"
    history = (tmp_path / "run" / "history.csv").read_text().splitlines()[0]
    assert "val_tags_mean_average_precision" in history and "val_age_loss" in history

    # What was saved needs no flag: neither for the images of the run nor for those of a new table.
    for data in ((), ("photos", "--labels", "labels.csv")):
        code, out, _ = run(capsys, "evaluate", "run", *data, "--json")
        figures = json.loads(out)["figures"]
        assert code == 0 and {f"test_{name}": each for name, each in figures.items()} == {
            name: each for name, each in metrics.items() if name[5:] in figures
        }
    report = json.loads(out)["heads"]
    assert report["breed"]["examples"] == 8 > report["age"]["examples"]
    code, out, _ = run(capsys, "predict", "run", "photos/3.png")
    assert code == 0 and out.splitlines()[0].split() == ["image", "breed", "age", "tags"]
    rows = json.loads(run(capsys, "predict", "run", "photos/3.png", "--json")[1])
    assert [(row["head"], row.get("class"), row.get("output")) for row in rows if
            row.get("rank", 1) == 1][1] == ("age", None, "age")  # fmt: skip
    lines = run(capsys, "predict", "run", "photos/3.png", "--csv")[1].splitlines()
    assert lines[0].startswith("image,head,rank,class") and len(lines) == 1 + 2 + 1 + 2
    model = keras.saving.load_model("run/model.keras", compile=False)
    told = keras_vit.predict(model, ["photos/3.png"])
    assert {one.label for one in told["breed"][0]} == {"cat", "pug"}
    assert 8000 < told["age"][0][0].value < 10_000
    assert model.reading == {"breed": "softmax", "age": "values", "tags": "sigmoid"}


@pytest.mark.any_backend
@QUIET
def test_a_plan_and_a_sweep(photos, capsys):
    code, out, _ = run(capsys, *command("train", "--dry-run"))
    assert code == 0 and "breed=single_label, age=regression" in out and "parameters" in out
    code, out, _ = run(capsys, *command("sweep", "--learning-rates", "1e-3", "1e-2"))
    assert code == 0 and "best: --learning-rate" in out and out.split()[2] == "loss"


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:.*are not read.*:UserWarning")
def test_what_cannot_be_known_is_asked(photos, capsys, tmp_path):
    for problem, told in {
        "breed=single_label,weight=regression": "which has 'breed', 'age', 'tags', 'note'",
        "breed=regression,age=regression": "Head 'breed': Labels in several columns, and values",
    }.items():
        options = [problem if each == HEADS else each for each in command("train", "-o", "out")]
        code, _, error = run(capsys, *options)
        assert code == 1 and told in error


@QUIET
def test_a_run_that_was_stopped_goes_on_bit_for_bit(photos, capsys, monkeypatch):
    more = ["mixup=0.2", "--class-weights", "balanced", "--loss-weights", "age=0.5"]
    assert run(capsys, *command("train", *more, "-o", "whole"))[0] == 0

    class CtrlC(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                os.kill(os.getpid(), signal.SIGINT)

    usual = Recipe.callbacks
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(Recipe, "callbacks", lambda self: [*usual(self), CtrlC()])
        main(command("train", *more, "-o", "run"))
    assert stopped.value.code == 130
    code, _, error = run(capsys, *command("train", *more, "-o", "run"))
    assert code == 0, error
    pair = [keras.saving.load_model(f"{name}/model.keras") for name in ("whole", "run")]
    for a, b in zip(*(model.get_weights() for model in pair), strict=True):
        np.testing.assert_array_equal(a, b)
    code, _, error = run(capsys, *command("train", *more[:-1], "age=0.7", "-o", "run"))
    assert code == 1 and "loss_weights" in error
