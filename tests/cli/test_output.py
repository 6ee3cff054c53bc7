"""What commands print of names that are anybody's, and where they write."""

import csv
import io
import json
import os
import sys

import numpy as np
import pytest
from PIL import Image

from keras_vit_cli import main
from keras_vit_cli.output import print_json
from tests.support import randomize, tiny_vit

pytestmark = pytest.mark.any_backend

NAMES = ("=2+5", "\x1b[31mred\x9b2J", "-0.5")  # a formula, what a terminal obeys, a number
FILES = (os.fsdecode(b"caf\xe9.png"), "@sum.png", "a\x1b]0;b.png", "katzé.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    model = randomize(tiny_vit())
    model.class_names = NAMES
    model.save(folder / "model.keras")
    (folder / "photos").mkdir()
    for number, name in enumerate(FILES):
        Image.fromarray(np.full((20, 30, 3), 50 * number, "uint8")).save(folder / "photos" / name)
    (folder / "photos" / "broken\x1b.png").write_bytes(b"no image")
    return folder


@pytest.fixture
def predict(capsys, folder, monkeypatch):
    def run(*options):
        monkeypatch.chdir(folder / "photos")
        files = [*FILES, "broken\x1b.png"]
        assert main(["predict", str(folder / "model.keras"), *files, *options]) == 1
        printed = capsys.readouterr()
        assert r"warning: broken\x1b.png: " in printed.err and "\x1b" not in printed.err
        printed.out.encode()  # it is UTF-8
        return printed.out

    return run


def test_a_table(predict):
    lines = predict("--top", "3").splitlines()
    assert len(lines) == 1 + len(FILES)
    shown = {line.split()[0] for line in lines[1:]}
    assert shown == {r"caf\xe9.png", "@sum.png", r"a\x1b]0;b.png", "katzé.png"}
    assert all(line.isprintable() for line in lines)
    assert sum(r"\x1b[31mred\x9b2J" in line for line in lines) == len(FILES)


def test_csv(predict):
    """Text that a spreadsheet would compute has an apostrophe; numbers are numbers."""
    rows = list(csv.DictReader(io.StringIO(predict("--top", "3", "--csv"))))
    shown = {r"caf\xe9.png", "'@sum.png", r"a\x1b]0;b.png", "katzé.png"}
    assert {row["image"] for row in rows} == shown
    assert {row["class"] for row in rows} == {"'=2+5", r"\x1b[31mred\x9b2J", "-0.5"}
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)


def test_json(predict):
    """It gives back every name as it is, and holds nothing that a terminal obeys."""
    text = predict("--top", "3", "--json")
    rows = json.loads(text)
    assert {row["image"] for row in rows} == {*FILES} and len(rows) == 3 * len(FILES)
    assert {row["class"] for row in rows} == {*NAMES}
    assert all(line.isprintable() for line in text.splitlines()) and "katzé" in text


def test_json_where_the_terminal_is_not_utf8(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    texts = ["é", "日本", os.fsdecode(b"\xe9"), "\x7f", "\U000e0041"]
    monkeypatch.setattr(sys, "stdout", stream)
    print_json(texts)
    stream.flush()
    assert json.loads(stream.buffer.getvalue()) == texts


def test_an_error_is_short_and_shows_no_escapes(capsys, folder):
    assert main(["info", "a\x1b[2J" + "x" * 20_000]) == 1
    printed = capsys.readouterr()
    assert len(printed.err) < 5000 and "\x1b" not in printed.err


@pytest.mark.parametrize("arguments", [
    ("explore", "MODEL", "PHOTO", "-o", "OUTPUT.html"),
    ("convert", "MODEL", "OUTPUT.npz", "--force"),
    ("convert", "MODEL", "OUTPUT.keras", "--force"),
    ("convert", "MODEL", "OUTPUT", "--force", "--format", "huggingface"),
    ("export", "MODEL", "OUTPUT.onnx"),
    ("train", "--epochs", "1", "-o", "RUN"),
])  # fmt: skip
def test_an_output_that_is_no_file_is_refused_before_the_work(
    tmp_path, capsys, folder, monkeypatch, arguments
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").mkdir()
    places = {"MODEL": str(folder / "model.keras"), "PHOTO": str(folder / "photos" / FILES[1])}
    output = next((a for a in arguments if a.startswith("OUTPUT")), "RUN/evaluation.json")
    os.mkfifo(output)
    assert main([places.get(argument, argument) for argument in arguments]) == 1
    error = capsys.readouterr().err
    assert f"Received: '{output}', which is a pipe" in error and error.count("\n") == 1
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == []
