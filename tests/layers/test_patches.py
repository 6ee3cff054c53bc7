"""Patches become images again, and what is no image or patch is refused."""

import re

import keras
import numpy as np
import pytest

from keras_vit.checks import grid_of
from keras_vit.layers import ExtendedPatchEncoder, PatchEncoder, Patches
from tests.support import assert_close, refuses, to_numpy

SIZES = [  # image (height, width, channels), patch (height, width)
    ((16, 16, 3), (8, 8)),
    ((4, 9, 1), (2, 3)),
    ((6, 4, 5), (3, 2)),
    ((8, 8, 3), (8, 8)),
]
sizes = pytest.mark.parametrize("shape, patch_size", SIZES)


def numbered(shape):
    """Two images, every value of which is different."""
    return np.arange(2 * np.prod(shape), dtype="float32").reshape(2, *shape)


@sizes
def test_inverse_is_exact(shape, patch_size):
    layer = Patches(patch_size)
    images = numbered(shape)
    back = layer.inverse(layer(images), shape[:2])
    np.testing.assert_array_equal(to_numpy(back), images)


@pytest.mark.parametrize(
    "image_size, patch_size, below, above",
    [
        (30, 16, (16, 16), (32, 32)),
        ((32, 50), 16, (32, 48), (32, 64)),
        ((10, 9), (4, 3), (8, 9), (12, 9)),
        (5, 8, (8, 8), (8, 8)),
    ],
)
def test_the_error_names_the_nearest_sizes(image_size, patch_size, below, above):
    with pytest.raises(ValueError, match=re.escape(f"{below} and {above}")) as error:
        grid_of(image_size, patch_size)
    assert "Received: image_size=" in str(error.value)


def test_a_layer_refuses_images_that_patches_do_not_tile():
    with pytest.raises(ValueError, match=r"image_size=\(16, 20\), patch_size=\(8, 8\)"):
        Patches(8)(np.zeros((1, 16, 20, 3), "float32"))


@pytest.mark.parametrize("shape", [(17, 23, 3), (15, 8, 3), (16, 16, 3)])
def test_incomplete_patches_are_dropped_as_by_a_valid_convolution(shape):
    """The patch embedding of the authors is a convolution with padding VALID."""
    images = np.random.default_rng(0).normal(size=(2, *shape)).astype("float32")
    kernel = np.random.default_rng(1).normal(size=(8, 8, 3, 5)).astype("float32")
    patches = Patches(8, keep_grid=True, drop_incomplete=True)(images)
    expected = keras.ops.conv(
        images, kernel, strides=8, padding="valid", data_format="channels_last"
    )
    found = keras.ops.matmul(patches, kernel.reshape(-1, 5))
    assert_close(found, expected, 1e-4)


@pytest.mark.parametrize("shape", [(None, 16, 3), (16, None, 3), (16, 16, None), (16, 16)])
def test_unknown_sizes_and_wrong_ranks(shape):
    refuses(r"\(batch, height, width, channels\).*Received: shape", Patches(8), keras.Input(shape))


@pytest.mark.parametrize("patch_size", [0, -8, 2.5, "8", None, (8,), (8, 8, 8), (8, 0), True])
def test_bad_patch_sizes(patch_size):
    refuses(r"patch_size must be .*Received: patch_size=", Patches, patch_size)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((2, 3, 192), r"Expected patches of shape \(batch, 4, .*Received: shape \(2, 3, 192"),
        ((2, 4, 8, 8), r"Received: shape \(2, 4, 8, 8\)"),
        ((2, 4, 65), r"a multiple of 64\).*Received: shape \(2, 4, 65\)"),
    ],
)
def test_inverse_of_what_are_no_patches(shape, message):
    refuses(message, Patches(8).inverse, np.zeros(shape, "float32"), 16)


def test_patches_of_another_grid_build_their_encoder():
    """The position embedding has the grid of the encoder, and is resampled."""
    encoder = PatchEncoder(8, (2, 2))
    patches = np.random.default_rng(0).normal(size=(1, 3, 4, 12)).astype("float32")
    assert tuple(encoder(patches).shape) == (1, 13, 8)
    assert tuple(encoder.position.embedding.shape) == (1, 5, 8)
    with pytest.raises(ValueError, match="2x2 patches with 1 learned tokens has 5 tokens"):
        PatchEncoder(8, (2, 2))(patches.reshape(1, 12, 12))


def test_learned_tokens_are_attributes():
    """Also those that an encoder has not; users initialise, freeze and look at them."""
    encoder = PatchEncoder(8, (2, 2), class_token=False)
    encoder.build((None, 4, 12))
    assert encoder.class_token is None
    options = {"class_token": False, "registers": 3, "distillation": True}
    encoder = ExtendedPatchEncoder(8, (2, 2), **options)
    encoder.build((None, 4, 12))
    assert encoder.class_token is None
    assert tuple(encoder.distillation_token.shape) == (1, 1, 8)
    assert tuple(encoder.register_tokens.shape) == (1, 3, 8)
