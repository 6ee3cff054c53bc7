"""What the readers of BiT checkpoints share: shapes of arrays -> a whole model or an error."""

import re

from keras_vit.checks import pair
from keras_vit.layers.standardize import GROUPS
from keras_vit.models.bit_variants import BiTVariant
from keras_vit.models.stages import ROOT_FILTERS
from keras_vit.preprocessing import BIT
from keras_vit.weights.canonical import CONFIG, Canonical, shortened
from keras_vit.weights.files import CheckpointError

ROOT = "root/conv/kernel"
HEAD = "head/kernel"
UNIT = r"stage_(\d+)_unit_(\d+)/"


def vector(array):
    """(1, 1, 1, channels), as older files have it, -> (channels,)."""
    if array.ndim == 4 and array.shape[:3] == (1, 1, 1):
        return array.reshape(-1)
    if array.ndim != 1:
        raise ValueError("a scale or shift has one axis")
    return array


def canonical_of(family, renamed, numerics, hints, assumed=None, **facts):
    """The `Canonical` of a BiT, after a look at every shape.

    Args:
        family: whose format it is.
        renamed: what `canonical.rename` returned.
        numerics: the constants of the family, a name of `keras_vit.layers.standardize.NUMERICS`.
        hints: arguments of the caller.
        assumed: dict from an argument that the arrays do not say to where its value is from; may
            have an `image_size` of (value, source).
        facts: other fields of `Canonical`.

    Raises:
        CheckpointError: arrays are missing, of another shape, or too many.
    """
    arrays, origin, ignored = renamed
    version = "v1" if "root/norm/gamma" in arrays else "v2"
    channels, width = _root(arrays, family)
    v = BiTVariant(_blocks(arrays, family), width, version, numerics)
    num_classes = arrays[HEAD].shape[-1] if HEAD in arrays and arrays[HEAD].ndim else 0
    _check_shapes(arrays, expected_shapes(v, channels, num_classes), origin, family)
    assumed = dict(assumed or {})
    size, source = _image_size(hints, assumed.pop("image_size", None))
    if source:
        assumed["image_size"] = source
    architecture = {
        "blocks": v.blocks,
        "width": v.width,
        "version": version,
        "numerics": numerics,
        "num_classes": num_classes,
        "channels": channels,
        "image_size": size,
    }
    facts = {"preprocessing": BIT, **facts, "model": "BiT"}
    return Canonical(family, arrays, origin, architecture, assumed, ignored, **facts)


def expected_shapes(v, channels, num_classes):
    """Name -> shape of every variable of a `BiT`.

    Args:
        v: a `BiTVariant`.
        channels: of the images.
        num_classes: of the head, or 0.
    """
    shapes, inputs = {ROOT: (7, 7, channels, v.filters_of(1))}, v.filters_of(1)
    if v.version == "v1":
        shapes.update(_norm("root/norm", inputs))
    for stage, units in enumerate(v.blocks, start=1):
        for unit in range(1, units + 1):
            name = f"stage_{stage}_unit_{unit}"
            shapes.update(_unit(v, name, inputs, stage, is_first=unit == 1))
            inputs = v.channels_of(stage)
    if v.version == "v2":
        shapes.update(_norm("norm", inputs))
    if num_classes:
        shapes.update({HEAD: (inputs, num_classes), "head/bias": (num_classes,)})
    return shapes


def _unit(v, name, inputs, stage, is_first):
    inner, outputs, after = v.filters_of(stage), v.channels_of(stage), v.version == "v1"
    # A later stage halves the image, and the first gives four times the channels of the root.
    shapes = {
        f"{name}/conv1/kernel": (1, 1, inputs, inner),
        f"{name}/conv2/kernel": (3, 3, inner, inner),
        f"{name}/conv3/kernel": (1, 1, inner, outputs),
        **_norm(f"{name}/norm1", inner if after else inputs),
        **_norm(f"{name}/norm2", inner),
        **_norm(f"{name}/norm3", outputs if after else inner),
    }
    if is_first:
        shapes[f"{name}/conv_proj/kernel"] = (1, 1, inputs, outputs)
        shapes.update(_norm(f"{name}/norm_proj", outputs) if after else {})
    return shapes


def _norm(name, channels):
    return {f"{name}/gamma": (channels,), f"{name}/beta": (channels,)}


def _root(arrays, family):
    """(channels of the images, width factor), which the first kernel tells."""
    shape = arrays[ROOT].shape if ROOT in arrays else None
    if shape is None or len(shape) != 4 or not shape[2] or not shape[3] or shape[3] % GROUPS:
        raise CheckpointError(
            f"This is no whole BiT of {family}. Received: {ROOT!r} of shape {shape}; expected "
            f"(7, 7, channels, a multiple of {GROUPS}). The file is damaged or of another model."
        )
    return shape[2], shape[3] / ROOT_FILTERS


def _blocks(arrays, family):
    """The number of units of each stage."""
    matches = (re.match(UNIT, name) for name in arrays)
    found = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    blocks = []
    while units := [unit for stage, unit in found if stage == len(blocks) + 1]:
        blocks.append(len(units))
    whole = [(stage, unit) for stage, n in enumerate(blocks, 1) for unit in range(1, n + 1)]
    if not found or found != whole:
        raise CheckpointError(
            f"This is no whole BiT of {family}. Received: the units (stage, unit) "
            f"{shortened(found)}; expected stages and units numbered from 1 without a gap. It is "
            f"without {shortened(sorted(set(whole) - set(found)))}; check that the file is whole."
        )
    return tuple(blocks)


def _check_shapes(arrays, expected, origin, family):
    missing = sorted(set(expected) - set(arrays))
    unused = sorted(origin[name] for name in set(arrays) - set(expected))
    wrong = [
        f"{origin[name]}: {arrays[name].shape} instead of {shape}"
        for name, shape in expected.items()
        if name in arrays and arrays[name].shape != shape
    ]
    if missing or unused or wrong:
        raise CheckpointError(
            f"This is no whole BiT of {family}.\n  Missing (canonical names): {shortened(missing)}"
            f"\n  Without a place: {shortened(unused)}\n  Of another shape: {shortened(wrong)}\n"
            "The file is damaged or of another model."
        )


def _image_size(hints, configured):
    """The image size, which no array tells, and where it is from."""
    if hints.get("image_size") is not None:
        return pair(hints["image_size"], "image_size"), None
    if configured is not None:
        return pair(configured, "image_size"), CONFIG
    return (224, 224), "the custom; a ResNet takes any size"
