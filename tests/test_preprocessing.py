"""A preprocessing is a value: checked, printable, and JSON-able both ways."""

import json

import numpy as np
import pytest

from keras_vit import preprocessing
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
