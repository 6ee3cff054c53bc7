"""Folders and archives of images: layouts, decoding, and damage found before training."""

import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import Transform, files, load, pipeline, preprocess
from keras_vit.data.pixels import pixels_of
from tests.data.pipeline_cases import class_folders, pack, photographs, recipe, tagged
from tests.support import refuses

pytestmark = pytest.mark.any_backend

RNG = np.random.default_rng(0)


def write_image(path, height=6, width=8, color=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (height, width, 3), dtype="uint8")
    if color is not None:
        pixels[:] = color
    Image.fromarray(pixels).save(path)
    return pixels


def write_classes(folder, counts):
    for name, count in counts.items():
        for index in range(count):
            write_image(folder / name / f"{index:02}.png")
    return folder


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_classes_are_sorted_and_split(tmp_path):
    write_classes(tmp_path / "pets", {"dog": 10, "cat": 5})
    pets = load(tmp_path / "pets")
    assert pets.name == "pets" and pets.class_names == ("cat", "dog")
    assert pets.image_shape == (6, 8, 3) and pets.train_images.dtype == np.uint8
    assert np.bincount(pets.train_labels).tolist() == [4, 8]
    assert np.bincount(pets.test_labels).tolist() == [1, 2]
    again = load(str(tmp_path / "pets"))
    np.testing.assert_array_equal(pets.train_images, again.train_images)


def test_nested_hidden_and_other_files(tmp_path):
    write_classes(tmp_path, {"a": 2, "b/deep/er": 2})
    write_image(tmp_path / "b" / "top.JPEG")
    write_image(tmp_path / "a" / ".thumbnails" / "x.png", height=1)
    write_image(tmp_path / ".ipynb_checkpoints" / "x.png", height=1)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "labels.csv").write_text("no image")
    with pytest.warns(
        UserWarning, match=r"Left out .* 2 files that are no images by .*:\n  a/notes.txt\n  lab"
    ):
        toy = load(tmp_path)
    assert toy.class_names == ("a", "b")
    assert len(toy.train_images) + len(toy.test_images) == 5
    assert toy.left_out == (str(tmp_path / "a" / "notes.txt"), str(tmp_path / "labels.csv"))
    with pytest.warns(UserWarning, match="Left out"):
        assert pipeline(tmp_path, recipe(2)).left_out == toy.left_out


def test_formats(tmp_path):
    for index, extension in enumerate("png bmp gif webp tif ppm".split() * 2):
        write_image(tmp_path / f"class{index // 6}" / f"{index}.{extension}", color=200)
    toy = load(tmp_path)
    assert len(toy.train_images) + len(toy.test_images) == 12
    np.testing.assert_allclose(toy.train_images, 200, atol=3)


def test_sizes_need_image_size(tmp_path):
    write_classes(tmp_path, {"a": 2, "b": 2})
    pixels = write_image(tmp_path / "b" / "99.png", height=30, width=20)
    refuses(r"image_size=224.*\.png of 6x8 and .*99\.png of 30x20", load, tmp_path)
    toy = load(tmp_path, image_size=(5, 7), test_fraction=0.01)
    assert toy.image_shape == (5, 7, 3)
    resized = np.asarray(Image.fromarray(pixels).resize((7, 5), Image.BILINEAR))
    everything = np.concatenate([toy.train_images, toy.test_images])
    assert any((image == resized).all() for image in everything)


def test_grayscale_and_sixteen_bits(tmp_path):
    for name in "ab":
        for index in range(2):
            write_image(tmp_path / "red" / name / f"{index}.png", color=(255, 0, 0))
            path = tmp_path / "deep" / name / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((4, 4), 32768, "uint16")).save(path)
    red = load(tmp_path / "red", channels=1).train_images
    assert red.shape[1:] == (6, 8, 1) and (red == 76).all(), "the luma of red is 0.299 * 255"
    assert (load(tmp_path / "deep").train_images == 128).all(), "scaled, not clipped"
    signed = tmp_path / "signed.tif"  # -128 is black: the bytes alone would be off by half
    Image.fromarray(np.zeros((4, 4), "uint8")).save(signed, tiffinfo={339: 2})
    refuses("signed and 32-bit pixels have no fixed range", pixels_of, str(signed), 1)


def damage(folder):
    """Three unreadable files of three kinds among classes of four."""
    write_classes(folder, {"a": 4, "b": 4})
    write_image(folder / "b" / "photo.jpg", height=60, width=80)
    truncate(folder / "a" / "01.png")
    truncate(folder / "b" / "photo.jpg")
    (folder / "b" / "02.png").write_text("this is text")
    return [folder / "a" / "01.png", folder / "b" / "02.png", folder / "b" / "photo.jpg"]


def test_all_corrupt_images_are_listed(tmp_path):
    bad = damage(tmp_path)
    with pytest.raises(ValueError, match=r"3 of 9 images cannot be read") as caught:
        load(tmp_path, image_size=8)
    for text in (*map(str, bad), "truncated", "UnidentifiedImageError", "skip_corrupt=True"):
        assert text in str(caught.value)
    (tmp_path / "b" / "photo.jpg").unlink()
    refuses(r"2 of 8 images.*Received", load, tmp_path)


def test_skip_corrupt(tmp_path):
    bad = damage(tmp_path)
    toy = load(tmp_path, image_size=8, skip_corrupt=True)
    assert toy.skipped == tuple(map(str, bad))
    assert np.bincount(np.concatenate([toy.train_labels, toy.test_labels])).tolist() == [3, 3]


def test_skip_corrupt_with_a_test_folder(tmp_path):
    write_classes(tmp_path / "train", {"a": 3, "b": 3})
    write_classes(tmp_path / "test", {"a": 2})
    truncate(tmp_path / "train" / "a" / "00.png")
    truncate(tmp_path / "test" / "a" / "00.png")
    toy = load(tmp_path, skip_corrupt=True)
    assert toy.train_labels.tolist() == [0, 0, 1, 1, 1] and toy.test_labels.tolist() == [0]
    assert len(toy.skipped) == 2
    expected = np.asarray(Image.open(tmp_path / "test" / "a" / "01.png"))
    np.testing.assert_array_equal(toy.test_images[0], expected)
    truncate(tmp_path / "test" / "a" / "01.png")
    with pytest.raises(
        ValueError, match=r"the part test one. Received: .* no readable ones in 'test'"
    ):
        load(tmp_path, skip_corrupt=True)


def test_a_long_list_is_cut_but_counted(tmp_path):
    write_classes(tmp_path, {"a": 14, "b": 1})
    for path in (tmp_path / "a").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="14 of 15 images") as caught:
        load(tmp_path)
    assert str(caught.value).count(".png") == 10
    assert "and 4 more" in str(caught.value)
    refuses("14 corrupt images, no readable ones in 'a';", load, tmp_path, skip_corrupt=True)
    (tmp_path / "b" / "00.png").write_bytes(b"no")
    refuses("no readable ones in 'a', 'b'", load, tmp_path, skip_corrupt=True)


def test_folders_without_images_in_class_folders(tmp_path):
    refuses(r"one subfolder per class.*0 subfolders and no files", load, tmp_path)
    write_image(tmp_path / "a.png")
    refuses(r"0 subfolders and files \.png x1", load, tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.npy").write_text("")
    refuses(r"1 subfolders and files \.npy x1, \.png x1", load, tmp_path)


def test_a_class_without_images(tmp_path):
    write_classes(tmp_path, {"a": 2})
    (tmp_path / "annotations").mkdir()
    refuses(r"must hold an image.*none in 'annotations'", load, tmp_path)


def test_too_large_for_memory(tmp_path, monkeypatch):
    write_classes(tmp_path, {"a": 2, "b": 2})
    monkeypatch.setattr("keras_vit.data.dataset.MAX_BYTES", 4 * 6 * 8 * 3)
    load(tmp_path)
    monkeypatch.setattr("keras_vit.data.dataset.MAX_BYTES", 4 * 6 * 8 * 3 - 1)
    refuses(r"4 images of 6x8x3.*Lower image_size", load, tmp_path)


def test_unreadable_folder(tmp_path, monkeypatch):
    write_classes(tmp_path, {"a": 2, "b": 2})
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    refuses(r"b cannot be read; check its permissions.*denied", load, tmp_path)


@pytest.mark.parametrize("suffix, prefix", [("zip", "photos/"), ("tar", "")])
def test_an_archive_is_the_folder_that_it_holds(tmp_path, suffix, prefix):
    class_folders(tmp_path / "photos" / "train", per_class=6)
    class_folders(tmp_path / "photos" / "test", per_class=3)
    archive = pack(tmp_path / "photos", tmp_path / f"photos.{suffix}", prefix)
    expected, actual = (load(path, image_size=9) for path in (tmp_path / "photos", archive))
    assert actual.name == "photos" and actual.class_names == ("cat", "dog")
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    made = recipe(4, Transform(9, "inception"))
    for split in ("train", "test"):
        batches = [list(pipeline(path, made, split)) for path in (tmp_path / "photos", archive)]
        for (x, y), (u, v) in zip(*batches, strict=True):
            np.testing.assert_array_equal(x, u)
            np.testing.assert_array_equal(y, v)


def test_links_in_an_archive_are_files_or_left_out_with_a_word(tmp_path):
    """tar writes a file of two names once, and the second name as a link."""
    class_folders(tmp_path / "photos", per_class=3)
    cat, dog = tmp_path / "photos/cat", tmp_path / "photos/dog"
    os.link(next(cat.iterdir()), dog / "hard.png")
    os.symlink(next(cat.iterdir()), dog / "soft.png")
    with pytest.warns(UserWarning, match=r"1 images without a label:\n  .*soft\.png"):
        source = pipeline(pack(tmp_path / "photos", tmp_path / "x.tar"), recipe(2), "train+test")
    assert source.num_examples == 7
    assert "dog/hard.png" in {source.source.identity(row)[0] for row in source.rows}


def test_archives_that_cannot_be_read_are_named(tmp_path):
    class_folders(tmp_path / "photos", per_class=2)
    packed = pack(tmp_path / "photos", tmp_path / "photos.tar.gz")
    refuses(r"There is no such dataset.*photos\.tar\.gz", load, packed)
    for name in ("photos.zip", "photos.tar"):
        (tmp_path / name).write_bytes(packed.read_bytes())
        refuses(rf"{name} cannot be read as a .* unpack it", load, tmp_path / name)
    whole = pack(tmp_path / "photos", tmp_path / "whole.tar").read_bytes()
    (tmp_path / "whole.tar").write_bytes(whole[: len(whole) // 4])
    refuses(r"whole\.tar", load, tmp_path / "whole.tar", image_size=8)


def test_a_file_of_a_terabyte_is_not_unpacked(tmp_path, monkeypatch):
    class_folders(tmp_path / "photos", per_class=2)
    archive = pack(tmp_path / "photos", tmp_path / "photos.zip")
    monkeypatch.setattr(files, "LARGEST", 100)
    refuses(r"4 of 4 images cannot be read.*\n.*at most 100 are read", load, archive, image_size=8)


def test_orientation_tags_are_followed_alike(tmp_path):
    """In training, evaluation, `load` and `preprocess`, which `predict` reads with."""
    for part, count in (("train", 5), ("test", 2)):
        for index, image in enumerate(photographs(count)):
            folder = tmp_path / part / "ab"[index % 2]
            folder.mkdir(parents=True, exist_ok=True)
            image.resize((12, 9)).save(folder / f"{index}.png", exif=tagged(6))
    paths = sorted((tmp_path / "train").rglob("*.png"))
    made = recipe(5, Transform((12, 9)))
    test = pipeline(tmp_path, made, "train", training=False)
    train = pipeline(tmp_path, made, "train")
    expected = preprocess(load(tmp_path).train_images)
    (seen,), (trained,) = ([images for images, _ in data] for data in (test, train))
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    sums = [np.sort(images.sum((1, 2, 3))) for images in (trained, expected)]
    np.testing.assert_allclose(*sums, atol=1e-3)  # in another order
    read = preprocess(list(map(str, paths)), image_size=(12, 9))
    np.testing.assert_allclose(read, expected, atol=1e-6)


def test_links_that_lead_up_hold_no_class(tmp_path):
    class_folders(tmp_path / "photos", per_class=3)
    os.symlink(tmp_path / "photos", tmp_path / "photos/cat/up", target_is_directory=True)
    os.symlink(tmp_path, tmp_path / "photos/dog/further_up", target_is_directory=True)
    with pytest.warns(UserWarning, match=r"Left out of .*\n  cat/up\n  dog/further_up"):
        assert pipeline(tmp_path / "photos", recipe(2), "train+test").num_examples == 6


def test_names_in_archives_may_begin_with_a_dot_and_a_slash(tmp_path):
    class_folders(tmp_path / "photos", per_class=3)
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in (tmp_path / "photos").rglob("*.*"):
            info = zipfile.ZipInfo(f"./{file.relative_to(tmp_path / 'photos')}")
            archive.writestr(info, file.read_bytes())
    assert pipeline(tmp_path / "photos.zip", recipe(2), "train+test").num_examples == 6


def test_what_a_mask_hides_is_looked_at():
    plain = np.full((2, 8, 8, 3), 200, "uint8")
    masked, expected = np.ma.array(plain, mask=True), preprocess(plain, image_size=8)
    np.testing.assert_array_equal(preprocess(masked, image_size=8), expected)
    hidden = np.ma.masked_invalid(np.where(np.arange(3) == 1, np.nan, plain / 255))
    for images in (hidden, [hidden[0]]):
        refuses("repair what is NaN", preprocess, images, image_size=8)
