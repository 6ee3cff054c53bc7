"""What the explorer's page holds can be read back, as exactly as it says."""

import base64
import zlib

import numpy as np
import pytest

from keras_vit.inspection import explorer

pytestmark = pytest.mark.any_backend


def attention(*shape, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(shape[-1], 0.2), shape[:-1])


def dequantize(codes, scales, levels=256):
    """The weights as the page computes them of what it holds."""
    root = codes.astype("float32") / (levels - 1) * (scales[..., None].astype("float32") / 255)
    return root**2


@pytest.mark.parametrize("levels", explorer.LEVELS)
def test_square_roots_are_off_by_half_a_level_at_most(levels):
    weights = attention(2, 3, 9, 9)
    codes, scales = explorer.quantize(weights)
    assert codes.dtype == scales.dtype == np.uint8 and scales.shape == (2, 3, 9)
    found = dequantize(explorer.coarser(codes, levels), scales, levels)
    # Coarser levels are rounded a second time.
    step = scales[..., None] / 255 * (0.5 / (levels - 1) + (levels < 256) * 0.5 / 255)
    assert (np.abs(np.sqrt(found) - np.sqrt(weights)) <= step + 1e-6).all()


def test_ends_of_the_range():
    codes, scales = explorer.quantize(np.array([[0.0, 1.0], [0.0, 0.0], [1e-9, 0.0]]))
    assert codes[0].tolist() == [0, 255] and scales[0] == 255
    assert (dequantize(codes, scales)[1] == 0).all()
    assert dequantize(codes, scales)[2].max() < 2e-5


def test_the_finest_levels_that_fit():
    codes, _ = explorer.quantize(attention(4, 16, 16))
    levels, text, largest = explorer.fit(codes, 10**6)
    assert levels == 256 and len(text) == largest
    assert zlib.decompress(base64.b64decode(text)) == codes.tobytes()
    fewer, shorter, _ = explorer.fit(codes, largest * 0.6)
    assert 8 <= fewer < 256 and len(shorter) <= largest * 0.6
    read = np.frombuffer(zlib.decompress(base64.b64decode(shorter)), "uint8")
    np.testing.assert_array_equal(read, explorer.coarser(codes, fewer).ravel())
    assert explorer.fit(codes, 10)[:2] == (None, None)
