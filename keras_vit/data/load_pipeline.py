"""A recipe and a dataset become a `Pipeline`."""

import os

from keras_vit.checks import positive_int
from keras_vit.data.open_examples import open_examples
from keras_vit.data.pipeline import Pipeline
from keras_vit.data.schedule import Schedule, Unreadable
from keras_vit.data.split_syntax import starts_training
from keras_vit.data.stream import Stream, choose_engine


def load_pipeline(
    source,
    recipe,
    split=None,
    batch=None,
    *,
    engine="auto",
    training=None,
    seed=None,
    data_dir=None,
    channels=None,
    threads=None,
    load_in_memory=None,
):
    """Opens a split of a dataset for a recipe; the arguments are those of `keras_vit.data.load`.

    Args:
        load_in_memory: name or path -> `ImageDataset`, for what is held in memory.

    Returns:
        A `Pipeline`.

    Raises:
        ValueError, ImportError: see `keras_vit.data.load`.
    """
    examples = open_examples(source, data_dir, load_in_memory)
    if split is None and training is None:
        training = True
    split = _split(split, recipe, examples)
    rows = examples.rows(split)
    if training is None:
        training = starts_training(split)
    if batch is None:  # a part of an update where the recipe accumulates gradients
        batch = getattr(recipe, "micro_batch_size", recipe.batch_size)
    batch = positive_int(batch, "batch")
    if training and batch > len(rows):
        raise ValueError(
            f"A batch for training must not be larger than the split. Received: batch={batch}, "
            f"and {len(rows)} examples in {split!r} of {examples.name}; pass batch=..."
        )
    seed = recipe.seed if seed is None else seed
    stream = Stream(
        examples=examples,
        schedule=Schedule(rows, batch, training, seed, Unreadable(examples.place, len(rows))),
        transform=recipe.train if training else recipe.eval,
        mixup=float(recipe.mixup or 0),
        cutmix=float(recipe.cutmix or 0),
        channels=_channels(examples, channels),
        threads=_cores() if threads is None else positive_int(threads, "threads"),
    )
    return Pipeline(stream, choose_engine(engine, stream), split)


def _split(split, recipe, examples):
    """The split asked for, or what the recipe means by it where the set has no such part.

    Of CIFAR, which has no validation part, a recipe keeps the last examples of the training part:
    the test part must not take their place.
    """
    if split is None:
        return getattr(recipe, "train_split", None) or "train"
    if split not in ("validation", "test") or {split, "all"} & set(examples.parts):
        return split
    return getattr(recipe, f"{split}_split", None) or split


def _channels(examples, channels):
    """The channels asked for, or what there is: 3 where images must be decoded."""
    present = 3 if examples.encoded else examples.read(0)[0].shape[-1]
    if channels not in (None, present) and {channels, present} != {1, 3}:
        raise ValueError(
            f"{examples.name} has {present} channels, which can become 1 or 3 only where they are "
            f"3 or 1. Received: channels={channels!r}"
        )
    return channels or present


def _cores():
    """The processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
