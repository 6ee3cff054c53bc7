"""What arrays do not tell: from the caller, a config, or the custom of the family."""

import math

from keras_vit.checks import pair, positive_int
from keras_vit.variants import VARIANTS, Variant, size_of
from keras_vit.weights.canonical import CONFIG, POSITION, SQUARE
from keras_vit.weights.files import CheckpointError

HEAD_WIDTH = 64  # of the attention heads in nearly every published model


def settle_heads(canonical, configured, hints):
    """Sets `num_heads` where the arrays do not show it."""
    width, depth = (canonical.architecture[name] for name in ("width", "depth"))
    # A model that waits for the file says nothing about a file of another width.
    given = hints.get("num_heads") if hints.get("width", width) == width else None
    published = (
        (variant.num_heads, f"{size_of(name)} has as many")
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
    arrays, relative = canonical.arrays, relative_table(canonical.arrays)
    if relative is not None:
        at = "every_layer" if "position_0/table" in arrays else "shared"
        canonical.settle("position_at", (at, None))
    if not canonical.settle(
        "position",
        ("learned_1d" if POSITION in arrays else None, None),
        (None if relative is None else "relative_2d", None),
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
        patches = position.shape[1] - learned_tokens(found)
        known = (find_image_size(patches, shape, hints, configured),)
    elif (table := relative_table(canonical.arrays)) is not None:
        offsets = table.shape[0] - 3 * found["class_token"]
        side = (math.isqrt(max(offsets, 0)) + 1) // 2
        square = tuple(side * stride for stride in shape.stride)
        # The first of these sizes that has as many offsets is the file's.
        rows = ((hints.get("file_image_size"), None), (configured, CONFIG), (square, SQUARE))
        rows = [(size, source) for size, source in rows if size is not None]
        known = [row for row in rows if offsets_of(grid_for(row[0], shape)) == offsets][:1]
        if not known:
            raise CheckpointError(
                f"The file has biases for {offsets} offsets of patches, which are no square. "
                f"Received: {rows}; say file_image_size=(height, width)."
            )
    canonical.settle("image_size", *known)
    found["image_size"] = pair(found["image_size"], "image_size")


def relative_table(arrays):
    """The biases of `RelativePosition2D`, of the first block or of all, or `None`."""
    return arrays.get("position_0/table", arrays.get("position/table"))


def learned_tokens(found):
    """The number of tokens before those of the patches, as `Variant.learned_tokens` counts them."""
    return int(found["class_token"]) + int(found["distillation"]) + found["registers"]


def offsets_of(grid):
    """The number of offsets between two patches of a grid; `None` for no grid."""
    return grid and (2 * grid[0] - 1) * (2 * grid[1] - 1)


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
