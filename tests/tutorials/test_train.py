"""The main job, as a user runs it: in a process of its own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit_cli
from keras_vit import data, recipes
from keras_vit.job import Job
from tests.processes import finish
from tests.support import assert_same, refuses, slow_unless_torch

SCRIPT = pathlib.Path(__file__).parents[2] / "tutorials" / "train.py"
BARE = pathlib.Path(__file__).parents[1] / "bare.py"
SMALL = ["--epochs", "3", "--batch-size", "256", "--save-every", "2"]
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if k != "JAX_DISABLE_MOST_OPTIMIZATIONS"},
    "KERAS_BACKEND": keras.backend.backend(),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONUNBUFFERED": "1",
    "KERAS_VIT_NEEDED": "sklearn matplotlib",  # the digits and the curves
}


def start(*arguments, script=(BARE, SCRIPT)):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # A shell that runs the tests in the background makes its children deaf to Ctrl-C.
    pipes["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = [sys.executable, *map(str, script), *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, **pipes)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    output = tmp_path_factory.mktemp("whole")
    printed, code = finish(start(*SMALL, "--output", str(output), script=[SCRIPT]))
    assert code == 0, printed
    return output, printed


def rows(output):
    path = output / "history.csv"
    return path.read_text().splitlines() if path.exists() else []


def test_the_main_job_leaves_what_it_promises(whole_run, capsys):
    output, printed = whole_run
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["test_accuracy"] == metrics["test_accuracy_reloaded"] > 0.1
    report = json.loads((output / "evaluation.json").read_text())
    assert report["top1"] == metrics["test_accuracy"] and report["examples"] == 359
    assert metrics["backend"] == keras.backend.backend()
    columns = rows(output)[0].split(",")
    assert {"epoch", "accuracy", "loss", "val_accuracy", "val_loss"} <= set(columns)
    assert len(rows(output)) == 4
    for name in ("history.png", "predictions.png"):
        content = (output / name).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 20_000
    assert keras_vit_cli.main(["evaluate", str(output), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["top1"], again["examples"]) == (report["top1"], report["examples"])
    model = keras.saving.load_model(output / "model.keras")
    assert model.name == "vit_mini" and getattr(model, "optimizer", None) is None
    assert model.class_names == tuple("0123456789")
    assert "epoch 3/3" in printed and "Test accuracy" in printed


@slow_unless_torch
def test_a_stopped_run_goes_on_to_the_same_end(whole_run, tmp_path):
    """The same command continues it, and ends with the very weights of the undisturbed run."""
    process = start(*SMALL, "--output", tmp_path)
    deadline = time.monotonic() + 240
    while len(rows(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    printed, code = finish(process)
    assert code == 130, printed
    assert "The same command continues the run" in printed and "Traceback" not in printed
    assert not (tmp_path / "metrics.json").exists()

    printed, code = finish(start(*SMALL, "--output", tmp_path))
    assert code == 0, printed
    folders = whole_run[0], tmp_path
    models = [keras.saving.load_model(folder / "model.keras") for folder in folders]
    assert_same(*(model.get_weights() for model in models))

    printed, code = finish(start(*SMALL, "--seed", "1", "--output", tmp_path))
    assert code != 0 and "other settings" in printed and "another output folder" in printed


def test_help_explains_every_flag_without_loading_keras():
    begin = time.perf_counter()
    printed, code = finish(start("--help", script=[SCRIPT]))
    assert code == 0 and time.perf_counter() - begin < 5
    for flag in (
        "recipe list show output dataset data-dir split model weights freeze lora epochs steps "
        "batch-size warmup learning-rate weight-decay image-size accumulate precision seed set "
        "channels save-every evaluate"
    ).split():
        assert f"--{flag}" in printed


def test_recipes_are_listed_and_shown(main, capsys):
    main("--list")
    assert "finetune-cifar100" in capsys.readouterr().out
    main("--recipe", "finetune-cifar100", "--show", "--set", "mixup=0.3", "--batch-size", "128")
    printed = capsys.readouterr().out
    assert "0.3" in printed and "128" in printed and "40" in printed


@pytest.fixture
def main(monkeypatch, tmp_path):
    """Runs the command inside this process, and refuses to train: bad input must stop before."""

    def fit(*arguments, **options):
        raise RuntimeError("training started")

    monkeypatch.setattr(keras.Model, "fit", fit)
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()

    def run(*arguments):
        output = ["--output", str(tmp_path / "output")]
        return keras_vit_cli.main(["train", *arguments, *output, "--traceback"])

    yield run
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.mark.any_backend
def test_later_images_are_prepared_as_those_of_the_run():
    crop = data.Transform(16, crop="squash_center", resize_small=20, value_range=(0, 1))
    job = Job(recipes.get("digits").replace(train=crop, eval=crop), "output")
    preprocessing = job.build(job.load_test()).preprocessing
    assert (preprocessing.crop_fraction, preprocessing.mean[0]) == (0.8, 0)


def write_npz(path, **changes):
    x = np.random.default_rng(0).random((20, 8, 8, 3), dtype="float32")
    np.savez(path, **{"x": x, "y": np.arange(20) % 4, **changes})
    return str(path)


@slow_unless_torch
def test_a_variant_stands_in_place_of_the_whole_model_of_a_recipe(main, capsys):
    main("--show")
    assert "(width, 64)" in capsys.readouterr().out
    main("--variant", "Ti/16", "--show")
    assert "(width, 64)" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--image-size", "15"], r"image_size=\(15, 15\), patch_size=\(4, 4\).*\(12, 12\)"),
        (["--model", "Q/16"], r"variant='Q/16'; the nearest are"),
        (["--image-size", "8", "8", "8"], "image_size"),
        (["--recipe", "digitz"], "Received: recipe='digitz'; the nearest are"),
        (["--dataset", "digitz"], "digitz"),
        (["--dataset", "nowhere/photos"], "nowhere/photos"),
        (["--evaluate", "nowhere"], "settings.json is missing"),
        (["--set", "mixop=0.1"], r"field='mixop'; the nearest are .'mixup'"),
        (["--weights", "some.npz"], "no checkpoint file or folder 'some.npz'"),
        (["--freeze", "blok_0"], "block_0"),
    ],
)
def test_bad_settings_are_refused_before_training(main, arguments, message):
    refuses(message, main, *arguments, error=(ValueError, FileNotFoundError))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"x": np.full((20, 8, 8, 3), np.nan, "float32")}, "NaN|nan|finite"),
        ({"y": np.full(20, -1)}, "Received|-1"),
        ({"y": np.arange(20) % 4, "class_names": np.array(["a", "b"])}, "outside|class"),
        ({"x": np.zeros((20, 8), "float32")}, "shape"),
    ],
)
def test_bad_data_are_refused_before_training(main, tmp_path, changes, message):
    refuses(message, main, "--dataset", write_npz(tmp_path / "bad.npz", **changes))


def test_good_input_gets_as_far_as_training_and_so_does_a_folder_with_a_corrupt_image(
    main, tmp_path
):
    data = ("--dataset", write_npz(tmp_path / "good.npz"), "--batch-size", "8")
    refuses("training started", main, *data, error=RuntimeError)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(8):
            pixels = np.full((8, 8, 3), 30 * i, "uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    (tmp_path / "photos" / "cat" / "broken.png").write_text("no image")
    with pytest.raises(RuntimeError, match="training started"):
        main("--dataset", str(tmp_path / "photos"), "--batch-size", "4", "--channels", "1")


@pytest.mark.any_backend
def test_divergence_is_named(tmp_path):
    options = "--epochs 1 --learning-rate 1e38 --warmup 0 --set clip_norm=None --output"
    printed, code = finish(start(*options.split(), tmp_path))
    assert code != 0 and "Traceback" not in printed
    assert "training stopped" in printed and "Lower the learning rate" in printed


@pytest.mark.any_backend
def test_a_full_disk_and_a_folder_that_cannot_be(tmp_path):
    """One line that says where, and the same command goes on when there is room."""
    small = "import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    small += "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000)); "
    small += "sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    output = str(tmp_path / "run")
    command = [sys.executable, "-c", small, str(BARE), str(SCRIPT), "--steps", "2", "--output"]
    full = subprocess.run([*command, output], env=ENVIRONMENT, capture_output=True, text=True)
    assert full.returncode != 0 and "Traceback" not in full.stderr
    assert "could not be written" in full.stderr and "run the same command again" in full.stderr
    (tmp_path / "file").touch()
    printed, code = finish(start("--steps", "2", "--output", str(tmp_path / "file")))
    assert code != 0 and "Traceback" not in printed and str(tmp_path / "file") in printed
