"""Images become what each family of checkpoints was trained on, whatever they are stored as."""

import dataclasses
import functools
import math
import types

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import preprocess
from keras_vit.data.resize import fit_image, tensorflow_resize
from keras_vit.preprocessing import BIG_VISION, GOOGLE, HUGGING_FACE, SIGLIP, TIMM, Preprocessing

pytestmark = pytest.mark.any_backend

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def model_of(preprocessing=GOOGLE, image_size=(224, 224), channels=3):
    return types.SimpleNamespace(
        preprocessing=preprocessing, image_size=image_size, channels=channels
    )


@functools.cache
def photographs():
    """Landscape, portrait, close to square, and two that are smaller than the models' images."""
    datasets = pytest.importorskip("sklearn.datasets")
    china, flower = (datasets.load_sample_image(name) for name in ("china.jpg", "flower.jpg"))
    portrait = np.ascontiguousarray(flower.transpose(1, 0, 2))
    return [china, portrait, china[:403, :397], flower[100:160, 200:301], china[50:250, :93]]


def difference(actual, expected, preprocessing):
    """The largest difference where pixels are in [0, 1], before mean and std."""
    assert actual.dtype == np.float32 and actual.shape == expected.shape
    return float((np.abs(actual - expected) * np.array(preprocessing.std)).max())


def by_google(tf, image, size):
    return tf.image.resize(image, size).numpy()


def by_big_vision(tf, image, size):
    """resize_small(256)|central_crop(224), as pp/ops_image.py does it."""
    sides = tf.cast(tf.shape(image)[:2], tf.float32)
    factor = tf.cast(256, tf.float32) / tf.reduce_min(sides)
    new = tf.cast(tf.round(sides * factor), tf.int32)
    resized = tf.image.resize(image, new, method="area", antialias=False)
    resized = tf.cast(tf.clip_by_value(resized, 0, 255), tf.uint8)
    return center(resized.numpy(), size, math.floor)


def by_siglip(tf, image, size):
    return tf.cast(tf.image.resize(image, size), tf.uint8).numpy()


@pytest.mark.parametrize(
    "wanted, theirs, size",
    [
        (GOOGLE, by_google, (224, 224)),
        (GOOGLE, by_google, (96, 160)),
        (BIG_VISION, by_big_vision, (224, 224)),
        (SIGLIP, by_siglip, (224, 224)),
    ],
)
def test_images_are_those_of_the_authors(tf, wanted, theirs, size):
    images = photographs()
    expected = np.stack([theirs(tf, image, size) for image in images]) / 127.5 - 1
    actual = preprocess(images, model_of(wanted, size))
    assert difference(actual, expected, wanted) < 1e-6


def center(resized, size, split=round):
    """The centre of an image, whose margins `split` halves."""
    top, left = (split((old - new) / 2) for old, new in zip(resized.shape, size))
    return resized[top : top + size[0], left : left + size[1]]


def timm_eval(image, size, preprocessing):
    """Resize, CenterCrop, ToTensor and Normalize with torchvision's arithmetic."""
    target = math.floor(size / preprocessing.crop_fraction)
    height, width = image.shape[:2]
    longer = int(target * max(height, width) / min(height, width))
    box = (target, longer) if width <= height else (longer, target)
    resized = np.asarray(Image.fromarray(image).resize(box, Image.BICUBIC))
    cropped = center(resized, (size, size)) / np.float32(255)
    return (cropped - np.float32(preprocessing.mean)) / np.float32(preprocessing.std)


@pytest.mark.parametrize("size, fraction", [(224, 0.9), (224, 0.875), (384, 1.0)])
def test_timm(size, fraction):
    how = dataclasses.replace(TIMM, crop_fraction=fraction, **IMAGENET)
    images = photographs()[:4]
    expected = np.stack([timm_eval(image, size, how) for image in images])
    assert difference(preprocess(images, model_of(how, (size, size))), expected, how) < 1e-6


def test_timm_with_a_size_that_is_not_square():
    """ResizeKeepRatio: the image just covers the larger box, then the centre is cut out."""
    image = photographs()[0]
    height, width = image.shape[:2]
    ratio = min(height / math.floor(224 / 0.9), width / math.floor(448 / 0.9))
    new_height, new_width = round(height / ratio), round(width / ratio)
    resized = np.asarray(Image.fromarray(image).resize((new_width, new_height), Image.BICUBIC))
    expected = center(resized, (224, 448)) / 127.5 - 1
    actual = preprocess(image, model_of(TIMM, (224, 448)))
    assert difference(actual, expected[None], TIMM) < 1e-6


@pytest.mark.parametrize("library, split", [("pillow", round), ("transformers", math.floor)])
@pytest.mark.parametrize("size, before", [(224, 257), (193, 224), (225, 354)])
def test_squash_and_crop(library, split, size, before):
    """DeiT's processor, or timm's crop_mode="squash": resize both sides, crop the centre."""
    fraction = size / (before + 0.5)
    how = Preprocessing(crop_fraction=fraction, interpolation="bicubic", library=library)
    images, box = photographs(), (before, before)
    resized = [np.asarray(Image.fromarray(i).resize(box, Image.BICUBIC)) for i in images]
    expected = np.stack([center(image, (size, size), split) for image in resized]) / 127.5 - 1
    actual = preprocess(images, model_of(how, (size, size)))
    assert difference(actual, expected, how) < 1e-6


def test_squash_and_crop_by_tensorflow():
    """The crop computes no more than its window: the same pixels as the middle of all."""
    cropped, whole = Preprocessing(crop_fraction=0.75), Preprocessing()
    expected = preprocess(photographs(), model_of(whole, (64, 84)))[:, 8:56, 10:73]
    actual = preprocess(photographs(), model_of(cropped, (48, 63)))
    assert difference(actual, expected, cropped) < 1e-6


@pytest.mark.parametrize("size, before", [(224, 224), (225, 354)])
def test_the_shorter_edge_of_transformers(size, before):
    """get_resize_output_image_size, then a centre crop that rounds down, both to the letter."""
    how = Preprocessing(
        resize="shortest", crop_fraction=min(size / (before + 0.5), 1), library="transformers"
    )
    expected = []
    for image in photographs():
        height, width = image.shape[:2]
        longer = int(before * max(height, width) / min(height, width))
        box = (before, longer) if width <= height else (longer, before)
        resized = np.asarray(Image.fromarray(image).resize(box, Image.BILINEAR))
        expected.append(center(resized, (size, size), math.floor) / 127.5 - 1)
    actual = preprocess(photographs(), model_of(how, (size, size)))
    assert difference(actual, np.stack(expected), how) < 1e-6


def test_transformers_fills_what_a_crop_lacks_with_black():
    """The shorter edge becomes 4 pixels; 11 - 8 of the crop's columns and 0 rows are missing."""
    how = Preprocessing(resize="shortest", library="transformers")
    image = np.full((10, 20, 3), 255, "uint8")
    expected = np.full((1, 4, 11, 3), -1.0)
    expected[:, :, 1:9] = 1
    np.testing.assert_array_equal(preprocess(image, model_of(how, (4, 11))), expected)
    turned = preprocess(image.transpose(1, 0, 2), model_of(how, (11, 4)))
    np.testing.assert_array_equal(turned, expected.transpose(0, 2, 1, 3))


def test_hugging_face():
    images = photographs()
    expected = [
        (np.asarray(Image.fromarray(i).resize((224, 224), Image.BILINEAR)) / 255 - 0.5) / 0.5
        for i in images
    ]
    actual = preprocess(images, model_of(HUGGING_FACE))
    assert difference(actual, np.stack(expected), HUGGING_FACE) < 1e-6


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "area"])
@pytest.mark.parametrize("size", [(224, 224), (440, 700), (37, 91), (1, 1)])
def test_tensorflows_resize_to_the_last_bit(tf, method, size):
    rng = np.random.default_rng(0)
    images = [photographs()[0], rng.random((50, 61, 2), "float32")]
    images += [rng.integers(0, 256, shape, "uint8") for shape in ((1, 1, 3), (3, 500, 3))]
    for image in images:
        expected = tf.cast(tf.image.resize(image, size, method=method), tf.float32).numpy()
        actual = tensorflow_resize(image, size, method)
        # Compilers may fuse a multiplication with an addition, hence not exactly zero.
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 * image.max())
        window = (size[0] // 3, size[1] // 4, -(-size[0] // 2), -(-size[1] // 2))
        part = tensorflow_resize(image, size, method, window)
        rows, columns = (slice(window[i], window[i] + window[i + 2]) for i in (0, 1))
        np.testing.assert_array_equal(part, actual[rows, columns])


EVERY_RULE = [
    Preprocessing(),
    Preprocessing(interpolation="bicubic"),
    Preprocessing(resize="center_square"),
    Preprocessing(resize="center_square", library="pillow"),
    Preprocessing(resize="shortest", crop_fraction=0.8),
    BIG_VISION,
    SIGLIP,
    TIMM,
    HUGGING_FACE,
    Preprocessing(resize="squash", crop_fraction=0.7, library="pillow"),
    Preprocessing(crop_fraction=0.7, interpolation="bicubic"),
]


@pytest.mark.parametrize("how", EVERY_RULE, ids=str)
@pytest.mark.parametrize("size, channels", [((16, 16), 3), ((16, 32), 1), ((33, 15), 3)])
def test_tiny_flat_and_slim_images(how, size, channels):
    """A uniform image stays uniform under every rule, so that no weight or border is off."""
    shapes = [(1, 1, 3), (3, 500, 3), (500, 3, 3), (16, 16, 3), (7, 5, 1), (2, 3)]
    images = [np.full(shape, 200, "uint8") for shape in shapes]
    actual = preprocess(images, model_of(how, size, channels))
    assert actual.shape == (6, *size, channels)
    np.testing.assert_allclose(actual, 200 / 127.5 - 1, atol=1.01 / 127.5)


@pytest.mark.parametrize("library", ["tensorflow", "pillow", "transformers"])
def test_the_centre_square(library):
    """Left and right of the centre square are another colour, which must not show."""
    image = np.zeros((40, 100, 3), "uint8")
    image[:, 30:70] = 255
    how = Preprocessing(resize="center_square", library=library)
    np.testing.assert_array_equal(preprocess(image, model_of(how, (8, 8))), 1)
    np.testing.assert_array_equal(preprocess(image.transpose(1, 0, 2), model_of(how, (8, 4))), 1)


def test_bytes_at_their_size_become_what_they_become_without_a_model():
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), "uint8")
    for how in (GOOGLE, SIGLIP, HUGGING_FACE):
        np.testing.assert_array_equal(
            preprocess(images, model_of(how, (32, 32))), preprocess(images)
        )


@pytest.mark.parametrize("how", EVERY_RULE, ids=str)
def test_floats(how):
    image = photographs()[3]
    model = model_of(how, (32, 32))
    for dtype, atol in (("float16", 1.01 / 255), ("float32", 2e-6), ("float64", 2e-6)):
        floats = (image / 255).astype(dtype)
        before = floats.copy()
        actual = preprocess([floats], model)
        assert actual.dtype == np.float32
        assert difference(actual, preprocess([image], model), how) <= atol
        np.testing.assert_array_equal(floats, before)


@pytest.mark.parametrize("library", ["pillow", "transformers", "tensorflow"])
def test_long_and_narrow_images_take_no_more_memory_than_large_ones(library):
    """A file of a few kilobytes would ask for 50 gigapixels."""
    wide = np.zeros((1, 10**6, 3), "uint8")
    squash = Preprocessing(library=library)
    assert fit_image(wide, (224, 224), squash).shape == (224, 224, 3)
    for preprocessing in (dataclasses.replace(squash, resize="shortest"), squash):
        with pytest.raises(ValueError, match=r"too long and narrow .*which takes \d{9,} pixels"):
            fit_image(wide.transpose(1, 0, 2), (224, 224), preprocessing)
