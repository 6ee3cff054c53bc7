"""Names of google-research/big_transfer, the published BiT-*.npz, <-> canonical names.

A counter may follow `standardized_conv2d` and `group_norm`, and the head is a 1 x 1 convolution.
"""

import re

import numpy as np

from keras_vit.weights.bit_canonical import canonical_of, vector
from keras_vit.weights.canonical import rename

FAMILY = "google-research/big_transfer"
CONV = r"standardized_conv2d(?:_\d+)?/kernel"
NORM = r"group_norm(?:_\d+)?/(gamma|beta)"
UNIT = r"resnet/block0*([1-9]\d*)/unit0*([1-9]\d*)/"
OURS = r"stage_\1_unit_\2/"
LETTERS = {"a": 1, "b": 2, "c": 3}


def flat_head(kernel):
    """(1, 1, features, classes) -> (features, classes)."""
    if kernel.ndim != 4 or kernel.shape[:2] != (1, 1):
        raise ValueError("a 1 x 1 convolution has the shape (1, 1, features, classes)")
    return kernel[0, 0]


TABLE = (
    (f"resnet/root_block/{CONV}", "root/conv/kernel", None),
    *(
        row
        for letter, number in LETTERS.items()
        for row in (
            (f"{UNIT}{letter}/{CONV}", rf"{OURS}conv{number}/kernel", None),
            (f"{UNIT}{letter}/{NORM}", rf"{OURS}norm{number}/\3", vector),
        )
    ),
    (f"{UNIT}a/proj/{CONV}", rf"{OURS}conv_proj/kernel", None),
    (f"resnet/{NORM}", r"norm/\1", vector),
    (r"resnet/head/conv2d/kernel", "head/kernel", flat_head),
    (r"resnet/head/conv2d/bias", "head/bias", None),
)


def recognises(arrays):
    """Whether these are the names of this family."""
    return any(re.match(r"resnet/(root_block|block\d+)/", name) for name in arrays)


def read(contents, hints):
    """The `Canonical` of a file; arguments and errors as in `google.read`."""
    return canonical_of(FAMILY, rename(contents.arrays, TABLE, FAMILY), "bit", hints)


def write(model, arrays):
    """The arrays of a published file from canonical ones.

    Args:
        model: a `BiT` of version `"v2"`.
        arrays: dict from canonical name to array.
    """
    file = {}
    for name, array in arrays.items():
        if name == "head/kernel":
            array = array[None, None]
        file[_published(name)] = np.ascontiguousarray(array)
    return file


def _published(name):
    layer, *part, kind = name.split("/")
    if layer == "head":
        return f"resnet/head/conv2d/{kind}"
    if layer == "norm":
        return f"resnet/group_norm/{kind}"
    if layer == "root":
        return f"resnet/root_block/standardized_conv2d/{kind}"
    stage, unit = re.fullmatch(r"stage_(\d+)_unit_(\d+)", layer).groups()
    if part == ["conv_proj"]:
        place = "a/proj/standardized_conv2d"
    else:
        what = {"conv": "standardized_conv2d", "norm": "group_norm"}[part[0][:-1]]
        place = f"{'abc'[int(part[0][-1]) - 1]}/{what}"
    return f"resnet/block{stage}/unit{int(unit):02d}/{place}/{kind}"


def impossible(model):
    """What of a model the format has no place for, as texts."""
    return ["version='v1'"] if model.variant.version != "v2" else []


def obstacles(variant):
    """What of `variant` the authors' code cannot compute, as texts."""
    return [f"numerics={variant.numerics!r}"] if variant.numerics != "bit" else []
