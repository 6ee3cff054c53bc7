"""The affine map of a transform: what it does to known images, alike in NumPy and TensorFlow."""

import numpy as np
import pytest

from keras_vit.data import transform_numpy
from keras_vit.data.affine_map import affine
from keras_vit.data.transform import Transform

pytestmark = pytest.mark.any_backend
KEY = np.array([3, 1, 4])
IMAGE = np.random.default_rng(0).integers(0, 256, (11, 8, 3), dtype=np.uint8)


def test_nothing_asked_changes_nothing():
    np.testing.assert_array_equal(affine(IMAGE, KEY, 0, 0, 0), IMAGE)


def test_a_plane_is_turned_about_the_middle():
    """A bilinear map of a plane of values is a plane: its slope turns, its middle stays."""
    rows, columns = np.mgrid[:21, :21] - 10.0
    plane = rows[..., None].astype("float32")
    inner = np.hypot(rows, columns) < 8
    found = [affine(plane, (0, 0, i), 30, 0, 0)[..., 0] for i in range(20)]
    angles = []
    for turned in found:
        np.testing.assert_allclose(turned[10, 10], 0, atol=1e-5)
        angle = np.arcsin(-(turned[10, 14] - turned[10, 10]) / 4)
        expected = np.cos(angle) * rows - np.sin(angle) * columns
        np.testing.assert_allclose(turned[inner], expected[inner], atol=1e-4)
        angles.append(np.degrees(angle))
    assert -30 <= min(angles) < -15 and 15 < max(angles) <= 30


def test_scale_and_shift_stay_within_their_bounds():
    columns = np.tile(np.arange(41.0, dtype="float32")[None, :, None], (41, 1, 1))
    middles, slopes = [], []
    for i in range(40):
        moved = affine(columns, (0, 0, i), 0, 0.2, 0.1)[20, :, 0]
        middles.append(moved[20] - 20)
        slopes.append(1 / (moved[22] - moved[21]))
    assert 0.8 <= min(slopes) < 0.9 and 1.1 < max(slopes) <= 1.2
    assert -4.1 <= min(middles) < -2 and 2 < max(middles) <= 4.1


@pytest.mark.parametrize("flip", [False, True])
def test_tensorflow_gives_the_same(flip):
    pytest.importorskip("tensorflow")
    from keras_vit.data import transform_tf

    transform = Transform((9, 7), affine=(20, 0.2, 0.1), flip=flip)
    assert transform.is_random
    for index in range(6):
        key = np.array([5, 2, index])
        mine = transform_numpy.apply(transform, IMAGE, key)
        theirs = transform_tf.apply(transform, IMAGE, key).numpy()
        assert mine.shape == theirs.shape == (9, 7, 3) and mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, atol=2e-6)


@pytest.mark.parametrize("wrong", [(-1, 0, 0), (0, 1, 0), (0, 0, -0.1)])
def test_wrong_bounds(wrong):
    with pytest.raises(ValueError, match=r"affine must be.*Received: affine="):
        Transform(16, affine=wrong)
