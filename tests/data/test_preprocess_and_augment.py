"""The value range of the models, and augmentations that act on each example alone."""

import numpy as np
import pytest

from keras_vit.data import affine, compose, flip, preprocess, shift

# Each pixel tells where it came from: row * 100 + column.
PLACES = np.tile((np.arange(8)[:, None] * 100.0 + np.arange(9))[None, :, :, None], (64, 1, 1, 2))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_uint8_range():
    images = np.arange(256, dtype="uint8").reshape(1, 16, 16, 1)
    pixels = preprocess(images)
    assert pixels.dtype == np.float32 and pixels.shape == images.shape
    np.testing.assert_array_equal(
        pixels.ravel(), (np.arange(256, dtype="float32") - 127.5) / np.float32(127.5)
    )
    assert pixels.min() == -1 and pixels.max() == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_float_range_and_input_is_kept(dtype):
    images = np.array([0, 0.25, 1], dtype).reshape(1, 1, 3, 1)
    pixels = preprocess(images)
    assert pixels.dtype == np.float32
    assert pixels.ravel().tolist() == [-1, -0.5, 1]
    assert images.ravel().tolist() == [0, 0.25, 1]


@pytest.mark.parametrize(
    "images, expected",
    [
        (np.zeros((4, 4, 3), "uint8"), r"images\[None\].*\(4, 4, 3\)"),
        (np.zeros((1, 4, 4, 3), "int32"), "Received: dtype int32"),
    ],
)
def test_preprocess_refusals(images, expected):
    with pytest.raises(ValueError, match=expected):
        preprocess(images)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("augment", [shift(2), flip(), affine(), compose(shift(1), flip())])
def test_shape_dtype_input_and_seed(dtype, augment):
    images = rng().integers(0, 256, (16, 8, 9, 2)).astype(dtype)
    before = images.copy()
    first, again, other = (augment(images, rng(seed)) for seed in (1, 1, 2))
    assert first.shape == images.shape and first.dtype == images.dtype
    np.testing.assert_array_equal(images, before)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_shift_draws_for_each_example_and_repeats_the_edge():
    shifted = shift(2)(PLACES, rng())
    np.testing.assert_array_equal(shifted[..., 0], shifted[..., 1])
    # Rows 2..5 and columns 2..6 never leave the image, so they read off the offsets.
    offsets = shifted[:, 2, 2, 0] - 202
    moves = set(zip(np.round(offsets / 100), offsets - 100 * np.round(offsets / 100)))
    assert len(moves) > 12, "nearly all of the 25 moves must occur among 64 examples"
    for image, offset in zip(shifted[..., 0], offsets):
        down = round(offset / 100)
        right = int(offset - 100 * down)
        rows = np.clip(np.arange(8) + down, 0, 7)
        columns = np.clip(np.arange(9) + right, 0, 8)
        np.testing.assert_array_equal(image, rows[:, None] * 100 + columns)


def test_shift_by_nothing_and_wrong_shifts():
    np.testing.assert_array_equal(shift(0)(PLACES, rng()), PLACES)
    for pixels in (-1, 1.5, True, None):
        with pytest.raises(ValueError, match=f"whole number >= 0. Received: {pixels}"):
            shift(pixels)


def test_flip_mirrors_about_half_of_the_examples():
    flipped = flip()(PLACES, rng())
    mirrored = (flipped == PLACES[:, :, ::-1]).all(axis=(1, 2, 3))
    kept = (flipped == PLACES).all(axis=(1, 2, 3))
    assert (mirrored ^ kept).all()
    assert 20 <= mirrored.sum() <= 44


def test_compose_applies_in_order_with_one_generator():
    both = compose(shift(1), flip())(PLACES, rng())
    generator = rng()
    by_hand = shift(1)(PLACES, generator)
    np.testing.assert_array_equal(both, flip()(by_hand, generator))
    np.testing.assert_array_equal(compose()(PLACES, rng()), PLACES)
    with pytest.raises(ValueError, match=r"callable.*Received: 3"):
        compose(flip(), 3)


def ramp(count):
    """Images whose value at (row, column) is 100 * row + column: linear, so bilinear is exact."""
    rows, columns = np.mgrid[:21, :25].astype("float32")
    return np.broadcast_to((100 * rows + columns)[None, ..., None], (count, 21, 25, 1)).copy()


def test_affine_moves_each_example_by_its_own_fraction():
    images = ramp(16)
    moved = affine(rotation=0, scale=0, shift=0.1)(images, rng())
    interior = (moved - images)[:, 4:-4, 4:-4, 0]
    np.testing.assert_allclose(interior, interior[:, :1, :1] + 0 * interior, atol=1e-2)
    assert np.abs(interior[:, 0, 0]).max() <= 100 * 0.1 * 21 + 0.1 * 25
    assert len(np.unique(np.round(interior[:, 0, 0], 2))) == 16


def test_affine_turns_and_scales_about_the_centre():
    images = ramp(32) / 100
    turned = affine(rotation=30, scale=0.2, shift=0)(images, rng())[..., 0]
    np.testing.assert_allclose(turned[:, 10, 12], images[:, 10, 12, 0], atol=1e-4)
    # d/d(row, column) of the ramp is (1, 0.01): after a turn by a and a scaling by s it is
    # that vector turned by a and divided by s.
    down = turned[:, 11, 12] - turned[:, 9, 12]
    across = turned[:, 10, 13] - turned[:, 10, 11]
    size = np.hypot(1, 0.01) / (np.hypot(down, across) / 2)
    angle = np.degrees(np.arctan2(across, down) - np.arctan2(0.01, 1))
    assert 0.8 <= size.min() < 0.9 and 1.1 < size.max() <= 1.2
    assert -30 <= angle.min() < -15 and 15 < angle.max() <= 30


def test_affine_of_nothing_and_wrong_values():
    np.testing.assert_array_equal(affine(0, 0, 0)(PLACES, rng()), PLACES)
    for values in ((-1, 0, 0), (0, 1, 0), (0, 0, -0.1)):
        with pytest.raises(ValueError, match=f"Received: rotation={values[0]}"):
            affine(*values)
