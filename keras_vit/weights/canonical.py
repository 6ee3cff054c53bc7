"""The one form that every format is brought into, and what it tells about the architecture.

Canonical names are the variable paths of the models. What the arrays do not tell comes from the
caller, from a config beside the file, or from the custom of the family; `assumed` records which.
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
    """A checkpoint in canonical form."""

    family: str  # whose format it is
    arrays: dict  # canonical name -> array, in the shape of the variable
    origin: dict  # canonical name -> name in the file
    architecture: dict  # arguments of the model's class; `image_size` is that of the positions
    assumed: dict = dataclasses.field(default_factory=dict)  # argument -> where its value is from
    ignored: tuple = ()  # names in the file that are no part of the model, such as a text tower
    preprocessing: Preprocessing = GOOGLE
    class_names: tuple | None = None
    label_set: str | None = None
    path: str = ""
    model: str = "VisionTransformer"  # the name of the class of the architecture

    def settle(self, field, *known):
        """Sets an argument to the first value of (value, source) pairs that is not `None`.

        A source is reported unless it is `None`. Returns whether there was a value.
        """
        value, source = next((row for row in known if row[0] is not None), (None, None))
        if value is not None:
            self.architecture[field] = value
            if source is not None:
                self.assumed[field] = source
        return value is not None

    def prepare(self, preprocessing, unsaid):
        """Sets how images are prepared, and reports the texts for what no recipe here can say."""
        self.preprocessing, self.ignored = preprocessing, (*unsaid, *self.ignored)


# ---- what the shapes of arrays tell


def expect(fits, name, array, expected):
    """Raises a CheckpointError for an array whose shape does not fit."""
    if not fits:
        raise CheckpointError(
            f"{name!r} must have {expected}. Received: shape {array.shape}; the file is damaged "
            "or of another format."
        )


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
    expect(position is None or position.ndim == 3, POSITION, position, "3 axes")
    representation_size = units_of(arrays, "pre_logits", width) or None
    registers = arrays.get("patch_encoder/registers")
    class_token = "patch_encoder/class_token" in arrays
    found = {
        "width": width,
        "depth": len(blocks),
        "mlp_dim": arrays["block_0/mlp/dense_1/kernel"].shape[-1],
        "patch_size": tuple(patch_size),
        "channels": channels,
        "pool": "map" if "pool/probe" in arrays else "token" if class_token else "mean",
        "class_token": class_token,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": representation_size,
        "num_classes": units_of(arrays, "head", representation_size or width),
        "qkv_bias": "block_0/attention/query/bias" in arrays,
        "norm_after_pool": False,
    }
    if ROOT in arrays:
        found["stem"], found["stem_width"], found["channels"] = resnet_of(arrays, "ResNet stem")
    return found


def units_of(arrays, layer, inputs=None):
    """The outputs of a last layer, 0 without one; half a layer, or one that cannot be, is damage.

    `inputs` is how many it must have, or `None` for any number.
    """
    kernel, bias = arrays.get(f"{layer}/kernel"), arrays.get(f"{layer}/bias")
    if kernel is None:
        return 0
    fits = inputs is None or (kernel.ndim == 2 and kernel.shape[0] == inputs)
    expect(fits, f"{layer}/kernel", kernel, f"the shape ({inputs}, units)")
    fits = bias is None or bias.shape == kernel.shape[-1:]
    expect(fits, f"{layer}/bias", bias, f"the shape {kernel.shape[-1:]}, as its kernel tells")
    return kernel.shape[-1]


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
    expect(len(shape) == 4 and shape[3], ROOT, arrays[ROOT], "4 axes")
    return counts, shape[3] / ROOT_FILTERS, shape[2]


def heads_of(arrays):
    """The number of heads in formats that keep it as an axis."""
    kernel = arrays["block_0/attention/query/kernel"]
    fits = kernel.ndim == 3 and kernel.shape[0] == kernel.shape[1] * kernel.shape[2]
    expect(fits, "query/kernel", kernel, "3 axes (width, heads, width / heads)")
    return kernel.shape[1]


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


def settle_heads(canonical, configured, hints):
    """Sets `num_heads` where the arrays do not show it."""
    width, depth = (canonical.architecture[name] for name in ("width", "depth"))
    # A model that waits for the file says nothing about a file of another width.
    given = hints.get("num_heads") if hints.get("width", width) == width else None
    published = (
        (variant.num_heads, f"ViT-{name.split('/')[0]} has as many")
        for name, variant in VARIANTS.items()
        if (variant.width, variant.depth) == (width, depth)
    )
    custom = None if width % HEAD_WIDTH else width // HEAD_WIDTH
    if not canonical.settle(
        "num_heads",
        (configured, CONFIG),
        (given, "num_heads as given"),
        *published,
        (custom, f"heads of width {HEAD_WIDTH} are the custom"),
    ):
        raise CheckpointError(
            f"The file does not say how many attention heads it has, and no custom fits its width "
            f"{width}. Say num_heads=..., or put its config.json beside it."
        )
    heads = positive_int(canonical.architecture["num_heads"], "num_heads")
    canonical.architecture["num_heads"] = heads


def settle_position(canonical, configured, hints):
    """Sets `position`: without a table, positions may be none or computed, and numbers differ."""
    if not canonical.settle(
        "position",
        ("learned_1d" if POSITION in canonical.arrays else None, None),
        (hints.get("position"), "position as given"),
        (configured, CONFIG),
        (canonical.architecture.get("position"), "the family's where a file has none"),
    ):
        raise CheckpointError(
            "The file has no table of positions: its model has none, or computes them. Say "
            "position='none', or position='sincos_2d' for the fixed ones of big_vision."
        )


def settle_image_size(canonical, configured, hints):
    """Sets `image_size`, from the number of positions where there are any."""
    found, position = canonical.architecture, canonical.arrays.get(POSITION)
    shape = shape_of(found)
    custom = tuple(max(round(224 / stride), 1) * stride for stride in shape.stride)
    known = (
        (hints.get("image_size"), None),
        (configured, CONFIG),
        (custom, "the file has no positions: about 224 pixels, the custom"),
    )
    if position is not None:
        patches = position.shape[1] - found["class_token"] - found["registers"]
        known = (find_image_size(patches, shape, hints, configured),)
    canonical.settle("image_size", *known)
    found["image_size"] = pair(found["image_size"], "image_size")


def shape_of(found):
    """A `Variant` with the patch size and the stem of `found`, which tell the grid of an image."""
    return Variant(patch_size=found["patch_size"], stem=found.get("stem"))


def grid_for(image_size, shape):
    """The (rows, columns) of patches, or `None` where they do not tile the image."""
    try:
        return shape.grid(image_size)
    except ValueError:
        return None


def find_image_size(patches, shape, hints, configured=None):
    """The (height, width) of the image that has `patches` patches, and where it is from.

    The caller's `file_image_size` and the config's size must fit; `image_size` helps where only it
    fits. `shape` is a `Variant` with the patch size and the stem of the file.
    """
    what = f"The file has positions for {patches} patches"
    for size, source in ((hints.get("file_image_size"), None), (configured, CONFIG)):
        if size is not None:
            size, grid = pair(size, "image_size"), grid_for(size, shape)
            if grid is None or math.prod(grid) != patches:
                raise CheckpointError(
                    f"{what} of {shape.stride} pixels. Received: {source or 'file_image_size'} "
                    f"says an image of {size}, which has a grid of {grid}."
                )
            return size, source
    side = math.isqrt(max(patches, 0))
    square = (side, side) if side and side * side == patches else None
    in_pixels = tuple(side * stride for stride in shape.stride)
    asked = hints.get("image_size") and pair(hints["image_size"], "image_size")
    grid = asked and grid_for(asked, shape)
    if grid and math.prod(grid) == patches and square in (None, grid):
        return asked, "image_size as given"
    if square and grid and math.prod(grid) == patches:
        raise CheckpointError(
            f"{what}: a grid of {square}, to be resized to your image_size, or one of {grid} "
            f"already? Say file_image_size={in_pixels} or {asked}."
        )
    if square is None:
        raise CheckpointError(
            f"{what}, which make no square. Its image was not square: say so with "
            "file_image_size=(height, width)."
        )
    return in_pixels, SQUARE
