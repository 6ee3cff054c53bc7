"""`load` with a recipe: every kind of source, every kind of split, and the refusals."""

import numpy as np
import pytest

from keras_vit.data import ImageDataset, Pipeline, Transform, load
from keras_vit.data.split_syntax import parse_split, starts_training
from tests.data.pipeline_cases import class_folders, numbered, numbers, recipe

pytestmark = pytest.mark.any_backend
SIZES = {"train": 101, "test": 40}


def seen(pipeline):
    return [number for images, _ in pipeline for number in numbers(images)]


@pytest.mark.parametrize(
    "split, expected",
    [
        ("train", [("train", 0, 101)]),
        ("train[:98%]", [("train", 0, 99)]),
        ("train[98%:]", [("train", 99, 101)]),
        ("train[50%:75%]", [("train", 50, 76)]),  # 50.5 rows become 50, the even number
        ("train[:7]+test[-5:]", [("train", 0, 7), ("test", 35, 40)]),
        (" train[ 2 : 3 ] + test ", [("train", 2, 3), ("test", 0, 40)]),
        ("validation", [("test", 0, 40)]),
        ("train[-10%:]", [("train", 91, 101)]),
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
        ("trian", r"Did you mean 'train'\?.*Received: split='trian'"),
        ("train[:200]", r"outside the 101 examples.*train\[:200\]"),
        ("train[5:5]", r"no examples.*train: 101"),
        ("train[:1.5]", r"Rows are whole numbers"),
        ("train[:5%:2]", r"split must be one of 'train', 'test'"),
        ("train[5:10%]", r"both percents"),
        ("", r"split must be one of"),
        (3, r"split must be one of.*Received: split=3"),
    ],
)
def test_bad_splits(split, message):
    with pytest.raises(ValueError, match=message):
        parse_split(split, SIZES)


def test_which_splits_are_for_training():
    for split in ("train", "train[:98%]", "train800val200", "train[0:5]+validation", "trainval"):
        assert starts_training(split)
    for split in ("train[98%:]", "test", "validation", "val200", "test[:5]"):
        assert not starts_training(split)


def test_arrays_in_memory():
    images, labels = numbered(20)
    test = load((images, labels), recipe(), "test[10:]", engine="grain")
    assert isinstance(test, Pipeline) and seen(test) == list(range(10, 20))
    pair = ((images, labels[:, None][:, 0]), numbered(6))
    assert load(pair, recipe(), "test", engine="grain").num_examples == 6
    floats = load((images / 255.0, labels), recipe(), "test", engine="grain")
    assert seen(floats) == list(range(20))
    dataset = ImageDataset("mine", images, labels, *numbered(3), tuple("abcde"))
    made = load(dataset, recipe(), "validation", engine="grain")
    assert made.class_names == tuple("abcde") and made.num_examples == 3 and made.name == "mine"


def test_npz_folder_and_slices_of_folders(tmp_path):
    images, labels = numbered(20)
    np.savez(tmp_path / "set.npz", x=images, y=labels)
    assert load(tmp_path / "set.npz", recipe(), "train+test", engine="grain").num_examples == 20
    folder = tmp_path / "folder"
    for part, count in (("train", 20), ("val", 2), ("test", 3)):
        class_folders(folder / part, per_class=count)
    made = recipe(batch=10, evaluate=Transform((8, 8)))
    sizes = [load(folder, made, part, engine="grain").num_examples for part in ("val", "test")]
    assert sizes == [4, 6]
    parts = [load(folder, made, f"train[{cut}]", training=False) for cut in (":50%", "50%:")]
    files = [{p.stream.examples.place(row) for row in p.stream.schedule.rows} for p in parts]
    assert not files[0] & files[1] and len(files[0] | files[1]) == 40
    # Files are sorted by class, but a slice of them is not all of one class.
    assert {"cat", "dog"} == {path.split("/")[-2] for path in files[0]}


def test_a_folder_of_files_that_would_not_fit_into_memory_is_not_read(tmp_path, monkeypatch):
    from keras_vit.data import resize

    monkeypatch.setattr(resize, "MAX_BYTES", 10)
    class_folders(tmp_path)
    train = load(tmp_path, recipe(4, train=Transform((8, 8))), engine="grain")
    assert next(iter(train))[0].shape == (4, 8, 8, 3)


def test_the_split_of_digits_does_not_depend_on_the_seed():
    rows = []
    for seed in (0, 1):
        made = recipe(evaluate=Transform((8, 8)), seed=seed)
        rows.append(np.concatenate([x for x, _ in load("digits", made, "test", engine="grain")]))
    np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize(
    "source, message",
    [
        ("cifr10", r"Unknown dataset. Received: 'cifr10'. Did you mean 'cifar10'"),
        ("clevr_cuont", r"Did you mean.*'clevr"),
        ("vtab/dsprite_location", r"Did you mean 'vtab/dsprites_location'"),
        ("none/such/folder", r"No such file or folder. Received: 'none/such/folder'"),
        (5, r"Arrays come as \(images, labels\)"),
        (np.zeros((3, 4, 4, 3), np.uint8), r"Arrays come as \(images, labels\)"),
        ((np.zeros((3, 4, 4, 3), np.uint8), np.zeros(2)), "3 images and 2 labels"),
        ((np.zeros((3, 4, 4, 3), np.uint8), np.array(["a"] * 3)), "must be whole numbers"),
        ((np.zeros((0, 4, 4, 3), np.uint8), np.zeros(0, int)), "at least one image"),
    ],
    ids=str,
)
def test_unknown_sources(source, message):
    with pytest.raises(ValueError, match=message):
        load(source, recipe(), engine="grain")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"split": "tests"}, "Did you mean 'test'"),
        ({"batch": 5000}, r"batch=5000, and 1438 examples in 'train' of digits"),
        ({"batch": 0}, "batch must be a positive integer"),
        ({"engine": "torch"}, "engine must be one of"),
        ({"image_size": 8}, "change the recipe"),
        ({"channels": 2}, "channels must be 1"),
        ({"threads": 0}, "threads must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        load("digits", recipe(), **options)


def test_options_of_pipelines_need_a_recipe():
    with pytest.raises(ValueError, match=r"Without a recipe.*split='train', batch=3"):
        load("digits", split="train", batch=3)
    with pytest.raises(ValueError, match="pass a recipe"):
        load("cifar10")


def test_an_engine_that_is_not_installed_says_how_to_get_it(monkeypatch):
    from keras_vit.data import stream

    monkeypatch.setattr(stream, "_installed", lambda package: package == "grain")
    large = recipe(train=Transform((224, 224)))
    assert load("digits", large, engine="auto").engine == "grain"
    with pytest.raises(ImportError, match=r"keras3-vit\[tensorflow\]"):
        load("digits", recipe(), engine="tensorflow")
    monkeypatch.setattr(stream, "_installed", lambda package: False)
    with pytest.raises(ImportError, match=r"keras3-vit\[data\]"):
        load("digits", large)
    assert load("digits", recipe()).engine == "numpy"  # for which nothing is needed


@pytest.mark.parametrize("step", [-1, 1.5, True, 46])
def test_steps_out_of_range(step):
    test = load("digits", recipe(), "test", engine="grain")
    with pytest.raises(ValueError, match="step"):
        test.from_step(step)


def test_the_recipe_says_what_validation_is_where_the_set_does_not():
    made = recipe()
    made.train_split, made.validation_split, made.test_split = "train[:90%]", "train[90%:]", "test"
    data = (numbered(50), numbered(7))
    sizes = {None: 45, "validation": 5, "test": 7, "train": 50}
    pipelines = {split: load(data, made, split, engine="grain") for split in sizes}
    assert {split: found.num_examples for split, found in pipelines.items()} == sizes
    assert [pipelines[split].training for split in sizes] == [True, False, False, True]
    assert load(numbered(9), made, "validation", engine="grain").num_examples == 9
