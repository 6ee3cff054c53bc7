"""Names of google-research/big_vision checkpoints -> canonical names.

Their modules are called as in the second generation of google-research/vision_transformer.
What differs: weights may lie under a prefix, beside a text tower or the state of an optimizer;
blocks may be stacked into one array each (`scan`); the position embedding is added before the
class token is prepended; and there are attention pooling (MAP) and fixed sin-cos positions.
"""

import math
import re

import numpy as np

from keras_vit.preprocessing import BIG_VISION, SIGLIP
from keras_vit.weights import google
from keras_vit.weights.canonical import (
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    check_position,
    rename,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.image_size import add_image_size, grid_for, shape_of

FAMILY = "google-research/big_vision"
PREFIXES = ("params/img/", "opt/target/img/", "params/", "opt/target/", "img/")
MAP = "MAPHead_0/"


def _flat_kernel(kernel):
    """(P, P, C, D), or (P²·C, D) in NaFlex models, -> (P²·C, D)."""
    return kernel if kernel.ndim == 2 else google.flat_kernel(kernel)


def _flat_grid(position):
    """(1, N, D), or (rows, columns, D) in NaFlex models, -> (1, N, D)."""
    if position.ndim == 3 and position.shape[0] != 1:
        return position.reshape(1, -1, position.shape[-1])
    return position


TABLE = (
    (r"(Transformer/)?pos_embedding", POSITION, _flat_grid),
    (r"embedding/kernel", PROJECTION, _flat_kernel),
    (MAP + "probe", "pool/probe", None),
    (
        MAP + "MultiHeadDotProductAttention_0/(query|key|value|out)/(kernel|bias)",
        r"pool/attention/\1/\2",
        None,
    ),
    (MAP + "LayerNorm_0/scale", "pool/norm/gamma", None),
    (MAP + "LayerNorm_0/bias", "pool/norm/beta", None),
    (MAP + "MlpBlock_0/Dense_0/(kernel|bias)", r"pool/mlp/dense_1/\1", None),
    (MAP + "MlpBlock_0/Dense_1/(kernel|bias)", r"pool/mlp/dense_2/\1", None),
    *google.TABLE,
)


def recognises(arrays):
    """Whether these are the names of this family, rather than of the older one."""
    prefix = _prefix(arrays)
    names = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    if "embedding/kernel" not in names:
        return False
    older = "Transformer/posembed_input/pos_embedding" in names or "cls" in names
    own = any(
        re.match(r"(Transformer/)?pos_embedding|Transformer/encoderblock/|MAP", n) for n in names
    )
    return bool(prefix) or own or not older


def _prefix(arrays):
    """Where in the file the image tower is."""
    for prefix in PREFIXES:
        if prefix + "embedding/kernel" in arrays:
            return prefix
    return ""


def read(contents, hints):
    """The `Canonical` of a file; arguments and errors as in `google.read`."""
    prefix = _prefix(contents.arrays)
    tower = {
        name.removeprefix(prefix): array
        for name, array in contents.arrays.items()
        if name.startswith(prefix)
    }
    others = tuple(name for name in contents.arrays if not name.startswith(prefix))
    tower = _unstacked(tower)
    arrays, origin, _ = rename(tower, TABLE, FAMILY)
    check_position(arrays)
    shapes = architecture_of(arrays, FAMILY)
    patch_size, channels = _patch_of(tower)
    found = {
        **shapes,
        "patch_size": patch_size,
        "channels": channels,
        "num_heads": google.heads_of(arrays),
        "position": "learned_1d" if POSITION in arrays else "sincos_2d",
        "interpolation": "align_corners",
        "gelu": "tanh",
        "epsilon": 1e-6,
    }
    is_own = contents.config.get("width") == found["width"]
    config = contents.config if is_own else {}
    assumed = {} if POSITION in arrays else {"position": "the family's where a file has none"}
    sizes = (hints.get("file_image_size"), config.get("image"), hints.get("image_size"))
    _give_class_token_a_position(arrays, shape_of(found), sizes)
    add_image_size(found, assumed, arrays, hints, config.get("image"))
    return Canonical(
        FAMILY,
        arrays,
        {name: prefix + where for name, where in origin.items()},
        found,
        assumed,
        ignored=others,
        preprocessing=SIGLIP if found["pool"] == "map" else BIG_VISION,
    )


def _unstacked(tower):
    """Blocks that were stacked for `scan`, as arrays of their own."""
    blocks = {}
    for name, array in tower.items():
        if not name.startswith("Transformer/encoderblock/"):
            blocks[name] = array
            continue
        if not array.ndim or array.shape[0] > 10_000:
            raise CheckpointError(f"{name!r} stacks no blocks. Received: shape {array.shape}.")
        for i, part in enumerate(array):
            blocks[name.replace("encoderblock/", f"encoderblock_{i}/")] = part
    return blocks


def _patch_of(tower):
    kernel = tower["embedding/kernel"]
    if kernel.ndim != 2:
        return google.patch_of(tower)
    side = math.isqrt(kernel.shape[0] // 3)
    if side * side * 3 != kernel.shape[0]:
        raise CheckpointError(
            "A flat patch kernel belongs to square patches of three channels. Received: "
            f"'embedding/kernel' of shape {kernel.shape}."
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
