"""Transforms: the authors' geometry, and the same pixels from NumPy and TensorFlow."""

import dataclasses
import functools
import io

import numpy as np
import pytest
from PIL import Image

from keras_vit import recipes
from keras_vit.data import geometry, transform_numpy
from keras_vit.data.preprocess import preprocess
from keras_vit.data.randomness import Purpose, uniform
from keras_vit.data.transform import Transform

pytestmark = pytest.mark.any_backend

SQUASH = Transform(48)
INCEPTION = Transform((48, 64), "inception", flip=True)
TRANSFORMS = {
    "inception": INCEPTION,
    "inception_area": dataclasses.replace(INCEPTION, interpolation="area", value_range=(0, 1)),
    "big_vision": dataclasses.replace(INCEPTION, round_to_uint8=True, randaugment=(2, 10)),
    "resize_small_random": Transform(
        48, "resize_small_random", resize_small=60, interpolation="area", round_to_uint8=True
    ),
    "resize_small_center": Transform(
        48, "resize_small_center", resize_small=60, interpolation="area", round_to_uint8=True
    ),
    "center_floats": Transform(48, "resize_small_center", resize_small=61),
    "pad_random": Transform(64, "pad_random", flip=True, randaugment=(2, 20)),
    "squash": SQUASH,
    "squash_random": Transform((40, 32), "squash_random", resize_small=48, flip=True),
    "squash_center": Transform(
        (40, 32), "squash_center", resize_small=46, round_to_uint8=True, flip=True
    ),
    "squash_area": Transform((30, 50), interpolation="area", value_range=(-0.5, 3)),
}


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@functools.cache
def photographs():
    """Landscape, portrait, and one smaller than what it becomes."""
    datasets = pytest.importorskip("sklearn.datasets")
    china, flower = (datasets.load_sample_image(name) for name in ("china.jpg", "flower.jpg"))
    return [china[:375, :500], np.ascontiguousarray(flower.transpose(1, 0, 2)), china[:60, :57]]


def encoded(pixels, kind="PNG", mode=None, **options):
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def keys(count):
    return [np.array([5, 1, index]) for index in range(count)]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_numpy_and_tf_data_give_the_same_pixels(tf, name):
    from keras_vit.data import transform_tf

    transform = TRANSFORMS[name]
    images = photographs()[-1:] if transform.crop == "pad_random" else photographs()
    files = [encoded(image) for image in images]
    files += [encoded(image, "JPEG", quality=85, subsampling=2) for image in images]
    dataset = tf.data.Dataset.range(5 * len(files)).map(
        lambda i: transform_tf.apply_encoded(
            transform, tf.gather(files, i % len(files)), tf.stack([np.int64(5), np.int64(1), i])
        ),
        num_parallel_calls=2,
    )
    assert dataset.element_spec.shape == (*transform.image_size, 3)
    for key, actual in zip(keys(5 * len(files)), dataset):
        expected = transform_numpy.apply_encoded(transform, files[key[2] % len(files)], key)
        assert expected.dtype == np.float32
        np.testing.assert_array_equal(actual, expected)
        again = transform_numpy.apply_encoded(transform, files[key[2] % len(files)], key)
        np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("name", ["inception", "resize_small_center", "pad_random", "squash"])
def test_gray_images_in_memory_are_treated_alike(tf, name):
    from keras_vit.data import transform_tf

    transform, image, channels = TRANSFORMS[name], photographs()[-1][..., :1], 1
    run = tf.function(
        lambda image, key: transform_tf.apply(transform, image, key),
        input_signature=[
            tf.TensorSpec([None, None, channels], tf.uint8),
            tf.TensorSpec([3], tf.int64),
        ],
    )
    for key in keys(5):
        np.testing.assert_array_equal(run(image, key), transform_numpy.apply(transform, image, key))


def box_of(image, key, transform=INCEPTION):
    draws = uniform(key, Purpose.CROP, geometry.INCEPTION_DRAWS)
    return geometry.inception_box(*image.shape[:2], transform.area, transform.ratio, draws)


def test_inception_crop_is_cut_resized_flipped_and_scaled(tf):
    """decode_jpeg_and_inception_crop(size)|flip_lr|value_range(-1, 1) of big_vision."""
    image, transform = photographs()[0], dataclasses.replace(INCEPTION, round_to_uint8=True)
    flips = 0
    for key in keys(20):
        top, left, height, width = box_of(image, key)
        crop = image[top : top + height, left : left + width]
        resized = tf.image.resize(crop, transform.image_size, antialias=False)
        resized = tf.cast(tf.clip_by_value(resized, 0, 255), tf.uint8)
        expected = (tf.cast(resized, tf.float32).numpy() - 127.5) / 127.5
        actual = transform_numpy.apply(transform, image, key)
        flipped = np.abs(actual - expected[:, ::-1]).max() < 1e-6
        flips += flipped
        assert flipped or np.abs(actual - expected).max() < 1e-6
    assert 3 <= flips <= 17


@pytest.mark.parametrize("size", [(375, 500), (500, 375), (32, 32), (60, 200)])
def test_boxes_are_distributed_as_tensorflows(tf, size):
    """Two-sample Kolmogorov-Smirnov for height, width, ratio and place; sizes are whole numbers."""
    count = 4000
    area, ratio = (0.05, 1.0), (0.75, 1.33)

    def theirs(index):
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.constant([*size, 3]),
            tf.zeros([1, 0, 4]),
            tf.stack([tf.constant(3, tf.int64), index]),
            min_object_covered=0.0,
            area_range=area,
            aspect_ratio_range=ratio,
            use_image_if_no_bounding_boxes=True,
        )
        return tf.concat([begin[:2], extent[:2]], 0)

    expected = np.stack(list(tf.data.Dataset.range(count).map(theirs).as_numpy_iterator()))
    draws = (uniform((3, 0, i), Purpose.CROP, geometry.INCEPTION_DRAWS) for i in range(count))
    actual = np.stack([geometry.inception_box(*size, area, ratio, draw) for draw in draws])
    for column in range(4):
        assert kolmogorov(actual[:, column], expected[:, column]) < 1.95 * (2 / count) ** 0.5
    for boxes in (actual, expected):
        ends = boxes[:, :2] + boxes[:, 2:]
        assert (boxes >= 0).all() and (ends <= size).all()
    products = [boxes[:, 2] * boxes[:, 3] for boxes in (actual, expected)]
    assert kolmogorov(*products) < 1.95 * (2 / count) ** 0.5


def kolmogorov(a, b):
    """The greatest distance between two samples' distribution functions."""
    values = np.union1d(a, b)
    shares = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (a, b)]
    return np.abs(shares[0] - shares[1]).max()


def test_without_a_fitting_box_the_whole_image_is_taken():
    draws = uniform((0,), Purpose.CROP, geometry.INCEPTION_DRAWS)
    assert geometry.inception_box(10, 1000, (0.9, 1.0), (0.75, 1.33), draws) == (0, 0, 10, 1000)


@pytest.mark.parametrize("name", ["resize_small_center", "resize_small_random"])
def test_resize_small_is_that_of_big_vision(tf, name):
    """resize_small(60)|central_crop(48) or |random_crop(48), area, truncated to bytes."""
    transform = TRANSFORMS[name]
    for image in photographs():
        sides = tf.cast(tf.shape(image)[:2], tf.float32)
        new = tf.cast(tf.round(sides * (60.0 / tf.reduce_min(sides))), tf.int32)
        resized = tf.image.resize(image, new, method="area")
        resized = tf.cast(tf.clip_by_value(resized, 0, 255), tf.uint8).numpy()
        top, left = (int(side - 48) // 2 for side in new)
        if transform.is_random:
            draws = uniform((5, 1, 0), Purpose.CROP, 2)
            top, left = (int(draw * (side - 47)) for draw, side in zip(draws, new.numpy()))
        expected = (resized[top : top + 48, left : left + 48] - 127.5) / 127.5
        actual = transform_numpy.apply(transform, image, np.array([5, 1, 0]))
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_squash_random_cuts_from_the_whole_image_as_a_square():
    """Of columns that rise from 0 to 255, the window's rise as in the square, at its place."""
    ramp = np.tile(np.linspace(0, 255, 256).astype(np.uint8)[None, :, None], (64, 1, 1))
    transform = Transform(16, "squash_random", resize_small=20, value_range=(0, 255))
    places = set()
    for key in keys(60):
        pixels = transform_numpy.apply(transform, ramp, key)
        assert pixels.shape == (16, 16, 1)
        np.testing.assert_allclose(np.diff(pixels[0, :, 0]), 256 / 20, atol=0.6)
        places.add(round(float(pixels[0, 0, 0] / (256 / 20) - 0.5)))
    assert places == set(range(5))


def test_squash_center_is_how_few_shot_evaluation_reads_images():
    protocol = recipes.fewshot()
    transform = Transform(224, "squash_center", resize_small=256, round_to_uint8=True)
    pixels = [transform_numpy.apply(transform, image, np.zeros(3, int)) for image in photographs()]
    expected = preprocess(
        photographs(), preprocessing=protocol.preprocessing, image_size=protocol.image_size
    )
    np.testing.assert_allclose(np.stack(pixels), expected, atol=1e-6)


def test_every_window_is_equally_likely():
    tops = [
        int(geometry.random_window(12, 9, (8, 9), uniform((index,), Purpose.CROP, 2))[0])
        for index in range(2000)
    ]
    assert abs(np.bincount(tops, minlength=5) - 400).max() < 5 * 20 and max(tops) == 4
    assert geometry.center_window(13, 12, (8, 9)) == (2, 1, 8, 9)


def test_padded_windows_show_black_beyond_the_border():
    image = np.full((8, 8, 1), 255, np.uint8)
    transform = Transform(8, "pad_random", padding=2)
    seen = set()
    for key in keys(200):
        white = transform_numpy.apply(transform, image, key)[..., 0] == 1
        rows, columns = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        assert white.sum() == len(rows) * len(columns) >= 36
        seen.add((int(rows[0] - (7 - rows[-1])), int(columns[0] - (7 - columns[-1]))))
    assert len(seen) == 25


def test_half_of_the_images_are_mirrored_and_only_them():
    image = photographs()[-1]
    plain = transform_numpy.apply(SQUASH, image)
    transform = dataclasses.replace(SQUASH, flip=True)
    results = [transform_numpy.apply(transform, image, key) for key in keys(300)]
    mirrored = [np.array_equal(result, plain[:, ::-1]) for result in results]
    same = [np.array_equal(result, plain) for result in results]
    assert np.all(np.logical_xor(mirrored, same)) and 105 < sum(mirrored) < 195


@pytest.mark.parametrize("value_range", [(-1, 1), (0, 1), (0, 255), (-2.5, 0.5)])
def test_black_and_white_become_the_ends_of_the_range(value_range):
    image = np.array([[[0], [255]]], np.uint8)
    result = transform_numpy.apply(Transform((1, 2), value_range=value_range), image).ravel()
    np.testing.assert_allclose(result, value_range, atol=1e-6 * max(map(abs, value_range)))
    if value_range == (-1, 1):
        assert result.tolist() == [-1, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"crop": "centre"},
        {"interpolation": "bicubic"},
        {"crop": "resize_small_center", "resize_small": 7},
        {"area": (0.5, 1.5)},
        {"ratio": (2.0, 1.0)},
        {"value_range": (1, 1)},
        {"padding": -1},
        {"padding": 1.5},
        {"randaugment": 2},
        {"randaugment": (2, -1)},
    ],
)
def test_a_transform_that_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match="Received"):
        Transform(8, **options)
