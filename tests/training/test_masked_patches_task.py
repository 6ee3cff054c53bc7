"""Masked patch prediction: targets and corruption."""

import keras
import numpy as np
import pytest

from keras_vit.layers import Patches
from keras_vit.training.masked_patches_task import CorruptPatches, Target
from tests.support import assert_close, images, to_numpy


def color_of(pixels):
    """The index of the 3-bit mean colour of pixels, (..., channels), in [0, 1]."""
    mean = pixels.reshape(-1, pixels.shape[-1]).mean(axis=0)
    index = 0
    for level in np.minimum(np.floor(mean * 8), 7).astype(int):
        index = 8 * index + level
    return index


@pytest.mark.parametrize("channels, colors", [(1, 8), (3, 512)])
@pytest.mark.parametrize("name, cells", [("mean_color", 1), ("colors_4x4", 4)])
def test_colours(name, cells, channels, colors):
    x = images((2, 16, 24, channels))
    target = Target(name, (8, 12), channels)
    actual = to_numpy(target.values(Patches((8, 12))(x), (-1.0, 1.0)))
    assert target.shape == (cells**2, colors) and actual.shape == (2, 4, cells**2)
    h, w = 8 // cells, 12 // cells
    for b, n, i, j in np.ndindex(2, 4, cells, cells):
        top, left = n // 2 * 8 + i * h, n % 2 * 12 + j * w
        cell = (x[b, top : top + h, left : left + w].astype("float64") + 1) / 2
        assert actual[b, n, i * cells + j] == color_of(cell)


def test_the_colours_of_black_white_and_red():
    """In any value range; beyond it, the nearest colour."""
    for low, high in ((-1.0, 1.0), (0.0, 255.0)):
        pure = np.array([[low] * 3, [high] * 3, [high, low, low], [high + 9] * 3], "float32")
        x = np.tile(pure[None, :, None], (1, 1, 4, 1)).reshape(1, 4, 12)
        colors = Target("mean_color", (2, 2), 3).values(keras.ops.convert_to_tensor(x), (low, high))
        assert to_numpy(colors).ravel().tolist() == [0, 511, 7 * 64, 511]


def test_pixels_are_the_patch_itself():
    patches = Patches(8)(images())
    target = Target("pixels", (8, 8), 3)
    assert target.shape == (192,)
    assert_close(target.values(patches, (-1.0, 1.0)), patches, 0)


def test_targets_that_do_not_fit():
    for name, size, channels, message in (
        ("colors_4x4", (14, 14), 3, r"multiples of 4.*\(14, 14\)"),
        ("mean_color", (8, 8), 5, "32,768.*choose target='pixels'"),
    ):
        with pytest.raises(ValueError, match=message):
            Target(name, size, channels)
    assert Target("pixels", (7, 7), 9).shape == (441,)


def corrupted(share=0.5, batch=400, patches=50, seed=1, **options):
    """Embeddings that are all different, what became of them, and where."""
    layer = CorruptPatches(share, seed)
    x = np.arange(1, batch * patches + 1, dtype="float32").reshape(batch, patches, 1)
    layer.build(x.shape)
    layer.mask.assign(np.full(layer.mask.shape, -1.0))
    y, positions = layer(x, **{"training": True, **options})
    return x[..., 0], to_numpy(y)[..., 0], to_numpy(positions)


@pytest.mark.parametrize("training", [True, False])
def test_half_of_the_patches_are_corrupted_in_the_paper_s_shares(training):
    x, y, positions = corrupted(training=training)
    assert positions.shape == (400, 25)
    assert all(len(set(row)) == 25 for row in positions.tolist())
    chosen = np.zeros(x.shape, bool)
    np.put_along_axis(chosen, positions, True, axis=1)
    np.testing.assert_array_equal(y[~chosen], x[~chosen])
    # Ten thousand draws: five standard deviations are 0.02 and 0.015.
    shares = [np.mean(values) for values in (y[chosen] == -1, y[chosen] == x[chosen])]
    assert shares[0] == pytest.approx(0.8, abs=0.02)
    assert shares[1] == pytest.approx(0.1, abs=0.015)
    # Every patch is chosen as often as any other: 400 draws, five standard deviations.
    assert_close(chosen.mean(axis=0), np.full(50, 0.5), 0.125)


def test_a_swapped_patch_is_any_other_of_its_sequence():
    x, y, _ = corrupted(1.0, batch=4000, patches=5)
    swapped = (y != x) & (y != -1)
    assert 0.08 < swapped.mean() < 0.12
    steps = ((y - 1) % 5 - (x - 1) % 5)[swapped] % 5
    assert ((y - 1) // 5 == (x - 1) // 5)[swapped].all()
    counts = np.bincount(steps.astype(int), minlength=5)
    assert counts[0] == 0
    assert_close(counts[1:] / counts.sum(), np.full(4, 0.25), 0.05)


@pytest.mark.parametrize("share, patches, expected", [(0.15, 196, 29), (0.5, 9, 4), (0.01, 4, 1)])
def test_the_number_of_corrupted_patches(share, patches, expected):
    assert corrupted(share, 2, patches)[2].shape == (2, expected)


def test_a_seed_repeats_the_draws():
    first, second, other = (corrupted(batch=4, seed=seed)[2] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_gradients_reach_the_mask_and_the_patches():
    """In training on any backend; here by the effect of one step."""
    layer = CorruptPatches(0.5, 0)
    model = keras.Sequential([keras.Input((8, 4)), keras.layers.Dense(4), Sum(layer)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    before = [to_numpy(v) for v in model.trainable_variables]
    model.fit(images((4, 8, 4)), np.zeros((4, 8, 4)), verbose=0)
    assert len(before) == 3
    assert all((to_numpy(v) != b).any() for v, b in zip(model.trainable_variables, before))


class Sum(keras.layers.Layer):
    """The tokens without the positions."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def build(self, input_shape):
        self.inner.build(input_shape)

    def call(self, x, training=False):
        return self.inner(x, training=training)[0]
