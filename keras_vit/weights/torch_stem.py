"""The ResNet stem of hybrids under the names that timm and Hugging Face share, both ways."""

import re

import numpy as np


def unit_name(stage, unit, rest):
    """Canonical name of a part of a unit; PyTorch counts stages and units from 0."""
    return f"stage_{int(stage) + 1}_unit_{int(unit) + 1}/{rest}"


def conv_kernel(kernel):
    """(out, in, height, width) -> (height, width, in, out)."""
    if kernel.ndim != 4:
        raise ValueError("a convolution has 4 axes")
    return np.ascontiguousarray(kernel.transpose(2, 3, 1, 0))


def table(root_conv, root_norm, unit):
    """Rows for `rename`.

    Args:
        root_conv, root_norm: patterns of the names of the two modules of the root.
        unit: pattern of the name of a unit, with two groups, its stage and number.
    """
    rows = [(root_conv + r"\.weight", "root/conv/kernel", conv_kernel)]
    for theirs, ours in (("weight", "gamma"), ("bias", "beta")):
        rows += [
            (rf"{root_norm}\.{theirs}", f"root/norm/{ours}", None),
            (rf"{unit}norm(\d)\.{theirs}", _part("norm{}/" + ours), None),
            (rf"{unit}downsample\.norm\.{theirs}", _part("norm_proj/" + ours), None),
        ]
    return (
        *rows,
        (rf"{unit}conv(\d)\.weight", _part("conv{}/kernel"), conv_kernel),
        (rf"{unit}downsample\.conv\.weight", _part("conv_proj/kernel"), conv_kernel),
    )


def _part(text):
    return lambda stage, unit, *number: unit_name(stage, unit, text.format(*number))


def is_stem(name):
    """Whether a canonical name is of the stem."""
    return bool(re.match(r"root/|stage_\d+_unit_\d+/", name))


def write(name, array, root_conv, root_norm, unit):
    """Name and array in a state dict of a canonical name of the stem.

    Args:
        name, array: in canonical form.
        root_conv, root_norm: names of the two modules of the root.
        unit: name of a unit, with places for the numbers of its stage and itself.
    """
    layer, part, kind = name.split("/")
    kind = {"kernel": "weight", "gamma": "weight", "beta": "bias"}[kind]
    array = array.transpose(3, 2, 0, 1) if array.ndim == 4 else array
    if layer == "root":
        module = root_conv if part == "conv" else root_norm
    else:
        stage, number = (
            int(n) - 1 for n in re.fullmatch(r"stage_(\d+)_unit_(\d+)", layer).groups()
        )
        part = {"conv_proj": "downsample.conv", "norm_proj": "downsample.norm"}.get(part, part)
        module = unit.format(stage, number) + part
    return f"{module}.{kind}", np.ascontiguousarray(array)
