"""The commands of `keras-vit`: what they print and write, and their exit codes."""

import contextlib
import csv
import io
import itertools
import json
import pathlib
import signal
import time

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit_cli import COMMANDS, main
from keras_vit_cli.models import open_model
from tests.support import BACKEND, BACKENDS, randomize, run_in_fresh_process, tiny_vit, values

pytestmark = pytest.mark.any_backend
HELP = """
import sys
from keras_vit_cli import main
for arguments in (["--help"], ["predict", "--help"], ["--version"]):
    try:
        main(arguments)
    except SystemExit as end:
        print("exit code", end.code, {"keras", "numpy"} & set(sys.modules))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run's model.keras, and data of two of its classes, one image each, with a class folder."""
    folder = tmp_path_factory.mktemp("cli")
    model = randomize(tiny_vit())
    model.class_names = ("bird", "cat", "dog")
    (folder / "run").mkdir()
    model.save(folder / "run" / "model.keras")
    for name in ("dog", "cat"):
        for part in ("train", "test"):
            (folder / "data" / part / name).mkdir(parents=True)
            pixels = np.full((20, 30, 3), 200 if name == "dog" else 10, "uint8")
            Image.fromarray(pixels).save(folder / "data" / part / name / "a.png")
    (folder / "broken.jpg").write_bytes(b"no image")
    return folder


def run(capsys, *arguments):
    """(exit code, stdout, stderr) of a command."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def test_help_comes_before_keras():
    said = run_in_fresh_process(HELP)
    assert said.count("exit code 0 set()") == 3
    version = f"keras-vit {keras_vit.__version__}, Keras {keras.__version__} on {BACKEND}\n"
    assert version in said
    assert all(f"\n    {name}" in said for name in COMMANDS)


def test_wrong_usage_and_errors_of_one_line(capsys, folder):
    for arguments in (["predict"], ["nothing"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
    assert "usage: keras-vit" in capsys.readouterr().err
    code, out, error = run(capsys, "info", folder / "none.keras")
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert error.startswith("error: File not found: filepath=")
    code, _, error = run(capsys, "info", "vit_base_patch16_244")
    assert code == 1 and error.count("\n") == 1 and "the nearest are" in error
    with pytest.raises(ValueError):
        main(["info", "none.keras", "--traceback"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (RuntimeError("x\ny"), 1, "error: RuntimeError: x; y\n"),
        (ValueError("Received:\n  x\nRepair it."), 1, "error: Received: x; Repair it.\n"),
    ],
)
def test_what_ends_a_command(capsys, monkeypatch, error, code, said):
    def stop():
        raise error

    monkeypatch.setattr(keras_vit.recipes, "list_recipes", stop)
    found, _, text = run(capsys, "recipes")
    assert found == code and text.startswith(said) and text.count("\n") == 1


def test_ctrl_c_in_a_hook_of_jax_is_not_lost(capsys, monkeypatch):
    """The garbage collection, which calls the hook, swallows what it raises."""

    def _xla_gc_callback():
        signal.raise_signal(signal.SIGINT)

    def list_recipes():
        with contextlib.suppress(KeyboardInterrupt):
            _xla_gc_callback()
        time.sleep(10)

    monkeypatch.setattr(keras_vit.recipes, "list_recipes", list_recipes)
    before, begin = signal.signal(signal.SIGINT, signal.default_int_handler), time.monotonic()
    try:
        assert run(capsys, "recipes")[0] == 130
        assert time.monotonic() - begin < 5
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs another backend")
def test_the_backend_cannot_change_any_more(capsys):
    other = next(name for name in BACKENDS if name != BACKEND)
    code, _, error = run(capsys, "recipes", "--backend", other)
    assert code == 1 and f"already runs on {BACKEND}" in error


def test_the_backend_is_one_that_is_installed(tmp_path):
    code = """
import importlib.util, os, sys
import keras_vit_cli.backend as backend
importlib.util.find_spec = lambda name: name == "torch"
del os.environ["KERAS_BACKEND"]
backend.choose_backend()
print(os.environ["KERAS_BACKEND"], "keras" in sys.modules)
"""
    assert run_in_fresh_process(code, KERAS_HOME=str(tmp_path)).split() == ["torch", "False"]


def test_list(capsys):
    filters = ("--variant", "b16", "--data", "imagenet-1k", "--max-size", 350)
    code, out, _ = run(capsys, "list", *filters, "--min-accuracy", 85, "--json")
    rows = json.loads(out)
    assert code == 0 and rows
    assert {row["variant"] for row in rows} == {"B/16"}
    assert all(row["top-1"] >= 85 and row["MB"] <= 350 for row in rows)
    everything = json.loads(run(capsys, "list", *filters, "--json")[1])
    assert len(everything) > len(rows)
    table = run(capsys, "list", *filters)[1].splitlines()
    assert len(table) == len(everything) + 1 and table[0].startswith("name ")
    code, _, error = run(capsys, "list", "--min-accuracy", 101)
    assert code == 1 and "leave out one of the filters" in error


def test_info_of_a_name_needs_no_download(capsys, monkeypatch, folder, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    code, out, _ = run(capsys, "info", "deit_tiny_patch16_224.fb_in1k", "--json")
    fields = json.loads(out)
    assert code == 0 and fields["architecture"] == "DeiT-Ti/16" and fields["classes"] == 1000
    assert fields["preprocessing"]["interpolation"] == "bicubic"
    assert "--open opens the weights" in run(capsys, "info", "deit_tiny_patch16_224.fb_in1k")[1]
    # Of a run it tells what was trained.
    fields = json.loads(run(capsys, "info", folder / "run", "--json")[1])
    assert fields["class names"] == ["bird", "cat", "dog"] and fields["image size"] == [16, 16]
    assert fields["architecture"]["width"] == 8 and fields["parameters"] == 3379
    assert "bird, cat, dog" in run(capsys, "info", folder / "run")[1]


def test_predict(capsys, folder):
    images = (folder / "data" / "test", folder / "broken.jpg", folder / "none.png")
    code, out, error = run(capsys, "predict", folder / "run", *images, "--top", 2, "--csv")
    assert code == 1 and "broken.jpg: cannot identify" in error and "none.png" in error
    assert error.splitlines()[-1] == "error: 2 of 4 images could not be read"
    rows = list(csv.DictReader(io.StringIO(out)))
    files = [str(folder / "data" / "test" / name / "a.png") for name in ("cat", "dog")]
    assert [row["image"] for row in rows] == [file for file in files for _ in range(2)]
    model = open_model(str(folder / "run"))
    expected = [one for best in keras_vit.predict(model, files, top=2) for one in best]
    assert [row["class"] for row in rows] == [one.label for one in expected]
    found = [float(row["probability"]) for row in rows]
    np.testing.assert_allclose(found, [one.probability for one in expected], atol=1e-5)


def test_predict_with_names(capsys, folder, tmp_path):
    (tmp_path / "names.txt").write_text("x\ny\nz\n")
    image = folder / "data" / "test" / "cat" / "a.png"
    options = ("--class-names", tmp_path / "names.txt", "--json")
    code, out, _ = run(capsys, "predict", folder / "run", image, *options)
    assert code == 0 and {row["class"] for row in json.loads(out)} == {"x", "y", "z"}
    (tmp_path / "a.jpe").write_bytes(image.read_bytes())
    code, out, told = run(capsys, "predict", folder / "run", tmp_path, "--top", 1)
    assert code == 0 and "a.jpe" in out and "names.txt" in told and "Left out" in told


def test_convert_there_and_back(capsys, folder, tmp_path):
    places = [folder / "run", tmp_path / "a.npz", tmp_path / "b.safetensors", tmp_path / "hf"]
    places.append(tmp_path / "c.keras")
    for source, target in itertools.pairwise(places):
        code, out, _ = run(capsys, "convert", source, target)
        assert code == 0 and out.endswith(f"{target}\n")
        assert ("variables" in out) == (source != places[0])
        assert f"\nclass {' ' * 17}" in "\n" + out and "a head of 3 classes" in out
        code, _, error = run(capsys, "convert", source, target)
        assert code == 1 and "--force" in error
    assert run(capsys, "convert", source, target, "--force")[0] == 0
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a.npz", "b.safetensors", "c.keras", "config.json", "hf"}
    before, after = (values(open_model(str(place))) for place in (places[0], target))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_convert_is_told_what_a_file_does_not_say(capsys, folder, tmp_path):
    run(capsys, "convert", folder / "run", tmp_path / "a.safetensors")
    (tmp_path / "config.json").unlink()
    several = ("convert", tmp_path / "a.safetensors", tmp_path / "b.keras")
    code, _, error = run(capsys, *several)
    assert code == 1 and "Say num_heads=" in error and "--set NAME=VALUE" in error
    several += ("--set", "num_heads=2", "image_size=24")
    assert run(capsys, *several)[0] == 0
    model = open_model(str(tmp_path / "b.keras"))
    assert (model.variant.num_heads, model.image_size) == (2, (24, 24))
    file = tmp_path / "c.npz"
    code, _, error = run(capsys, "convert", folder / "run", file, "--set", "pool=mean")
    assert code == 1 and "says all of its model" in error


def test_evaluate_goes_by_the_names_of_the_classes(capsys, folder):
    """The data's classes are numbers 0 and 1; the model calls them 1 and 2."""
    code, out, _ = run(capsys, "evaluate", folder / "run", folder / "data", "--json")
    report = json.loads(out)
    model, data = open_model(str(folder / "run")), folder / "data" / "test"
    best = [keras_vit.predict(model, data / name / "a.png")[0][0] for name in ("cat", "dog")]
    expected = sum(one.label == name for one, name in zip(best, ("cat", "dog")))
    assert code == 0 and report["examples"] == 2 and report["correct"]["1"] == expected
    matrix = np.array(report["confusion"]["matrix"])
    assert matrix.sum(axis=1).tolist() == [0, 1, 1]


def test_evaluate_needs_data_of_the_model_s_classes_or_a_run(capsys, folder, tmp_path):
    with pytest.raises(SystemExit) as end:
        main(["evaluate", str(folder / "run" / "model.keras")])
    assert end.value.code == 2 and "not the folder of a finished run" in capsys.readouterr().err
    code, _, error = run(capsys, "evaluate", folder / "run", "digits")
    assert code == 1 and "classes that the model does not know" in error
    keras_vit.save_weights(tiny_vit(), tmp_path / "a.npz")  # which has no names
    code, _, error = run(capsys, "evaluate", tmp_path / "a.npz", folder / "data")
    assert code == 1 and "a sequence of 3 names" in error and "('cat', 'dog')" in error


def test_an_unknown_or_interrupted_export_leaves_nothing(capsys, folder, tmp_path, monkeypatch):
    code, _, error = run(capsys, "export", folder / "run", tmp_path / "model.xyz")
    assert code == 1 and ".onnx (onnx)" in error and not list(tmp_path.iterdir())

    def write(graph, path, format):
        pathlib.Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_vit.exports.exporter.write", write)
    # A format that this backend writes itself.
    suffix = {"torch": ".pt2", "jax": ".stablehlo", "tensorflow": ".tflite"}[BACKEND]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"older")
    code, out, _ = run(capsys, "export", folder / "run", path)
    assert (code, out) == (130, "")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_recipes(capsys):
    assert "learning_rate" in run(capsys, "recipes", "digits")[1]
    assert json.loads(run(capsys, "recipes", "digits", "--json")[1])["name"] == "digits"
    assert "finetune-cifar100" in run(capsys, "recipes")[1]
    code, _, error = run(capsys, "recipes", "nothing")
    assert code == 1 and "Unknown recipe" in error


def test_fetch(capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(keras_vit.weights, "fetch", lambda url, size: asked.append(url) or "here")
    name = "deit_tiny_patch16_224.fb_in1k"
    code, out, _ = run(capsys, "fetch", name, "https://example.org/a.npz")
    assert (code, out) == (0, "here\nhere\n")
    assert asked == [f"hf://timm/{name}", "https://example.org/a.npz"]
    assert run(capsys, "fetch", name, "nothing-like-it")[0] == 1
    assert len(asked) == 2  # nothing is downloaded where one name is wrong
