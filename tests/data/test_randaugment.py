"""RandAugment: each operation by its definition, and the same in NumPy and TensorFlow."""

import functools

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from keras_vit.data import randaugment_tables as tables
from keras_vit.data.randaugment import apply_operation, randaugment
from keras_vit.data.transform import Transform

pytestmark = pytest.mark.any_backend

MAGNITUDES = (0, 3, 5, 10, 15, 20, 27.5)


@functools.cache
def pictures():
    """A photograph, noise of few levels, one colour, and a gray photograph of odd size."""
    photo = pytest.importorskip("sklearn.datasets").load_sample_image("china.jpg")
    rng = np.random.default_rng(0)
    return {
        "photo": np.ascontiguousarray(photo[150:246, 200:300]),
        "noise": rng.integers(100, 140, (40, 33, 3), dtype=np.uint8),
        "plain": np.full((20, 20, 3), 7, np.uint8),
        "gray": np.ascontiguousarray(photo[50:121, 50:100, :1]),
    }


def difference(a, b):
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize("operation", tables.OPERATIONS)
def test_tensorflow_gives_the_same_pixels(operation):
    tf = pytest.importorskip("tensorflow")
    from keras_vit.data import randaugment_tf

    for magnitude in MAGNITUDES:
        for reverse in (False, True):
            for image in pictures().values():
                arguments = (magnitude, reverse, (0.3, 0.9))
                expected = apply_operation(operation, image, *arguments)
                actual = randaugment_tf.apply_operation(operation, tf.constant(image), *arguments)
                np.testing.assert_array_equal(actual, expected)
                assert expected.dtype == np.uint8 and expected.shape == image.shape


def enhance(kind):
    return lambda image, level: kind(image).enhance(level * 1.8 + 0.1)


PILLOW = {
    "AutoContrast": lambda image, level: ImageOps.autocontrast(image),
    "Equalize": lambda image, level: ImageOps.equalize(image),
    "Invert": lambda image, level: ImageOps.invert(image),
    "Posterize": lambda image, level: ImageOps.posterize(image, min(int(level * 4), 8)),
    "Solarize": lambda image, level: ImageOps.solarize(image, int(level * 256)),
    "Color": enhance(ImageEnhance.Color),
    "Contrast": enhance(ImageEnhance.Contrast),
    "Brightness": enhance(ImageEnhance.Brightness),
    "Sharpness": enhance(ImageEnhance.Sharpness),
}


@pytest.mark.parametrize("operation", PILLOW)
@pytest.mark.parametrize("magnitude", [3, 5, 10])
def test_values_are_those_of_pillow(operation, magnitude):
    """Within one grey level: the authors truncate where Pillow rounds, and inversely."""
    for image in (pictures()["photo"], pictures()["noise"]):
        expected = PILLOW[operation](Image.fromarray(image), magnitude / 10)
        actual = apply_operation(operation, image, magnitude)
        assert difference(actual, np.asarray(expected)) <= 1


def test_solarize_add_brightens_the_dark_half():
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    result = apply_operation("SolarizeAdd", image, 10).ravel().astype(int)
    np.testing.assert_array_equal(result[:128], np.minimum(np.arange(128) + 110, 255))
    np.testing.assert_array_equal(result[128:], np.arange(128, 256))


def rotation(degrees, height, width):
    """`angles_to_projective_transforms` of TensorFlow Addons, in float32."""
    cos, sin = np.cos(np.float32(np.radians(degrees))), np.sin(np.float32(np.radians(degrees)))
    right, bottom = np.float32(width - 1), np.float32(height - 1)
    across = (right - (cos * right - sin * bottom)) / np.float32(2)
    down = (bottom - (sin * right + cos * bottom)) / np.float32(2)
    return [cos, -sin, across, sin, cos, down, 0, 0]


MATRICES = {
    "Rotate": lambda level, h, w: rotation(level * 30, h, w),
    "ShearX": lambda level, h, w: [1, level * 0.3, 0, 0, 1, 0, 0, 0],
    "ShearY": lambda level, h, w: [1, 0, 0, level * 0.3, 1, 0, 0, 0],
    "TranslateX": lambda level, h, w: [1, 0, level * 100, 0, 1, 0, 0, 0],
    "TranslateY": lambda level, h, w: [1, 0, 0, 0, 1, level * 100, 0, 0],
}


@pytest.mark.parametrize("operation", tables.GEOMETRIC)
@pytest.mark.parametrize("reverse", [False, True])
def test_places_are_those_of_tensorflow_addons(operation, reverse):
    """Its `transform` was this kernel; what is left empty is gray."""
    tf = pytest.importorskip("tensorflow")
    for magnitude in (1, 3, 10, 15):
        for image in (pictures()["photo"], pictures()["noise"], pictures()["gray"]):
            size = image.shape[:2]
            level = magnitude / 10 * (-1 if reverse else 1)
            expected = tf.raw_ops.ImageProjectiveTransformV3(
                images=image[None],
                transforms=np.array([MATRICES[operation](level, *size)], np.float32),
                output_shape=size,
                fill_value=float(tables.GRAY),
                interpolation="NEAREST",
                fill_mode="CONSTANT",
            )[0]
            actual = apply_operation(operation, image, magnitude, reverse)
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("places", [(0.0, 0.0), (0.5, 0.25), (0.999, 0.999)])
def test_cutout_is_a_gray_square_around_its_centre(places):
    image = np.zeros((50, 60, 3), np.uint8)
    result = apply_operation("Cutout", image, 3, places=places)
    row, column = int(places[0] * 50), int(places[1] * 60)
    expected = np.zeros_like(image)
    expected[max(row - 12, 0) : row + 12, max(column - 12, 0) : column + 12] = 128
    np.testing.assert_array_equal(result, expected)


def test_every_operation_is_equally_likely():
    drawn = [tables.draw((0, 0, index), 2) for index in range(4000)]
    for layer in range(2):
        counts = np.bincount([int(chosen[layer][0]) for chosen in drawn], minlength=16)
        assert len(counts) == 16 and abs(counts - 250).max() < 5 * 250**0.5
    reverse = np.mean([bool(chosen[0][1]) for chosen in drawn])
    assert abs(reverse - 0.5) < 0.05


def test_an_example_keeps_its_operations_and_others_differ():
    image = pictures()["photo"]
    results = [randaugment(image, (1, 0, index)) for index in range(20)]
    np.testing.assert_array_equal(results[3], randaugment(image, (1, 0, 3)))
    assert len({result.tobytes() for result in results}) > 15
    np.testing.assert_array_equal(randaugment(image, (1, 0, 3), operations=0), image)


def test_tensorflow_draws_the_same_operations():
    tf = pytest.importorskip("tensorflow")
    from keras_vit.data import randaugment_tf

    image = pictures()["photo"]
    run = tf.function(lambda key: randaugment_tf.randaugment(tf.constant(image), key, 3, 15))
    for index in range(60):
        key = np.array([2, 1, index])
        np.testing.assert_array_equal(run(key), randaugment(image, key, 3, 15))


@pytest.mark.parametrize("arguments", [(-1, 10), (2.5, 10), (True, 10), (2, -1), (2, float("nan"))])
def test_bad_arguments_are_named(arguments):
    with pytest.raises(ValueError, match="Received"):
        randaugment(pictures()["noise"], (0,), *arguments)


def test_tables_cannot_be_changed_by_their_users():
    with pytest.raises(ValueError, match="read-only"):
        tables.levels("Invert", 10)[0] = 1
    assert Transform(8, randaugment=(2, 10)).augments
