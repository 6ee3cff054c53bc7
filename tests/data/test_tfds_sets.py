"""Datasets as TensorFlow Datasets prepares them, read without TensorFlow."""

import importlib.util
import io
import json
import struct
import sys

import numpy as np
import pytest

from keras_vit.data import Transform, load, records
from keras_vit.data.example_proto import parse_example
from keras_vit.data.record_examples import RecordExamples
from keras_vit.data.records import TFRecordShard
from keras_vit.data.tfds_sets import find_prepared
from keras_vit.data.transform_numpy import decode
from tests.data.pipeline_cases import (
    class_folders,
    crc32c,
    numbered,
    numbers,
    photographs,
    recipe,
    serialize,
    write_tfrecord_set,
)

pytestmark = pytest.mark.any_backend
has_tfds = importlib.util.find_spec("tensorflow_datasets") and importlib.util.find_spec(
    "tensorflow"
)


def png(image):
    from PIL import Image

    buffer = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def prepared(tmp_path):
    """20 examples to train and 7 to test, which tell their numbers."""
    images, labels = numbered(27, classes=3)
    examples = [{"image": png(x), "label": y, "id": b"x"} for x, y in zip(images, labels)]
    parts = {"train": examples[:20], "test": examples[20:]}
    return write_tfrecord_set(tmp_path, "cifar10", parts, ("image", "label", "id"))


def seen(pipeline):
    return [number for images, _ in pipeline for number in numbers(images)]


def test_a_prepared_set_by_name(prepared):
    data_dir = prepared.parent.parent
    test = load("cifar10", recipe(3), "test", data_dir=data_dir)
    assert seen(test) == list(range(20, 27)) and test.num_classes == 3
    assert [label for _, y in test for label in y] == [n % 3 for n in range(20, 27)]
    held_out = load("cifar10", recipe(3), "train[90%:]+test[:1]", data_dir=data_dir, engine="grain")
    assert seen(held_out) == [18, 19, 20]
    train = load("cifar10:1.*.*", recipe(20), data_dir=data_dir, engine="grain")
    assert sorted(seen(train)) == list(range(20))
    assert load("cifar-10", recipe(3), data_dir=data_dir).name == "cifar10"


def test_the_environment_variable_names_the_folder(prepared, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared.parent.parent))
    assert load("cifar10", recipe(3), engine="grain").num_examples == 20


def test_the_newest_version_or_the_one_asked_for(tmp_path):
    example = {"image": png(np.zeros((4, 4, 3), np.uint8)), "label": 0}
    for version in ("3.0.2", "3.0.10", "4.0.0"):
        write_tfrecord_set(tmp_path, "toy", {"train": [example] * 2}, ("image", "label"), version)
    found = {major: find_prepared("toy", tmp_path, major).folder.name for major in (None, 3, 9)}
    assert found == {None: "4.0.0", 3: "3.0.10", 9: "4.0.0"}
    assert find_prepared("toy:3.0.2", tmp_path).folder.name == "3.0.2"
    with pytest.raises(ValueError, match=r"'toy:2\.0\.0' is not on disk"):
        find_prepared("toy:2.0.0", tmp_path)
    assert load("toy", recipe(1), data_dir=tmp_path, engine="grain").num_examples == 2


def test_a_task_of_vtab_with_its_splits_and_labels(tmp_path):
    images = [image.resize((6, 6)) for image in photographs(1010)]
    examples = [
        {"image": png(image), "label": 0, "objects/size": np.zeros(3 + index % 8, int)}
        for index, image in enumerate(images)
    ]
    parts = {"train": examples[:1000], "validation": examples[1000:], "test": examples[:5]}
    write_tfrecord_set(tmp_path, "clevr", parts, ("image", "objects"), "3.1.0", shards=3)
    made = recipe(50, evaluate=Transform((4, 4)))
    options = {"data_dir": tmp_path, "engine": "grain"}
    train = load("vtab/clevr_count", made, "train800", **options)
    assert train.training and (train.num_examples, train.num_classes) == (800, 8)
    test = load("clevr_count", made, "test", **options)
    assert [label for _, y in test for label in y] == [(1000 + n) % 8 for n in range(10)]
    held_out = load("vtab/clevr_count", made, "val", **options)
    assert held_out.num_examples == 100
    with pytest.raises(ValueError, match="outside the 1000 examples"):
        load("vtab/clevr_count", made, "train800val200", **options)


@pytest.mark.parametrize(
    "name", ["imagenet2012", "vtab/kitti_distance", "eurosat/rgb", "imagenet21k"]
)
def test_a_set_that_is_not_there_says_how_to_get_it(tmp_path, name):
    with pytest.raises(ValueError, match="is not on disk") as caught:
        load(name, recipe(), data_dir=tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    how = "image-net.org" if name == "imagenet21k" else "tfds build"
    assert how in message


def test_imagenet_21k_from_class_folders(tmp_path):
    class_folders(tmp_path / "imagenet21k" / "train", per_class=4)
    made = recipe(4, train=Transform((8, 8)))
    train = load("imagenet21k", made, data_dir=tmp_path, engine="grain")
    assert (train.num_examples, train.class_names) == (8, ("cat", "dog"))
    assert train.name == "imagenet21k"


def edit_info(folder, **changes):
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | changes))


def test_a_length_that_was_damaged_ends_the_file_there(prepared):
    shard = prepared / "cifar10-train.tfrecord-00001-of-00002"
    content = bytearray(shard.read_bytes())
    (length,) = struct.unpack_from("<Q", content)
    struct.pack_into("<Q", content, 12 + length + 4, 3)  # of its second record
    shard.write_bytes(content)
    found = TFRecordShard(shard, 10)
    assert len(found.read(0)) == length
    with pytest.raises(ValueError, match="must hold 10 records and holds 1 whole"):
        found.read(1)


def test_damaged_bytes_are_found_where_a_package_is_fast_enough(prepared, monkeypatch):
    shard = prepared / "cifar10-train.tfrecord-00000-of-00002"
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    monkeypatch.setattr(records, "_fast_crc32c", lambda: None)
    assert TFRecordShard(shard, 10).read(0)[40 - 12] == content[40]
    monkeypatch.setattr(records, "_fast_crc32c", lambda: crc32c)
    with pytest.raises(ValueError, match="checksum is that of other bytes"):
        TFRecordShard(shard, 10).read(0)
    assert TFRecordShard(shard, 10).read(1)


@pytest.mark.skipif(not has_tfds, reason="needs TensorFlow")
def test_checksums_are_those_of_tensorflow(prepared):
    import tensorflow as tf

    path = prepared / "cifar10-train.tfrecord-00000-of-00002"
    theirs = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())  # verifies them
    assert [TFRecordShard(path, 10).read(i) for i in range(10)] == theirs


def test_damaged_sets_are_named(prepared):
    data_dir = prepared.parent.parent
    shard = prepared / "cifar10-train.tfrecord-00001-of-00002"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-7])
    cut = load("cifar10", recipe(20), data_dir=data_dir, engine="grain")
    with pytest.warns(UserWarning, match="record 9 is left out: the file must hold 10 records"):
        assert sorted(set(seen(cut))) == list(range(19))
    shard.write_bytes(whole[:-700])
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"of 20 examples cannot be"):
        list(load("cifar10", recipe(20), data_dir=data_dir, engine="grain"))
    shard.unlink()
    with pytest.raises(ValueError, match=r"incomplete.*cifar10-train\.tfrecord-00001-of-00002"):
        load("cifar10", recipe(), data_dir=data_dir)
    shard.write_bytes(whole)
    edit_info(prepared, fileFormat="riegeli")
    with pytest.raises(ValueError, match="'riegeli'; prepare it as one of tfrecord, array_record"):
        load("cifar10", recipe(), data_dir=data_dir)
    (prepared / "dataset_info.json").write_text("{")
    with pytest.raises(ValueError, match=r"dataset_info\.json cannot be read"):
        load("cifar10", recipe(), data_dir=data_dir)


def test_sets_without_image_and_label_and_labels_out_of_range(tmp_path):
    write_tfrecord_set(tmp_path, "mnist", {"train": [{"text": b"x"}] * 2}, ("text",))
    with pytest.raises(ValueError, match=r"must have the features image and label.*Received: text"):
        load("mnist", recipe(), data_dir=tmp_path)
    examples = [{"image": png(np.zeros((4, 4, 3), np.uint8)), "label": -1}] * 4
    write_tfrecord_set(tmp_path, "dtd", {"train": examples}, ("image", "label"))
    with pytest.warns(UserWarning, match=r"label -1 is outside 0\.\.2"):
        with pytest.raises(ValueError, match=r"2 of 4 examples cannot be read"):
            list(load("dtd", recipe(4), data_dir=tmp_path, engine="grain"))


def test_examples_of_all_kinds_of_values():
    features = {"a": b"bytes", "b": [1.5, -2.0], "c": [0, 300, -1], "d": np.zeros(0, int)}
    found = parse_example(serialize(features))
    assert found["a"] == [b"bytes"] and found["b"].tolist() == [1.5, -2.0]
    assert found["c"].tolist() == [0, 300, -1] and len(found["d"]) == 0
    for damaged in (b"\xff" * 9, serialize(features)[:-3], b"\x0b"):
        with pytest.raises(ValueError, match=r"no tf\.train\.Example.*Received:"):
            parse_example(damaged)


def test_array_record_names_its_package(prepared, monkeypatch):
    for part, number in (("train", 0), ("train", 1), ("test", 0), ("test", 1)):
        file = prepared / f"cifar10-{part}.tfrecord-{number:05d}-of-00002"
        file.rename(str(file).replace("tfrecord", "array_record"))
    edit_info(prepared, fileFormat="array_record")
    for name in [name for name in sys.modules if name.split(".")[0] == "array_record"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "array_record", None)
    with pytest.raises(ImportError, match="pip install array_record"):
        list(load("cifar10", recipe(4), data_dir=prepared.parent.parent, engine="grain"))


@pytest.mark.skipif(not has_tfds, reason="needs TensorFlow Datasets")
@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_what_tensorflow_datasets_writes_and_reads(tmp_path, file_format):
    """Images, labels, class names and nested features of both formats against the library."""
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=["a", "b", "c"]),
            "objects": tfds.features.Sequence(
                {"location": tfds.features.Tensor(shape=(3,), dtype=np.float32)}
            ),
        }
    )
    rng = np.random.default_rng(0)
    examples = [
        {
            "image": np.asarray(image),
            "label": index % 3,
            "objects": {"location": rng.normal(size=(index % 3, 3)).astype(np.float32)},
        }
        for index, image in enumerate(photographs(12))
    ]
    builder = tfds.dataset_builders.store_as_tfds_dataset(
        name="toy",
        version="1.0.0",
        features=features,
        split_datasets={"train": list(enumerate(examples))},
        data_dir=tmp_path,
        file_format=file_format,
        disable_shuffling=True,
    )
    if file_format == "array_record":
        expected = list(builder.as_data_source("train"))
    else:
        expected = list(tfds.as_numpy(builder.as_dataset("train", shuffle_files=False)))
    ours = RecordExamples("toy", find_prepared("toy", tmp_path))
    assert ours.class_names == ("a", "b", "c") and ours.parts == {"train": 12}
    for row, example in enumerate(expected):
        encoded, label = ours.read(row)
        np.testing.assert_array_equal(decode(encoded), example["image"])
        assert label == example["label"]
        shard, index = ours._find(row)
        locations = parse_example(shard.read(index))["objects/location"].reshape(-1, 3)
        expected_locations = np.reshape(example["objects"]["location"], (-1, 3))
        np.testing.assert_array_equal(locations, expected_locations)
