"""Transforms: the authors' geometry, of files of every kind; and files that are refused."""

import dataclasses
import functools
import io

import numpy as np
import pytest
from PIL import Image

from keras_vit import recipes
from keras_vit.data import Transform, preprocess
from keras_vit.data.crops import inception_box, random_window
from keras_vit.data.pixels import normalized, per_channel
from keras_vit.data.transform import apply
from tests.data.pipeline_cases import encoded, tagged
from tests.support import refuses

pytestmark = pytest.mark.any_backend

INCEPTION = Transform((48, 64), "inception")


@functools.cache
def photographs():
    """Landscape, portrait, and one smaller than what it becomes."""
    datasets = pytest.importorskip("sklearn.datasets")
    china, flower = (datasets.load_sample_image(name) for name in ("china.jpg", "flower.jpg"))
    return [china[:375, :500], np.ascontiguousarray(flower.transpose(1, 0, 2)), china[:60, :57]]


def rng(*key):
    return np.random.default_rng(key)


def tf_resized(tf, image, size, method="bilinear"):
    """tf.image.resize, clipped and truncated to bytes, as big_vision's pipelines do it."""
    resized = tf.image.resize(image, size, method=method, antialias=False)
    return tf.cast(tf.clip_by_value(resized, 0, 255), tf.uint8).numpy()


@pytest.mark.parametrize("rounded", [False, True])
def test_inception_crop_is_cut_resized_and_flipped(tf, rounded):
    """decode_jpeg_and_inception_crop(size)|flip_lr of big_vision; of a file and of its pixels."""
    library, image = "tensorflow_uint8" if rounded else "tensorflow", photographs()[0]
    transform = dataclasses.replace(INCEPTION, library=library)
    for index in range(8):
        top, left, height, width = inception_box(375, 500, (0.05, 1), (0.75, 1.33), rng(index))
        crop = image[top : top + height, left : left + width]
        expected = tf.image.resize(crop, transform.image_size, antialias=False).numpy()
        expected = np.floor(expected + (0 if rounded else 0.5)).astype(np.uint8)
        actual = apply(transform, image, rng(index))
        assert actual.dtype == np.uint8
        assert (actual != expected).mean() < 1e-3 and np.abs(
            actual - expected.astype(int)
        ).max() <= 1
        np.testing.assert_array_equal(apply(transform, encoded(image), rng(index)), actual)
        flipped = apply(dataclasses.replace(transform, flip=True), image, rng(index))
        assert np.array_equal(flipped, actual) or np.array_equal(flipped, actual[:, ::-1])


@pytest.mark.parametrize("crop", ["resize_small_center", "resize_small_random"])
def test_resize_small_is_that_of_big_vision(tf, crop):
    """resize_small(60)|central_crop(48) or |random_crop(48), area, truncated to bytes."""
    like_theirs = {"interpolation": "area", "library": "tensorflow_uint8"}
    transform = Transform(48, crop, resize_small=60, **like_theirs)
    for image in photographs():
        sides = tf.cast(tf.shape(image)[:2], tf.float32)
        new = tf.cast(tf.round(sides * (60.0 / tf.reduce_min(sides))), tf.int32)
        resized = tf_resized(tf, image, new, "area")
        if transform.is_random:
            top, left, *_ = random_window(tuple(new.numpy()), (48, 48), rng(1))
        else:
            top, left = ((int(side) - 48) // 2 for side in new)
        expected = resized[top : top + 48, left : left + 48]
        np.testing.assert_array_equal(apply(transform, image, rng(1)), expected)


def test_squash_random_cuts_from_the_whole_image_as_a_square():
    """Of columns that rise from 0 to 255, the window's rise as in the square, at its place."""
    ramp = np.tile(np.linspace(0, 255, 256).astype(np.uint8)[None, :, None], (64, 1, 1))
    transform = Transform(16, "squash_random", resize_small=20)
    places = set()
    for index in range(60):
        pixels = apply(transform, ramp, rng(index)).astype(int)
        assert pixels.shape == (16, 16, 1)
        np.testing.assert_allclose(np.diff(pixels[0, :, 0]), 256 / 20, atol=1.1)
        places.add(round(float(pixels[0, 0, 0] / (256 / 20) - 0.5)))
    assert places == set(range(5))


def test_squash_center_is_how_few_shot_evaluation_reads_images():
    protocol = recipes.fewshot()
    transform = Transform(224, "squash_center", resize_small=256, library="tensorflow_uint8")
    pixels = np.stack([apply(transform, image) for image in photographs()])
    expected = preprocess(
        photographs(), preprocessing=protocol.preprocessing, image_size=protocol.image_size
    )
    np.testing.assert_allclose(
        normalized(pixels, *per_channel(transform.preprocessing, 3)), expected, atol=1e-6
    )


def test_evaluation_keeps_the_fractions_of_the_authors_resize(tf):
    for image in photographs():
        expected = tf.image.resize(image, (48, 48), antialias=False).numpy()
        actual = apply(Transform(48), image)
        assert actual.dtype == np.float32
        np.testing.assert_allclose(actual, expected, atol=1e-3)


def test_padded_windows_show_black_beyond_the_border():
    image = np.full((8, 8, 1), 255, np.uint8)
    transform = Transform(8, "pad_random", padding=2)
    seen = set()
    for index in range(200):
        white = apply(transform, image, rng(index))[..., 0] == 255
        rows, columns = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        assert white.sum() == len(rows) * len(columns) >= 36
        seen.add((int(rows[0] - (7 - rows[-1])), int(columns[0] - (7 - columns[-1]))))
    assert len(seen) == 25
    with pytest.raises(ValueError, match=r"pad_random.*\(20, 40\)"):
        apply(Transform(32, "pad_random"), np.zeros((20, 40, 3), np.uint8), rng(0))


def test_half_of_the_images_are_mirrored():
    image, transform = photographs()[-1], Transform((60, 57), flip=True)
    mirrored = [np.array_equal(apply(transform, image, rng(i)), image[:, ::-1]) for i in range(300)]
    assert 105 < sum(mirrored) < 195


@pytest.mark.parametrize("value_range", [(-1, 1), (0, 1), (0, 255), (-2.5, 0.5)])
def test_black_and_white_become_the_ends_of_the_range(value_range):
    transform = Transform(8, value_range=value_range)
    scale = per_channel(transform.preprocessing, 1)
    result = normalized(np.array([[[0], [255]]], np.uint8), *scale).ravel()
    np.testing.assert_allclose(result, value_range, atol=1e-6 * max(map(abs, value_range)))
    assert value_range != (-1, 1) or result.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"crop": "centre"}, "crop"),
        ({"interpolation": "lanczos"}, "interpolation"),
        ({"crop": "resize_small_center", "resize_small": 7}, "resize_small"),
        ({"area": (0.5, 1.5)}, "area"),
        ({"ratio": (2.0, 1.0)}, "ratio"),
        ({"value_range": (1, 1)}, "value_range"),
        ({"padding": -1}, "padding"),
        ({"padding": 1.5}, "padding"),
        ({"affine": (1, 1, 0)}, "affine"),
        ({"augment": ("sparkle",)}, "augmentation"),
        ({"draft": None}, "draft"),
        ({"randaugment": 2}, "randaugment"),
        ({"randaugment": (2, -1)}, "randaugment"),
        ({"randaugment": (2.5, 1)}, "randaugment"),
        ({"randaugment": (2, float("nan"))}, "randaugment"),
        ({"augment": [("randaugment", 2, -1)]}, "randaugment"),
        ({"augment": [("affine", -10, 0.1, 0.1)]}, "affine"),
        ({"mean": (0.5, 0.5, 0.5)}, "mean must be given with std"),
        ({"mean": (0,), "std": (0,)}, "std"),
        ({"mean": (0, 0), "std": (1,)}, "one number per channel"),
        ({"mean": 0.5, "std": 0.5}, "tuple"),
        ({"mean": (0,), "std": (1,), "value_range": (0, 1)}, "value_range must be left out"),
        ({"library": "opencv"}, "library"),
        ({"library": "pillow", "interpolation": "area"}, "TensorFlow's"),
        ({"crop_fraction": 0.9}, "crop_fraction"),
        ({"crop": "squash_center", "crop_fraction": 0.9, "resize_small": 9}, "crop_fraction"),
        ({"crop": "squash_center", "crop_fraction": 1.5}, "crop_fraction"),
    ],
)
def test_a_transform_that_cannot_be_is_refused(options, expected):
    refuses(f"{expected}.*Received", Transform, 8, **options)


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


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", FILES)
def test_files_of_every_kind(tf, name, channels):
    """What TensorFlow decodes, within two grey levels (inks, and the luma of a JPEG)."""
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
    """Of a random transform that lets them be."""
    large = np.asarray(Image.fromarray(photographs()[0]).resize((2000, 1500)))
    file = encoded(large, "JPEG", quality=95)
    transform = Transform(60, "inception", area=(0.5, 1.0))
    in_full = dataclasses.replace(transform, draft=False)
    decoded = np.asarray(Image.open(io.BytesIO(file)))
    for index in range(5):
        full = apply(transform, large, rng(index)).astype(int)
        small = apply(transform, file, rng(index)).astype(int)
        # The same box: blurred alike, they agree; the smaller one alone is free of aliasing.
        blurred = [x.reshape(6, 10, 6, 10, 3).mean((1, 3)) for x in (full, small)]
        assert np.abs(blurred[0] - blurred[1]).mean() < 3
        plain = apply(in_full, file, rng(index))
        np.testing.assert_array_equal(plain, apply(in_full, decoded, rng(index)))
        assert np.abs(plain - small).max() > 10


def test_a_box_of_a_smaller_image_stays_within_it():
    """A white image has no dark edge, whichever box is drawn; many of these reach the border."""
    white = encoded(np.full((150, 250, 3), 255, np.uint8), "JPEG", quality=95)
    transform = Transform(50, "random_resized", area=(0.9, 1.0), ratio=(1.5, 1.8))
    assert all(apply(transform, white, rng(index)).min() == 255 for index in range(300))


@pytest.mark.parametrize("number", [1, 3, 6, 8])
def test_orientation_tags_are_followed_for_files_of_users(number):
    photo = photographs()[-1]
    file = encoded(photo, exif=tagged(number))
    shown = {1: photo, 3: photo[::-1, ::-1], 6: np.rot90(photo, -1), 8: np.rot90(photo)}[number]
    same = Transform(shown.shape[:2])
    np.testing.assert_array_equal(apply(same, file), shown)
    np.testing.assert_array_equal(apply(Transform(photo.shape[:2]), file, upright=False), photo)
    crops = [apply(INCEPTION, image, rng(1)) for image in (file, np.ascontiguousarray(shown))]
    np.testing.assert_array_equal(*crops)


@pytest.mark.parametrize("crop", ["inception", "squash"])
def test_damaged_files_are_refused(crop):
    photo = photographs()[-1]
    files = encoded(photo, "JPEG")[:700], encoded(photo)[:900], b"no image at all", b""
    for file in files:
        with pytest.raises(ValueError, match=r"cannot be decoded\. Received: [^<]* bytes[^<]*$"):
            apply(Transform(16, crop), file, rng(0))


def test_a_small_file_of_many_pixels_is_refused():
    bomb = encoded(Image.new("1", (13_000, 13_000)))
    assert len(bomb) < 400_000
    with pytest.warns(Image.DecompressionBombWarning):
        refuses(r"13000 x 13000 pixels; raise PIL\.Image\.MAX", apply, Transform(16), bomb)
