"""The one form that every format is brought into: the variable paths of the models.

What the arrays tell about the architecture stands here, and who says what they do not tell: the
caller, a config beside the file, or the custom of the family. `assumed` records which.
"""

import dataclasses
import math
import re

from keras_vit.checks import pair, positive_int
from keras_vit.layers.resnet import ROOT_FILTERS
from keras_vit.models.bit import BiTVariant
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.variants import VARIANTS, Variant
from keras_vit.weights.files import CheckpointError

PROJECTION = "patch_encoder/projection/kernel"
POSITION = "patch_encoder/position/embedding"
ROOT = "root/conv/kernel"
# Where a fact in `Canonical.assumed` is from.
CONFIG = "its config.json"
CUSTOM = "the family's, as no config.json says it"
SQUARE = "positions that make a square"
HEAD_WIDTH = 64  # of the attention heads in nearly every published model
MAX_SIDE = 1 << 14  # pixels; no image that a config names is larger
MAX_EPSILON = 0.1
REQUIRED = (
    PROJECTION,
    "block_0/attention/query/kernel",
    "block_0/attention/out/kernel",
    "block_0/mlp/dense_1/kernel",
    "norm/gamma",
)


@dataclasses.dataclass
class Canonical:
    """A checkpoint in canonical form.

    Attributes:
        family: whose format it is.
        arrays: dict from canonical name to array, in the shapes of the variables.
        origin: dict from canonical name to the name in the file.
        architecture: arguments of the model's class; `image_size` is that of the position
            embedding.
        assumed: dict from an argument that the arrays do not say to where its value is from.
        ignored: names in the file that are no part of the model, such as a text tower.
        preprocessing: how the family prepares images.
        class_names, label_set: of the classes, where the file or the catalogue has them.
        path, model: where it was read from, and the name of the class of the architecture.
    """

    family: str
    arrays: dict
    origin: dict
    architecture: dict
    assumed: dict = dataclasses.field(default_factory=dict)
    ignored: tuple = ()
    preprocessing: Preprocessing = GOOGLE
    class_names: tuple | None = None
    label_set: str | None = None
    path: str = ""
    model: str = "VisionTransformer"


# ---- what the shapes of arrays tell


def architecture_of(arrays, family):
    """Arguments of `VisionTransformer` that the shapes of canonical arrays tell."""
    blocks = {int(name.split("/")[0][6:]) for name in arrays if name.startswith("block_")}
    missing = sorted(set(REQUIRED) - set(arrays))
    if missing or blocks != set(range(len(blocks))):
        raise CheckpointError(
            f"This is no whole Vision Transformer of {family}. Received: {len(arrays)} arrays "
            f"with the blocks {sorted(blocks)}; expected blocks numbered from 0 without a gap, "
            f"and also {missing} (canonical names)."
        )
    *patch_size, channels, width = arrays[PROJECTION].shape
    position = arrays.get(POSITION)
    if position is not None and position.ndim != 3:
        raise CheckpointError(
            f"{POSITION!r} must have 3 axes. Received: shape {position.shape}; the file is "
            "damaged or of another format."
        )
    representation_size = _units(arrays, "pre_logits", width)
    registers = arrays.get("patch_encoder/registers")
    class_token = "patch_encoder/class_token" in arrays
    pool = "map" if "pool/probe" in arrays else "token" if class_token else "mean"
    found = {
        "width": width,
        "depth": len(blocks),
        "mlp_dim": arrays["block_0/mlp/dense_1/kernel"].shape[-1],
        "patch_size": tuple(patch_size),
        "channels": channels,
        "pool": pool,
        "class_token": class_token,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": representation_size,
        "num_classes": _units(arrays, "head", representation_size or width) or 0,
        "qkv_bias": "block_0/attention/query/bias" in arrays,
        "norm_after_pool": False,
    }
    if ROOT in arrays:
        found["stem"], found["stem_width"], found["channels"] = resnet_of(arrays, "ResNet stem")
    return found


def _units(arrays, layer, inputs):
    """The outputs of a last layer, `None` without one; half a layer is damage."""
    kernel = arrays.get(f"{layer}/kernel")
    if kernel is None:
        return None
    if kernel.ndim != 2 or kernel.shape[0] != inputs:
        raise CheckpointError(
            f"'{layer}/kernel' must have the shape ({inputs}, units). Received: shape "
            f"{kernel.shape}; the file is damaged or of another format."
        )
    check_bias(arrays, layer)
    return kernel.shape[1]


def check_bias(arrays, layer):
    """Raises a CheckpointError for a bias of another length than its kernel has outputs."""
    kernel, bias = arrays[f"{layer}/kernel"], arrays.get(f"{layer}/bias")
    if bias is not None and bias.shape != kernel.shape[-1:]:
        raise CheckpointError(
            f"'{layer}/bias' must have the shape {kernel.shape[-1:]}, as its kernel has "
            f"{kernel.shape}. Received: shape {bias.shape}; the file is damaged."
        )


def resnet_of(arrays, what):
    """(units of each stage, width factor, channels of the images) of a ResNet."""
    matches = (re.match(r"stage_(\d+)_unit_(\d+)/", name) for name in arrays)
    found = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    stages = range(1, 1 + max((stage for stage, _ in found), default=0))
    counts = tuple(sum(stage == s for s, _ in found) for stage in stages)
    whole = [(stage, unit) for stage in stages for unit in range(1, counts[stage - 1] + 1)]
    if found != whole or 0 in counts:
        raise CheckpointError(
            f"The {what} has gaps. Received: units (stage, unit) {found[:20]}; expected stages and "
            "units that are numbered from 1 without one. Check that the file is whole."
        )
    shape = arrays[ROOT].shape
    if len(shape) != 4 or not shape[3]:
        raise CheckpointError(f"{ROOT!r} must have 4 axes. Received: shape {shape}.")
    return counts, shape[3] / ROOT_FILTERS, shape[2]


def heads_of(arrays):
    """The number of heads in formats that keep it as an axis."""
    shape = arrays["block_0/attention/query/kernel"].shape
    if len(shape) != 3 or shape[0] != shape[1] * shape[2]:
        raise CheckpointError(
            "'query/kernel' must have 3 axes (width, heads, width / heads). Received: shape "
            f"{shape}; the file is damaged or of another format."
        )
    return shape[1]


def check_architecture(canonical):
    """Raises an error for an architecture that cannot be, or is larger than its file.

    A config may say anything, and an array may have a shape that no other array confirms: a model
    of that size is not built before the file has shown that it has its weights.
    """
    found = canonical.architecture
    positive_int(found["channels"], "channels")
    if max(pair(found["image_size"], "image_size")) > MAX_SIDE:
        raise ValueError(f"image_size={found['image_size']} is above {MAX_SIDE} pixels.")
    variant_class = Variant if canonical.model == "VisionTransformer" else BiTVariant
    names = {field.name for field in dataclasses.fields(variant_class)} & set(found)
    v = variant_class(**{name: found[name] for name in names})
    if variant_class is Variant:
        if v.epsilon > MAX_EPSILON:
            raise ValueError(f"epsilon={v.epsilon} is above {MAX_EPSILON}.")
        v.grid(found["image_size"])
        needed = v.depth * v.width * (4 * v.width + 2 * v.mlp_dim)
        blocks, width = v.stem or (), v.stem_width
    else:
        needed, blocks, width = 0, v.blocks, v.width
    for stage, units in enumerate(blocks):
        needed += 13 * units * (ROOT_FILTERS * width * 2**stage) ** 2
    there = sum(array.size for array in canonical.arrays.values())
    if needed > 2 * there:
        raise CheckpointError(
            f"Its arrays tell of a model with {needed:.3g} weights, and it has {there}: the file "
            "is damaged or of another format."
        )


# ---- what they do not tell: from the caller, a config, or the custom of the family


def choose_heads(configured, hints, found):
    """The number of heads where the arrays do not show it, and where it is from."""
    width, depth = found["width"], found["depth"]
    if configured is not None:
        return positive_int(configured, "num_heads"), CONFIG
    # A model that waits for the file says nothing about a file of another width.
    if hints.get("num_heads") is not None and hints.get("width", width) == width:
        return positive_int(hints["num_heads"], "num_heads"), "num_heads as given"
    for name, variant in VARIANTS.items():
        if (variant.width, variant.depth) == (width, depth):
            return variant.num_heads, f"ViT-{name.split('/')[0]} has as many"
    if width % HEAD_WIDTH == 0:
        return width // HEAD_WIDTH, f"heads of width {HEAD_WIDTH} are the custom"
    raise CheckpointError(
        f"The file does not say how many attention heads it has, and no custom fits its width "
        f"{width}. Say num_heads=..., or put its config.json beside it."
    )


def choose_position(canonical, configured, hints):
    """Sets `position`: without a table, positions may be none or computed, and numbers differ."""
    found, assumed = canonical.architecture, canonical.assumed
    if POSITION in canonical.arrays:
        found["position"] = "learned_1d"
    elif hints.get("position") is not None:
        found["position"], assumed["position"] = hints["position"], "position as given"
    elif configured is not None:
        found["position"], assumed["position"] = configured, CONFIG
    elif "position" in found:
        assumed["position"] = "the family's where a file has none"
    else:
        raise CheckpointError(
            "The file has no table of positions: its model has none, or computes them. Say "
            "position='none', or position='sincos_2d' for the fixed ones of big_vision."
        )


def shape_of(found):
    """A `Variant` with the patch size and the stem of `found`, which tell the grid of an image."""
    return Variant(patch_size=found["patch_size"], stem=found.get("stem"))


def grid_for(image_size, shape):
    """The (rows, columns) of patches, or `None` where they do not tile the image."""
    try:
        return shape.grid(image_size)
    except ValueError:
        return None


def choose_image_size(canonical, configured, hints):
    """Sets `image_size`, from the number of positions where there are any."""
    found, position = canonical.architecture, canonical.arrays.get(POSITION)
    shape = shape_of(found)
    if position is not None:
        patches = position.shape[1] - found["class_token"] - found["registers"]
        size, source = find_image_size(patches, shape, hints, configured)
    elif hints.get("image_size") is not None:
        size, source = pair(hints["image_size"], "image_size"), None
    elif configured is not None:
        size, source = pair(configured, "image_size"), CONFIG
    else:
        size = tuple(max(round(224 / stride), 1) * stride for stride in shape.stride)
        source = "the file has no positions: about 224 pixels, the custom"
    found["image_size"] = size
    if source:
        canonical.assumed["image_size"] = source


def find_image_size(patches, shape, hints, configured=None):
    """The (height, width) of the image that has `patches` patches, and where it is from.

    The caller's `file_image_size` and the config's size must fit; `image_size` helps where only it
    fits. `shape` is a `Variant` with the patch size and the stem of the file.
    """
    for size, source in ((hints.get("file_image_size"), None), (configured, CONFIG)):
        if size is not None:
            size, grid = pair(size, "image_size"), grid_for(size, shape)
            if grid is None or grid[0] * grid[1] != patches:
                raise CheckpointError(
                    f"The file has positions for {patches} patches of {shape.stride} pixels. "
                    f"Received: {source or 'file_image_size'} says an image of {size}, which has "
                    f"a grid of {grid}."
                )
            return size, source
    side = math.isqrt(max(patches, 0))
    square = (side, side) if side and side * side == patches else None
    asked = hints.get("image_size") and grid_for(hints["image_size"], shape)
    asked = asked if asked and asked[0] * asked[1] == patches else None
    in_pixels = tuple(side * stride for stride in shape.stride)
    if square is None and asked is None:
        raise CheckpointError(
            f"The file has positions for {patches} patches, which make no square. Its image was "
            "not square: say so with file_image_size=(height, width)."
        )
    if square and asked and square != asked:
        raise CheckpointError(
            f"The file has positions for {patches} patches: a grid of {square}, to be resized to "
            f"the {asked} of your image_size, or a grid of {asked} already? Say file_image_size="
            f"{in_pixels} or {pair(hints['image_size'], 'image_size')}."
        )
    if asked:
        return pair(hints["image_size"], "image_size"), "image_size as given"
    return in_pixels, SQUARE
