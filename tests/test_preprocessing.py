"""A preprocessing is a value: checked, printable, and JSON-able both ways."""

import json

import numpy as np
import pytest

from keras_vit import data, preprocessing
from keras_vit.preprocessing import Preprocessing
from tests.support import refuses

pytestmark = pytest.mark.any_backend


def test_preprocessing_says_what_it_is():
    assert str(preprocessing.TIMM) == "shortest crop 0.9, bicubic (pillow), mean 0.5, std 0.5"
    other = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    assert str(other).endswith("mean 0.485/0.456/0.406, std 0.229/0.224/0.225")
    assert Preprocessing.from_config(json.loads(json.dumps(other.to_config()))) == other
    assert Preprocessing.from_config({}) == preprocessing.GOOGLE
    for size, shorter_side in ((224, 256), (384, 448)):  # crops of big_vision are exact
        fraction = Preprocessing(resize="shortest", crop_fraction=size / shorter_side)
        assert int(size / fraction.crop_fraction) == shorter_side


def test_preprocessing_refuses():
    for arguments in (
        {"mean": 0.5},
        {"mean": ("a", "b", "c")},
        {"mean": (0.5,)},
        {"mean": (123.675, 116.28, 103.53), "std": (58.4, 57.1, 57.4)},
        {"std": (0.5, 0.5, 0.0)},
        {"resize": "stretch"},
        {"interpolation": "lanczos"},
        {"library": "opencv"},
        {"resize": "shortest", "crop_fraction": 0},
        {"resize": "shortest", "crop_fraction": 1.5},
        {"resize": "center_square", "crop_fraction": 0.9},
        {"interpolation": "area", "library": "pillow"},
    ):
        refuses("Received: ", Preprocessing, **arguments)
        refuses("Received: ", Preprocessing.from_config, {**arguments, "color": 1})


def test_values_are_warned_of_in_code_without_a_name_of_a_module():
    """As `exec` of a notebook, a console or a test of documentation runs it."""
    code = "preprocessing.warn_of_values(np.full((2, 4, 4, 3), 255.0), 'mine')"
    names = {"np": np, "preprocessing": Preprocessing()}
    with pytest.warns(UserWarning, match=r"mine wants values from -1 to 1.*from 255 to 255"):
        exec(code, names)


def test_values_from_minus_1_to_1_are_warned_of_where_a_model_wants_a_wider_range():
    """`preprocess(images)` without the model makes these, and they lie within its range."""
    wanted = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype="uint8")
    usual, gray = data.preprocess(pixels), data.preprocess(pixels // 4 + 96)
    resized = (usual[:, ::2] + usual[:, 1::2]) / 2
    resized[0, 0, 0, 0], resized[0, 0, 0, 1] = -1, 1
    for images in (usual, gray, resized):
        with pytest.warns(UserWarning, match="mine wants values from -2.12 to 2.64"):
            assert wanted.warn_of_values(images, "mine")
        assert not Preprocessing().warn_of_values(images, "mine")
    for images in (pixels, pixels // 4 + 96):
        right = data.preprocess(images, preprocessing=wanted, image_size=8)
        assert not wanted.warn_of_values(right, "mine")
    for images in (resized[1:], usual * 0, usual * 0 + 1):  # which nothing tells from right ones
        assert not wanted.warn_of_values(images, "mine")
