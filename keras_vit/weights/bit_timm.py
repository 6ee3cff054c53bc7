"""Names of timm's BiT ResNets, `resnetv2_*_bit`, <-> canonical names.

timm stores kernels as (out, in, height, width), counts from 0, and keeps the head as a 1 x 1
convolution.
"""

import re

import numpy as np

from keras_vit.models.bit_variants import BIT_VARIANTS
from keras_vit.weights import torch_stem
from keras_vit.weights.bit_canonical import canonical_of
from keras_vit.weights.canonical import rename, shortened
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.timm_config import preprocessing_of
from keras_vit.weights.timm_save import pretrained_cfg

FAMILY = "timm (BiT)"
UNIT = r"stages\.(\d+)\.blocks\.(\d+)\."
DEFAULTS = {"crop_pct": 0.875, "interpolation": "bilinear"}  # of timm's resnetv2.py


def flat_head(kernel):
    """(classes, features, 1, 1), or a matrix, -> (features, classes)."""
    if kernel.ndim == 4 and kernel.shape[2:] == (1, 1):
        kernel = kernel[:, :, 0, 0]
    if kernel.ndim != 2:
        raise ValueError("a head has the shape (classes, features, 1, 1)")
    return kernel.T


TABLE = (
    *torch_stem.table(r"stem\.conv", r"stem\.norm", UNIT),
    (r"norm\.weight", "norm/gamma", None),
    (r"norm\.bias", "norm/beta", None),
    (r"head\.fc\.weight", "head/kernel", flat_head),
    (r"head\.fc\.bias", "head/bias", None),
)
ENDS = {"norm/gamma": "norm.weight", "norm/beta": "norm.bias", "head/bias": "head.fc.bias"}


def recognises(arrays):
    """Whether these are the names of this family."""
    return any(re.match(UNIT + r"(conv[123]|downsample\.conv)\.weight$", name) for name in arrays)


def read(contents, hints):
    """The `Canonical` of a state dict; arguments and errors as in `google.read`."""
    other = [name for name in contents.arrays if re.match(r"stem\.norm\.|.*running_mean$", name)]
    if other:
        raise CheckpointError(
            f"The file is of another ResNet: it has {shortened(sorted(other))}. Of timm's, those "
            "with group norm before the convolutions are read, resnetv2_*_bit."
        )
    renamed = rename(contents.arrays, TABLE, FAMILY)
    settings = contents.config.get("pretrained_cfg", {})
    size = settings.get("input_size")
    preprocessing, unsaid = preprocessing_of({**DEFAULTS, **settings})
    canonical = canonical_of(
        FAMILY,
        renamed,
        "timm",
        hints,
        {"image_size": tuple(size[1:])} if size else {},
        preprocessing=preprocessing,
    )
    canonical.ignored = (*unsaid, *canonical.ignored)
    return canonical


def write(model, arrays):
    """The arrays of a state dict from canonical ones."""
    return dict(_written(name, array) for name, array in arrays.items())


def _written(name, array):
    if name == "head/kernel":
        return "head.fc.weight", np.ascontiguousarray(array.T[:, :, None, None])
    if name in ENDS:
        return ENDS[name], array
    return torch_stem.write(name, array, "stem.conv", "stem.norm", "stages.{}.blocks.{}.")


def config(model):
    """`config.json` as timm's hub has it: the architecture and its arguments."""
    return {
        "architecture": _architecture(model.variant) or "resnetv2_50x1_bit",
        "num_classes": model.num_classes,
        "num_features": model.variant.features,
        "global_pool": "avg",
        "model_args": {"in_chans": model.channels, "num_classes": model.num_classes},
        "pretrained_cfg": {"fixed_input_size": False, **pretrained_cfg(model)},
    }


def _architecture(v):
    """timm's name for a model of this size, if it has one."""
    for name in ("R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4"):
        row = BIT_VARIANTS[name]
        if (row.blocks, row.width) == (v.blocks, v.width):
            return f"resnetv2_{name[1:]}_bit"
    return None


def impossible(model):
    """What of a model timm's BiT ResNets have no place for, as texts."""
    v = model.variant
    size = f"blocks={v.blocks} with width={v.width:g}"
    return ["version='v1'"] * (v.version != "v2") + [size] * (_architecture(v) is None)


def obstacles(variant):
    """What of `variant` timm computes otherwise, as texts.

    Its 1e-8 in place of the authors' 1e-10 beside the variance of a kernel is none: timm reads
    the published files so.
    """
    return [] if variant.numerics in ("bit", "timm") else [f"numerics={variant.numerics!r}"]
