"""The main job, as a user runs it: in a process of its own."""

import importlib.util
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

import keras_vit  # noqa: F401  (registers its classes)

SCRIPT = pathlib.Path(__file__).parents[2] / "tutorials" / "train.py"
SMALL = ["--epochs", "3", "--batch-size", "256", "--learning-rate", "0.002"]
ENVIRONMENT = {
    **os.environ,
    "KERAS_BACKEND": keras.backend.backend(),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONUNBUFFERED": "1",
}


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs the tests in the background makes its children deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(process, seconds=300):
    printed, _ = process.communicate(timeout=seconds)
    return process.returncode, printed


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    output = tmp_path_factory.mktemp("whole")
    code, printed = finish(start(*SMALL, "--output", str(output)))
    assert code == 0, printed
    return output, printed


def rows(output):
    path = output / "history.csv"
    return path.read_text().splitlines() if path.exists() else []


def test_the_main_job_leaves_what_it_promises(whole_run):
    output, printed = whole_run
    metrics = json.loads((output / "metrics.json").read_text())
    assert metrics["test_accuracy"] == metrics["test_accuracy_reloaded"] > 0.1
    assert metrics["backend"] == keras.backend.backend()
    assert rows(output)[0] == "epoch,accuracy,loss,val_accuracy,val_loss" and len(rows(output)) == 4
    for name in ("history.png", "predictions.png"):
        content = (output / name).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 20_000
    model = keras.saving.load_model(output / "model.keras")
    assert model.name == "vit_mini" and getattr(model, "optimizer", None) is None
    assert "Epoch 3/3" in printed and "Test accuracy" in printed


def test_an_interrupted_run_resumes_to_the_same_end(whole_run, tmp_path):
    process = start(*SMALL, "--output", str(tmp_path))
    deadline = time.monotonic() + 240
    while len(rows(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code, printed = finish(process)
    assert code == 130, printed
    assert f"--resume {tmp_path}" in printed and "Traceback" not in printed
    assert not (tmp_path / "metrics.json").exists()

    code, printed = finish(start("--resume", str(tmp_path)))
    assert code == 0, printed
    whole = np.genfromtxt(rows(whole_run[0])[1:], delimiter=",")
    resumed = np.genfromtxt(rows(tmp_path)[1:], delimiter=",")
    np.testing.assert_allclose(resumed, whole, rtol=1e-4, atol=1e-6)


def test_help_explains_every_flag_without_loading_keras():
    begin = time.perf_counter()
    code, printed = finish(start("--help"))
    assert code == 0 and time.perf_counter() - begin < 5
    for flag in (
        "output dataset data-dir skip-corrupt model image-size patch-size channels epochs "
        "batch-size learning-rate warmup weight-decay augment precision seed resume evaluate"
    ).split():
        assert f"--{flag}" in printed


@pytest.fixture
def main(monkeypatch, tmp_path):
    """Runs the script inside this process, and refuses to train: bad input must stop before."""
    spec = importlib.util.spec_from_file_location("train_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def fit(*arguments, **options):
        raise RuntimeError("training started")

    monkeypatch.setattr(keras.Model, "fit", fit)
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()

    def run(*arguments):
        output = [] if "--resume" in arguments else ["--output", str(tmp_path / "output")]
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments, *output])
        return script.main()

    yield run
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


def write_npz(path, **changes):
    arrays = {
        "x": np.random.default_rng(0).random((20, 8, 8, 3), dtype="float32"),
        "y": np.arange(20) % 4,
        **changes,
    }
    np.savez(path, **arrays)
    return str(path)


def test_good_input_gets_as_far_as_training(main, tmp_path):
    with pytest.raises(RuntimeError, match="training started"):
        main("--dataset", write_npz(tmp_path / "good.npz"))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--patch-size", "5"], r"image_size=\(16, 16\), patch_size=\(5, 5\).*\(15, 15\)"),
        (["--model", "Q/16"], r"variant='Q/16'; expected one of"),
        (["--image-size", "0"], "image_size"),
        (["--image-size", "8", "8", "8"], "image_size"),
        (["--dataset", "digitz"], "Received: 'digitz'"),
        (["--dataset", "nowhere/photos"], "No such file or folder"),
        (["--resume", "nowhere"], "settings.json is missing"),
    ],
)
def test_bad_settings_are_refused_before_training(main, arguments, message):
    with pytest.raises(ValueError, match=message):
        main(*arguments)


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
    with pytest.raises(ValueError, match=message):
        main("--dataset", write_npz(tmp_path / "bad.npz", **changes))


def test_a_corrupt_image_is_reported_by_path_or_skipped(main, tmp_path, capsys):
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(4):
            pixels = np.full((8, 8, 3), 40 * i, "uint8")
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    broken = tmp_path / "photos" / "cat" / "broken.png"
    broken.write_text("no image")
    with pytest.raises(ValueError, match=r"broken\.png(.|\n)*--skip-corrupt"):
        main("--dataset", str(tmp_path / "photos"))
    with pytest.raises(RuntimeError, match="training started"):
        main("--dataset", str(tmp_path / "photos"), "--skip-corrupt")
    assert f"left out 1 corrupt images:\n  {broken}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--epochs", "0"], ["--warmup", "1"], ["--resume", "a", "--epochs", "9"], ["--channels", "2"]],
)
def test_contradictory_flags_are_refused(main, arguments, capsys):
    with pytest.raises(SystemExit):
        main(*arguments)
    assert "error" in capsys.readouterr().err


def test_divergence_is_named(tmp_path):
    code, printed = finish(
        start(
            "--epochs", "1", "--learning-rate", "1e38", "--warmup", "0", "--output", str(tmp_path)
        )
    )
    assert code != 0 and "Traceback" not in printed
    assert "no longer finite" in printed and "--learning-rate" in printed


def test_another_backend_cannot_resume(tmp_path, main):
    settings = {"backend": "another", "dataset": "digits", "epochs": 1, "batch_size": 32}
    defaults = {"precision": "float32", "seed": 0, "data_dir": None, "image_size": None}
    defaults |= {"channels": None, "skip_corrupt": False}
    (tmp_path / "settings.json").write_text(json.dumps({**defaults, **settings}))
    with pytest.raises(ValueError, match="set KERAS_BACKEND=another"):
        main("--resume", str(tmp_path))
