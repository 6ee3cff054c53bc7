"""Values to estimate that are far from 1: learned in other units, told in those of labels."""

import json

import numpy as np
import pytest
from PIL import Image

from keras_vit import data, recipes
from keras_vit.data.units import in_units, turn_head, units_of, units_told
from keras_vit.models import add_heads
from keras_vit_cli import main
from tests.support import images, randomize, slow_unless_torch, tiny_vit, to_numpy

SIDES = 16


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Grey pictures, and a file of labels: their brightness, in thousands."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "photos").mkdir()
    for i in range(40):
        pixels = np.full((SIDES, SIDES, 3), 6 * i, "uint8")
        Image.fromarray(pixels).save(folder / "photos" / f"{i}.png")
    for name, scale in (("grams", 100.0), ("small", 0.05)):
        values = {f"{i}.png": 9000 * (scale == 100) + scale * i for i in range(40)}
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder


def pipeline(photos, name):
    recipe = recipes.get("digits").for_problem("regression")
    options = {"labels": photos / f"{name}.json", "problem": "regression"}
    return data.pipeline(photos / "photos", recipe, batch_size=8, **options)


@pytest.mark.any_backend
def test_units_of_targets(photos):
    (mean,), (deviation,) = units = units_of(far := pipeline(photos, "grams"))
    assert 10_000 < mean < 12_000 and 1000 < deviation < 1400
    assert units_of(pipeline(photos, "small")) is None, "near 1"
    _, labels = next(iter(in_units(far, units)))
    _, plain = next(iter(far))
    assert labels.dtype == np.float32 and far.label_rows.units is None
    np.testing.assert_allclose(labels * deviation + mean, plain, rtol=1e-5)
    assert in_units(far, units).from_step(3).label_rows.units == units
    assert "units" not in far.settings and in_units(far, units).settings["units"] == units


@pytest.mark.any_backend
def test_a_head_is_turned_into_the_units_of_the_labels_and_back():
    model, x = randomize(tiny_vit(num_classes=2)), images((3, 16, 16, 3))
    units = [9000.0, -3.0], [100.0, 0.01]
    before = to_numpy(model(x))
    turn_head(model, units)
    np.testing.assert_allclose(to_numpy(model(x)), before * units[1] + units[0], rtol=1e-4)
    turn_head(model, units, back=True)
    np.testing.assert_allclose(to_numpy(model(x)), before, atol=2e-2)


@slow_unless_torch
def test_a_short_run_is_near_such_targets(photos, tmp_path, capsys):
    """In a few updates a head would have moved from 0 by less than 1."""
    options = ["--dataset", photos / "photos", "--labels", photos / "grams.json"]
    options += ["--problem", "regression", "-o", tmp_path, "--steps", 4, "--batch-size", 8]
    assert main(["train", *map(str, options)]) == 0
    told = capsys.readouterr().out
    assert "are learned as (target - mean) / deviation" in told
    report = json.loads((tmp_path / "evaluation.json").read_text())
    assert report["mean_absolute_error"] < 3000


@pytest.mark.any_backend
def test_units_of_each_head():
    pixels, ages = np.zeros((8, SIDES, SIDES, 3), "uint8"), 9000 + np.arange(8.0)
    ages[2] = np.nan
    heads = {"age": ages, "small": np.arange(8) / 4, "breed": np.arange(8) % 2}
    problem = {"age": "regression", "small": "regression", "breed": "single_label"}
    plain = data.pipeline((pixels, heads), recipes.get("digits"), "test", problem=problem)
    units = units_of(plain)
    assert units["small"] is units["breed"] is None and units["age"][0] == [np.nanmean(ages)]
    ((_, labels, weights),), ((_, given, _),) = in_units(plain, units), plain
    assert labels["age"][2] == weights["age"][2] == 0 and abs(labels["age"]).max() < 2
    np.testing.assert_array_equal(labels["small"], given["small"])
    assert "age 9003" in units_told(units) and "small" not in units_told(units)
    model = randomize(add_heads(tiny_vit(num_classes=0), {"age": 1, "small": 1, "breed": 2}))
    before = {name: to_numpy(x) for name, x in model(images((3, 16, 16, 3))).items()}
    turn_head(model, units)
    for name, x in model(images((3, 16, 16, 3))).items():
        mean, deviation = units[name] or (0, 1)
        np.testing.assert_allclose(to_numpy(x), before[name] * deviation + mean, rtol=1e-4)
