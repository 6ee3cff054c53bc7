"""Datasets that TensorFlow Datasets has prepared on disk. Nothing is downloaded.

ArrayRecord files are read one example at a time, by number. TFRecord files, which
TensorFlow Datasets writes by default, have no numbers: a set that fits in memory is read once with
TensorFlow and kept as it is encoded; a larger one must be converted first.
"""

import os
import re
from pathlib import Path

from keras_vit.checks import needs_extra, require
from keras_vit.data.dataset import MOST_CLASSES
from keras_vit.data.sources import Source

MAX_BYTES = 4 * 2**30  # of a TFRecord set that is read into memory
# What the recipes and VTAB use; any other name is found if it lies in the data folder.
TFDS_SETS = tuple(
    "caltech101 cifar10 cifar100 clevr diabetic_retinopathy_detection dmlab dsprites dtd eurosat "
    "imagenet2012 imagenet21k kitti mnist oxford_flowers102 oxford_iiit_pet patch_camelyon "
    "resisc45 smallnorb sun397 svhn_cropped".split()
)
INFO = "dataset_info.json"
_NAME = re.compile(r"^(?P<name>\w+)(?:/(?P<config>[\w.-]+))?(?::(?P<version>[\d.*]+))?$")


def data_folder(data_dir=None):
    """Where TensorFlow Datasets puts its files: `TFDS_DATA_DIR`, or a folder at home."""
    return Path(data_dir or os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()


def find_prepared(dataset, data_dir=None, major=None):
    """The folder of a prepared dataset, such as `"name"`, `"name/config"` or `"name:3.*.*"`.

    It has the major version wanted if that is there, otherwise the newest.
    """
    data_dir = data_folder(data_dir)
    match = _NAME.match(dataset)
    rule = "A dataset is called 'name', 'name/config' or 'name/config:version'"
    require(match, rule, received=dataset)
    name, config, version = match.groups()
    # Without a configuration in the name, the newest of any that is there.
    patterns = [f"{name}/{config}/*"] if config else [f"{name}/*", f"{name}/*/*"]
    folders = [path.parent for at in patterns for path in data_dir.glob(f"{at}/{INFO}")]
    wanted = re.compile((version or "*.*.*").replace(".", r"\.").replace("*", r"\d+") + "$")
    versions = {tuple(map(int, p.name.split("."))): p for p in folders if wanted.match(p.name)}
    if not versions:
        raise ValueError(
            f"The dataset {dataset!r} is not on disk. Received: data_dir={str(data_dir)!r} (looked "
            f"for {data_dir / name}/.../{INFO}). {how_to_prepare(dataset, data_dir)}"
        )
    return versions[max(versions, key=lambda numbers: (numbers[0] == major, numbers))]


def how_to_prepare(dataset, data_dir):
    """How a dataset comes into the data folder, as a part of a message."""
    if dataset.startswith("imagenet21k"):
        return (
            "TensorFlow Datasets does not have it: put one folder of images per class into "
            f"{data_dir}/imagenet21k/train, from image-net.org."
        )
    text = f" Or put one folder of images per class into {data_dir}/imagenet2012/train."
    return (
        "On a machine with network, prepare it with:\n"
        '  pip install "keras3-vit[tfds,tensorflow]"\n'
        f"  tfds build {dataset} --data_dir={data_dir} --file_format=array_record\n"
        "and pass that folder as data_dir, or set TFDS_DATA_DIR."
        f"{text if dataset.startswith('imagenet2012') else ''}"
    )


class PreparedSource(Source):
    """The examples of the prepared dataset in a folder, whose images stay encoded.

    `task` is a `keras_vit.data.vtab.Task`, or None for the features image and label.
    """

    def __init__(self, name, folder, task=None):
        with needs_extra("tfds", f"{folder} was prepared by TensorFlow Datasets, which reads it"):
            import tensorflow_datasets as tfds
        self._folder, self._task, self._examples = folder, task, {}
        self.content = str(folder)
        self._skip = {"image": tfds.decode.SkipDecoding()}
        try:
            # Reads this folder only, whereas tfds.load may download.
            self._builder = tfds.builder_from_directory(str(folder))
            features = dict(self._builder.info.features or {})
            splits = self._builder.info.splits.items()
            sizes = {part: info.num_examples for part, info in splits if info.num_examples}
        except Exception as error:  # of many kinds, for files of JSON that say something else
            raise self._damaged(error) from error
        label = features.get("label")
        count = getattr(label, "num_classes", 0) or 0
        if count > MOST_CLASSES or (task is None and (not count or "image" not in features)):
            raise ValueError(
                f"{folder} must have the features image and label, of at most {MOST_CLASSES} "
                f"classes. Received: {', '.join(features) or 'none'}, and {count} classes; tasks "
                "of VTAB, such as 'vtab/clevr_count', choose other features"
            )
        names = label.names if task is None or count == task.num_classes else None
        names = map(str, range(task.num_classes)) if names is None else names
        super().__init__(name, names, sizes)

    def __getitem__(self, row):
        part, index = self.find(row)
        example = self._examples[part][index]
        label = int(example["label"]) if self._task is None else self._task.label(example)
        if not 0 <= label < len(self.class_names):
            raise ValueError(f"label {label} is outside 0..{len(self.class_names) - 1}")
        decode = self._task and self._task.decode
        return (decode(example["image"]) if decode else example["image"]), label

    def rows(self, split):
        """See `Source.rows`, for VTAB's own splits as well; opens the parts that they need."""
        if self._task is not None and isinstance(split, str):
            named = self._task.splits(self.parts)
            split = "+".join(named.get(piece.strip(), piece) for piece in split.split("+"))
        rows = super().rows(split)
        for part in {self.find(row)[0] for row in rows} - set(self._examples):
            self._examples[part] = self._open(part)
        return rows

    def _open(self, part):
        """The examples of a part by number: a sequence of dicts of features."""
        files = [Path(path) for path in self._builder.info.splits[part].filepaths]
        if missing := [path.name for path in files if not path.is_file()]:
            raise self._damaged(f"no file {missing[0]}, one of {len(files)} of the part {part!r}")
        try:
            return self._builder.as_data_source(part, decoders=self._skip)
        except NotImplementedError:  # a format without random access, such as TFRecord
            size = sum(path.stat().st_size for path in files)
        except (OSError, RuntimeError) as error:
            raise self._damaged(error) from error
        convert = (
            "Convert it once, beside the old files, with apache-beam and tensorflow installed:\n"
            f"  tfds convert_format --dataset_version_dir={self._folder} "
            "--out_file_format=array_record"
        )
        if size > MAX_BYTES:
            raise ValueError(
                f"TFRecord files are read into memory up to {MAX_BYTES / 2**30:.3g} GiB. Received: "
                f"{size / 2**30:.3g} GiB in the part {part!r}. {convert}"
            )
        need = f"{convert}\nOr read the TFRecord files of {self._folder} with TensorFlow"
        with needs_extra("tensorflow", need):
            import tensorflow as tf
            import tensorflow_datasets as tfds
        dataset = self._builder.as_dataset(part, decoders=self._skip, shuffle_files=False)
        try:
            return list(tfds.as_numpy(dataset))
        except tf.errors.OpError as error:
            raise self._damaged(error) from error

    def _damaged(self, reason):
        if isinstance(reason, Exception):
            reason = f"{type(reason).__name__}: {reason}"
        text = f"{self._folder} is incomplete or damaged; prepare or copy it again."
        return ValueError(f"{text} Received: {reason}")
