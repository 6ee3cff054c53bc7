"""`load`: the digits, Fashion-MNIST, the options common to all sources, and the refusals."""

import gzip
import socket
import struct
import sys

import numpy as np
import pytest

from keras_vit.data import load, pipeline
from keras_vit.data.arrays import read_idx
from keras_vit.data.load import FASHION_MNIST_CLASSES
from tests.data.pipeline_cases import recipe, write_prepared
from tests.support import refuses

pytestmark = pytest.mark.any_backend

IDX = {
    "train-images-idx3-ubyte": (30, 28, 28),
    "train-labels-idx1-ubyte": (30,),
    "t10k-images-idx3-ubyte": (10, 28, 28),
    "t10k-labels-idx1-ubyte": (10,),
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a test of data on disk tried to use the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_digits():
    digits = load("digits")
    assert digits.image_shape == (8, 8, 1)
    assert digits.class_names == tuple("0123456789")
    assert len(digits.train_images) + len(digits.test_images) == 1797
    assert digits.train_images.min() == 0 and digits.train_images.max() == 255
    counts = [np.bincount(labels) for labels in (digits.test_labels, digits.train_labels)]
    np.testing.assert_allclose(counts[0] / sum(counts), 0.2, atol=0.01)
    again, other = (load("digits", seed=seed) for seed in (0, 6))
    np.testing.assert_array_equal(digits.test_images, again.test_images)
    assert digits.test_labels.tolist() != other.test_labels.tolist()


def test_size_channels_and_fraction():
    digits = load("digits", image_size=(12, 10), channels=3, test_fraction=0.5)
    assert digits.image_shape == (12, 10, 3)
    assert digits.train_images.dtype == np.uint8
    assert abs(len(digits.train_images) - len(digits.test_images)) <= 10


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"image_size": 0}, "image_size.*Received: image_size=0"),
        ({"channels": 2}, "channels.*Received: channels=2"),
        ({"test_fraction": 1.0}, "test_fraction.*Received: test_fraction=1.0"),
        ({"seed": -1}, "seed.*Received: seed=-1"),
        ({"seed": "0"}, "seed.*Received: seed='0'"),
    ],
)
def test_bad_options(options, expected):
    refuses(expected, load, "digits", **options)


def test_unknown_sources_list_the_known(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    sources = ["", None, 3, np.zeros(3), tmp_path / "none", "none.npz", tmp_path / "notes.txt"]
    for source in sources:
        refuses(r"no such dataset.*Received.*\.npz .*'digits', 'fas", load, source)
    with pytest.raises(ValueError, match=r"(?s)'cifar10' is not on disk.*tfds build cifar10 "):
        load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize("package", ["sklearn", "grain"])
def test_missing_packages_name_the_extra(monkeypatch, package):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"keras3-vit\[data\]"):
        pipeline("digits", recipe())


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype("uint8").tobytes()


def write_set(folder, zipped):
    rng = np.random.default_rng(0)
    arrays = []
    for name, shape in IDX.items():
        arrays.append(rng.integers(0, 256 if len(shape) == 3 else 10, shape))
        data = idx_bytes(arrays[-1])
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(data) if zipped else data)
    return arrays


@pytest.mark.parametrize(
    "zipped, subfolder", [(False, ""), (True, "fashion_mnist"), (True, "fashion-mnist")]
)
def test_idx_files_round_trip(tmp_path, zipped, subfolder):
    folder = tmp_path / subfolder
    folder.mkdir(exist_ok=True)
    x_train, y_train, x_test, y_test = write_set(folder, zipped)
    fashion = load("fashion_mnist", data_dir=str(tmp_path))
    np.testing.assert_array_equal(fashion.train_images[..., 0], x_train)
    np.testing.assert_array_equal(fashion.train_labels, y_train)
    np.testing.assert_array_equal(fashion.test_images[..., 0], x_test)
    np.testing.assert_array_equal(fashion.test_labels, y_test)
    assert fashion.class_names == FASHION_MNIST_CLASSES and fashion.num_classes == 10
    assert fashion.train_images.dtype == np.uint8 and fashion.train_images.flags.writeable


CONTENT = idx_bytes(np.zeros((3, 4, 5)))
BOMB = bytes([0, 0, 8, 3]) + struct.pack(">3I", 60_000, 2800, 2800) + bytes(10**6)


@pytest.mark.parametrize(
    "name, data, expected",
    [
        ("cut", CONTENT[:-1], r"cut cannot be read.*fetch.*size 59 into shape \(3,4,5\)"),
        ("long", CONTENT + b"x", r"size 61 into shape \(3,4,5\)"),
        ("header", CONTENT[:10], "header cannot be read as an IDX file"),
        ("magic", b"\x89PNG" + CONTENT, "it begins with 89 50 4e 47, not 00 00 08 03"),
        ("labels", idx_bytes(np.zeros(3)), "it begins with 00 00 08 01"),
        ("empty", b"", "empty cannot be read"),
        ("cut.gz", gzip.compress(CONTENT, mtime=0)[:-9], r"cut\.gz cannot be read"),
        ("raw.gz", CONTENT, r"raw\.gz cannot be read"),
        ("bomb.gz", gzip.compress(BOMB), r"into shape \(60000,2800,2800\)"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, name, data, expected):
    (tmp_path / name).write_bytes(data)
    refuses(expected, read_idx, tmp_path / name, rank=3)


def test_a_set_whose_files_do_not_fit_each_other(tmp_path):
    write_set(tmp_path, zipped=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(29)))
    with pytest.raises(ValueError, match=r"29 labels, and images of shape \(30, 28, 28, 1\)"):
        load("fashion_mnist", data_dir=tmp_path)


def test_nothing_found_tells_what_where_and_how(tmp_path):
    write_set(tmp_path, zipped=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError) as caught:
        load("fashion_mnist", data_dir=tmp_path)
    for text in (*IDX, f"data_dir={str(tmp_path)!r}", "tfds build fashion_mnist", "Received"):
        assert text in str(caught.value)
    refuses(r"needs data_dir.*data_dir=None", load, "fashion_mnist")


def test_prepared_set_without_the_package(tmp_path, monkeypatch):
    version = tmp_path / "fashion_mnist" / "3.0.1"
    version.mkdir(parents=True)
    (version / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"prepared by TensorFlow.*keras3-vit\[tfds\]"):
        load("fashion_mnist", data_dir=tmp_path)


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_prepared_set_is_read_from_its_folder(tmp_path, file_format):
    for package in ("tensorflow", "tensorflow_datasets"):
        pytest.importorskip(package)
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28, 3), "uint8")
    images[..., 1:] = images[..., :1]
    examples = [{"image": image, "label": index} for index, image in enumerate(images)]
    parts = {"train": examples, "test": examples[:2]}
    write_prepared(tmp_path, "fashion_mnist", parts, classes=10, file_format=file_format)
    fashion = load("fashion_mnist", data_dir=tmp_path)
    np.testing.assert_array_equal(fashion.train_images, images[..., :1])
    assert fashion.test_labels.tolist() == [0, 1] and fashion.num_classes == 10


def test_a_folder_called_like_a_set_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    with pytest.warns(UserWarning, match=r"'digits' is read as the set.* write '\./digits'"):
        assert len(load("digits").class_names) == 10
    with pytest.raises(ValueError, match="in one subfolder per class"):
        load("./digits")
