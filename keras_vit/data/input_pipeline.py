"""From a data set to batches for `model.fit`; `training_batches` has the steps, each of Grain.

`pipeline` opens a set, and a `Pipeline` is what Keras takes.
"""

import copy
import functools
import json
import math
import os
from typing import Any

import keras
import numpy as np

from keras_vit.checks import check_choice, positive_int, whole
from keras_vit.data import keras_layers
from keras_vit.data.batches import KerasBatches, import_grain, part_of_process, threads_for
from keras_vit.data.dataset import problem_told
from keras_vit.data.label_rows import LabelRows, balanced_class_weights, count_missing
from keras_vit.data.load import check_seed, open_source
from keras_vit.data.mixing import mix
from keras_vit.data.pixels import per_channel
from keras_vit.data.reader import Reader, Unreadable
from keras_vit.data.resize import as_loaded
from keras_vit.data.sources import starts_training
from keras_vit.models.backbone import image_shape_of


def training_batches(reader, recipe, *, batch_size, seed, process, processes):
    """The batches to train on, by step and without end: a `grain.MapDataset`.

    A batch is (images, labels, notes), see `Reader`; its images are normalised at the very end,
    by `KerasBatches`. Grain seeds each random step by its place in this chain: with one step more
    or fewer, runs begun before would get others.

    Args:
        reader: a `Reader` of the examples, with their transform.
        recipe: its `augment_layers`, `mixup` and `cutmix` are for whole batches.
        batch_size: examples per batch, of all processes together.
        seed: decides all that is random.
        process, processes: which of how many processes gets its images of each batch.
    """
    layers, mixup, cutmix = recipe.augment_layers, recipe.mixup, recipe.cutmix
    is_mixed = bool(layers or mixup or cutmix)
    # Each process reads only its images of a batch, but all of one that is mixed.
    number, count = (0, 1) if is_mixed else (process, processes)

    dataset = import_grain().MapDataset.source(reader.rows).seed(seed)
    dataset = dataset.shuffle()  # anew in each epoch
    dataset = dataset.random_map(reader)  # reads and transforms an image
    dataset = dataset[: len(reader.rows) // batch_size * batch_size]  # full batches only
    dataset = dataset.batch(batch_size // count, batch_fn=list)[number::count]
    dataset = dataset.map(reader.collate)
    if layers:
        dataset = dataset.random_map(functools.partial(keras_layers.augment, configs=layers))
    if mixup or cutmix:
        dataset = dataset.random_map(functools.partial(mix, mixup_alpha=mixup, cutmix_alpha=cutmix))
    if is_mixed:
        cut = functools.partial(part_of_process, process=process, processes=processes)
        dataset = dataset.map(lambda batch: (cut(batch[0]), cut(batch[1]), batch[2]))
    return dataset.repeat()


def evaluation_batches(reader, *, batch_size, seed, process, processes):
    """The batches to evaluate on, in order, by step: a `grain.MapDataset` of one pass."""
    batches = np.split(reader.rows, range(batch_size, len(reader.rows), batch_size))
    rows = np.concatenate([part_of_process(batch, process, processes) for batch in batches])
    dataset = import_grain().MapDataset.source(rows).seed(seed)
    dataset = dataset.random_map(reader)
    return dataset.batch(batch_size // processes, batch_fn=reader.collate)


def pipeline(
    source: Any,
    recipe: Any,
    split: str | None = None,
    batch_size: int | None = None,
    *,
    training: bool | None = None,
    seed: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    channels: int | None = None,
    threads: int | None = None,
    workers: int = 0,
    labels: Any = None,
    problem: str | dict[str, str] | None = None,
    model: keras.Model | None = None,
) -> "Pipeline":
    """Opens a split of a dataset as batches for `model.fit`, `evaluate` and `predict`.

        train = pipeline("cifar10", recipe)          # shuffled, augmented, one-hot labels
        test = pipeline("cifar10", recipe, "test")   # in order, class numbers

    Args:
        source: what `keras_vit.data.load` takes; a task of VTAB, such as "vtab/clevr_count"; an
            `ImageDataset`; arrays (images, labels), or two such pairs to train and to test.
        recipe: a `keras_vit.recipes.Recipe`.
        split: "train", "validation" or "test", a slice as "train[:98%]", several joined by "+", or
            a split of VTAB as "train800val200"; None is what the recipe trains on. Where
            the set lacks the validation or the test part, the recipe's slice or the other part
            serves. Slices of folders, and of arrays sorted by label, are drawn from all of them.
        batch_size: images per batch; None is the recipe's, of one update or of a part of it.
        training: whether to shuffle, augment and mix. None: if the split begins with the first
            training example, so "train[:98%]" does and "train[98%:]" does not.
        seed: whole number that decides order and augmentation; None is the recipe's.
        data_dir, labels, problem: as in `load`. Arrays of labels of several classes are known by
            their rows of 0 and 1, unless each row has a single 1. Labels of several heads are
            dicts, and `problem` is {head: problem}.
        channels: 1 (grayscale) or 3 (RGB); None is what `model` takes or there is, 3 of image
            files. One channel is normalised by the means of the recipe's three.
        threads: batches to read at a time, in each process; None is the number of cores.
        workers: processes that read beside this one; 0 reads in threads of this one only.
        model: whose weights decide about the images: short for `recipe.for_weights(model)`.

    Raises:
        ValueError, ImportError: as in `load`.
    """
    recipe = recipe if model is None else recipe.for_weights(model)
    source = open_source(source, data_dir, labels, problem)
    check_choice("training", training, (None, True, False))
    if split is None:
        split, training = recipe.train_split, training is None or training
    # CIFAR's recipes hold out the last training examples, which the test part must not replace.
    fallbacks = {"test": recipe.test_split, "validation": recipe.validation_split}
    split = source.with_fallbacks(str(split), fallbacks)
    if channels is None:
        channels = image_shape_of(model)[2] or source.channels or 3
    check_choice("channels", channels, (1, 3))
    batch_size = recipe.micro_batch_size if batch_size is None else batch_size
    return Pipeline(
        source,
        recipe,
        split,
        batch_size=positive_int(batch_size, "batch_size"),
        training=starts_training(split) if training is None else bool(training),
        seed=check_seed(recipe.seed if seed is None else seed, "seed"),
        channels=channels,
        threads=threads_for(source, recipe.train.image_size, threads),
        workers=whole(workers, "workers"),
    )


class Pipeline(KerasBatches):
    """Batches of a split as a recipe wants them; made by `pipeline`.

    The batch of a step is a function of (seed, step), whatever threads and processes read it and
    wherever a run was interrupted. Steps are counted from epoch 0 on, over all epochs. Iterating
    gives one epoch and reads ahead. `model.fit` takes the object as well: each epoch of Keras shows
    the next one, in its order for models of this library; `fit` of others needs `shuffle=False`.

    In training, images are shuffled, augmented and mixed, an epoch has only full batches, and
    labels are one-hot float32. Otherwise images come in order, the last batch is smaller, nothing
    is left out, and labels are int32. Images are float32 NumPy arrays. `label_rows` has the form of
    other labels: several classes at once, several heads, or values.

    An example that cannot be read is replaced by the next one in training and left out in
    evaluation, with a warning, and listed in `skipped`; too many of them are an error.

    Attributes:
        name, split, batch_size, seed, training: see `pipeline`.
        source, rows: where the examples are read, and their numbers there.
        num_examples: in the split, unreadable ones included.
        problem, num_classes, class_names, left_out: see `keras_vit.data.ImageDataset`; the classes
            of a regression are its targets. Of several heads the first three are dicts by head.
        missing: {head: how many examples of the split lack its label}, of heads that some lack.
        label_rows: what makes labels for Keras, a `keras_vit.data.label_rows.LabelRows`.
        preprocessing: that of the recipe's evaluation; a model trained with the pipeline keeps it.
        image_shape: (height, width, channels).
        steps_per_epoch: how many batches an epoch has, full ones in training.
        start: the step at which this object begins.
    """

    def __init__(
        self,
        source: Any,
        recipe: Any,
        split: str,
        *,
        batch_size: int,
        training: bool,
        seed: int,
        channels: int,
        threads: int,
        workers: int,
    ):
        transform = recipe.train if training else recipe.eval
        self.image_shape = (*transform.image_size, channels)
        self.preprocessing = recipe.eval.preprocessing
        if {len(self.preprocessing.mean), channels} == {1, 3}:
            self.preprocessing = self.preprocessing.for_channels(channels)
        if source.resized is not None:
            self.preprocessing = as_loaded(self.preprocessing, source.resized, self.image_shape[:2])
        self.source, self.split, self.rows = source, split, source.rows(split)
        self.name, self.problem, self.class_names = source.name, source.problem, source.class_names
        self.num_classes, self.num_examples = source.num_classes, len(self.rows)
        self.left_out, self.missing = source.left_out, count_missing(source, self.rows)
        self.batch_size, self.training, self.seed = batch_size, training, seed

        self.label_rows = LabelRows(source, one_hot=training, weighted=bool(self.missing))
        self._reader = Reader(source, self.rows, transform, channels, self.label_rows, training)
        self._unreadable = Unreadable(source, self.num_examples)
        self._recipe = recipe
        if training and batch_size > self.num_examples:
            raise ValueError(
                "A batch for training must not be larger than the split. Received: batch_size="
                f"{batch_size}, and {self.num_examples} examples in {split!r} of {self.name}; give "
                "a smaller batch_size."
            )
        if training:
            batch_shape = batch_size, *self.image_shape
            keras_layers.check(recipe.augment_layers, batch_shape, self.label_rows.width)
        epoch = self.num_examples / batch_size
        super().__init__(
            self._batches(process=0, processes=1),
            empty_batch=self._reader.collate([]),
            steps_per_epoch=math.floor(epoch) if training else math.ceil(epoch),
            scale=per_channel(self.preprocessing, channels),
            threads=threads,
            processes=workers,
        )

    def balanced_class_weights(self) -> tuple[float, ...] | dict[str, tuple[float, ...]]:
        """A weight for each class, so that all count alike in a loss; of heads {head: weights}.

        Class k has n / (K · n_k), where n_k of n images of K classes are its own, as scikit-learn's
        `compute_class_weight("balanced")`. A head whose labels are no classes has ().

        Raises:
            ValueError: images with other labels than one class of several, or a class without any.
        """
        return balanced_class_weights(self.source, self.rows)

    def _batches(self, **part):
        """The batches by step, or a process's part of each: a `grain.MapDataset`."""
        options = {"batch_size": self.batch_size, "seed": self.seed, **part}
        if self.training:
            return training_batches(self._reader, self._recipe, **options)
        return evaluation_batches(self._reader, **options)

    @property
    def skipped(self):
        """Where the examples lie that could not be read so far, a tuple of text."""
        return self._unreadable.places()

    @property
    def settings(self):
        """What decides about the batches, besides the recipe, as a dict that JSON can hold."""
        names = ["name", "split", "num_examples", "batch_size", "seed", "training"]
        settings = {name: getattr(self, name) for name in names}
        # Earlier runs, which can be continued, have neither of these.
        settings |= {"problem": self.problem} if self.problem != "single_label" else {}
        settings |= {"units": self.label_rows.units} if self.label_rows.units else {}
        # As text, since each item of a list would be a setting of its own.
        settings["class_names"] = json.dumps(self.class_names, ensure_ascii=False)
        return settings | {"labels": self.source.digest(self.rows)}

    def overlaps(self, other: Any) -> bool:
        """Whether another pipeline has some of these examples, as far as that is known."""
        source, compared = self.source, getattr(other, "source", None)
        if compared is None or source.content is None or source.content != compared.content:
            return False
        return source.parts == compared.parts and bool(np.isin(self.rows, other.rows).any())

    def shard(self, process: int, processes: int) -> "Pipeline":
        """A `Pipeline` of one process's images of every batch; of the last one they may be none.

        `process` counts from 0, and `batch_size` must be a multiple of `processes`. Only these
        images are read, unless images are mixed.
        """
        processes = positive_int(processes, "processes")
        if process not in range(processes) or self.batch_size % processes:
            raise ValueError(
                "process must be in 0..processes-1, and batch_size a multiple of processes. "
                f"Received: {process=}, {processes=}, batch_size={self.batch_size}"
            )
        other = copy.copy(self)
        other._dataset = self._batches(process=process, processes=processes)
        return other

    def _for_keras(self, batch):
        images, labels, notes = batch
        self._unreadable.add(notes)
        return images, *self.label_rows.labels(labels)

    def get_state(self):
        """What a run remembers: (row, reason) of each example that could not be read."""
        return [[int(row), reason] for row, reason in self._unreadable.items()]

    def set_state(self, state):
        self._unreadable.update(state)

    def __repr__(self):
        return (
            f"Pipeline({self.name!r}, {self.split!r}, examples={self.num_examples}, "
            f"batch_size={self.batch_size}, image={'x'.join(map(str, self.image_shape))}, "
            f"classes={self.num_classes}, steps_per_epoch={self.steps_per_epoch}, "
            f"training={self.training}, start={self.start}, skipped={len(self.skipped)}"
            f"{problem_told(self.problem)})"
        )
