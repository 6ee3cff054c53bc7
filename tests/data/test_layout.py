"""Which parts and classes a folder of images has, and which layouts are refused."""

import pathlib
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import load, pipeline
from keras_vit.data.files import image_suffixes
from keras_vit.data.sources import part_of
from tests.data.pipeline_cases import pack, recipe
from tests.support import refuses

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("error:.*(Left out|read as a):UserWarning"),
]


def write(folder, *places, count=2, suffix=".png"):
    """Writes images into the folders `places` and returns the folder."""
    for index, place in enumerate(places):
        (folder / place).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((4, 4, 3), 16 * index + number, np.uint8)
            Image.fromarray(pixels).save(folder / place / f"{number}{suffix}")
    return folder


def sizes(folder, *splits):
    return [pipeline(folder, recipe(2), split).num_examples for split in splits]


@pytest.mark.parametrize(
    "train, held_out",
    [
        ("train", "valid"),
        ("Training Data", "Validation-Data"),
    ],
)
@pytest.mark.parametrize("wrapper", ["", "photos/", "a/b/"])
def test_parts_have_the_names_that_people_use(tmp_path, train, held_out, wrapper):
    places = [f"{wrapper}{part}/{name}" for part in (train, held_out) for name in ("cat", "dog")]
    toy = load(write(tmp_path, *places))
    assert toy.class_names == ("cat", "dog")
    assert toy.train_labels.tolist() == toy.test_labels.tolist() == [0, 0, 1, 1]
    assert toy.test_images[:, 0, 0, 0].tolist() == [32, 33, 48, 49]
    assert sizes(tmp_path, "train", "test", "validation", "testing") == [4] * 4


def test_a_test_set_is_no_validation_set_where_both_are_there(tmp_path):
    places = [f"{part}/{name}" for part in ("Train", "valid", "Test") for name in ("cat", "dog")]
    write(tmp_path, *places[:4])
    write(tmp_path, *places[4:], count=3)
    assert sizes(tmp_path, "train", "valid", "val", "validation", "test") == [4, 4, 4, 4, 6]
    assert len(load(tmp_path).test_images) == 6
    half = "train[50%:]"  # for sets without these parts
    made = recipe(2, validation_split=half, test_split=half)
    assert pipeline(tmp_path, made, "validation").split == "validation"
    assert pipeline(tmp_path, made, "valid").num_examples == 4


def test_train_alone_is_not_a_class(tmp_path):
    write(tmp_path, "train/cat", "train/dog")
    assert sizes(tmp_path, "train") == [4]
    refuses(r"train and one of test, validation. Received: train;", load, tmp_path)


def test_a_held_out_part_alone(tmp_path):
    write(tmp_path, "test/cat", "test/dog")
    assert sizes(tmp_path, "test") == [4]
    refuses(r"split must be one of 'test' of 4 ex.*split='train'", pipeline, tmp_path, recipe(2))


def test_a_folder_around_everything_is_stepped_into(tmp_path):
    write(tmp_path / "photos", "in/cat", "in/dog")
    whole = load(tmp_path / "photos" / "in")
    sets = [load(tmp_path), load(tmp_path / "photos")]
    sets.append(load(pack(tmp_path / "photos", tmp_path / "photos.zip", "photos/")))
    for toy in sets:
        assert toy.class_names == ("cat", "dog")
        np.testing.assert_array_equal(toy.train_images, whole.train_images)
    nested = write(tmp_path / "nested", "train/train/cat", "train/train/dog", "test/dog")
    assert load(nested).test_labels.tolist() == [1, 1], "a class alone is no folder around"
    images = write(tmp_path / "tiny", "n01/images", "n02/images")
    assert load(images).class_names == ("n01", "n02")


def test_an_archive_made_on_windows(tmp_path):
    write(tmp_path / "photos", "train/cat", "train/dog", "test/cat", "test/dog")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        for path in sorted((tmp_path / "photos").rglob("*.png")):
            info = zipfile.ZipInfo("x")
            info.filename = str(path.relative_to(tmp_path)).replace("/", "\\")
            file.writestr(info, path.read_bytes())
    assert load(tmp_path / "photos.zip").class_names == ("cat", "dog")


@pytest.mark.parametrize(
    "places, expected",
    [
        ("a/cat a/dog b/cat b/dog", r"two, which both could:\n  .*/a: 'cat', 'dog'\n  .*/b: 'cat'"),
        ("a/cat a/dog b/car b/bus", r"two, which.*\n.*/a: 'cat', 'dog'\n.*/b: 'bus', 'car'"),
        ("cat dog more/cat more/dog", r"two, which both could:\n  .*/more: 'cat', 'dog'\n"),
        ("a/images a/masks b/images b/masks", "two, which both could"),
        (
            "a/train b/test",
            r"two, which both.*\n  .*/a: 'train'\n  .*/b: 'test'\n.*as in train/cat",
        ),
        ("train/a/cat train/a/dog train/b/cow test/a/cat", r"two, which.*\n  .*train/a: 'cat', "),
        ("cat", r"at least two classes.*one folder, 'cat', of 2 images; .*problem='single_label'"),
        ("train/cat test/cat", "at least two classes must lie in"),
        ("cat dog test", r"'test' beside 'cat', 'dog' in .*rename it"),
        ("cat dog Validation", "'Validation' beside 'cat', 'dog'"),
        ("train2017 val2017 annotations", r"train2017/ with 0 subfolders and files \.png x2"),
        ("train test1", r"train/ with 0 subfolders and files \.png x2"),
        ("trainA trainB testA testB", r"'testA', 'testB', which all mean 'test'"),
        ("images annotations/trimaps", r"must be the classes.*'images' beside 'annotations'"),
        ("train/Images train/masks val/Images val/masks", "'Images' beside 'masks'.*labels="),
        ("train/cat train/dog unlabelled", "'train' beside 'unlabelled'"),
        ("train/cat train/dog val/cat valid/dog", r"one folder. Received: 'val', 'valid', which"),
        ("train/cat train/dog test", r"test/ with 0 subfolders and files \.png x2"),
        ("train/cat train/dog test/Cat", r"\(cat, dog\). Received: unknown Cat"),
    ],
)
def test_layouts_that_could_be_another_thing(tmp_path, places, expected):
    write(tmp_path, *places.split())
    refuses(expected, load, tmp_path)


def test_one_class_where_that_is_said(tmp_path):
    write(tmp_path, "all")
    assert load(tmp_path, problem="single_label").class_names == ("all",)


@pytest.mark.parametrize("other", ["bus", "invalid"])
def test_classes_that_are_called_like_parts(tmp_path, other):
    name = {"bus": "train", "invalid": "valid"}[other]
    write(tmp_path, name, other)
    with pytest.warns(UserWarning, match=f"'{name}' in .* is read as a class, since '{other}'"):
        assert load(tmp_path).class_names == tuple(sorted((name, other)))


def test_a_level_too_low(tmp_path):
    write(tmp_path, *(f"{part}/{name}" for part in ("train", "valid") for name in ("cat", "dog")))
    with pytest.warns(UserWarning, match=r"read as a whole set, and split; 'valid' beside it is "):
        assert len(load(tmp_path / "train").test_images) == 2
    refuses(rf"one class of several, pass {tmp_path}/train$", load, tmp_path / "train" / "cat")


def test_what_pillow_opens_is_an_image(tmp_path):
    places = write(tmp_path, "cat", suffix=".JPE"), write(tmp_path, "dog", suffix=".jfif")
    write(tmp_path, "eel", suffix=".jp2")
    assert len(load(places[0]).train_images) == 3
    suffixes = image_suffixes()
    usual = ".jpg .jpeg .jpe .jfif .png .apng .gif .bmp .webp .tif .tiff .ppm .pgm .avif .mpo .ico"
    assert set(usual.split()) <= suffixes
    assert not suffixes & {"", *".pdf .eps .ps .mpg .h5 .wmf .txt .csv .json".split()}


def test_what_is_left_out_is_counted_and_named(tmp_path):
    write(tmp_path, *(f"{part}/{name}" for part in ("train", "test") for name in ("cat", "dog")))
    write(tmp_path, "extra", count=12)
    (tmp_path / "train" / "README.txt").write_text("no image")
    (tmp_path / "train" / "cat" / "photo.heic").write_text("an image, but not for Pillow")
    (tmp_path / "train" / "cat" / "Thumbs.db").write_text("of Windows")
    (tmp_path / "train" / "cat" / "gone.png").symlink_to("nowhere")
    text = "12 images without a label and 3 files that are no im|13 images without.* and 2 files"
    with pytest.warns(UserWarning, match=text) as caught:
        toy = load(tmp_path)
    message = str(caught[0].message)
    assert message.count("extra/") == 10 and "and 5 more" in message
    names = [pathlib.Path(path).name for path in toy.left_out]
    assert len(names) == 15 and {"README.txt", "photo.heic", "gone.png"} <= set(names)


def test_what_systems_and_network_drives_leave_is_no_class(tmp_path):
    left = "#recycle @eaDir @Recycle $RECYCLE.BIN lost+found FOUND.000 LOST.DIR .Trash-1000"
    left = [*left.split(), "System Volume Information", "~snapshot"]
    write(tmp_path, "cat", "recycle", "#1", *left, "cat/@eaDir/1.png", "cat/$Recycle.Bin")
    toy = load(tmp_path)
    assert toy.class_names == ("#1", "cat", "recycle") and not toy.left_out
    assert len(toy.train_labels) + len(toy.test_labels) == 6


def test_names_of_parts():
    for name in "train TRAINING train_set Train-Images traindata training_1 trainA".split():
        assert part_of(name) == "train"
    for name in "VALID val_dir ValB dev2 val2017 validation_A".split():
        assert part_of(name) == "validation"
    assert {part_of("test_1"), part_of("testing-2017"), part_of("eval B")} == {"test"}
    for name in ["", *"trains trainer retrain seg_train latest val200 val2000 test12".split()]:
        assert part_of(name) is None
