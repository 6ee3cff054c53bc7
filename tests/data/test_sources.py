"""What a pipeline can be made of: arrays, files, names; parts of them, and what is refused."""

import json
import warnings

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import ImageDataset, Pipeline, Transform, pipeline
from keras_vit.data.sources import parse_split, starts_training
from tests.data.pipeline_cases import assert_same, class_folders, numbered, recipe, seen
from tests.support import refuses

pytestmark = pytest.mark.any_backend


def test_arrays_in_memory():
    images, labels = numbered(20)
    test = pipeline((images, labels), recipe(), "test[10:]")
    assert isinstance(test, Pipeline) and seen(test) == list(range(10, 20))
    pair = ((images, labels), numbered(6))
    assert pipeline(pair, recipe(), "test").num_examples == 6
    assert seen(pipeline((images / 255.0, labels), recipe(), "test")) == list(range(20))
    dataset = ImageDataset("mine", images, labels, *numbered(3), tuple("abcde"))
    made = pipeline(dataset, recipe(), "validation")
    assert made.class_names == tuple("abcde") and made.num_examples == 3 and made.name == "mine"


def test_labels_that_count_from_1_are_warned_of(tmp_path):
    """They make one class too many; other classes without images may be meant."""
    images, labels = numbered(20)
    cases = [(labels + 1, True), (labels % 2 + 1.0, True), (labels, False), (labels + 2, False)]
    cases += [(labels % 2 * 2, False), (labels * 0 + 1, False)]
    heads, problem = {"a": labels + 1, "b": labels}, dict.fromkeys("ab", "single_label")
    heads["a"][0] = -1  # a label that the image lacks
    for wrong, expected in cases:
        np.savez(tmp_path / "set.npz", x=images, y=wrong)
        both = (images[:10], wrong[:10]), (images[10:], wrong[10:])
        for source in ((images, wrong), both, tmp_path / "set.npz"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pipeline(source, recipe(), "test")
            assert any("counted from 0. Received" in str(w.message) for w in caught) == expected
    with pytest.warns(UserWarning, match="numbers from 1 to 5, which makes 6 classes.*labels - 1"):
        pipeline((images, heads), recipe(), "test", problem=problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pair = (images, labels + 1), (images[:1], labels[:1])
        pipeline(pair, recipe(), "test")


def test_labels_that_are_no_numbers_of_classes_are_told_of():
    images, labels = numbered(20)
    with pytest.warns(UserWarning, match=r"makes 46 classes, of which 3 .*problem='regression'"):
        pipeline((images[:6], np.array([31, 45, 29] * 2)), recipe(), "test")
    with pytest.warns(UserWarning, match="class 5 in the test set alone"):
        pipeline(((images, labels), (images, labels + 1)), recipe(), "test")
    with pytest.warns(UserWarning, match=r"each example once.*'train\+test'"):
        assert pipeline((images, labels), recipe(), "train+test").num_examples == 40


def test_npz_folders_archives_and_slices_of_them(tmp_path):
    images, labels = numbered(20)
    np.savez(tmp_path / "set.npz", x=images, y=labels)
    assert pipeline(tmp_path / "set.npz", recipe(), "train+test").num_examples == 20
    folder = tmp_path / "folder"
    for part, count in (("train", 20), ("val", 2), ("test", 3)):
        class_folders(folder / part, per_class=count)
    made = recipe(10, Transform((8, 8)))
    sizes = [pipeline(folder, made, part).num_examples for part in ("val", "test")]
    assert sizes == [4, 6]
    parts = [pipeline(folder, made, f"train[{cut}]", training=False) for cut in (":50%", "50%:")]
    files = [{p.source.place(row) for row in p.rows} for p in parts]
    assert not files[0] & files[1] and len(files[0] | files[1]) == 40
    # Files are sorted by class, but a slice of them is not all of one class.
    assert {"cat", "dog"} == {path.split("/")[-2] for path in files[0]}


@pytest.mark.parametrize(
    "labels",
    [
        np.arange(20) // 4,
        np.arange(20)[::-1] // 4,
        np.repeat([3, 0, 4, 1, 2], 4),
        dict.fromkeys("ab", np.arange(20) // 4),
        np.arange(20.0),
        -np.arange(20.0),
    ],
)
def test_slices_of_arrays_that_are_sorted_by_label(labels):
    """Of arrays joined class by class, the last fifth would be of one class alone."""
    problem = dict.fromkeys("ab", "single_label")
    if not isinstance(labels, dict):
        problem = "regression" if labels.dtype == float else None
    both = [
        pipeline((numbered(20)[0], labels), recipe(4), split, problem=problem)
        for split in ("train[:80%]", "train[80%:]")
    ]
    first, last = (each.rows for each in both)
    assert sorted([*first, *last]) == [*range(20)] and len(last) == 4
    assert len({*first // 4}) == 5 and len({*last // 4}) > 1
    mixed = numbered(20)[0], np.arange(20) * 7 % 5
    assert pipeline(mixed, recipe(4), "train[:80%]").rows.tolist() == [*range(16)]
    assert seen(pipeline(mixed, recipe(4), "train[80%:]")) == [*range(16, 20)]


def test_the_split_of_digits_does_not_depend_on_the_seed():
    made = [recipe(train=Transform((8, 8)), seed=seed) for seed in (0, 1)]
    assert_same(*(pipeline("digits", each, "test") for each in made))


SIZES = {"train": 101, "test": 10}


@pytest.mark.parametrize(
    "split, expected",
    [
        ("train", [("train", 0, 101)]),
        ("validation", [("test", 0, 10)]),
        ("train[:98%]+test[5:]", [("train", 0, 99), ("test", 5, 10)]),
        ("train[-5:]", [("train", 96, 101)]),
    ],
)
def test_splits(split, expected):
    assert parse_split(split, SIZES) == expected


def test_splits_are_those_of_tensorflow_datasets():
    splits = pytest.importorskip("tensorflow_datasets.core.splits")
    for size in (60, 101, 1020, 3680):
        lengths = splits.SplitDict(
            [splits.SplitInfo(name="train", shard_lengths=[size], num_bytes=0)]
        )
        for text in ("train[:98%]", "train[98%:]", "train[33%:66%]", "train[-5%:]", "train[:-3]"):
            instruction = splits.ReadInstruction.from_spec(text).to_absolute(lengths)[0]
            start, stop = instruction.from_ or 0, instruction.to or size
            assert parse_split(text, {"train": size}) == [("train", start, stop)], (text, size)


@pytest.mark.parametrize(
    "split, message",
    [
        ("trian", "one of 'train' .*Received: split='trian'"),
        ("train[:200]", r"train\[:200\]', which reaches outside the 101 examples"),
        ("train[5:5]", r"'train' of 101 examples.*which has no examples"),
        ("train[:1.5]", r"by rows or percents.*Received: split='train\[:1.5"),
        ("train[:5%:2]", r"split must be one of 'train' of 101 examples, 'test' of 10"),
        ("train[5:10%]", r"both percents"),
        (3, r"split must be one of.*Received: split=3"),
    ],
)
def test_bad_splits(split, message):
    refuses(message, parse_split, split, SIZES)


def test_which_splits_are_for_training():
    for split in ("train", "train[:98%]", "train800val200", "train[0:5]+validation", "trainval"):
        assert starts_training(split)
    for split in ("train[98%:]", "test", "validation", "val200", "test[:5]"):
        assert not starts_training(split)


def test_the_recipe_says_what_validation_is_where_the_set_does_not():
    made = recipe(train_split="train[:90%]", validation_split="train[90%:]", test_split="test")
    data = (numbered(50), numbered(7))
    sizes = {None: 45, "validation": 5, "test": 7, "train": 50}
    pipelines = {split: pipeline(data, made, split) for split in sizes}
    assert {split: found.num_examples for split, found in pipelines.items()} == sizes
    assert [pipelines[split].training for split in sizes] == [True, False, False, True]
    assert pipeline(numbered(9), made, "validation").num_examples == 9
    assert pipeline(data, made, "val + test").num_examples == 5 + 7
    refuses(r"the recipe takes 'train\[90%:\]'", pipeline, data, made, "validation[:50%]")
    of_imagenet = recipe(train_split="train", test_split="validation")
    assert seen(pipeline(data, of_imagenet, "test[3:]")) == list(range(3, 7))


PIXELS = np.zeros((3, 4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    "source, message",
    [
        ("cifr10", r"no such dataset.* Received: 'cifr10'; the nearest names are \['cifar10'"),
        ("clevr_cuont", r"nearest names are .*'clevr"),
        ("vtab/dsprite_location", r"nearest names are \['vtab/dsprites_location'"),
        (5, r"Arrays come as \(images, labels\)"),
        (PIXELS, r"Arrays come as \(images, labels\)"),
        ((PIXELS, np.zeros(2)), "one label for each image. Received: 2 labels"),
        ((PIXELS[..., :2], np.zeros(3, int)), r"channels=2; expected one of \(1, 3\)"),
    ],
    ids=range(7),
)
def test_unknown_sources(source, message):
    refuses(message, pipeline, source, recipe())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"split": 5}, "split must be.*Received: split='5'"),
        ({"training": "no"}, "training. Received: training='no'"),
        ({"split": "tests"}, "'test' of 359.* Received: split='tests'"),
        ({"batch_size": 5000}, r"batch_size=5000, and 1438 examples in 'train' of digits"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
        ({"channels": 2}, "channels=2; expected"),
        ({"threads": 0}, "threads must be"),
        ({"workers": -1}, "workers must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**32}, "seed must be"),
    ],
)
def test_bad_options(options, message):
    refuses(message, pipeline, "digits", recipe(), **options)


@pytest.mark.parametrize("step", [-1, 1.5, True, 46])
def test_steps_out_of_range(step):
    refuses("step", pipeline("digits", recipe(), "test").from_step, step)


def test_settings_tell_classes_and_labels_of_another_set(tmp_path):
    """Without reading an image, and wherever the folder is."""

    def settings(folder, **options):
        return pipeline(folder, recipe(4, Transform((8, 8))), "train", **options).settings

    class_folders(tmp_path / "a" / "set")
    there = settings(tmp_path / "a" / "set")
    (tmp_path / "b").mkdir()
    moved = (tmp_path / "a" / "set").rename(tmp_path / "b" / "set")
    assert settings(moved) == there == json.loads(json.dumps(there))
    (moved / "cat").rename(moved / "wolf")
    assert settings(moved)["class_names"] == '["dog", "wolf"]' != there["class_names"]
    names = {
        f"{path.parent.name}/{path.name}": "ab"[i % 2] for i, path in enumerate(moved.glob("*/*"))
    }
    first = settings(moved, labels=names)["labels"]
    swapped = {name: {"a": "b", "b": "a"}[label] for name, label in names.items()}
    assert settings(moved, labels=swapped)["labels"] != first
    images, labels = numbered(20)
    arrays = [settings((images, y))["labels"] for y in (labels, labels.copy(), labels[::-1])]
    assert arrays[0] == arrays[1] != arrays[2]


@pytest.mark.parametrize(
    "names, twins",
    [
        (("Cat", "cat", "dog"), "'Cat' and 'cat'"),
        (("red fox", "red\u00a0fox", "red fox "), r"'red fox' and 'red fox ' and 'red\\xa0fox'"),
        (("caf\u00e9", "cafe\u0301"), r"'cafe\\u0301' and 'caf\\xe9'"),
        (("1", "1.0", "2"), "'1' and '1.0'"),
        (("1", "0", "false", "True"), "'0' and 'false'; '1' and 'True'"),
    ],
)
def test_names_of_classes_that_look_alike_are_warned_of(tmp_path, names, twins):
    labels = {f"{number}.png": name for number, name in enumerate(2 * names)}
    for file in labels:
        Image.new("L", (8, 8)).save(tmp_path / file)
    with pytest.warns(UserWarning, match=f"look alike.*Received: {twins};"):
        pipeline(tmp_path, recipe(1), labels=labels)
