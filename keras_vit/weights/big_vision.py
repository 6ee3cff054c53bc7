"""Vision Transformers of google-research/big_vision; they are read, not written.

Their modules are called as in the second generation of google-research/vision_transformer. What
differs: weights may lie under a prefix, beside a text tower or the state of an optimizer; blocks
may be stacked into one array each (`scan`); the position embedding is added before the class token
is prepended; and there are attention pooling (MAP) and fixed sin-cos positions.
"""

import math
import re

import numpy as np

from keras_vit.preprocessing import BIG_VISION, SIGLIP
from keras_vit.weights import google
from keras_vit.weights.assumptions import add_image_size, add_position, grid_for, shape_of
from keras_vit.weights.canonical import (
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    channels_of,
    heads_of,
)
from keras_vit.weights.files import MAX_ARRAYS, CheckpointError
from keras_vit.weights.tables import PARTS, PATCHES, SAME, Layout, Table, flax_dense, flax_norm

FAMILY = "google-research/big_vision"
PREFIXES = ("params/img/", "opt/target/img/", "params/", "opt/target/", "img/")
MAP = "MAPHead_0/"


def _read_kernel(kernel):
    """(P, P, C, D), or (P²·C, D) in NaFlex models, -> (P²·C, D)."""
    return kernel if kernel.ndim == 2 else PATCHES.read(kernel)


def _read_positions(position):
    """(1, N, D), or (rows, columns, D) in NaFlex models, -> (1, N, D)."""
    if position.ndim == 3 and position.shape[0] != 1:
        return position.reshape(1, -1, position.shape[-1])
    return position


TABLE = Table(
    ("[Transformer/|]pos_embedding", POSITION, Layout(None, _read_positions, SAME.write)),
    ("embedding/kernel", PROJECTION, Layout(None, _read_kernel, PATCHES.write)),
    (MAP + "probe", "pool/probe", SAME),
    *(
        row
        for part in PARTS
        for row in flax_dense(
            MAP + "MultiHeadDotProductAttention_0/" + part, "pool/attention/" + part
        )
    ),
    *flax_norm(MAP + "LayerNorm_0", "pool/norm"),
    *flax_dense(MAP + "MlpBlock_0/Dense_0", "pool/mlp/dense_1"),
    *flax_dense(MAP + "MlpBlock_0/Dense_1", "pool/mlp/dense_2"),
    *google.ROWS,
)


def recognises(arrays):
    """Whether these are the names of this family, rather than of the older one."""
    prefix = _prefix(arrays)
    names = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    if "embedding/kernel" not in names:
        return False
    older = "Transformer/posembed_input/pos_embedding" in names or "cls" in names
    return bool(prefix) or _has_own_names(names) or not older


def _has_own_names(names):
    own = r"(Transformer/)?pos_embedding|Transformer/encoderblock/|MAP"
    return any(re.match(own, name) for name in names)


def _prefix(arrays):
    """Where in the file the image tower is."""
    return next((p for p in PREFIXES if p + "embedding/kernel" in arrays), "")


def read(contents, hints):
    """The `Canonical` of a file; arguments and errors as in `google.read`."""
    prefix = _prefix(contents.arrays)
    inside = [name for name in contents.arrays if name.startswith(prefix)]
    tower = _unstacked({name.removeprefix(prefix): contents.arrays[name] for name in inside})
    arrays, origin, _ = TABLE.read(tower, FAMILY)
    found, assumed = architecture_of(arrays, FAMILY), {}
    patch_size, patch_channels = _patch_of(tower["embedding/kernel"].shape)
    found.update(
        patch_size=patch_size,
        channels=channels_of(arrays, patch_channels),
        num_heads=heads_of(arrays),
        interpolation="align_corners",
        gelu="tanh",
        epsilon=1e-6,
    )
    is_own = contents.config.get("width") == found["width"]
    config = contents.config if is_own else {}
    # The family's models without a table have sin-cos positions; those of the older one have none.
    is_certain = prefix or _has_own_names(tower) or config.get("posemb") == "sincos2d"
    by = "the family's where a file has none"
    add_position(found, assumed, arrays, hints, "sincos_2d" if is_certain else None, by)
    sizes = (hints.get("file_image_size"), config.get("image"), hints.get("image_size"))
    _give_class_token_a_position(arrays, shape_of(found), sizes)
    add_image_size(found, assumed, arrays, hints, config.get("image"))
    return Canonical(
        FAMILY,
        arrays,
        {name: prefix + where for name, where in origin.items()},
        found,
        assumed,
        ignored=tuple(name for name in contents.arrays if not name.startswith(prefix)),
        preprocessing=SIGLIP if found["pool"] == "map" else BIG_VISION,
    )


def _unstacked(tower):
    """Blocks that were stacked for `scan`, as arrays of their own."""
    blocks = {}
    for name, array in tower.items():
        if not name.startswith("Transformer/encoderblock/"):
            blocks[name] = array
            continue
        if not array.size or not array.ndim or array.shape[0] > MAX_ARRAYS:
            raise CheckpointError(f"{name!r} stacks no blocks. Received: shape {array.shape}.")
        for i, part in enumerate(array):
            blocks[name.replace("encoderblock/", f"encoderblock_{i}/")] = part
    return blocks


def _patch_of(shape):
    """((height, width), channels) of the patches."""
    if len(shape) != 2:
        return shape[:2], shape[2]
    side = math.isqrt(shape[0] // 3)
    if side * side * 3 != shape[0]:
        raise CheckpointError(
            "A flat patch kernel belongs to square patches of three channels. Received: "
            f"'embedding/kernel' of shape {shape}."
        )
    return (side, side), 3


def _give_class_token_a_position(arrays, shape, sizes):
    """Positions were added before the class token came: it gets zeros.

    Files from before that change have a position for the class token already; their number of
    positions is one more than that of a grid.
    """
    if POSITION not in arrays or "patch_encoder/class_token" not in arrays:
        return
    position = arrays[POSITION]
    if not _has_class_position(position.shape[1], shape, sizes):
        arrays[POSITION] = np.pad(position, ((0, 0), (1, 0), (0, 0)))


def _has_class_position(positions, shape, sizes):
    """What an image size says, where one is known that fits; else what makes a square."""
    for size in sizes:
        grid = size and grid_for(size, shape)
        if grid and grid[0] * grid[1] in (positions, positions - 1):
            return grid[0] * grid[1] == positions - 1
    is_square = [math.isqrt(max(n, 0)) ** 2 == n for n in (positions, positions - 1)]
    return is_square == [False, True]
