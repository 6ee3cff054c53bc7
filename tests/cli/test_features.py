"""`embed`, `probe` and `sweep`: a model on a folder of photographs, before any training."""

import csv
import json
import os

import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import evaluation
from keras_vit_cli.models import open_model
from tests.cli.test_cli import run
from tests.support import randomize, refuses, tiny_vit

pytestmark = pytest.mark.any_backend
ODD = os.fsdecode(b"=caf\xe9.png")  # neither UTF-8 nor harmless in a spreadsheet


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and a class folder of dark photographs beside one of bright ones."""
    folder = tmp_path_factory.mktemp("features")
    randomize(tiny_vit()).save(folder / "model.keras")
    for number, name in enumerate(("bright", "dark")):
        (folder / "photos" / name).mkdir(parents=True)
        for index in range(15):
            pixels = np.random.default_rng(index).integers(0, 40, (20, 30 + index, 3), "uint8")
            pixels += np.uint8(200 * (1 - number))
            Image.fromarray(pixels).save(folder / "photos" / name / f"{index:02}.png")
    return folder


@pytest.fixture
def untidy(folder, tmp_path):
    """Two images in subfolders, one of an odd name; a damaged one; a film and a text."""
    photos = tmp_path / "untidy"
    (photos / "a").mkdir(parents=True)
    image = (folder / "photos" / "dark" / "00.png").read_bytes()
    (photos / "a" / "x.png").write_bytes(image)
    (photos / ODD).write_bytes(image)
    for name in ("broken.jpg", "film.mp4", "notes.txt"):
        (photos / name).write_bytes(b"no image")
    return photos


def test_embed_a_folder(capsys, folder, untidy, tmp_path):
    model, paths = folder / "model.keras", [str(untidy / ODD), str(untidy / "a" / "x.png")]
    for name in ("found.npz", "found.csv"):
        code, out, error = run(capsys, "embed", model, untidy, "-o", tmp_path / name)
        assert code == 1 and out == f"{tmp_path / name}: 2 images, 8 numbers each\n"
        assert "broken.jpg: cannot identify" in error and "film.mp4; notes.txt" in error
        assert error.endswith("error: 1 of 3 images could not be read\n")
    with np.load(tmp_path / "found.npz") as found:
        assert found["paths"].tolist() == paths
        expected = evaluation.embed(open_model(str(model)), paths)
        np.testing.assert_allclose(found["features"], expected, rtol=1e-4)
    with open(tmp_path / "found.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["path", *map(str, range(8))]
    assert [row[0] for row in rows] == [str(untidy / r"=caf\xe9.png"), paths[1]]
    np.testing.assert_allclose(np.float32([row[1:] for row in rows]), expected, rtol=1e-4)


def test_embed_says_what_is_wrong_before_it_opens_the_model(capsys, folder, tmp_path):
    model = folder / "none.keras"
    code, _, error = run(capsys, "embed", model, folder / "photos", "-o", tmp_path / "a.txt")
    assert code == 1 and "written as .npz or .csv" in error
    for command in ("embed", "predict", "explore"):
        code, _, error = run(capsys, command, model, folder / "photos" / "*.gif")
        assert code == 1 and "a pattern that matches no file" in error and "*.gif" in error
        code, _, error = run(capsys, command, model, tmp_path)
        assert code == 1 and "The folder holds no image" in error


def test_a_folder_in_python_is_its_images(folder, untidy):
    model = open_model(str(folder / "model.keras"))
    with pytest.warns(UserWarning, match="Left out"):
        files = keras_vit.data.image_files(untidy)
    assert files == [str(untidy / name) for name in (ODD, "a/x.png", "broken.jpg")]
    with pytest.warns(UserWarning, match="broken.jpg.*left out"):
        found = keras_vit.predict(model, untidy, skip_corrupt=True)
        vectors = evaluation.embed(model, [untidy], skip_corrupt=True)
    assert [best is None for best in found] == [False, False, True]
    assert np.isnan(vectors).all(axis=1).tolist() == [False, False, True]
    readable = untidy / "a"
    np.testing.assert_allclose(evaluation.embed(model, readable), vectors[1:2], rtol=1e-4)
    assert keras_vit.preprocess(readable, model).shape == (1, 16, 16, 3)
    for read in (keras_vit.predict, evaluation.embed):
        with pytest.warns(UserWarning, match="Left out"):
            refuses(r"cannot be read\. Received:\n.*broken.jpg", read, model, untidy)


def test_predict_takes_one_line_for_an_image(capsys, folder, untidy):
    images = (untidy, folder / "photos" / "dark" / "01.png")
    for options, classes in (((), 1), (("--top", 3), 3)):
        code, out, _ = run(capsys, "predict", folder / "model.keras", images[0], *options)
        header, *lines = out.splitlines()
        assert code == 1 and header.split() == ["image", "class", "2.", "3."][: classes + 1]
        assert [line.split()[0] for line in lines] == [r"=caf\xe9.png", "a/x.png"]
        assert all(line.count("%") == classes for line in lines)
    code, out, _ = run(capsys, "predict", folder / "model.keras", images[1])
    assert code == 0 and out.splitlines()[1].startswith("01.png ")
    code, out, _ = run(capsys, "predict", folder / "model.keras", images[1], "--threshold", 0)
    assert out.count("%") == 3


def test_probe(capsys, folder):
    data = (folder / "model.keras", folder / "photos", "--json")
    code, out, error = run(capsys, "probe", *data)
    report = json.loads(out)
    assert (code, error) == (0, "") and report["accuracy"] == 1
    assert (report["train_examples"], report["test_examples"]) == (24, 6)
    code, out, _ = run(capsys, "probe", *data, "--shots", 1, 5)
    report = json.loads(out)
    assert report["examples"] == {"1": 2, "5": 10} and report["accuracy"]["5"] == [1]
    assert "accuracy 5" in run(capsys, "probe", *data[:2], "--shots", 5)[1]
    # It leaves out what is damaged.
    place = folder / "photos" / "dark" / "00.png"
    whole = place.read_bytes()
    try:
        place.write_bytes(whole[:60])
        data = (folder / "model.keras", folder / "photos")
        code, out, error = run(capsys, "probe", *data, "--json", "--shots", 1)
    finally:
        place.write_bytes(whole)
    assert code == 1 and "1 of 30 images could not be read" in error and str(place) in error
    assert json.loads(out)["examples"] == {"1": 2}


def test_sweep(capsys, folder, tmp_path):
    options = ("--dataset", folder / "photos", "--image-size", 16, "--epochs", 2)
    options += ("--recipe", "digits", "--batch-size", 8, "--channels", 1, "-o", tmp_path / "s.json")
    options += ("--learning-rates", 1e-9, 0.01)
    code, out, _ = run(capsys, "sweep", *options)
    found = json.loads((tmp_path / "s.json").read_text())
    assert code == 0 and [t["learning_rate"] for t in found["trials"]] == [1e-9, 0.01]
    assert {t["epochs"] for t in found["trials"]} == {2} and found["monitor"] == "accuracy"
    assert out.endswith(f"best: --learning-rate {found['learning_rate']:.6g}\n")
    code, _, error = run(capsys, "sweep", *options, "--split", "train[:50%]")
    assert code == 1 and "not trained on" in error


def test_explore_leaves_out_what_is_damaged(capsys, folder, untidy, tmp_path):
    page = tmp_path / "page.html"
    code, out, error = run(capsys, "explore", folder / "model.keras", untidy, "-o", page)
    assert code == 1 and "broken.jpg" in error and "1 of 3 images could not be read" in error
    assert out.startswith(str(page)) and "broken" not in page.read_text()
