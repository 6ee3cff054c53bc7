"""Figures show what they were given, and refuse what they cannot draw."""

import itertools
import os
import pickle
import re
import sys

import numpy as np
import pytest

import keras_vit
from keras_vit import inspection
from keras_vit.inspection import FilterComponents, PatchComponents, TokenNorms
from keras_vit.inspection import predictions as predictions_module
from keras_vit.inspection.predictions import draw_predictions
from tests.inspection.cases import random_vit
from tests.support import images, refuses
from tests.test_heads import NAMES, READINGS, three_heads

image = pytest.importorskip("matplotlib.image")
pytestmark = pytest.mark.any_backend
LAYOUT = inspection.Layout((2, 3), (8, 8), 1, True)


def noise(*shape):
    return np.random.default_rng(0).uniform(0.1, 1, shape)


def filters(channels):
    return FilterComponents(noise(3, 4, 5, channels), np.array([0.5, 0.3, 0.1]))


def components(count):
    mask = np.arange(12).reshape(2, 2, 3) > 2
    return PatchComponents(np.where(mask[..., None], noise(2, 2, 3, count), np.nan), mask, noise(3))


def name_of(value):
    """What a test is called by: the text of sets and arrays differs from process to process."""
    return value if isinstance(value, str) else "-"


def pixels(path):
    """The picture as an array; it must be a PNG with something on it."""
    assert path.read_bytes().startswith(b"\x89PNG")
    picture = image.imread(path)[..., :3]
    assert min(picture.shape[:2]) > 200
    assert picture.std() > 0.01
    return picture


IMAGES = {"images": noise(2, 16, 24, 3)}
# The function, its arguments, and what is changed so that the picture must change.
FIGURES = [
    ("plot_maps", {**IMAGES, "maps": noise(2, 2, 3)}, {"maps": np.ones((2, 2, 3))}),
    ("plot_maps", {"images": noise(1, 16, 24, 1) - 0.5, "maps": noise(1, 4, 2, 3)},
     {"titles": list("abcd"), "style": "spotlight"}),
    ("plot_queries", {"image": noise(16, 24, 3), "matrix": noise(7, 7), "layout": LAYOUT,
                      "queries": ["class", (1, 2)]}, {"queries": ["class", (0, 1)]}),
    ("plot_distances", {"distances": noise(4, 3)}, {"distances": noise(30, 5, 1)}),
    ("plot_components", {**IMAGES, "components": components(3)},
     {"components": PatchComponents(1 - components(3).values, *components(3)[1:])}),
    ("plot_position_similarity", {"similarity": noise(2, 3, 2, 3)},
     {"similarity": -noise(2, 3, 2, 3)}),
    ("plot_filters", {"components": filters(3)}, {"components": filters(1)}),
    ("plot_layer_similarity", {"similarity": noise(3, 3)}, {"names": ["a", "b", "c"]}),
    ("plot_layer_similarity", {"similarity": noise(3, 2)}, {"other_names": ["a", "b"]}),
    ("plot_token_norms", {"norms": TokenNorms(noise(3, 2, 2), noise(3, 2, 2, 3))},
     {"norms": TokenNorms(noise(3, 2, 0), noise(3, 2, 2, 3)), "image": 1, "block": 0}),
    ("plot_queries", {"image": noise(16, 24, 3), "matrix": noise(7, 7), "layout": LAYOUT,
                      "queries": [None]}, {"queries": [(0, 1)]}),
]  # fmt: skip


@pytest.mark.parametrize("name, arguments, change", FIGURES, ids=name_of)
def test_a_figure_is_written_and_returned(tmp_path, name, arguments, change):
    plot, path = getattr(inspection, name), tmp_path / "figure.png"
    assert plot(**arguments, path=path).axes
    first = pixels(path)
    plot(**{**arguments, **change}, path=path)
    second = pixels(path)
    assert first.shape != second.shape or (first != second).any()


def labels_of(figure):
    axes = [ax for part in [figure, *figure.subfigs] for ax in part.axes]
    return {text for ax in axes for text in (ax.get_xlabel(), ax.get_ylabel()) if text}


@pytest.mark.parametrize(
    "name, arguments, expected",
    [
        ("plot_maps", {**FIGURES[0][1], "unit": "relevance"}, {"relevance"}),
        (*FIGURES[2][:2], {"attention"}),
        (*FIGURES[3][:2], {"block (network depth)", "mean attention distance (pixels)"}),
        (*FIGURES[5][:2], {"input patch column", "input patch row", "cosine similarity"}),
        (*FIGURES[7][:2], {"layer", "linear CKA"}),
        (*FIGURES[9][:2], {"length of a token (L2 norm)", "patch row", "patch column"}),
    ],
    ids=name_of,
)
def test_axes_and_colour_bars_say_what_they_show(name, arguments, expected):
    assert expected <= labels_of(getattr(inspection, name)(**arguments))


def test_heads_are_drawn_where_they_are_and_notebooks_show_them():
    """Without matplotlib.pyplot, which would have told the notebook how."""
    figure = inspection.plot_distances(np.array([[3.0, 1.0], [2.0, 4.0]]))
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == figure._repr_png_()
    points = [tuple(p) for part in figure.axes[0].collections for p in part.get_offsets().tolist()]
    assert sorted(points) == [(0, 1), (0, 3), (1, 2), (1, 4)]


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("plot_maps", {"images": noise(2, 4, 4, 3), "maps": noise(3, 2, 2)},
         "maps of n=2 images must have shape (n, rows, columns) or (n, k, rows, columns). "
         "Received: shape (3, 1, 2, 2)"),
        ("plot_maps", {"images": noise(1, 4, 4, 3), "maps": noise(1, 2, 2), "titles": ["a", "b"]},
         "each of the 1 maps of an image. Received: 2 titles"),
        ("plot_maps", {"images": ["cat.jpg"], "maps": noise(1, 2, 2)},
         "as keras_vit.preprocess(files, model) makes them of files. Received: str"),
        ("plot_maps", {"images": noise(1, 4, 4, 3), "maps": noise(1, 2, 2), "style": "x"},
         "Received: style='x'"),
        ("plot_queries", {"image": noise(16, 24, 3), "matrix": noise(6, 6), "layout": LAYOUT,
                          "queries": ["class"]}, "(..., 7, 7). Received: shape (6, 6)"),
        ("plot_distances", {"distances": noise(3)}, "Received: shape (3,)"),
        ("plot_components", {**IMAGES, "components": components(2)},
         "(2, rows, columns, 3 or more). Received: shape (2, 2, 3, 2)"),
        ("plot_position_similarity", {"similarity": noise(2, 3, 3, 2)},
         "Received: shape (2, 3, 3, 2)"),
        ("plot_layer_similarity", {"similarity": noise(3)}, "Received: shape (3,)"),
        ("plot_layer_similarity", {"similarity": noise(3, 3), "names": ["a"]},
         "each of the 3 layers. Received: ['a']"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn(name, arguments, message):
    refuses(re.escape(message), getattr(inspection, name), **arguments)


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
    inspection.plot_predictions(**{**arguments, **changed}, path=tmp_path / "predictions.png")
    return pixels(tmp_path / "predictions.png")


@pytest.mark.parametrize("count, channels", [(1, 5), (5, 1)])
def test_predictions_of_any_number_and_kind_of_image(tmp_path, count, channels):
    assert predictions(tmp_path, count, channels).shape[1] > 400 * min(count, 4)


def test_names_that_are_no_formula(tmp_path):
    """Matplotlib takes what is between dollars for one."""
    for name in ("a $x^ b$", "$_$", os.fsdecode(b"\xe9"), "a\x1b[2J"):
        predictions(tmp_path, class_names=[name] * 3)


def test_reconstructions_are_drawn_beside_what_was_seen(tmp_path):
    rng = np.random.default_rng(0)
    x, made = rng.uniform(-1, 1, (2, 2, 4, 6, 3))
    hidden = rng.uniform(size=(2, 4, 6)) < 0.5
    figure = inspection.plot_reconstructions(x, made, hidden, tmp_path / "made.png")
    assert (tmp_path / "made.png").stat().st_size > 1000
    shown = [np.asarray(axes.get_images()[0].get_array()) for axes in figure.axes]
    scaled = (x - x.min()) / (x.max() - x.min())
    for image, seen, filled, truth, mask in zip(*(shown[i::3] for i in range(3)), scaled, hidden):
        np.testing.assert_allclose(image, truth, atol=1e-6)
        np.testing.assert_allclose(seen[~mask], truth[~mask], atol=1e-6)
        np.testing.assert_allclose(filled[~mask], truth[~mask], atol=1e-6)
        assert (seen[mask] == 0.5).all() and (np.abs(filled[mask] - truth[mask]) > 1e-3).any()
    assert [axes.get_title() for axes in figure.axes[:3]] == ["image", "visible", "filled in"]
    for wrong in ((x, made[:1], hidden), (x, made, hidden[:, :2])):
        with pytest.raises(ValueError, match=r"must have shape \(2, 4, 6.*Received: shape"):
            inspection.plot_reconstructions(*wrong)


def test_columns_of_maps_line_up():
    """Whatever the shapes of the images, the titles, and the numbers at the colour bars."""
    images = [np.zeros((*shape, 3), "uint8") for shape in ((8, 24), (24, 8), (16, 16))]
    maps = np.abs(noise(3, 2, 2, 2)) * np.array([1, 1e3, 1e-7]).reshape(3, 1, 1, 1)
    figure = inspection.plot_maps(images, maps, titles=["a", "a title of many words, " * 3])
    figure.draw_without_rendering()
    places = [axes.get_window_extent() for axes in figure.axes if axes.get_images()]
    middles = np.array([(place.x0 + place.x1) / 2 for place in places]).reshape(3, 3)
    np.testing.assert_allclose(middles, middles[:1].repeat(3, axis=0), atol=0.5)
    titles = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
    assert all(not a.overlaps(b) for a, b in itertools.combinations(titles, 2))


@pytest.mark.parametrize(
    ("reading", "labels", "told"),
    [
        ("softmax", [0, 2], "cat (60%)\ntruth: cat"),
        ("softmax", [[1], [2]], "cat (60%)\ntruth: dog"),
        ("sigmoid", [[1, 0, 0], [0, 0, 0]], "cat\ntruth: cat"),
        ("values", [[0.5, 0.25, 0], [0, 0, 0]], "0.6, 0.4, 0\ntruth: 0.5, 0.25, 0"),
    ],
)
def test_predictions_of_every_kind_of_label(reading, labels, told):
    scores, maps = np.array([[0.6, 0.4, 0], [0.1, 0.1, 0.8]]), 0.25 + 1e-5 * noise(2, 2, 2)
    names, images = ["cat", "dog", "a name " * 9], noise(2, 4, 4, 3).astype("float32")
    figure = inspection.plot_predictions(images, maps, labels, scores, names, None, reading)
    left, right = figure.axes[:2]
    assert left.get_title() == told and right.get_title() == "attention"
    low, high = right.get_images()[-1].get_clim()
    assert (low, high) == (maps[0].min(), maps[0].max())
    drawn = [axes.get_images()[-1].get_array() for axes in (left, right)]
    np.testing.assert_array_equal(drawn[0], images[0])
    np.testing.assert_array_equal(drawn[1], maps[0])


class Batches(list):
    """What `draw_predictions` asks of a pipeline."""

    preprocessing, class_names = keras_vit.Preprocessing(), None


def test_every_head_is_told_above_its_image(tmp_path):
    model, x = three_heads(), images((4, 16, 16, 3))
    species = np.asarray(model.predict(x, verbose=0)["species"]).argmax(axis=1)
    labels = {"species": species, "weight": np.arange(4.0), "marks": np.eye(4)}
    data = Batches((x[i : i + 2], {h: y[i : i + 2] for h, y in labels.items()}) for i in (0, 2))
    data.class_names = {**NAMES, "marks": None}
    draw_predictions(model, data, tmp_path / "predictions.png")
    assert pixels(tmp_path / "predictions.png").shape[1] > 1600
    labels = {"species": [1, 2], "weight": [1, 2], "marks": np.eye(2, 4)}
    scores = {"species": np.eye(3)[[1, 0]], "weight": [[0.5], [2]], "marks": np.eye(2, 4)}
    scores = {head: np.asarray(each) for head, each in scores.items()}
    arguments = x[:2], np.ones((2, 2, 2)), labels, scores, data.class_names, None, READINGS
    figure = inspection.plot_predictions(*arguments)
    first, second = (figure.axes[i].title for i in (0, 2))
    told = "species: bee (100%)\ntruth: bee\nweight: 0.5\ntruth: 1\nmarks: 0\ntruth: 0"
    assert first.get_text() == told
    assert (first.get_color(), second.get_color()) == ("darkgreen", "crimson")


def test_an_image_without_the_label_of_a_head_is_not_drawn(tmp_path, monkeypatch):
    model, x, drawn = three_heads(), images((3, 16, 16, 3)), []
    labels = {"species": np.arange(3), "weight": np.arange(3), "marks": np.eye(3, 4)}
    weights = dict.fromkeys(labels, np.ones(3)) | {"weight": np.array([1, 0, 1])}
    monkeypatch.setattr(predictions_module, "plot_predictions", lambda *a: drawn.append(a[2]))
    draw_predictions(model, Batches([(x, labels, weights)]), tmp_path / "predictions.png")
    assert sorted(drawn.pop()["species"]) == [0, 2]
    nothing = dict.fromkeys(labels, np.zeros(3))
    draw_predictions(model, Batches([(x, labels, nothing)]), tmp_path / "predictions.png")
    assert drawn == []


def test_a_job_without_matplotlib_draws_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    draw_predictions(random_vit(), [], tmp_path / "predictions.png")
    assert not list(tmp_path.iterdir())


def test_a_single_sigmoid_names_its_classes():
    arguments, scores = (np.zeros((2, 4, 4, 3), "uint8"), np.ones((2, 2, 2))), [[0.9], [0.2]]
    for names, told in ((["no", "yes"], "yes"), (["yes"], "yes"), (None, "1")):
        labels = [1, 1] if names else [[1], [1]]
        figure = inspection.plot_predictions(*arguments, labels, scores, names, None, "sigmoid")
        assert figure.axes[0].get_title() == f"{told} (90%)\ntruth: {told}"
        assert figure.axes[2].get_title().splitlines()[0].endswith("(80%)")
