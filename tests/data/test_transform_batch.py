"""Batches that NumPy transforms at once: bit for bit the images it transforms one by one."""

import numpy as np
import pytest

from keras_vit.data import Transform, transform_batch, transform_numpy

pytestmark = pytest.mark.any_backend
KEYS = np.array([(3, 1, i) for i in range(37)])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "transform",
    [
        Transform((9, 7)),
        Transform(16, affine=(12.0, 0.12, 0.06)),
        Transform((9, 7), flip=True, affine=(20, 0.2, 0.1), value_range=(0, 1)),
        Transform((5, 4), interpolation="area", flip=True, round_to_uint8=True),
        Transform((11, 8), "pad_random", padding=2, flip=True),
        Transform((10, 12), "pad_random", affine=(5, 0, 0.1), round_to_uint8=True),
    ],
    ids=lambda t: f"{t.crop}-{t.interpolation}-{t.flip}-{t.affine}",
)
def test_a_batch_is_its_images(transform, channels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (len(KEYS), 11, 8, channels), dtype=np.uint8)
    before = images.copy()
    assert transform_batch.applies_to(transform)
    together = transform_batch.apply(transform, images, KEYS)
    singly = [transform_numpy.apply(transform, image, key) for image, key in zip(images, KEYS)]
    np.testing.assert_array_equal(together, np.stack(singly))
    assert together.dtype == np.float32 and together.flags.c_contiguous
    np.testing.assert_array_equal(images, before)


def test_what_is_not_for_batches():
    assert not transform_batch.applies_to(Transform(8, "inception"))
    assert not transform_batch.applies_to(Transform(8, randaugment=(2, 10)))
    with pytest.raises(ValueError, match="pad_random"):
        transform_batch.apply(
            Transform(32, "pad_random"), np.zeros((1, 8, 8, 1), np.uint8), KEYS[:1]
        )
