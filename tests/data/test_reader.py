"""Examples that cannot be read: who stands in for them, and what is said."""

import os
import warnings

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessing
from keras_vit.data import Transform, pipeline, preprocess
from tests.data.pipeline_cases import RANDOM, assert_same, class_folders, pack, recipe

pytestmark = pytest.mark.any_backend


def damage(path):
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize("archive", [False, True])
def test_unreadable_images_are_named_and_others_stand_in_for_training(tmp_path, archive):
    damaged = class_folders(tmp_path / "set" / "train", per_class=8)[4]
    damage(damaged)
    class_folders(tmp_path / "set" / "test", per_class=2)
    source = tmp_path / "set"
    if archive:
        source = pack(source, tmp_path / "set.zip", "set/")
    train = pipeline(source, recipe(8, train=RANDOM), "train")
    assert train.skipped == ()
    with pytest.warns(UserWarning, match=f"{damaged.name} is left out"):
        batches = list(train)
    assert [len(images) for images, _ in batches] == [8, 8]
    assert train.skipped == (f"{source}/train/{damaged.parent.name}/{damaged.name}",)
    # A run that begins later finds the same stand-in.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(pipeline(source, recipe(8, train=RANDOM)).from_step(1, steps=1), batches[1:])


def test_unreadable_images_are_left_out_of_evaluation(tmp_path):
    paths = class_folders(tmp_path / "train", per_class=8)
    damage(paths[3])
    (tmp_path / "train" / "cat" / "zz.webp").write_bytes(b"")
    test = pipeline(tmp_path, recipe(5), "train", training=False)
    with pytest.warns(UserWarning, match="is left out"):
        batches = list(test)
    assert sum(len(images) for images, _ in batches) == 15 and len(batches) == 4
    assert len(test.skipped) == 2


def test_too_many_unreadable_images_are_an_error(tmp_path):
    for path in class_folders(tmp_path / "train", per_class=8)[::2]:
        damage(path)
    train = pipeline(tmp_path, recipe(8, train=RANDOM))
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"5 of 16 examples cannot be"):
        list(train)


def test_pipes_and_devices_among_images_are_not_read(tmp_path):
    class_folders(tmp_path / "train", per_class=4)
    os.mkfifo(tmp_path / "train" / "cat" / "pipe.jpg")
    (tmp_path / "train" / "dog" / "endless.jpg").symlink_to("/dev/zero")
    assert pipeline(tmp_path, recipe(4, train=RANDOM)).num_examples == 8


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [12, 20])
def test_arrays_of_floats_have_the_pixels_in_training_that_they_have_in_prediction(channels, size):
    images, labels = np.random.default_rng(0).random((6, 20, 20, channels)), np.arange(6) % 2
    plain = Transform(size)
    preprocessing = plain.preprocessing.for_channels(channels)
    expected = preprocess(images, preprocessing=preprocessing, image_size=size)
    for training in (True, False):
        case = recipe(6, train=plain)
        batches = pipeline((images, labels), case, training=training, channels=channels)
        found, _ = next(iter(batches))
        order = [np.abs(found - image).max(axis=(1, 2, 3)).argmin() for image in expected]
        np.testing.assert_array_equal(found[order], expected)


def test_deep_images_whose_highest_bits_are_empty_are_told_of(tmp_path):
    """Cameras and scanners save 12 bits in files of 16."""
    gray = np.arange(64, dtype="uint16").reshape(8, 8) * 65
    for name, factor in (("dark", 1), ("deep", 16)):
        Image.fromarray(gray * np.uint16(factor)).save(tmp_path / f"{name}.png")
    images = [
        tmp_path / "deep.png",
        Image.fromarray(gray * np.uint16(16)),
        0 * gray.astype("uint8"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        preprocess(images, preprocessing=Preprocessing(), image_size=8)
    for dark in (tmp_path / "dark.png", Image.fromarray(gray)):
        with pytest.warns(UserWarning, match="of 16 bits .*none above 4095, .*multiply .* by 16 "):
            preprocess(dark, preprocessing=Preprocessing(), image_size=8)


def test_images_of_transparency_alone_are_told_of(tmp_path):
    """As of icons: black or transparent, on black."""
    icon = Image.new("RGBA", (8, 8))
    icon.paste((0, 0, 0, 255), (2, 2, 6, 6))
    icon.save(tmp_path / "icon.png")
    drawn = icon.copy()
    drawn.putpixel((3, 3), (255, 0, 0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        clear = Image.new("RGBA", (8, 8), (7, 7, 7, 0))
        preprocess([drawn, clear, drawn.convert("LA")], preprocessing=Preprocessing(), image_size=8)
    for image in (tmp_path / "icon.png", icon.convert("LA")):
        with pytest.warns(UserWarning, match=r"transparency alone.*Received: (RGBA|LA), of one"):
            preprocess(image, preprocessing=Preprocessing(), image_size=8)


def test_floats_of_few_grey_levels_are_told_of_before_they_are_rounded():
    noise, labels = np.random.default_rng(0).random((16, 8, 8, 3)), np.arange(16) % 2
    for images, transform, expected in (
        (0.5 + noise / 100, RANDOM, True),
        (noise, RANDOM, False),
        (0.5 + noise / 100, Transform(8), False),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(pipeline((images, labels), recipe(8, train=transform), training=True))
        assert any("spread such images" in str(each.message) for each in caught) == expected
