"""Runs of the command line on a folder of photographs: what they leave, and say again later."""

import ast
import collections
import json
import os
import signal

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import recipes
from keras_vit.job import Job
from keras_vit_cli import main
from tests.support import killed_after, precision, slow_unless_torch

TRAIN = "train --recipe own_images --image-size 16 --batch-size 4 --steps 12 --set architecture="
TINY = "{'width':8,'depth':1,'num_heads':2,'patch_size':8}"
IMAGES = {"cat": 16, "dog": 8}


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two classes of unequal size; one file of each part is broken."""
    rng = np.random.default_rng(0)
    for k, (name, count) in enumerate(IMAGES.items()):
        for part, some in (("train", count), ("val", 4), ("test", 5)):
            folder = tmp_path / "photos" / part / name
            folder.mkdir(parents=True)
            for i in range(some):
                pixels = rng.integers(100 * k, 100 + 100 * k, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
            if k == 0:
                (folder / "0.png").write_bytes(b"\x89PNG nothing")
    monkeypatch.chdir(tmp_path)
    # The model is read again in this process: a new one costs seconds.
    monkeypatch.setattr("keras_vit_cli.train_command.test_again", repeated_test)
    return "photos"


def repeated_test(output):
    Job.read(output).evaluate()
    return next(iter(json.loads((output / "evaluation.json").read_text())["figures"].items()))


def train(output, *more):
    return main([*TRAIN.split(" ")[:-1], TRAIN.split(" ")[-1] + TINY, "--dataset", "photos",
                 "-o", str(output), *more])  # fmt: skip


def figures(report):
    """All that a report measured."""
    if isinstance(report, dict):
        return {name: value for name, value in report.items() if name not in ("model", "seconds")}
    return figures(json.loads(report))


@pytest.mark.filterwarnings("ignore:.*is left out:UserWarning")
def test_what_a_run_leaves_and_what_its_evaluation_says(photos, capsys, tmp_path):
    options = ["--class-weights", "balanced", "--random-erasing", "0.5", "--early-stopping", "9"]
    assert train("run", *options) == 0
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert "checkpoints" not in left and {"model.keras", "run.json", "metrics.json"} <= left
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    parts = ("training", "validation", "test")
    assert [metrics[f"skipped_{part}_images"] for part in parts] == [1, 1, 1]
    assert (metrics["skipped_images"], metrics["training_images"]) == (3, 23)
    assert metrics["test_images"] == 9 and metrics["chosen_on"] == "validation"
    history = (tmp_path / "run" / "history.csv").read_text().splitlines()
    column = history[0].split(",").index("val_accuracy")
    best = float(history[metrics["best_epoch"]].split(",")[column])
    assert (
        best
        == metrics["best_val_accuracy"]
        == max(float(r.split(",")[column]) for r in history[1:])
    )
    card = (tmp_path / "run" / "README.md").read_text()
    rows = {"training_images": 23, "epochs": 2, "chosen_on": "validation"}
    rows |= {"best_epoch": metrics["best_epoch"], "class_weights": "(0.75, 1.5)"}
    assert all(f"| {name} | {value} |" in card for name, value in rows.items())
    assert "| skipped | {'training': 1, 'validation': 1" in card
    assert "| best_val_accuracy | " in card and "random_erasing" in card

    report = (tmp_path / "run" / "evaluation.json").read_text()
    capsys.readouterr()
    for command in (["run"], ["run/model.keras", "photos"], ["run", "photos", "--split", "test"]):
        assert main(["evaluate", *command, "--json"]) == 1  # one image could not be read
        assert figures(capsys.readouterr().out) == figures(report)
    assert main(["train", "--evaluate", "run"]) == 0
    assert figures((tmp_path / "run" / "evaluation.json").read_text()) == figures(report)

    # The same command again says that the run has ended, and trains nothing.
    before = (tmp_path / "run" / "model.keras").read_bytes()
    log = (tmp_path / "run" / "log.jsonl").read_bytes()
    capsys.readouterr()
    assert train("run", *options) == 0
    assert "run has this run already, which has ended" in (printed := capsys.readouterr().out)
    assert "epoch 1/" not in printed
    again = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert {**again, "seconds_in_all": 0} == {**metrics, "seconds_in_all": 0}
    assert (tmp_path / "run" / "model.keras").read_bytes() == before
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == log
    # Another run is refused there, and one whose model is lost says what to do.
    assert train("run", *options, "--seed", "1") == 1
    assert "seed: 0 there, 1 here" in capsys.readouterr().err
    (tmp_path / "run" / "model.keras").unlink()
    assert train("run", *options) == 1
    assert "Delete run.json there to train anew" in capsys.readouterr().err


@slow_unless_torch
@pytest.mark.filterwarnings("ignore:.*is left out:UserWarning")
def test_a_run_that_is_interrupted_and_killed_while_it_tidies_up(
    photos, tmp_path, monkeypatch, capsys
):
    assert train("whole", "--keep-checkpoints") == 0
    assert list((tmp_path / "whole" / "checkpoints").glob("step-*.npz"))

    class CtrlC(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                os.kill(os.getpid(), signal.SIGINT)

    recipe_callbacks = Job.read("whole").recipe.callbacks
    with monkeypatch.context() as patch:
        patch.setattr(
            "keras_vit.recipes.recipe.Recipe.callbacks", lambda self: [*recipe_callbacks(), CtrlC()]
        )
        with pytest.raises(SystemExit) as stopped:
            train("run")
        assert stopped.value.code == 130
    known = collections.Counter()
    capsys.readouterr()
    for _ in range(3):  # each kill is at a later moment of the last steps
        with killed_after_the_card(monkeypatch, sum(known.values())):
            train("run")
        known["killed"] += 1
    assert train("run") == 0
    assert "has ended" in capsys.readouterr().out
    assert not (tmp_path / "run" / "checkpoints").exists()
    one, other = (
        json.loads((tmp_path / run / "metrics.json").read_text()) for run in ("whole", "run")
    )
    differs = {name for name in one if one[name] != other[name]}
    assert differs <= {"seconds_training", "seconds_in_all"}
    models = [
        keras.saving.load_model(f"{run}/model.keras", compile=False) for run in ("whole", "run")
    ]
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(a, b)


def killed_after_the_card(monkeypatch, calls):
    """A process that ends in `remove_checkpoints`, at so many changes on the disk."""
    import contextlib

    from keras_vit import training

    remove = training.remove_checkpoints

    @contextlib.contextmanager
    def context():
        def removes(output):
            with killed_after(monkeypatch, calls):
                remove(output)
            raise SystemExit(137)

        with monkeypatch.context() as patch, contextlib.suppress(SystemExit):
            patch.setattr("keras_vit.training.remove_checkpoints", removes)
            yield

    return context()


def test_figures_in_float64(photos, capsys, tmp_path):
    """On JAX a process must be told of it before it begins."""
    with precision("float64"):
        floatx = keras.config.floatx(), keras.config.dtype_policy()
        try:
            assert train("run", "--precision", "float64") == 0
            report = (tmp_path / "run" / "evaluation.json").read_text()
        finally:
            keras.config.set_floatx(floatx[0])
            keras.config.set_dtype_policy(floatx[1])
    capsys.readouterr()
    with precision("float64"):  # which the command switches on by itself; here it is put back
        try:
            main(["evaluate", "run", "--json"])
            assert keras.config.floatx() == "float64"
        finally:
            keras.config.set_floatx(floatx[0])
    assert figures(capsys.readouterr().out) == figures(report)


@pytest.mark.parametrize("names", [("dog", "cat"), ("bird", "fish")])
def test_a_head_that_came_with_weights_begins_as_the_classes_of_the_data(photos, names, capsys):
    model = keras_vit.VisionTransformer(image_size=16, num_classes=2, **ast.literal_eval(TINY))
    values = [
        np.random.default_rng(0).normal(size=w.shape) for w in model.get_layer("head").weights
    ]
    model.get_layer("head").set_weights(values)
    model.class_names = names
    keras_vit.save_weights(model, "own.safetensors")
    recipe = recipes.get("own_images").scale(steps=1, batch_size=4).replace(image_size=16)
    job = Job(recipe, "run", dataset=photos, weights="own.safetensors")
    built = job.build(job.load_train())
    assert built.class_names == ("cat", "dog")
    is_known = names == ("dog", "cat")
    for got, value in zip(built.get_layer("head").get_weights(), values):
        np.testing.assert_allclose(got, value[..., ::-1] if is_known else 0 * value, atol=1e-6)
    assert ("order of the data" if is_known else "fresh") in built.load_report.head
