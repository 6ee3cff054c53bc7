"""The examples of a dataset that TensorFlow Datasets has prepared."""

import bisect
import itertools
import os

from keras_vit.data.example_proto import parse_example
from keras_vit.data.examples import Examples
from keras_vit.data.records import FORMATS

_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


class RecordExamples(Examples):
    """The examples of a prepared dataset, each read from its place in its file.

    Args:
        name: what to call the set.
        prepared: from `keras_vit.data.tfds_sets.find_prepared`.
        task: a `keras_vit.data.vtab.Task`, or None for the features image and label.

    Raises:
        ValueError: missing files, an unknown file format, or no such features.
        ImportError: array_record is not installed and the files need it.
    """

    def __init__(self, name, prepared, task=None):
        self._task = task
        self.encoded = task is None or task.decode is None
        shards = {split["name"]: _shards(prepared, split) for split in prepared.info["splits"]}
        sizes = {part: sum(count for _, count in found) for part, found in shards.items()}
        shards = {part: found for part, found in shards.items() if sizes[part]}
        super().__init__(name, _class_names(prepared, task), {part: sizes[part] for part in shards})
        self._shards = [shard for found in shards.values() for shard, _ in found]
        counts = [count for found in shards.values() for _, count in found]
        self._starts = list(itertools.accumulate(counts, initial=0))

    def resolve(self, split):
        if self._task is None or not isinstance(split, str):
            return split
        named = self._task.splits(self.parts)
        return "+".join(named.get(piece.strip(), piece) for piece in split.split("+"))

    def read(self, row):
        shard, index = self._find(row)
        features = parse_example(shard.read(index))
        label = self._label(features)
        if not 0 <= label < len(self.class_names):
            raise ValueError(f"label {label} is outside 0..{len(self.class_names) - 1}")
        image = features["image"][0]
        return (image if self.encoded else self._task.decode(image)), label

    def place(self, row):
        shard, index = self._find(row)
        return f"{shard.path}, record {index}"

    def _find(self, row):
        number = bisect.bisect_right(self._starts, int(row)) - 1
        return self._shards[number], int(row) - self._starts[number]

    def _label(self, features):
        return int(features["label"][0]) if self._task is None else self._task.label(features)


def _shards(prepared, split):
    """The files of a part: list of (shard, number of records)."""
    file_format = prepared.info.get("fileFormat", "tfrecord")
    if file_format not in FORMATS:
        raise ValueError(
            f"{prepared.folder} is in the format {file_format!r}; prepare it as one of "
            f"{', '.join(FORMATS)}, such as with tfds build --file_format=array_record."
        )
    template = os.path.basename(split.get("filepathTemplate") or _TEMPLATE)
    counts = [int(count) for count in split.get("shardLengths", [])]
    found = []
    for number, count in enumerate(counts):
        path = prepared.folder / template.format(
            DATASET=prepared.info["name"],
            SPLIT=split["name"],
            FILEFORMAT=file_format,
            SHARD_X_OF_Y=f"{number:05d}-of-{len(counts):05d}",
            SHARD_INDEX=f"{number:05d}",
            NUM_SHARDS=f"{len(counts):05d}",
        )
        if not path.is_file():
            raise ValueError(
                f"{prepared.folder} is incomplete; prepare or copy it again. Received: no file "
                f"{path.name}, one of {len(counts)} of the part {split['name']!r}"
            )
        found.append((FORMATS[file_format](path, count), count))
    return found


def _class_names(prepared, task):
    features = prepared.features
    if task is None and not {"image", "label"} <= set(features):
        raise ValueError(
            f"{prepared.folder} must have the features image and label. Received: "
            f"{', '.join(features) or 'none'}; VTAB tasks choose others, see VTAB_TASKS"
        )
    described = features.get("label", {}).get("classLabel", {})
    count = int(described.get("numClasses", 0)) if task is None else task.num_classes
    path = prepared.folder / "label.labels.txt"
    names = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    names = names[:-1] if names and not names[-1] else names
    if len(names) == count and count:
        return names
    if not count:
        raise ValueError(
            f"The label of {prepared.folder} must be a class label. Received: {features['label']}"
        )
    return [str(number) for number in range(count)]
