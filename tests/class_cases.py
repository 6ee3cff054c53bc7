"""Images of three classes, under names and in an order that a test chooses."""

import numpy as np

from keras_vit.data import ImageDataset, Transform, pipeline
from tests.data.pipeline_cases import recipe

SIZE, ABC = 16, ("a", "b", "c")
LABELS = (np.arange(12) % 3).astype("int32")
PIXELS = np.random.default_rng(0).integers(0, 256, (12, SIZE, SIZE, 3), "uint8")
PIXELS //= 1 + LABELS[:, None, None, None].astype("uint8")  # so that classes are to be told
RECIPE = recipe(4, Transform(SIZE, "squash"))


def stored(names=ABC, kept=ABC, problem="single_label", order=ABC):
    """The images of some classes: `names` call them in the order of their numbers there."""
    rows = np.flatnonzero(np.isin(np.array(order)[LABELS], kept))
    labels = np.array([names.index(order[label]) for label in LABELS[rows]])
    if problem == "multi_label":
        labels = np.eye(len(names))[labels]
    parts = (PIXELS[rows], labels) * 2
    return ImageDataset("set", *parts, names, problem=problem)


def fed(*names, **options):
    return pipeline(stored(*names), RECIPE, "train", training=options.pop("training", False))
