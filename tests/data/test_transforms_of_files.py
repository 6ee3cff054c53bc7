"""Image files of every kind as transforms read them, upright; and files that are refused."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import Transform
from keras_vit.data.transform import apply
from tests.data.pipeline_cases import encoded
from tests.data.test_transforms import INCEPTION, photographs, rng

pytestmark = pytest.mark.any_backend

FILES = {
    "jpeg": ("RGB", "JPEG", {"quality": 90}),
    "jpeg_progressive": ("RGB", "JPEG", {"progressive": True}),
    "jpeg_gray": ("L", "JPEG", {}),
    "png": ("RGB", "PNG", {}),
    "png_palette": ("P", "PNG", {}),
    "png_alpha": ("RGBA", "PNG", {}),
    "png_bits": ("1", "PNG", {}),
    "bmp": ("RGB", "BMP", {}),
    "cmyk": ("CMYK", "JPEG", {"quality": 95}),
    "webp": ("RGB", "WEBP", {"quality": 95}),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("channels", [1, 3])
def test_files_of_every_kind(name, channels):
    """What TensorFlow decodes, within two grey levels (inks, and the luma of a JPEG)."""
    tf = pytest.importorskip("tensorflow")
    mode, kind, options = FILES[name]
    photo = photographs()[0][100:223, 150:301]
    file = encoded(photo, kind, mode, **options)
    actual = apply(Transform(photo.shape[:2]), file, channels=channels)
    assert actual.dtype == np.uint8 and actual.shape == (*photo.shape[:2], channels)
    if kind == "WEBP":
        return
    if kind == "JPEG":
        expected = tf.io.decode_jpeg(file, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    else:
        expected = tf.io.decode_image(file, channels=3).numpy()
    if channels == 1:
        expected = np.asarray(Image.fromarray(expected).convert("L"))[..., None]
    assert np.abs(actual.astype(int) - expected).max() <= 2


def test_large_jpegs_are_decoded_smaller_where_the_crop_allows():
    large = np.asarray(Image.fromarray(photographs()[0]).resize((2000, 1500)))
    file = encoded(large, "JPEG", quality=95)
    transform = Transform(60, "inception", area=(0.5, 1.0))
    for index in range(5):
        full = apply(transform, large, rng(index)).astype(int)
        small = apply(transform, file, rng(index)).astype(int)
        # The same box: blurred alike, they agree; the smaller one alone is free of aliasing.
        blurred = [x.reshape(6, 10, 6, 10, 3).mean((1, 3)) for x in (full, small)]
        assert np.abs(blurred[0] - blurred[1]).mean() < 3


@pytest.mark.parametrize("number", [1, 3, 6, 8])
def test_orientation_tags_are_followed_for_files_of_users(number):
    photo, exif = photographs()[-1], Image.Exif()
    exif[0x0112] = number
    file = encoded(photo, exif=exif)
    shown = {1: photo, 3: photo[::-1, ::-1], 6: np.rot90(photo, -1), 8: np.rot90(photo)}[number]
    same = Transform(shown.shape[:2])
    np.testing.assert_array_equal(apply(same, file), shown)
    np.testing.assert_array_equal(apply(Transform(photo.shape[:2]), file, upright=False), photo)
    crops = [apply(INCEPTION, image, rng(1)) for image in (file, np.ascontiguousarray(shown))]
    np.testing.assert_array_equal(*crops)


def test_sixteen_bits_become_eight():
    deep = photographs()[-1][..., 0].astype(np.uint16) * 257
    actual = apply(Transform(deep.shape), encoded(deep), channels=1)
    np.testing.assert_array_equal(actual[..., 0], photographs()[-1][..., 0])


@pytest.mark.parametrize("crop", ["inception", "squash"])
def test_damaged_files_are_refused(crop):
    photo = photographs()[-1]
    files = encoded(photo, "JPEG")[:700], encoded(photo)[:900], b"no image at all", b""
    for file in files:
        with pytest.raises(ValueError, match=r"cannot be decoded\. Received: .* bytes"):
            apply(Transform(16, crop), file, rng(0))


def test_a_small_file_of_many_pixels_is_refused():
    bomb = encoded(Image.new("1", (13_000, 13_000)))
    assert len(bomb) < 400_000
    with pytest.warns(Image.DecompressionBombWarning):
        with pytest.raises(ValueError, match=r"13000 x 13000 pixels; raise PIL\.Image\.MAX"):
            apply(Transform(16), bomb)
