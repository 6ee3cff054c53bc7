"""Figures are pictures, of a size to look at, that show what they were given."""

import numpy as np
import pytest

from keras_vit.inspection import plot_history, plot_predictions

image = pytest.importorskip("matplotlib.image")
HISTORY = {
    "epoch": [0, 1, 2],
    "loss": [2.0, 1.0, 0.5],
    "val_loss": [2.1, 1.3, 0.9],
    "accuracy": [0.2, 0.6, 0.8],
    "val_accuracy": [0.2, 0.5, 0.7],
}


def pixels(path):
    """The picture as an array; it must be a PNG with something on it."""
    assert path.read_bytes().startswith(b"\x89PNG")
    picture = image.imread(path)[..., :3]
    assert min(picture.shape[:2]) > 200
    assert picture.std() > 0.01
    return picture


def history(tmp_path, **changed):
    plot_history({**HISTORY, **changed}, tmp_path / "history.png")
    return pixels(tmp_path / "history.png")


@pytest.mark.parametrize("column", ["loss", "val_loss", "accuracy", "val_accuracy"])
def test_every_curve_of_a_history_is_drawn(tmp_path, column):
    before = history(tmp_path)
    np.testing.assert_array_equal(history(tmp_path), before)
    after = history(tmp_path, **{column: [value / 2 for value in HISTORY[column]]})
    assert (after != before).any()


def test_a_history_of_one_epoch(tmp_path):
    history(tmp_path, **{name: column[:1] for name, column in HISTORY.items()})


def predictions(tmp_path, count=2, channels=3, **changed):
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), count)
    arguments = {
        "images": rng.uniform(size=(count, 16, 24, channels)).astype("float32"),
        "maps": rng.uniform(size=(count, 2, 3)),
        "labels": probabilities.argmax(axis=1),
        "probabilities": probabilities,
        "class_names": ["cat", "dog", "bird"],
    }
    plot_predictions(**{**arguments, **changed}, path=tmp_path / "predictions.png")
    return pixels(tmp_path / "predictions.png")


@pytest.mark.parametrize("count, channels", [(1, 3), (2, 5), (5, 1)])
def test_predictions_of_any_number_and_kind_of_image(tmp_path, count, channels):
    picture = predictions(tmp_path, count, channels)
    assert picture.shape[1] > 400 * min(count, 4)


@pytest.mark.parametrize(
    "changed",
    [
        {"images": np.zeros((2, 16, 24, 3), "uint8")},
        {"maps": np.tile(np.eye(2, 3), (2, 1, 1))},
        {"labels": np.zeros(2, int)},
        {"probabilities": np.eye(3)[[2, 2]]},
        {"class_names": ["x", "y", "z"]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_everything_given_is_drawn(tmp_path, changed):
    assert (predictions(tmp_path, **changed) != predictions(tmp_path)).any()


def test_right_and_wrong_have_their_colours(tmp_path):
    """Green titles for right predictions, red ones for wrong."""

    def share(picture, strong, weak):
        return ((picture[..., strong] - picture[..., weak]) > 0.3).mean()

    dark = {"images": np.zeros((2, 16, 24, 3), "uint8")}
    right = predictions(tmp_path, **dark)
    wrong_labels = (np.random.default_rng(0).dirichlet(np.ones(3), 2).argmax(axis=1) + 1) % 3
    wrong = predictions(tmp_path, labels=wrong_labels, **dark)
    assert share(wrong, 0, 1) > share(right, 0, 1)
    assert share(right, 1, 0) > share(wrong, 1, 0)
