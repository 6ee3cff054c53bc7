"""Labels of several classes, and values: files of labels, arrays, and the batches of them."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit.data import ImageDataset, load, pipeline
from tests.data.pipeline_cases import as_csv, as_json, assert_same, numbered, numbers, recipe
from tests.support import refuses

any_backend = pytest.mark.any_backend


def photos(folder, count=12, inside=""):
    """A folder of images of 4 x 4 pixels that tell their number, and their names."""
    names = [f"{inside}{number:02}.png" for number in range(count)]
    (folder / "photos" / inside).mkdir(parents=True)
    for image, name in zip(numbered(count)[0], names):
        Image.fromarray(image).save(folder / "photos" / name)
    return folder / "photos", names


@any_backend
@pytest.mark.parametrize("form", ["path", "folder", "stem", "own", "whole", "windows"])
def test_how_files_may_be_named(tmp_path, form):
    folder, names = photos(tmp_path, inside="images/")
    forms = {
        "path": lambda name: f"./{name}",
        "folder": lambda name: name.split("/")[-1],
        "stem": lambda name: name.split("/")[-1][:-4],
        "own": lambda name: f"photos/{name}",
        "whole": lambda name: folder / name,
        "windows": lambda name: name.replace("/", "\\"),
    }
    labels = {forms[form](name): [["a"], ["a", "b"]][i % 2] for i, name in enumerate(names)}
    test = pipeline(folder, recipe(), "train+test", training=False, labels=labels)
    images, rows = (np.concatenate(parts) for parts in zip(*test))
    assert rows.tolist() == [[1, number % 2] for number in numbers(images)]


@any_backend
def test_labels_and_files_that_do_not_fit(tmp_path):
    folder, names = photos(tmp_path)
    labels = {name: ["a", "b"][i % 2] for i, name in enumerate(names)}
    with pytest.raises(ValueError, match=r"its image.*1 of 13 without one:\n  none.png\nNames"):
        load(folder, labels={**labels, "none.png": "a"})
    few = as_json(folder / "labels.json", dict(list(labels.items())[:8]))
    with pytest.warns(UserWarning, match=r"Left out .* 4 images without a label:\n  08.png\n  09"):
        found = load(folder, labels=few)
    assert [path[-6:] for path in found.left_out] == names[8:], "not the file of labels"
    Image.new("RGB", (4, 4)).save(folder / "00.bmp")
    with pytest.raises(ValueError, match=r"'00' for 00.bmp, 00.png"):
        load(folder, labels={name[:-4]: label for name, label in labels.items()})
    for source in ("digits", numbered(4)):
        with pytest.raises(ValueError, match="labels belong to the images of a folder"):
            pipeline(source, recipe(), labels=labels)
    with pytest.raises(ValueError, match=r"='single_label'. Received: problem='regression'"):
        load("digits", problem="regression")
    refuses(r"one class; problem='multi_label' needs labels=", load, folder, problem="multi_label")
    refuses("Unknown problem", load, folder, labels=labels, problem="multi-label")


@any_backend
def test_parts_of_a_column_of_folders_or_of_chance(tmp_path):
    folder, names = photos(tmp_path)
    words = ["Train"] * 7 + ["valid"] * 2 + ["TEST"] * 3
    rows = [("file", "split", "label"), *zip(names, words, "abcabcaabaab")]
    csv = as_csv(tmp_path / "labels.csv", *rows)
    sizes = [
        pipeline(folder, recipe(2), s, labels=csv).num_examples for s in ("train", "val", "test")
    ]
    assert sizes == [7, 2, 3]
    assert load(folder, labels=csv).test_labels.tolist() == [0, 0, 1]
    text = csv.read_text()
    for column in ("Set", "fold"):  # by what its cells say; "2" is no part
        csv.write_text(text.replace("split", column) + "\n")
        assert load(folder, labels=csv).test_labels.tolist() == [0, 0, 1]
        csv.write_text(text.replace("split", column).replace("Train,a", "2,a"))
        with pytest.warns(UserWarning, match=f"'{column}' are not read"):
            load(folder, labels=csv)
    csv.write_text(text)
    csv.write_text(csv.read_text().replace("train,c", "train,a").replace("Train,c", "Train,a"))
    csv.write_text(csv.read_text().replace("TEST,b", "TEST,new"))
    refuses(r"a training image. Received: 7 of .*none of 'new'", load, folder, labels=csv)
    mixed = {name: [0.5, 2.0] for name in names}
    toy = load(folder, labels=mixed, problem="regression", test_fraction=0.5)
    assert len(toy.train_labels) == len(toy.test_labels) == 6
    again = load(folder, labels=mixed, problem="regression", test_fraction=0.5)
    np.testing.assert_array_equal(toy.test_images, again.test_images)
    for part, inside in (("train", names[:8]), ("val", names[8:])):
        (folder / part).mkdir()
        for name in inside:
            (folder / name).rename(folder / part / name)
    rows = {f"train/{name}": ["x", "y"] for name in names[:8]} | {f"val/{n}": [] for n in names[8:]}
    assert load(folder, labels=rows).test_labels.tolist() == [[0, 0]] * 4
    (folder / "train").rename(folder / "more")
    rows = {name.replace("train", "more"): label for name, label in rows.items()}
    refuses(r"labelled images in 'val' and in other places", load, folder, labels=rows)


def several(count, classes=3):
    """Numbered images, and rows of 0 and 1 that follow from the numbers."""
    images, _ = numbered(count)
    bits = (np.arange(count)[:, None] // 2 ** np.arange(classes)) % 2
    return images, bits


@any_backend
@pytest.mark.parametrize("values", [False, True])
def test_batches_of_several_labels_or_values(values):
    images, labels = several(27)
    problem = "regression" if values else "multi_label"
    labels = labels / 2 + 1 if values else labels
    data = (images, labels)
    train = pipeline(data, recipe(), problem=problem)
    test = pipeline(data, recipe(), "test", problem=problem)
    assert train.problem == test.problem == problem and train.num_classes == 3
    assert train.class_names == (None if values else ("0", "1", "2"))
    for found in (train, test):
        for batch, rows in found:
            assert rows.dtype == np.float32 and rows.shape == (len(batch), 3)
            np.testing.assert_array_equal(rows, labels[numbers(batch)])
    assert train.settings["problem"] == problem
    assert [len(rows) for _, rows in test] == [8, 8, 8, 3] and f"problem={problem!r}" in repr(test)
    batches = list(train)
    assert_same(train.from_step(2), [*batches[2:], *train.from_step(3, 2)])
    shares = [list(train.shard(process, 2)) for process in range(2)]
    joined = [tuple(map(np.concatenate, zip(*pair))) for pair in zip(*shares)]
    assert_same(joined, batches)
    empty = list(pipeline((images[:9], labels[:9]), recipe(), "test", problem=problem).shard(0, 2))
    assert [rows.shape for _, rows in empty] == [(4, 3), (0, 3)] and empty[1][1].dtype == np.float32


@any_backend
def test_mixing_mixes_rows_as_it_mixes_one_hot_rows():
    images, labels = numbered(40)
    one_hot = np.eye(5)[labels]
    for mix in ({"mixup": 0.4}, {"cutmix": 1.0}):
        plain = list(pipeline((images, labels), recipe(**mix)))
        assert_same(pipeline((images, one_hot), recipe(**mix), problem="multi_label"), plain)
    values = labels.astype(float)
    for _, mixed in pipeline((images, values), recipe(mixup=0.4), problem="regression"):
        assert mixed.shape == (8,) and mixed.dtype == np.float32 and (mixed % 1).any()


@any_backend
def test_arrays_of_rows_are_several_labels_only_where_they_can_be_nothing_else(tmp_path):
    images, rows = several(20)
    both = {"x_train": images, "y_train": rows, "x_test": images[1:3], "y_test": rows[1:3]}
    np.savez(tmp_path / "rows.npz", **both, class_names=np.array(["x", "y", "z"]))
    np.savez(tmp_path / "whole.npz", images=images, labels=rows)
    toy = load(tmp_path / "rows.npz", image_size=5)  # test rows alone could be one-hot
    assert (toy.problem, toy.class_names, toy.num_classes) == ("multi_label", ("x", "y", "z"), 3)
    assert toy.test_labels.tolist() == [[1, 0, 0], [0, 1, 0]]
    whole = load(tmp_path / "whole.npz")
    assert len(whole.test_labels) == 4 and whole.class_names == ("0", "1", "2")
    made = pipeline(toy, recipe(), "test[:1]")
    assert made.problem == "multi_label" and made.class_names == ("x", "y", "z")
    assert pipeline(((images, rows), (images[1:3], rows[1:3])), recipe(), "test").num_classes == 3
    with pytest.raises(ValueError, match=r"one-hot labels.*problem='multi_label'.*\(20, 3\)"):
        pipeline((images, np.eye(3)[np.arange(20) % 3]), recipe())
    refuses(r"problem='regression'", pipeline, (images, np.arange(20) / 2), recipe())
    with pytest.raises(ValueError, match=r"must be 0 or 1. Received: 60 others, .*\[0, 0\]"):
        pipeline((images, rows + 5), recipe(), problem="multi_label")
    with pytest.raises(ValueError, match=r"finite numbers. Received: 1 others, the first is 1e"):
        pipeline((images[:1], [1e39]), recipe(), problem="regression")
    with pytest.raises(ValueError, match=r"as many columns. .*\(20, 3\) and \(2, 2\)"):
        pipeline(((images, rows), (images[:2], rows[:2, :2])), recipe())
    with pytest.raises(ValueError, match=r"one column for each of class_names"):
        ImageDataset("x", images, rows, images, rows, ("a", "b"), problem="multi_label")


@any_backend
def test_a_damaged_image_of_several_labels(tmp_path):
    folder, names = photos(tmp_path)
    (folder / names[3]).write_bytes(b"no image")
    labels = {name: ["a", "b"][: 1 + i % 2] for i, name in enumerate(names)}
    test = pipeline(folder, recipe(4), "train+test", training=False, labels=labels)
    with pytest.warns(UserWarning, match="03.png is left out"):
        rows = np.concatenate([rows for _, rows in test])
    assert rows.shape == (11, 2) and test.skipped == (str(folder / names[3]),)
    toy = load(folder, labels=labels, skip_corrupt=True)
    assert len(toy.train_labels) + len(toy.test_labels) == 11 and len(toy.skipped) == 1


def test_fit_takes_several_labels():
    train = pipeline(several(16), recipe())
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(train.num_classes))
    model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    history = model.fit(train, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
