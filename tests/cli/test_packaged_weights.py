"""What a newcomer may type in the first minute, with no network and no files."""

import json
import re

import pytest

import keras_vit
from keras_vit_cli import main
from keras_vit_cli.models import open_model
from tests.cli.test_cli import run

pytestmark = pytest.mark.any_backend


def test_the_weights_in_the_package(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    fields = json.loads(run(capsys, "info", "digits", "--json")[1])
    assert fields["classes"] == 10 and fields["on this machine"].endswith("model.safetensors")
    code, out, error = run(capsys, "fetch", "digits")
    assert (code, out) == (0, fields["on this machine"] + "\n") and "comes with" in error
    rows = json.loads(run(capsys, "list", "--family", "keras_vit", "--json")[1])
    assert [(row["name"], row["MB"]) for row in rows] == [("digits", 0.3)]
    rows = json.loads(run(capsys, "predict", "digits", "--top", 1, "--json")[1])
    assert [row["class"] for row in rows] == ["0", "1", "2"]
    report = json.loads(run(capsys, "evaluate", "digits", "--json")[1])
    assert report["examples"] == 359 and report["correct"]["1"] >= 349
    assert run(capsys, "explore", "digits", "-o", "page.html")[0] == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    with pytest.raises(SystemExit) as end:
        main(["predict", "vit_base_patch16_224.augreg_in21k"])
    assert end.value.code == 2 and "images: they are needed" in capsys.readouterr().err


@pytest.mark.slow
def test_export_of_the_weights_in_the_package(capsys, tmp_path):
    file = tmp_path / "digits.onnx"
    code, out, _ = run(capsys, "export", "digits", file, "--preprocess", "--check")
    assert code == 0 and float(re.search(r"largest difference (\S+)", out)[1]) < 1e-5


def test_convert_to_half_precision(capsys, tmp_path):
    target = tmp_path / "half.safetensors"
    assert run(capsys, "convert", "digits", target, "--dtype", "float16")[0] == 0
    packaged = open_model("digits").load_report.path
    assert target.read_bytes() == open(packaged, "rb").read()
    code, _, error = run(capsys, "convert", "digits", tmp_path / "a.keras", "--dtype", "float16")
    assert code == 1 and "leave --dtype out" in error


def test_convert_tells_what_the_format_cannot_say(capsys, tmp_path):
    model = keras_vit.from_checkpoint("digits")
    model.preprocessing = keras_vit.preprocessing.GOOGLE
    model.save(tmp_path / "model.keras")
    for target, is_told in (("a.npz", False), ("b.safetensors", True), ("c.keras", False)):
        code, _, told = run(capsys, "convert", tmp_path / "model.keras", tmp_path / target)
        assert code == 0 and ("library='tensorflow' (read as 'pillow')" in told) == is_told
