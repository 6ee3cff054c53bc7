"""Recipes, files and prepared sets for the tests of pipelines."""

import json
import struct
import types

import numpy as np
from PIL import Image

from keras_vit.data import Transform

PLAIN = Transform((4, 4))  # of images of that size: nothing happens but the value range
RANDOM = Transform((12, 12), crop="inception", flip=True)


def recipe(batch=8, train=PLAIN, evaluate=PLAIN, mixup=0.0, cutmix=0.0, seed=0):
    """What pipelines need of a `keras_vit.recipes.Recipe`."""
    return types.SimpleNamespace(
        batch_size=batch, train=train, eval=evaluate, mixup=mixup, cutmix=cutmix, seed=seed
    )


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


def write_tfrecord_set(data_dir, name, parts, features, version="1.0.0", shards=2, classes=3):
    """A set as TensorFlow Datasets prepares it: parts is name -> list of features of an example."""
    folder = data_dir / name / version
    folder.mkdir(parents=True)
    splits = []
    for part, examples in parts.items():
        pieces = np.array_split(np.arange(len(examples)), shards)
        for number, piece in enumerate(pieces):
            file = f"{name.split('/')[0]}-{part}.tfrecord-{number:05d}-of-{shards:05d}"
            records = [serialize(examples[index]) for index in piece]
            (folder / file).write_bytes(b"".join(map(_framed, records)))
        splits.append({"name": part, "shardLengths": [str(len(piece)) for piece in pieces]})
    info = {"name": name.split("/")[0], "splits": splits, "fileFormat": "tfrecord"}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    described = {feature: {} for feature in features}
    described["label"] = {"classLabel": {"numClasses": str(classes)}}
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": described}}))
    return folder


def _framed(record):
    length = struct.pack("<Q", len(record))
    return length + _checksum(length) + record + _checksum(record)


def _checksum(content):
    """As a TFRecord holds it: turned by 15 bits and moved."""
    value = crc32c(content)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) % 2**32)


def crc32c(content):
    """The CRC-32C of bytes, bit by bit."""
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def serialize(features):
    """A `tf.train.Example` of bytes, floats and whole numbers."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = _field(1, _field(1, value))
        elif np.asarray(value).dtype.kind == "f":
            feature = _field(2, _field(1, np.asarray(value, "<f4").tobytes()))
        else:
            packed = b"".join(_varint(int(v) % 2**64) for v in np.ravel(value))
            feature = _field(3, _field(1, packed))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


def _field(number, content):
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value):
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])
