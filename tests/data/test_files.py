"""Archives are read as the folders they hold; orientation tags are followed alike everywhere."""

import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import Transform, files, load, pipeline, preprocess
from tests.data.pipeline_cases import class_folders, photographs, recipe

pytestmark = pytest.mark.any_backend


def pack(folder, archive, prefix=""):
    """Puts the files of a folder into an archive, with hidden ones that do not count."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in paths:
                file.write(path, f"{prefix}{path.relative_to(folder)}")
            file.writestr("__MACOSX/photos/cat/._1.jpg", b"no image")
    else:
        with tarfile.open(archive, "w:gz" if archive.suffix == ".gz" else "w") as file:
            for path in paths:
                file.add(path, f"{prefix}{path.relative_to(folder)}")
    return archive


@pytest.mark.parametrize("suffix", ["zip", "tar"])
@pytest.mark.parametrize("prefix", ["", "photos/"])
def test_an_archive_is_the_folder_that_it_holds(tmp_path, suffix, prefix):
    class_folders(tmp_path / "photos" / "train", per_class=6)
    class_folders(tmp_path / "photos" / "test", per_class=3)
    archive = pack(tmp_path / "photos", tmp_path / f"photos.{suffix}", prefix)
    expected, actual = (load(path, image_size=9) for path in (tmp_path / "photos", archive))
    assert actual.name == "photos" and actual.class_names == ("cat", "dog")
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name))
    made = recipe(4, train=Transform(9, "inception"), evaluate=Transform(9))
    for split in ("train", "test"):
        batches = [list(pipeline(path, made, split)) for path in (tmp_path / "photos", archive)]
        for (x, y), (u, v) in zip(*batches, strict=True):
            np.testing.assert_array_equal(x, u)
            np.testing.assert_array_equal(y, v)


def test_archives_that_cannot_be_read_are_named(tmp_path):
    class_folders(tmp_path / "photos", per_class=2)
    packed = pack(tmp_path / "photos", tmp_path / "photos.tar.gz")
    with pytest.raises(ValueError, match=r"source must be .*the file .*photos\.tar\.gz"):
        load(packed)
    for name in ("photos.zip", "photos.tar"):
        (tmp_path / name).write_bytes(packed.read_bytes())
        with pytest.raises(ValueError, match=rf"{name} cannot be read as a .* unpack it"):
            load(tmp_path / name)
    whole = pack(tmp_path / "photos", tmp_path / "whole.tar").read_bytes()
    (tmp_path / "whole.tar").write_bytes(whole[: len(whole) // 4])
    with pytest.raises(ValueError, match=r"whole\.tar"):
        load(tmp_path / "whole.tar", image_size=8)


def test_a_file_of_a_terabyte_is_not_unpacked(tmp_path, monkeypatch):
    class_folders(tmp_path / "photos", per_class=2)
    archive = pack(tmp_path / "photos", tmp_path / "photos.zip")
    monkeypatch.setattr(files, "LARGEST", 100)
    with pytest.raises(ValueError, match=r"4 of 4 images cannot be read.*\n.*at most 100 are read"):
        load(archive, image_size=8)


def test_orientation_tags_are_followed_alike(tmp_path):
    """In training, evaluation, `load` and `preprocess`, which `predict` reads with."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for part, count in (("train", 5), ("test", 2)):
        for index, image in enumerate(photographs(count)):
            folder = tmp_path / part / "ab"[index % 2]
            folder.mkdir(parents=True, exist_ok=True)
            image.resize((12, 9)).save(folder / f"{index}.png", exif=exif)
    paths = sorted((tmp_path / "train").rglob("*.png"))
    made = recipe(5, train=Transform((12, 9)), evaluate=Transform((12, 9)))
    test = pipeline(tmp_path, made, "train", training=False)
    train = pipeline(tmp_path, made, "train")
    expected = preprocess(load(tmp_path).train_images)
    (seen,), (trained,) = ([images for images, _ in data] for data in (test, train))
    np.testing.assert_allclose(seen, expected, atol=1e-6)
    sums = [np.sort(images.sum((1, 2, 3))) for images in (trained, expected)]
    np.testing.assert_allclose(*sums, atol=1e-3)  # in another order
    read = preprocess(list(map(str, paths)), image_size=(12, 9))
    np.testing.assert_allclose(read, expected, atol=1e-6)
