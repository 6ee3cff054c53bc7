"""Image files of every kind decode alike in NumPy and TensorFlow, and errors say what is wrong."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import transform_numpy
from keras_vit.data.transform import Transform
from tests.support import run_in_fresh_process

pytestmark = pytest.mark.any_backend

RANDOM = Transform(16, "inception", flip=True)
KEY = np.array([0, 0, 0])


@pytest.fixture(scope="module")
def photo():
    return pytest.importorskip("sklearn.datasets").load_sample_image("flower.jpg")[100:223, 150:301]


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


def encoded(pixels, mode, kind, **options):
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


FILES = {
    "jpeg": ("RGB", "JPEG", {"quality": 90}),
    "jpeg_444": ("RGB", "JPEG", {"quality": 75, "subsampling": 0}),
    "jpeg_420": ("RGB", "JPEG", {"quality": 95, "subsampling": 2}),
    "jpeg_progressive": ("RGB", "JPEG", {"progressive": True}),
    "jpeg_gray": ("L", "JPEG", {}),
    "png": ("RGB", "PNG", {}),
    "png_gray": ("L", "PNG", {}),
    "png_palette": ("P", "PNG", {}),
    "png_alpha": ("RGBA", "PNG", {}),
    "png_bits": ("1", "PNG", {}),
    "bmp": ("RGB", "BMP", {}),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("channels", [1, 3])
def test_both_libraries_decode_alike(tf, photo, name, channels):
    from keras_vit.data import transform_tf

    mode, kind, options = FILES[name]
    file = encoded(photo, mode, kind, **options)
    expected = transform_numpy.decode(file, channels)
    assert expected.dtype == np.uint8 and expected.shape == (*photo.shape[:2], channels)
    np.testing.assert_array_equal(transform_tf.decode(file, channels), expected)
    run = tf.function(lambda key: transform_tf.apply_encoded(RANDOM, file, key, channels))
    for index in range(10):  # of a JPEG, TensorFlow decodes the box alone
        key = np.array([0, 0, index])
        expected = transform_numpy.apply_encoded(RANDOM, file, key, channels)
        np.testing.assert_array_equal(run(key), expected)


def test_sixteen_bits_are_cut_to_eight(tf, photo):
    from keras_vit.data import transform_tf

    deep = photo[..., 0].astype(np.uint16) * 256 + 200
    file = encoded(deep, None, "PNG")
    for decode in (transform_numpy.decode, transform_tf.decode):
        np.testing.assert_array_equal(np.asarray(decode(file, 1))[..., 0], photo[..., 0])


def test_cmyk_stays_within_a_few_grey_levels(tf, photo):
    """The two libraries convert inks to colours each in its own way; ImageNet has 22 such files."""
    from keras_vit.data import transform_tf

    file = encoded(photo, "CMYK", "JPEG", quality=95)
    ours, theirs = transform_numpy.decode(file), transform_tf.decode(file).numpy()
    assert np.abs(ours.astype(int) - theirs).max() <= 2


def test_exif_orientation_is_left_alone_as_by_the_authors(photo):
    exif = Image.Exif()
    exif[0x0112] = 6
    file = encoded(photo, "RGB", "JPEG", exif=exif)
    assert transform_numpy.decode(file).shape == photo.shape


@pytest.mark.parametrize("damage", ["truncated_jpeg", "truncated_png", "text", "empty"])
@pytest.mark.parametrize("crop", ["inception", "squash"])
def test_damaged_files_are_refused(tf, photo, damage, crop):
    from keras_vit.data import transform_tf

    file = {
        "truncated_jpeg": encoded(photo, "RGB", "JPEG")[:900],
        "truncated_png": encoded(photo, "RGB", "PNG")[:900],
        "text": b"no image at all",
        "empty": b"",
    }[damage]
    with pytest.raises(ValueError, match=r"cannot be decoded\. Received: .* bytes"):
        transform_numpy.apply_encoded(Transform(16, crop), file, KEY)
    with pytest.raises(tf.errors.InvalidArgumentError):
        transform_tf.apply_encoded(Transform(16, crop), file, KEY)


def test_a_random_transform_needs_a_key(tf, photo):
    from keras_vit.data import transform_tf

    for module in (transform_numpy, transform_tf):
        with pytest.raises(ValueError, match="needs the key"):
            module.apply(RANDOM, photo)
        with pytest.raises(ValueError, match="needs the key"):
            module.apply_encoded(RANDOM, b"")
        assert module.apply(Transform(16), photo).shape == (16, 16, 3)


@pytest.mark.parametrize("make", [lambda x: x.astype("float32"), lambda x: x[None]])
def test_other_arrays_are_refused(tf, photo, make):
    from keras_vit.data import transform_tf

    for module in (transform_numpy, transform_tf):
        with pytest.raises(ValueError, match=r"image must be uint8 .* Received"):
            module.apply(Transform(16), make(photo))


@pytest.mark.parametrize("channels", [0, 2, 4])
def test_other_channels_are_refused(tf, channels):
    from keras_vit.data import transform_tf

    for module in (transform_numpy, transform_tf):
        with pytest.raises(ValueError, match="channels must be 1 or 3"):
            module.apply_encoded(RANDOM, b"", KEY, channels)


def test_an_image_too_small_for_its_window_is_named(tf):
    from keras_vit.data import transform_tf

    transform, image = Transform(32, "pad_random"), np.zeros((20, 40, 3), np.uint8)
    for module in (transform_numpy, transform_tf):
        with pytest.raises(ValueError, match=r"pad_random.*\(20, 40\)"):
            module.apply(transform, image, KEY)
    with pytest.raises(tf.errors.InvalidArgumentError, match="pad_random"):
        unknown = tf.TensorSpec([None, None, 3], tf.uint8)
        tf.function(lambda x: transform_tf.apply(transform, x, KEY), [unknown])(image)


def test_numpy_transforms_need_no_tensorflow():
    code = """
import sys
sys.modules["tensorflow"] = None
import numpy as np
from keras_vit.data import mixing, transform_numpy
from keras_vit.data.transform import Transform
image = np.zeros((20, 30, 3), np.uint8)
transform = Transform(16, "inception", flip=True, randaugment=(2, 10))
print(transform_numpy.apply(transform, image, (0, 0, 1)).shape)
images, labels = np.zeros((2, 4, 4, 3), "float32"), np.eye(2, dtype="float32")
print(mixing.mix(images, labels, (0, 1), 0.2, 1.0)[0].shape)
"""
    assert run_in_fresh_process(code, "numpy").split("\n")[-3:-1] == ["(16, 16, 3)", "(2, 4, 4, 3)"]
