"""Which image a checkpoint was trained on: told by its positions, or by what stands beside it."""

import math

from keras_vit.checks import pair
from keras_vit.variants import Variant
from keras_vit.weights.canonical import CONFIG, POSITION
from keras_vit.weights.files import CheckpointError

SQUARE = "positions that make a square"


def shape_of(found):
    """A `Variant` with the patch size and the stem of `found`, which tell the grid of an image."""
    return Variant(patch_size=found["patch_size"], stem=found.get("stem"))


def add_image_size(found, assumed, arrays, hints, configured):
    """Puts `image_size` into `found`, and where it is from into `assumed`."""
    if POSITION in arrays:
        patches = arrays[POSITION].shape[1] - found["class_token"] - found["registers"]
        size, source = find_image_size(patches, shape_of(found), hints, configured)
    else:
        size, source = size_without_positions(shape_of(found), hints, configured)
    found["image_size"] = size
    if source:
        assumed["image_size"] = source


def find_image_size(patches, shape, hints, configured=None):
    """The (height, width) of the image that has `patches` patches, and where it is from.

    Args:
        patches: number of position embeddings, without those of learned tokens.
        shape: a `Variant` with the patch size and the stem of the file.
        hints: arguments of the caller: `file_image_size` is the size that the file was trained
            at; `image_size` helps where only it fits.
        configured: image size that a config beside the file states, or `None`.

    Raises:
        CheckpointError: no grid fits, or two do.
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
    if square is None and asked is None:
        raise CheckpointError(
            f"The file has positions for {patches} patches, which make no square. Its image was "
            "not square: say so with file_image_size=(height, width)."
        )
    if square and asked and square != asked:
        raise CheckpointError(
            f"The file has positions for {patches} patches: a grid of {square}, to be resized to "
            f"the {asked} of your image_size, or a grid of {asked} already? Say file_image_size="
            f"{_pixels(square, shape)} or {pair(hints['image_size'], 'image_size')}."
        )
    if asked:
        return pair(hints["image_size"], "image_size"), "image_size as given"
    return _pixels(square, shape), SQUARE


def _pixels(grid, shape):
    return tuple(side * stride for side, stride in zip(grid, shape.stride))


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


def size_without_positions(shape, hints, configured):
    """The image size where no position embedding tells it, and where it is from."""
    if hints.get("image_size") is not None:
        return pair(hints["image_size"], "image_size"), None
    if configured is not None:
        return pair(configured, "image_size"), CONFIG
    nearest = tuple(max(round(224 / stride), 1) * stride for stride in shape.stride)
    return nearest, "the file has no positions: about 224 pixels, the custom"
