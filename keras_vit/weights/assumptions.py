"""What the arrays of a checkpoint do not tell: heads, activation, positions and image size.

It comes from the caller, from a config beside the file, or from the custom of a family, and
`assumed` says from which.
"""

import math

from keras_vit.checks import pair, positive_int
from keras_vit.variants import VARIANTS, Variant
from keras_vit.weights.canonical import CONFIG, POSITION
from keras_vit.weights.files import CheckpointError

SQUARE = "positions that make a square"
HEAD_WIDTH = 64  # of the attention heads in nearly every published model


def choose_heads(configured, hints, found):
    """The number of heads where the arrays do not show it, and where it is from.

    Args:
        configured: what the config beside the file says, or `None`.
        hints: arguments of the caller, or of a model that waits for the file: its `num_heads` says
            nothing about a file of another `width`.
        found: arguments read off the arrays.

    Raises:
        CheckpointError: nobody says it, and no custom fits.
    """
    width, depth = found["width"], found["depth"]
    if configured is not None:
        return positive_int(configured, "num_heads"), CONFIG
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


def gelu_of(name, names):
    """`"tanh"` or `"erf"` for the name of an activation in a config.

    Raises:
        CheckpointError: the name is not in `names`.
    """
    if not isinstance(name, str) or name not in names:
        raise CheckpointError(
            f"The config beside the file names the activation {name!r}; expected one of "
            f"{sorted(names)}."
        )
    return names[name]


def add_position(found, assumed, arrays, hints, said=None, by=CONFIG):
    """Puts `position` into `found`, and where it is from into `assumed`.

    Without a table, positions may be none or computed ones, and the numbers differ.

    Args:
        said: what the family or its config says of a file without a table, or `None`.
        by: which of the two.

    Raises:
        CheckpointError: the file has no table, and nobody says why.
    """
    if POSITION in arrays:
        found["position"] = "learned_1d"
    elif hints.get("position") is not None:
        found["position"], assumed["position"] = hints["position"], "position as given"
    elif said is not None:
        found["position"], assumed["position"] = said, by
    else:
        raise CheckpointError(
            "The file has no table of positions: its model has none, or computes them. Say "
            "position='none', or position='sincos_2d' for the fixed ones of big_vision."
        )


def shape_of(found):
    """A `Variant` with the patch size and the stem of `found`, which tell the grid of an image."""
    return Variant(patch_size=found["patch_size"], stem=found.get("stem"))


def grid_for(image_size, shape):
    """The (rows, columns) of patches, or `None` where they do not tile the image.

    Args:
        image_size: int or (height, width).
        shape: a `Variant` with the patch size and the stem.
    """
    size = shape.feature_map(image_size)
    if any(side % patch for side, patch in zip(size, shape.patch_size)):
        return None
    return tuple(side // patch for side, patch in zip(size, shape.patch_size))


def add_image_size(found, assumed, arrays, hints, configured):
    """Puts `image_size` into `found`, and where it is from into `assumed`.

    Args:
        hints: arguments of the caller: `file_image_size` is the size that the file was trained
            at; `image_size` helps where only it fits.
        configured: image size that a config beside the file states, or `None`.

    Raises:
        CheckpointError: no grid fits the positions, or two do.
    """
    shape = shape_of(found)
    if POSITION in arrays:
        patches = arrays[POSITION].shape[1] - found["class_token"] - found["registers"]
        found["image_size"], source = find_image_size(patches, shape, hints, configured)
    else:
        found["image_size"], source = _size_without_positions(shape, hints, configured)
    if source:
        assumed["image_size"] = source


def find_image_size(patches, shape, hints, configured=None):
    """The (height, width) of the image that has `patches` patches, and where it is from.

    Arguments and errors as in `add_image_size`; `shape` is a `Variant` with the patch size and
    the stem of the file.
    """
    for size, source in ((hints.get("file_image_size"), "file_image_size"), (configured, "config")):
        if size is not None:
            size, grid = pair(size, "image_size"), grid_for(size, shape)
            if grid is None or grid[0] * grid[1] != patches:
                raise CheckpointError(
                    f"The file has positions for {patches} patches of {shape.stride} pixels. "
                    f"Received: {source} says an image of {size}, which has a grid of {grid}."
                )
            return size, None if source == "file_image_size" else CONFIG
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


def _size_without_positions(shape, hints, configured):
    if hints.get("image_size") is not None:
        return pair(hints["image_size"], "image_size"), None
    if configured is not None:
        return pair(configured, "image_size"), CONFIG
    nearest = tuple(max(round(224 / stride), 1) * stride for stride in shape.stride)
    return nearest, "the file has no positions: about 224 pixels, the custom"
