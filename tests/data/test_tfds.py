"""Datasets that TensorFlow Datasets has prepared: found, read by number, and damage named."""

import json

import numpy as np
import pytest

from keras_vit.data import Transform, load, pipeline, tfds
from keras_vit.data.load import open_source
from keras_vit.data.tfds import find_prepared
from keras_vit.data.transform import apply
from tests.data.pipeline_cases import (
    class_folders,
    numbered,
    numbers,
    photographs,
    recipe,
    seen,
    write_prepared,
)
from tests.support import refuses

pytestmark = pytest.mark.any_backend


@pytest.fixture
def writes():
    """TensorFlow Datasets writes with TensorFlow."""
    for package in ("tensorflow", "tensorflow_datasets"):
        pytest.importorskip(package)


def examples(count, classes=3, start=0):
    images, labels = numbered(start + count, classes)
    return [{"image": x, "label": y} for x, y in zip(images, labels)][start:]


@pytest.fixture(params=["array_record", "tfrecord"])
def prepared(request, tmp_path, writes):
    """20 examples to train and 7 to test, which tell their numbers."""
    parts = {"train": examples(20), "test": examples(7, start=20)}
    return write_prepared(tmp_path, "cifar10", parts, "3.0.2", file_format=request.param)


def test_a_prepared_set_by_name(prepared, monkeypatch):
    data_dir = prepared.parent.parent
    test = pipeline("cifar10", recipe(3), "test", data_dir=data_dir)
    assert seen(test) == list(range(20, 27)) and test.num_classes == 3
    assert [label for _, y in test for label in y] == [n % 3 for n in range(20, 27)]
    held_out = pipeline("cifar10", recipe(3), "train[90%:]+test[:1]", data_dir=data_dir)
    assert seen(held_out) == [18, 19, 20] and held_out.name == "cifar10"
    loaded = load("cifar10", data_dir=data_dir)
    assert numbers(loaded.train_images / 127.5 - 1) == list(range(20))
    assert loaded.test_labels.tolist() == [n % 3 for n in range(20, 27)]
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_dir))
    assert sorted(seen(pipeline("cifar10:3.*.*", recipe(20)))) == list(range(20))


def test_a_tfrecord_set_that_is_too_large_says_how_to_convert_it(tmp_path, writes, monkeypatch):
    folder = write_prepared(tmp_path, "toy", {"train": examples(4)}, file_format="tfrecord")
    monkeypatch.setattr(tfds, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="read into memory up to") as caught:
        pipeline("toy", recipe(1), data_dir=tmp_path)
    command = f"tfds convert_format --dataset_version_dir={folder} --out_file_format=array_record"
    assert command in str(caught.value)


def test_the_newest_version_or_the_one_asked_for(tmp_path):
    for version in ("3.0.2", "3.0.10", "4.0.0"):
        (tmp_path / "toy" / version).mkdir(parents=True)
        (tmp_path / "toy" / version / "dataset_info.json").write_text("{}")
    found = {major: find_prepared("toy", tmp_path, major).name for major in (None, 3, 9)}
    assert found == {None: "4.0.0", 3: "3.0.10", 9: "4.0.0"}
    assert find_prepared("toy:3.0.2", tmp_path).name == "3.0.2"
    assert find_prepared("toy:3.*.*", tmp_path).name == "3.0.10"
    refuses(r"'toy:2\.0\.0' is not on disk", find_prepared, "toy:2.0.0", tmp_path)


def test_a_task_of_vtab_with_its_splits_and_labels(tmp_path, writes):
    import tensorflow_datasets

    sizes = tensorflow_datasets.features.Sequence({"size": np.int64})
    images = [np.asarray(image.resize((6, 6))) for image in photographs(1010)]
    found = [
        {"image": image, "label": 0, "objects": {"size": np.zeros(3 + index % 8, int)}}
        for index, image in enumerate(images)
    ]
    parts = {"train": found[:1000], "validation": found[1000:], "test": found[:5]}
    write_prepared(tmp_path, "clevr", parts, "3.1.0", features={"objects": sizes})
    made = recipe(50)
    train = pipeline("vtab/clevr_count", made, "train800", data_dir=tmp_path)
    assert train.training and (train.num_examples, train.num_classes) == (800, 8)
    test = pipeline("vtab/clevr_count", made, "test", data_dir=tmp_path)
    assert [label for _, y in test for label in y] == [(1000 + n) % 8 for n in range(10)]
    assert pipeline("vtab/clevr_count", made, "val", data_dir=tmp_path).num_examples == 100
    with pytest.raises(ValueError, match="outside the 1000 examples"):
        pipeline("vtab/clevr_count", made, "train800val200", data_dir=tmp_path)


@pytest.mark.parametrize(
    "name", ["imagenet2012", "vtab/kitti_distance", "eurosat/rgb", "imagenet21k"]
)
def test_a_set_that_is_not_there_says_how_to_get_it(tmp_path, name):
    with pytest.raises(ValueError, match="is not on disk") as caught:
        pipeline(name, recipe(), data_dir=tmp_path)
    how = "image-net.org" if name == "imagenet21k" else "tfds build"
    assert str(tmp_path) in str(caught.value) and how in str(caught.value)


def test_imagenet_21k_from_class_folders(tmp_path):
    class_folders(tmp_path / "imagenet21k" / "train", per_class=4)
    train = pipeline("imagenet21k", recipe(4, train=Transform((8, 8))), data_dir=tmp_path)
    assert (train.num_examples, train.class_names) == (8, ("cat", "dog"))
    assert train.name == "imagenet21k"


def test_a_folder_comes_before_a_set_that_is_not_there(tmp_path, monkeypatch):
    class_folders(tmp_path / "cifar10", per_class=4)
    monkeypatch.chdir(tmp_path)
    found = load("cifar10", data_dir=tmp_path / "none", image_size=8)
    assert found.class_names == ("cat", "dog") and len(found.train_labels) == 6


def test_orientation_tags_of_prepared_images_are_left_alone_as_by_the_authors(prepared):
    assert not open_source("cifar10", prepared.parent.parent).upright


def test_damaged_sets_are_named(prepared):
    data_dir = prepared.parent.parent
    shard = next(prepared.glob("cifar10-train.*"))
    whole = shard.read_bytes()
    shard.unlink()
    refuses("prepare or copy it again", pipeline, "cifar10", recipe(4), data_dir=data_dir)
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cannot be read|damaged"):
        list(pipeline("cifar10", recipe(4), data_dir=data_dir))
    (prepared / "dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match=r"damaged; prepare or copy it again. Received: \w+: "):
        pipeline("cifar10", recipe(), data_dir=data_dir)


def edit(path, *keys, value):
    content = json.loads(path.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(content))


def test_hostile_descriptions_end_in_an_error(prepared):
    label = "featuresDict", "features", "label", "classLabel", "numClasses"
    edit(prepared / "features.json", *label, value=str(10**9))
    with pytest.raises(ValueError, match=r"at most 100000 classes. Received: .* 10{9} classes"):
        pipeline("cifar10", recipe(), data_dir=prepared.parent.parent)


def test_sets_without_image_and_label_and_labels_out_of_range(tmp_path, writes):
    found = [{"image": np.zeros((4, 4, 3), np.uint8), "label": 2}] * 4
    folder = write_prepared(tmp_path, "dtd", {"train": found})
    label = "featuresDict", "features", "label", "classLabel", "numClasses"
    edit(folder / "features.json", *label, value="2")
    (folder / "label.labels.txt").write_text("a\nb\n")
    with pytest.warns(UserWarning, match=r"label 2 is outside 0\.\.1"):
        with pytest.raises(ValueError, match=r"2 of 4 examples cannot be read"):
            list(pipeline("dtd", recipe(4), data_dir=tmp_path))


def test_what_tensorflow_datasets_reads(tmp_path, writes):
    """Images and labels against the library's own decoding."""
    import tensorflow_datasets

    found = [{"image": np.asarray(x), "label": i % 3} for i, x in enumerate(photographs(6))]
    folder = write_prepared(tmp_path, "toy", {"train": found})
    theirs = tensorflow_datasets.builder_from_directory(str(folder)).as_data_source("train")
    ours = open_source("toy", tmp_path)
    for row in ours.rows("train"):
        encoded, label = ours[row]
        image = theirs[row]["image"]
        np.testing.assert_array_equal(apply(Transform(image.shape[:2]), encoded), image)
        assert label == theirs[row]["label"]
