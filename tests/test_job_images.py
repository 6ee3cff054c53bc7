"""The images of a job: those that it trains on, holds out, and is tested on again later."""

import dataclasses
import itertools
import json
import shutil
import types
import warnings

import numpy as np
import pytest
from PIL import Image

from keras_vit import data, evaluation, recipes, results, training
from keras_vit.checks import warn_of_parts
from keras_vit.data.load import open_source
from keras_vit.job import Job
from keras_vit_cli import evaluate_command, main

pytestmark = pytest.mark.any_backend
RECIPE = recipes.get("digits").replace(batch_size=2, keep_best=True)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with all parts, and one that is split by its files."""
    folder, grays = tmp_path_factory.mktemp("photos"), itertools.count(step=7)
    for part in ("parts/train", "parts/validation", "parts/test", "whole"):
        for name in ("cat", "dog"):
            (folder / part / name).mkdir(parents=True)
            for i in range(4):
                Image.new("L", (4, 4), next(grays)).save(folder / part / name / f"{i}.png")
    return folder


def test_pipelines_for_the_other_purpose_and_images_in_both(photos):
    def part(split, train):
        return data.pipeline(photos / "parts", RECIPE, split, training=train)

    train, test = part("train", True), part("test", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_parts(train, test)
        warn_of_parts(train, train)
        warn_of_parts((1, 2), None)
    with pytest.warns(UserWarning, match=r"in order.*training=True.*Received: Pipeline"):
        warn_of_parts(part("train[50%:]", None))
    with pytest.warns(UserWarning, match=r"augmented.*training=False.*Received: Pipeline"):
        warn_of_parts(train, part("validation", True))
    with pytest.warns(UserWarning, match="in both"), pytest.raises(ZeroDivisionError):
        plain = RECIPE.replace(keep_best=False)
        held_out = part("train[50%:]", False)
        training.sweep(lambda: 1 / 0, plain, train, held_out, [1e-3])


@pytest.mark.parametrize("form", ["folder", "zip", "tar", "two"])
def test_copies_of_files_in_both_parts_are_told_of(photos, tmp_path, form):
    place = shutil.copytree(photos / "parts", tmp_path / "parts")
    shutil.copy(place / "train/cat/2.png", place / "test/dog/again.png")
    source, other, split = place, place, "test[:99%]"
    if form == "two":
        split, other = "train+test", shutil.copytree(place / "test", tmp_path / "other/test")
    elif form != "folder":
        source = other = shutil.make_archive(place, form, place)
        with pytest.warns(UserWarning, match="trained on. Received: 1 images twice"):
            data.load(source)
    train, test = data.pipeline(source, RECIPE), data.pipeline(other, RECIPE, split, training=False)
    with pytest.warns(UserWarning, match="1 images twice, as .*cat/2.png and .*dog/again.png"):
        warn_of_parts(train, test)
    shutil.copy(place / "train/cat/2.png", place / "train/dog/again.png")
    (place / "test/dog/again.png").unlink()
    with pytest.warns(UserWarning, match="equal labels.*cat/2.png and .*train/dog/again.png"):
        data.load(place)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.load(photos / "parts")


def test_arrays_of_both_parts_with_the_same_images_are_told_of():
    images, labels = np.arange(640, dtype="uint8").reshape(10, 8, 8, 1), np.arange(10) % 2
    images[..., 0, 0] = np.arange(10)[:, None]
    for first, message in ((6, None), (4, "trained on. Received: 2 images twice")):
        parts = (images[:6], labels[:6]), (images[first:].copy(), labels[first:])
        train, test = (data.pipeline(parts, RECIPE, part) for part in ("train", "test"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_parts(train, test)
        assert [message in str(each.message) for each in caught] == [True] * bool(message)


def test_images_to_test_on_that_are_trained_on_beside_a_part_for_validation(photos, tmp_path):
    options = {"dataset": str(photos / "parts"), "test_split": "train[50%:]"}
    job = Job(RECIPE, str(tmp_path), **options)
    with pytest.warns(UserWarning, match="in both"), pytest.raises(AttributeError):
        job._train(None, job.load_train())


def settings_of(job, source, folder):
    folder.mkdir()
    training = {"test_digest": source.digest(source.rows("test"))} if source else None
    fields = {**dataclasses.asdict(job), "recipe": job.recipe.to_dict(), "training": training}
    (folder / "settings.json").write_text(json.dumps(fields))


def test_a_run_that_was_moved_is_read_where_it_is(tmp_path):
    settings_of(Job(RECIPE, str(tmp_path / "old")), None, tmp_path / "new")
    assert Job.read(tmp_path / "new").output == str(tmp_path / "new")


def test_a_run_that_is_tested_on_other_images_than_before(photos, tmp_path, monkeypatch, capsys):
    source, run = open_source(photos / "whole"), tmp_path / "run"
    job = Job(RECIPE.replace(dataset="whole"), str(run), dataset=str(photos / "whole"))
    settings_of(job, source, run)
    (run / "model.keras").write_bytes(b"")
    report = types.SimpleNamespace(skipped=0)
    monkeypatch.setattr(evaluate_command, "open_model", lambda *_: types.SimpleNamespace())
    monkeypatch.setattr(evaluation, "evaluate", lambda *_: report)

    def warned():
        assert main(["evaluate", str(run)]) == 0
        assert main(["evaluate", str(run), str(photos / "parts")]) == 0  # which are others
        return capsys.readouterr().err.count("are not those that the run")

    assert warned() == 0
    Image.new("L", (4, 4)).save(photos / "whole" / "cat" / "9.png")
    assert warned() == 1
    with pytest.warns(UserWarning, match="it may have trained on some of them"):
        source = open_source(photos / "whole")
        results.compare_test(run, source, source.rows("test"))


def test_figures_of_training_tell_their_units():
    part = types.SimpleNamespace(skipped=(), num_examples=4, rows=np.arange(4))
    part.source = types.SimpleNamespace(digest=len)
    history = {"epoch": [0], "loss": [1.0]}
    recipe = RECIPE.replace(keep_best=False)
    outcomes = [
        results.outcome_of(recipe, history, 1.0, part, part, part, units)
        for units in (None, "Targets are 9 +- 2")
    ]
    assert "units" not in outcomes[0] and outcomes[1]["units"] == "Targets are 9 +- 2"
