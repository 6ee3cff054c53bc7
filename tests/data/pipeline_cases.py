"""Recipes, files and prepared sets for the tests of pipelines."""

import io
import json
import tarfile
import zipfile

import numpy as np
from PIL import Image

from keras_vit.data import Transform
from keras_vit.recipes import Recipe

PLAIN = Transform((4, 4))  # of images of that size: nothing happens but the value range
RANDOM = Transform((12, 12), crop="inception", flip=True)


def recipe(batch=8, train=PLAIN, **options):
    """A recipe whose images of evaluation are resized as a whole to the size of `train`."""
    named = dict.fromkeys(("name", "source", "dataset"), "a test")
    run = {"variant": None, "batch_size": batch, "steps": 1, "learning_rate": 1.0}
    images = {"train": train, "eval": Transform(train.image_size)}
    return Recipe(**{**named, **run, **images, **options})


def numbered(count, classes=5):
    """Images of 4 x 4 pixels that tell their number, and labels."""
    number = np.arange(count)
    images = np.zeros((count, 4, 4, 3), np.uint8)
    images[..., 0], images[..., 1] = (number % 256)[:, None, None], (number // 256)[:, None, None]
    return images, (number % classes).astype(np.int32)


def numbers(images):
    """The numbers that plainly transformed images tell."""
    pixels = np.rint((np.asarray(images)[:, 0, 0] + 1) * 127.5).astype(int)
    return (pixels[:, 0] + 256 * pixels[:, 1]).tolist()


def seen(pipeline):
    """The numbers of all images of a pipeline."""
    return [number for images, _ in pipeline for number in numbers(images)]


def assert_same(first, second):
    for (images, labels), (other_images, other_labels) in zip(first, second, strict=True):
        np.testing.assert_array_equal(images, other_images)
        np.testing.assert_array_equal(labels, other_labels)
        assert images.dtype == other_images.dtype == np.float32
        assert labels.dtype == other_labels.dtype


def photographs(count, seed=0):
    """Smooth random images of different sizes."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
        yield small.resize(tuple(rng.integers(20, 48, 2).tolist()), Image.Resampling.BICUBIC)


def class_folders(folder, per_class=6, classes=("cat", "dog"), suffix=".jpg"):
    """Writes class folders of images and returns their paths."""
    paths = []
    for image, index in zip(photographs(per_class * len(classes)), range(10**6)):
        place = folder / classes[index % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        paths.append(place / f"{index:03d}{suffix}")
        image.save(paths[-1], quality=95)
    return paths


def pack(folder, archive, prefix=""):
    """Puts the files of a folder into an archive, with hidden ones that do not count."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in paths:
                file.write(path, f"{prefix}{path.relative_to(folder)}")
            for name in ("__MACOSX/photos/cat/._1.jpg", "photos/.DS_Store", "photos/in/Thumbs.db"):
                file.writestr(name, b"no image")
    else:
        with tarfile.open(archive, "w:gz" if archive.suffix == ".gz" else "w") as file:
            for path in paths:
                file.add(path, f"{prefix}{path.relative_to(folder)}")
    return archive


def tagged(number):
    """EXIF data that say how an image lies, 1 to 8."""
    exif = Image.Exif()
    exif[0x0112] = number
    return exif


def halves(folder, count):
    """Writes images 0.png, ... with a left half, a right half, both or none of them bright.

    Returns the tags of each, as a cell of a file of labels: "left", "right", "left|right" or "".
    """
    folder.mkdir()
    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 60, (16, 16, 3), "uint8")
        pixels[:, :8] += np.uint8(150 * (i % 2))
        pixels[:, 8:] += np.uint8(150 * (i // 2 % 2))
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return ["|".join(["left"] * (i % 2) + ["right"] * (i // 2 % 2)) for i in range(count)]


def as_csv(path, *rows, delimiter=","):
    """Writes rows as a file of labels, and returns its path."""
    path.write_text("\n".join(delimiter.join(map(str, row)) for row in rows))
    return path


def as_json(path, labels):
    """Writes labels as a file, and returns its path."""
    path.write_text(json.dumps(labels))
    return path


def encoded(pixels, kind="PNG", mode=None, **options):
    """The bytes of an image file."""
    file = io.BytesIO()
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def write_prepared(data_dir, name, parts, version="1.0.0", classes=3, features=(), **options):
    """A set that TensorFlow Datasets prepares: parts is name -> list of examples.

    Args:
        features: of the examples, besides image and label.
        options: such as `file_format`, array_record unless told otherwise, or `config`.
    """
    import tensorflow_datasets as tfds

    described = {
        "image": tfds.features.Image(shape=(None, None, 3), encoding_format="png"),
        "label": tfds.features.ClassLabel(num_classes=classes),
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        features=tfds.features.FeaturesDict({**described, **dict(features)}),
        split_datasets={part: list(enumerate(found)) for part, found in parts.items()},
        data_dir=data_dir,
        disable_shuffling=True,
        **{"file_format": "array_record", **options},
    )
    (folder,) = data_dir.glob(f"{name}/**/{version}")
    return folder
