"""`load`: the digits, the options common to all sources, and the refusals."""

import ast
import subprocess
import sys

import numpy as np
import pytest

from keras_vit.data import load, pipeline
from tests.data.pipeline_cases import recipe

pytestmark = pytest.mark.any_backend


def test_digits():
    digits = load("digits")
    assert digits.image_shape == (8, 8, 1)
    assert digits.class_names == tuple("0123456789")
    assert len(digits.train_images) + len(digits.test_images) == 1797
    assert digits.train_images.dtype == np.uint8
    assert digits.train_images.min() == 0 and digits.train_images.max() == 255
    assert digits.train_labels.dtype == digits.test_labels.dtype == np.int32
    shares = np.bincount(digits.test_labels) / (
        np.bincount(digits.test_labels) + np.bincount(digits.train_labels)
    )
    np.testing.assert_allclose(shares, 0.2, atol=0.01)


def test_the_seed_fixes_the_split():
    first, again, other = (load("digits", seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.test_images, again.test_images)
    assert first.test_labels.tolist() != other.test_labels.tolist()


def test_size_channels_and_fraction():
    digits = load("digits", image_size=(12, 10), channels=3, test_fraction=0.5)
    assert digits.image_shape == (12, 10, 3)
    assert digits.train_images.dtype == np.uint8
    assert abs(len(digits.train_images) - len(digits.test_images)) <= 10


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"image_size": 0}, "image_size.*Received: image_size=0"),
        ({"channels": 2}, "channels must be 1.*Received: channels=2"),
        ({"channels": 3.0}, "channels must be 1.*Received: channels=3.0"),
        ({"test_fraction": 1.0}, "test_fraction.*Received: 1.0"),
        ({"seed": -1}, "seed.*Received: seed=-1"),
        ({"seed": "0"}, "seed.*Received: seed='0'"),
    ],
)
def test_bad_options(options, expected):
    with pytest.raises(ValueError, match=expected):
        load("digits", **options)


@pytest.mark.parametrize("source", ["cifar10", "", None, 3, np.zeros(3)])
def test_unknown_sources_list_the_known(source):
    with pytest.raises(ValueError, match=r"'digits', 'fashion_mnist', .*\.npz.*Received"):
        load(source)


def test_missing_paths_and_other_files(tmp_path):
    for missing in (str(tmp_path / "none"), tmp_path / "none.npz", "none.npz"):
        with pytest.raises(ValueError, match=r"No such file or folder.*none"):
            load(missing)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"source must be.*the file .*notes\.txt"):
        load(tmp_path / "notes.txt")


def test_a_resize_past_the_memory_limit(monkeypatch):
    monkeypatch.setattr("keras_vit.data.dataset.MAX_BYTES", 2**20)
    load("digits")
    with pytest.raises(ValueError, match=r"1797 images of 32x32x1.*Lower image_size"):
        load("digits", image_size=32)


@pytest.mark.parametrize("package", ["sklearn", "grain"])
def test_missing_packages_name_the_extra(monkeypatch, package):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"keras3-vit\[data\]"):
        pipeline("digits", recipe())


def test_importing_the_package_loads_its_hard_dependencies_only():
    code = (
        "import sys, keras, numpy, PIL.Image; before = set(sys.modules); import keras_vit.data\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(out.stdout)) <= {"keras_vit", "PIL", "defusedxml", "safetensors"}
