"""Labels of several heads: in files, mappings and arrays, in batches, and where some lack."""

import keras
import numpy as np
import pytest

from keras_vit.data import load, pipeline
from tests.data.pipeline_cases import as_csv, as_json, numbered, numbers, recipe
from tests.data.test_labels import photos
from tests.support import refuses

any_backend = pytest.mark.any_backend
HEADS = {"breed": "single_label", "age": "regression", "tags": "multi_label"}
ROWS = (("cat", 3.5, ["old", "big"]), ("pug", None, []), ("pug", 1.0, ["big"]), (None, 2.0, None))


def labels_of_heads(tmp_path, names, form):
    """The same labels of three heads in every form that they may have; each fourth lacks some."""
    rows = {name: dict(zip(HEADS, ROWS[i % 4])) for i, name in enumerate(names)}
    if form == "csv":
        cells = [(name, *("" if v is None else v for v in (row["breed"], row["age"])),
                  "|".join(row["tags"] or ()), "x") for name, row in rows.items()]  # fmt: skip
        return as_csv(tmp_path / "labels.csv", ("file", *HEADS, "note"), *cells)
    if form == "json":
        return as_json(tmp_path / "labels.json", {"labels": rows, "classes": {"breed": CLASSES}})
    if form == "by head":
        return {h: {n: row[h] for n, row in rows.items() if row[h] is not None} for h in HEADS}
    return rows


CLASSES = ["cat", "pug"]


@any_backend
@pytest.mark.filterwarnings("ignore:.*'note' are not read:UserWarning")
@pytest.mark.parametrize("form", ["csv", "json", "mapping", "by head"])
def test_labels_of_several_heads(tmp_path, form):
    folder, names = photos(tmp_path)
    labels = labels_of_heads(tmp_path, names, form)
    options = {"labels": labels, "problem": HEADS}
    test = pipeline(folder, recipe(), "train+test", training=False, **options)
    assert test.class_names == {"breed": ("cat", "pug"), "age": test.class_names["age"],
                                "tags": ("big", "old")}  # fmt: skip
    assert test.num_classes == {"breed": 2, "age": 1, "tags": 2} and test.problem == HEADS
    assert test.missing == {"breed": 3, "age": 3} | ({} if form == "csv" else {"tags": 3})
    assert test.source.split_by == "breed"
    images, rows, weights = (keras.tree.map_structure(lambda *x: np.concatenate(x), *parts)
                             for parts in zip(*test))  # fmt: skip
    for i, number in enumerate(numbers(images)):
        breed, age, tags = ROWS[number % 4]
        assert rows["breed"][i] == (CLASSES.index(breed) if breed else 0)
        assert rows["age"][i] == (age or 0)
        assert rows["tags"][i].tolist() == [name in (tags or ()) for name in ("big", "old")]
        known = {"breed": breed, "age": age, "tags": [] if form == "csv" else tags}
        assert {head: weights[head][i] for head in HEADS} == {
            head: float(label is not None) for head, label in known.items()
        }
    found = load(folder, **options)
    assert found.problem == HEADS and found.num_classes == test.num_classes
    assert len(found.train_labels["tags"]) == len(found.train_images)
    assert (found.train_labels["breed"] == -1).sum() + (found.test_labels["breed"] == -1).sum() == 3
    again = pipeline(found, recipe(), "train+test", training=False, problem=HEADS)
    assert again.missing == test.missing


@any_backend
def test_one_column_of_a_table_is_an_ordinary_head(tmp_path):
    folder, names = photos(tmp_path)
    rows = [("file", "breed", "age"), *((name, "ab"[i % 2], i) for i, name in enumerate(names))]
    table = as_csv(tmp_path / "labels.csv", *rows)
    with pytest.warns(UserWarning, match="the column 'age' of .*; 'breed' are not read"):
        found = pipeline(folder, recipe(), "train", labels=table, problem={"age": "regression"})
    assert (found.problem, found.class_names) == ("regression", ("age",))


@any_backend
def test_labels_of_heads_that_are_asked_for(tmp_path):
    folder, names = photos(tmp_path)
    rows = {name: {"breed": "ab"[i % 2], "age": i} for i, name in enumerate(names)}
    two = {"breed": "single_label", "age": "regression"}
    lost = {name: {**row, "age": None} for name, row in rows.items()}
    wrong = [
        ({"labels": rows}, r"labels of several heads need problem=\{head"),
        ({"labels": rows, "problem": {**two, "size": "regression"}}, "Received: 'size'"),
        ({"labels": rows, "problem": {**two, "age": "number"}}, "Unknown problem 'number'|problem"),
        ({"labels": dict.fromkeys(names, "a"), "problem": two}, r"must be a dict \{head: label"),
        ({"labels": rows, "problem": {**two, "breed": "regression"}}, "Head 'breed': Values"),
        ({"labels": lost, "problem": two}, "Head 'age': labels must label at least one file"),
        ({"problem": two}, "needs labels="),
    ]
    for options, match in wrong:
        refuses(match, pipeline, folder, recipe(), "train", **options)


@any_backend
def test_arrays_of_several_heads():
    images, classes = numbered(16)
    labels = {"breed": classes, "age": np.arange(16) / 4}
    two = {"breed": "single_label", "age": "regression"}
    found = pipeline((images, labels), recipe(), problem=two)
    for pixels, rows in found:
        shown = numbers(pixels)
        assert rows["breed"].argmax(-1).tolist() == [number % 5 for number in shown]
        assert rows["age"].tolist() == [number / 4 for number in shown]
    for other in ("regression", {"age": "regression"}):
        with pytest.raises(ValueError, match="problem a dict of these heads"):
            pipeline((images, labels), recipe(), problem=other)
    refuses("Head 'age': labels must be whole numbers", pipeline, (images, labels), recipe())


@any_backend
def test_labels_of_heads_are_mixed_alike_and_what_lacks_stays_without():
    images, classes = numbered(16)
    ages = np.where(np.arange(16) % 4 == 1, np.nan, np.arange(16.0))
    heads = {"breed": classes, "age": ages, "tags": np.eye(2)[np.arange(16) % 2]}
    options = {"problem": {**HEADS}, "seed": 3}
    mixed = pipeline((images, heads), recipe(16, mixup=0.5), **options)
    alone = pipeline((images, classes), recipe(16, mixup=0.5), seed=3)
    ((pixels, labels, weights),), ((expected, one_hot),) = mixed, alone
    np.testing.assert_array_equal(pixels, expected)
    np.testing.assert_array_equal(labels["breed"], one_hot)
    assert labels["tags"].sum(-1) == pytest.approx(1) and labels["tags"].size == 32
    assert weights["breed"].all() and weights["tags"].all()
    assert weights["age"].sum() < 12, "nor has what is mixed with an image without a label"
    assert (labels["age"][weights["age"] == 0] == 0).all()


@any_backend
def test_balanced_weights_of_each_head(tmp_path):
    images, _ = numbered(8)
    heads = {"breed": [0, 0, 0, 1, 1, -1, 0, 0], "age": np.arange(8.0), "sex": [0, 1] * 4}
    problem = {"breed": "single_label", "age": "regression", "sex": "single_label"}
    weights = pipeline((images, heads), recipe(), problem=problem).balanced_class_weights()
    assert weights == {"breed": (0.7, 1.75), "age": (), "sex": (1.0, 1.0)}


@any_backend
def test_a_part_may_lack_all_labels_of_a_head(tmp_path):
    folder, names = photos(tmp_path)
    cut = len(names) // 2
    labels = {name: {"breed": CLASSES[i % 2]} for i, name in enumerate(names)}
    for name in names[:cut]:
        labels[name] |= {"tags": ["old"], "age": 2.0}
    parts = {name: "train" if i < cut else "test" for i, name in enumerate(names)}
    found = load(folder, labels={"labels": labels, "split": parts}, problem=HEADS)
    assert (found.train_labels["tags"] == 1).all() and (found.train_labels["age"] == 2).all()
    assert np.isnan(found.test_labels["tags"]).all() and np.isnan(found.test_labels["age"]).all()
    assert (found.test_labels["breed"] >= 0).all()
