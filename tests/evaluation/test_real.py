"""ReaL accuracy in the authors' file format."""

import json

import numpy as np
import pytest

from keras_vit.evaluation import load_real, real_accuracy

pytestmark = pytest.mark.any_backend

LISTS = [[65], [970, 795], [], [230, 231], [516, 520], [57], [], [334]]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "real.json").write_text(json.dumps(LISTS))
    return tmp_path / "real.json"


def by_the_readme(predictions, labels):
    """The loop that the authors' README gives."""
    return np.mean([p in labels[i] for i, p in enumerate(predictions) if labels[i]])


def test_as_the_authors_compute_it(path):
    assert load_real(path)[1] == (970, 795)
    predictions = np.array([65, 795, 1, 230, 3, 57, 2, 0])
    for labels in (path, str(path), LISTS):
        found = real_accuracy(predictions, labels)
        assert found.accuracy == float(found) == by_the_readme(predictions, LISTS) == 4 / 6
    assert (found.correct, found.examples, found.left_out) == (4, 6, 2)
    assert str(found) == "ReaL accuracy 66.67 %: 4 of 6 images, 2 without labels left out"
    assert json.loads(json.dumps(found.to_dict()))["correct"] == 4


def test_random_predictions_and_scores():
    rng = np.random.default_rng(0)
    labels = [list(map(int, rng.choice(10, rng.integers(0, 4), False))) for _ in range(200)]
    scores = rng.normal(size=(200, 10))
    expected = by_the_readme(scores.argmax(axis=1), labels)
    assert real_accuracy(scores, labels).accuracy == pytest.approx(expected, abs=1e-12)


def test_bad_input(tmp_path, path):
    with pytest.raises(ValueError, match=r"Received: 3 predictions and labels of 8 images"):
        real_accuracy([1, 2, 3], path)
    with pytest.raises(ValueError, match=r"Received: 9 predictions and labels of 8 images"):
        real_accuracy(np.zeros(9), path)
    with pytest.raises(ValueError, match=r"below the 10 classes.*label 970"):
        real_accuracy(np.zeros((8, 10)), path)
    with pytest.raises(ValueError, match="labels for at least one image"):
        real_accuracy([1, 2], [[], []])
    with pytest.raises(FileNotFoundError, match=r"reassessed-imagenet.*Received: .*absent"):
        load_real(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "content, received",
    [
        ('{"ILSVRC2012_val_00000001.JPEG": [65]}', "dict"),
        ("[]", "list"),
        ("[65, 970]", "65 for image 0"),
        ('[[65], ["tench"]]', r"\['tench'\] for image 1"),
        ("[[1.5]]", r"\[1.5\] for image 0"),
        ("[[-1]]", r"\[-1\] for image 0"),
        ("[[true]]", r"\[True\] for image 0"),
    ],
)
def test_another_structure(path, content, received):
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"\[\[65\], \[970, 795\], \[\]\]. Received: {received}"):
        load_real(path)


def test_no_json(path):
    path.write_text("[[65], [970")
    with pytest.raises(ValueError, match=r"must be JSON. Received: .*real.json"):
        load_real(path)
