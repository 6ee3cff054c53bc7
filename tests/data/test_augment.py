"""Augmentations: RandAugment against the authors' arithmetic in TensorFlow, and one's own."""

import functools

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import Transform, augmentation, pipeline
from keras_vit.data.augment import AUGMENTATIONS, GRAY, OPERATIONS, affine, randaugment
from tests.data.pipeline_cases import numbered, recipe
from tests.support import refuses

pytestmark = pytest.mark.any_backend

random_erasing = AUGMENTATIONS["random_erasing"]
LEVELS = (0.0, 0.3, 0.5, 1.0, 1.5, 2.0)
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]])


@functools.cache
def pictures():
    """A photograph, noise of few levels, one colour, and a photograph of 224 x 224 pixels."""
    photo = pytest.importorskip("sklearn.datasets").load_sample_image("china.jpg")
    rng = np.random.default_rng(0)
    return {
        "photo": np.ascontiguousarray(photo[150:246, 200:300]),
        "noise": rng.integers(100, 140, (40, 33, 3), dtype=np.uint8),
        "plain": np.full((20, 20, 3), 7, np.uint8),
        "large": np.ascontiguousarray(photo[100:324, 100:324]),
    }


def blend(tf, degenerate, image, level):
    first, second = (tf.cast(x, tf.float32) for x in (degenerate, image))
    mixed = first + (level * 1.8 + 0.1) * (second - first)
    return tf.cast(tf.clip_by_value(mixed, 0.0, 255.0), tf.uint8)


def equalized(tf, channel):
    histogram = tf.histogram_fixed_width(tf.cast(channel, tf.int32), [0, 255], nbins=256)
    nonzero = tf.gather(histogram, tf.where(histogram != 0))[:, 0]
    step = (tf.reduce_sum(nonzero) - nonzero[-1]) // 255
    if step == 0:
        return channel
    table = (tf.cumsum(histogram) + step // 2) // step
    table = tf.clip_by_value(tf.concat([[0], table[:-1]], 0), 0, 255)
    return tf.cast(tf.gather(table, tf.cast(channel, tf.int32)), tf.uint8)


def stretched(tf, channel):
    low, high = (float(f(channel)) for f in (tf.reduce_min, tf.reduce_max))
    if high <= low:
        return channel
    scale = 255.0 / (high - low)
    values = tf.cast(channel, tf.float32) * scale - low * scale
    return tf.cast(tf.clip_by_value(values, 0.0, 255.0), tf.uint8)


def smoothed(tf, image):
    """The truncated mean, exact: the authors' in float32 falls below a whole one by the CPU."""
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(int), (3, 3), axis=(0, 1))
    found = image.copy()
    found[1:-1, 1:-1] = np.einsum("yxcij,ij->yxc", windows, SMOOTH) // 13
    return found


def mean_gray(tf, image):
    """`contrast` of autoaugment.py: the histogram's sum divided by 256, which is no mean."""
    gray = tf.cast(tf.image.rgb_to_grayscale(image), tf.int32)
    histogram = tf.histogram_fixed_width(gray, [0, 255], nbins=256)
    mean = tf.reduce_sum(tf.cast(histogram, tf.float32)) / 256.0
    mean = tf.clip_by_value(tf.ones_like(gray, tf.float32) * mean, 0.0, 255.0)
    return tf.image.grayscale_to_rgb(tf.cast(mean, tf.uint8))


def colourless(tf, image):
    return tf.image.grayscale_to_rgb(tf.image.rgb_to_grayscale(image))


def posterized(tf, image, level):
    shift = tf.constant(min(max(8 - int(level * 4), 0), 7), tf.uint8)
    return tf.bitwise.left_shift(tf.bitwise.right_shift(image, shift), shift)


def per_channel(function):
    return lambda tf, x, level: tf.stack([function(tf, x[..., i]) for i in range(3)], -1)


# Operation -> (as big_vision computes it, grey levels that ours may be off).
AUTHORS = {
    "AutoContrast": (per_channel(stretched), 1),
    "Equalize": (per_channel(equalized), 0),
    "Invert": (lambda tf, x, level: 255 - x, 0),
    "Posterize": (posterized, 0),
    "Solarize": (lambda tf, x, level: np.where(x < int(level * 256) % 256, x, 255 - x), 0),
    "SolarizeAdd": (
        lambda tf, x, level: np.where(
            x < 128, np.minimum(x.astype(int) + int(level * 110), 255), x
        ),
        0,
    ),
    "Color": (lambda tf, x, level: blend(tf, colourless(tf, x), x, level), 1),
    "Contrast": (lambda tf, x, level: blend(tf, mean_gray(tf, x), x, level), 1),
    "Brightness": (lambda tf, x, level: blend(tf, tf.zeros_like(x), x, level), 1),
    "Sharpness": (lambda tf, x, level: blend(tf, smoothed(tf, x), x, level), 1),
}


@pytest.mark.parametrize("operation", AUTHORS)
def test_values_are_the_authors(tf, operation):
    """A pixel in 200 may be off by a rounding error before it is truncated."""
    theirs, tolerance = AUTHORS[operation]
    for level in LEVELS:
        for image in pictures().values():
            actual = np.asarray(OPERATIONS[operation](Image.fromarray(image), level, None))
            off = np.abs(actual.astype(int) - np.asarray(theirs(tf, image, level)).astype(int))
            assert (off > tolerance).mean() <= 0.005 and off.max() <= 3, (level, off.max())
            assert (off > 0).mean() < 0.01, level


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


class Chosen:
    """A generator that says the same each time."""

    def __init__(self, number):
        self.random = lambda: number


@pytest.mark.parametrize("operation", MATRICES)
@pytest.mark.parametrize("reverse", [False, True])
def test_places_are_those_of_tensorflow_addons(tf, operation, reverse):
    """Its `transform` was this kernel; what is left empty is gray. Ties may fall either way."""
    for magnitude in (1, 3, 10, 15):
        for image in (pictures()["photo"], pictures()["noise"]):
            size = image.shape[:2]
            level = magnitude / 10
            expected = tf.raw_ops.ImageProjectiveTransformV3(
                images=image[None],
                transforms=np.array([MATRICES[operation](level * (-1) ** reverse, *size)], "f4"),
                output_shape=size,
                fill_value=float(GRAY),
                interpolation="NEAREST",
                fill_mode="CONSTANT",
            )[0]
            moved = OPERATIONS[operation](Image.fromarray(image), level, Chosen(0.9 * reverse))
            assert (np.asarray(moved) != expected.numpy()).any(-1).mean() < 0.02


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_cutout_is_a_gray_square_around_its_centre(mode):
    rng = np.random.default_rng(0)
    for _ in range(20):
        result = np.asarray(OPERATIONS["Cutout"](Image.new(mode, (60, 50)), 0.3, rng))
        gray = (result.reshape(50, 60, -1) == GRAY).all(-1)
        rows, columns = np.flatnonzero(gray.any(1)), np.flatnonzero(gray.any(0))
        assert gray.sum() == len(rows) * len(columns) and 12 <= len(rows) <= 24 >= len(columns)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_operation_keeps_size_and_mode(operation, mode):
    image = Image.fromarray(pictures()["photo"]).convert(mode)
    before = np.asarray(image).copy()
    for level in LEVELS:
        result = OPERATIONS[operation](image, level, np.random.default_rng(0))
        assert (result.size, result.mode) == (image.size, mode)
    np.testing.assert_array_equal(image, before)


def test_every_operation_is_equally_likely(monkeypatch):
    seen = dict.fromkeys(OPERATIONS, 0)
    for name in OPERATIONS:
        monkeypatch.setitem(
            OPERATIONS,
            name,
            lambda image, level, rng, name=name: seen.update({name: seen[name] + 1}) or image,
        )
    rng = np.random.default_rng(0)
    for _ in range(2000):
        randaugment(Image.new("L", (2, 2)), rng, 2, 10)
    assert abs(np.array([*seen.values()]) - 250).max() < 5 * 250**0.5


def test_a_generator_decides_all():
    image = Image.fromarray(pictures()["photo"])
    results = [randaugment(image, np.random.default_rng(i)).tobytes() for i in range(20)]
    assert results[3] == randaugment(image, np.random.default_rng(3)).tobytes()
    assert len(set(results)) > 10
    assert randaugment(image, np.random.default_rng(3), operations=0) is image


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_affine_turns_scales_and_moves_and_repeats_edges(mode):
    """A turn by 90 degrees exactly, and a ramp under scale and shift."""

    class Always:
        def __init__(self, *values):
            self.uniform = lambda low, high, count: np.array(values, float)

    image = Image.fromarray(pictures()["photo"][:40, :40]).convert(mode)
    turned = np.asarray(affine(image, Always(1, 0, 0, 0), 90.0, 0.1, 0.1))
    expected = [np.asarray(image.transpose(t)).astype(int) for t in (2, 4)]  # either way round
    assert min(np.abs(turned - each).max() for each in expected) <= 1
    still = np.asarray(affine(image, Always(0, 0, 0, 0), 90.0, 0.1, 0.1))
    np.testing.assert_array_equal(still, image)
    ramp = Image.fromarray(np.tile(np.arange(0, 200, 5, dtype=np.uint8), (40, 1))).convert(mode)
    moved = np.asarray(affine(ramp, Always(0, 0, 0, 1), 0.0, 0.0, 0.25)).reshape(40, 40, -1)
    np.testing.assert_array_equal(moved[0, :, 0], [*range(50, 200, 5), *[195] * 10])


def test_an_augmentation_of_ones_own():
    """Ten lines: registered by its name, which a recipe can hold and JSON keep."""

    @augmentation
    def darken(image, rng, most):
        factor = 1 - most * rng.random()
        return image.point(lambda value: value * factor)

    try:
        wrong = recipe(8, train=Transform(4, augment=[("darken", "much")]))
        with pytest.raises(TypeError, match="multiply"):  # no image is blamed for it
            list(pipeline(numbered(16), wrong, training=True))
        transform = Transform(4, augment=(("darken", 0.5),))
        train = pipeline(numbered(16), recipe(8, train=transform), training=True)
        plain = pipeline(numbered(16), recipe(8), training=True)
        bright, dark = (np.concatenate([x for x, _ in p]) for p in (plain, train))
        assert transform.is_random and (dark <= bright).all() and (dark < bright).any()
        again = np.concatenate([x for x, _ in train])
        np.testing.assert_array_equal(dark, again)
    finally:
        del AUGMENTATIONS["darken"]
    with pytest.raises(RuntimeError, match=r"unknown 'darken'; define it in a module"):
        next(iter(train))  # as in a worker, which does not run what a script guards


@pytest.mark.parametrize(
    "step", [("random_erasing", 2.0), ("randaugment", 2, 9, 1), ("affine", 10, 1.0, 0.1)]
)
def test_arguments_are_tried_where_a_transform_is_made(step):
    refuses(
        rf"{step[0]!r} does not take these arguments.*{step[1:][0]}", Transform, 4, augment=[step]
    )


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_random_erasing_replaces_a_box_of_some_images(mode):
    """Share, area, aspect and place are what torchvision's and the paper's definition says."""
    image = Image.new(mode, (60, 40), color=0)
    seen, erased = np.zeros((40, 60)), []
    for i in range(400):
        found = random_erasing(image, np.random.default_rng(i), 0.25, fill=255)
        if found is image:
            continue
        assert (found.mode, found.size) == (mode, image.size)
        changed = np.asarray(found).reshape(40, 60, -1)[..., 0] == 255
        rows, columns = changed.any(1).sum(), changed.any(0).sum()
        assert changed.sum() == rows * columns  # one whole box
        erased.append((rows * columns / 2400, rows / columns))
        seen += changed
    assert abs(len(erased) - 100) < 5 * (400 * 0.25 * 0.75) ** 0.5
    areas, aspects = np.array(erased).T
    assert areas.min() > 0.01 and 0.25 < areas.max() < 0.36
    assert 0.2 < aspects.min() < 0.6 and 1.7 < aspects.max() < 5
    assert seen.min() >= 0 and (seen[[0, -1]].sum(), seen[:, [0, -1]].sum()) > (0, 0)
    noise = np.asarray(random_erasing(image, np.random.default_rng(0), 1.0))
    assert len(np.unique(noise)) > 50 and not np.asarray(image).any()


def test_random_erasing_in_a_pipeline_and_what_it_refuses():
    whole, some = (Transform(8, augment=steps) for steps in ((), ["random_erasing"]))
    plain, train = (
        np.concatenate([x for x, _ in pipeline(numbered(64), recipe(8, train=each), training=True)])
        for each in (whole, some)
    )
    changed = (plain != train).any(axis=(1, 2, 3))
    assert 4 <= changed.sum() <= 32
    for wrong in [(2.0,), (0.5, 0.0), (0.5, 0.4, 0.3), (0.5, 0.1, 0.2, 0.0), (0.5, 0.1, 0.2, 3, 2)]:
        with pytest.raises(ValueError, match=r"random_erasing takes.*Received: probability="):
            random_erasing(Image.new("L", (8, 8)), np.random.default_rng(0), *wrong)
    with pytest.raises(ValueError, match="fill='pixel'"):
        random_erasing(Image.new("L", (8, 8)), np.random.default_rng(0), fill="pixel")
