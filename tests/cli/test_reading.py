"""How commands read files: one at its full size at a time, and on after a damaged one."""

import csv
import io
import json
import pathlib
import tracemalloc

import pytest
from PIL import Image

import keras_vit
from keras_vit import evaluation
from keras_vit_cli.models import open_model
from tests.cli.test_cli import run
from tests.support import randomize, refuses, tiny_vit

pytestmark = pytest.mark.any_backend
SIDES = 1000, 800  # 2.3 MiB of pixels
COUNT = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of three classes, and large images of them."""
    folder = tmp_path_factory.mktemp("reading")
    model = randomize(tiny_vit())
    model.class_names = ("bird", "cat", "dog")
    model.save(folder / "model.keras")
    for index in range(COUNT):
        place = folder / "data" / "test" / model.class_names[index % 3]
        place.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", SIDES, (index * 30, 255 - index * 30, 90))
        image.save(place / f"{index}.png", compress_level=1)
        (folder / "data" / "train" / place.name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9)).save(folder / "data" / "train" / place.name / "0.png")
    return folder


def peak(action):
    """The most memory of NumPy and Python at a time, in images at their full size."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / (SIDES[0] * SIDES[1] * 3)
    finally:
        tracemalloc.stop()


def test_a_batch_of_large_files_is_one_large_image_at_a_time(capsys, folder):
    """Pillow copies its pixels piece by piece, so that one takes up to three; eight would be 8."""
    model, data = open_model(str(folder / "model.keras")), folder / "data"
    files = sorted((data / "test").rglob("*.png"))
    assert len(files) == COUNT
    actions = {
        "predict": lambda: keras_vit.predict(model, files),
        "evaluate": lambda: evaluation.evaluate(model, (files, [0] * COUNT)),
        "keras-vit predict": lambda: run(capsys, "predict", folder / "model.keras", data / "test"),
        "keras-vit evaluate": lambda: run(capsys, "evaluate", folder / "model.keras", data),
    }
    for name, action in actions.items():
        assert peak(action) < 4, name
    capsys.readouterr()


@pytest.fixture
def damaged(folder):
    """One of the files is cut off meanwhile."""
    path = folder / "data" / "test" / "cat" / "4.png"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    yield path
    path.write_bytes(whole)


def test_a_damaged_file_is_named_and_the_others_are_told(capsys, folder, damaged):
    model, data = folder / "model.keras", folder / "data"
    code, out, error = run(capsys, "predict", model, data / "test", "--csv", "--top", 1)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 1 and f"{damaged}: " in error and "1 of 8 images could not be read" in error
    files = sorted(map(str, (data / "test").rglob("*.png")))
    assert [row["image"] for row in rows] == [file for file in files if file != str(damaged)]
    right = [row["class"] == pathlib.Path(row["image"]).parent.name for row in rows]

    for options in ((), ("--batch-size", 3)):
        code, out, error = run(capsys, "evaluate", model, data, "--json", *options)
        report = json.loads(out)
        assert code == 1 and f"{damaged}: " in error and "1 of 8 images could not be read" in error
        assert (report["examples"], report["skipped"]) == (7, 1)
        assert report["correct"]["1"] == sum(right)


def test_the_library_does_so_too(folder, damaged):
    model = open_model(str(folder / "model.keras"))
    files = sorted(damaged.parents[1].rglob("*.png"))
    labels = [model.class_names.index(file.parent.name) for file in files]
    with pytest.warns(UserWarning, match=r"4\.png: .*it is left out"):
        report = evaluation.evaluate(model, (files, labels), batch_size=3)
    assert (report.examples, report.skipped) == (7, 1)
    assert "1 images could not be read" in str(report)
    with pytest.warns(UserWarning, match=r"4\.png: .*it is left out"):
        found = keras_vit.predict(model, [*files, "absent.png"], batch_size=3, skip_corrupt=True)
    assert [not best for best in found] == [file == damaged for file in files] + [True]
    whole = keras_vit.predict(model, [file for file in files if file != damaged])
    for one, other in zip(filter(None, found), whole, strict=True):
        assert [best.label for best in one] == [best.label for best in other]
    refuses(r"1 of 8 images cannot be read\. Received:\n.*4\.png", evaluation.embed, model, files)
    with pytest.raises(ValueError, match="at least one image"), pytest.warns(UserWarning):
        evaluation.evaluate(model, ([damaged], [1]))
