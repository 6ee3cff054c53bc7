"""npz files of google-research/big_vision, which are read.

They have the names of vision_transformer's second generation. What differs: weights may lie under
a prefix, beside a text tower or the state of an optimizer; blocks may be stacked into one array
each (`scan`); the position embedding is added before the class token is prepended; and there are
attention pooling (MAP) and fixed sin-cos positions.
"""

import math
import re

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import BIG_VISION, SIGLIP
from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.formats import google
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.safety import MAX_ARRAYS, CheckpointError
from keras_vit.weights.tables import SAME, Layout, Table

PREFIXES = ("params/img/", "opt/target/img/", "params/", "opt/target/", "img/", "")
OWN_NAMES = r"(Transformer/)?pos_embedding|Transformer/encoderblock/|MAP"
OLDER_NAMES = r"Transformer/posembed_input/pos_embedding$|cls$"
MAP = "MAPHead_0/"
FLEXIVIT = "bilinear_antialias"  # its rule for positions


def _read_kernel(kernel):
    """(P, P, C, D), or (P²·C, D) for square patches of colour in NaFlex models."""
    side = math.isqrt(kernel.shape[0] // 3)
    return kernel if kernel.ndim == 4 else kernel.reshape(side, side, 3, -1)


def _read_positions(position):
    """(1, N, D), or (rows, columns, D) in NaFlex models, -> (1, N, D)."""
    is_grid = position.ndim == 3 and position.shape[0] != 1
    return position.reshape(1, -1, position.shape[-1]) if is_grid else position


class BigVision(Family):
    def recognises(self, arrays):
        """Whether these are the names of this family, rather than of the older one."""
        prefix = self.prefix_of(arrays)
        if prefix is None:
            return False
        names = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
        older = any(re.match(OLDER_NAMES, name) for name in names)
        return bool(prefix) or _has_own_names(names) or not older

    def prefix_of(self, file):
        return next((p for p in PREFIXES if p + "embedding/kernel" in file), None)

    def unstacked(self, tower):
        """Blocks that were stacked for `scan`, as arrays of their own."""
        stacked = {n: a for n, a in tower.items() if n.startswith("Transformer/encoderblock/")}
        blocks = {name: array for name, array in tower.items() if name not in stacked}
        for name, array in stacked.items():
            if not array.size or not array.ndim or array.shape[0] > MAX_ARRAYS:
                raise CheckpointError(f"{name!r} stacks no blocks. Received: shape {array.shape}.")
            for i, part in enumerate(array):
                blocks[name.replace("encoderblock/", f"encoderblock_{i}/")] = part
        return blocks

    def complete(self, canonical, contents):
        arguments, prefix = canonical.arguments, self.prefix_of(contents.arrays)
        names = [name.removeprefix(prefix) for name in contents.arrays]
        # The family's models without a table have sin-cos positions; those of the older one none.
        if prefix or _has_own_names(names) or arguments.config.get("posemb") == "sincos2d":
            arguments["position"] = "sincos_2d"
        if arguments.caller.get("interpolation") == FLEXIVIT:  # whose files look like any others
            arguments["interpolation"] = FLEXIVIT
        canonical.preprocessing = SIGLIP if arguments["pool"] == "map" else BIG_VISION
        # Positions were added before the class token came, which gets zeros; in files from before
        # that change it has a position already.
        if POSITION in canonical.arrays and arguments["class_token"]:
            if not _has_class_position(canonical.arrays[POSITION].shape[1], arguments):
                canonical.add_zero_positions(at=0, count=1)


def _has_own_names(names):
    return any(re.match(OWN_NAMES, name) for name in names)


def _has_class_position(count, arguments):
    """Whether one of `count` positions is that of the class token.

    The first known image size that has as many patches, or one less, decides; without one, which
    of both numbers is a square.
    """
    caller, configured = arguments.caller, arguments.from_config("image_size")
    for size in (caller.get("file_image_size"), configured, caller.get("image_size")):
        grid = size and arguments.grid(size)
        if grid and math.prod(grid) in (count, count - 1):
            return math.prod(grid) == count - 1
    is_square = lambda n: math.isqrt(n) ** 2 == n  # noqa: E731
    return is_square(count - 1) and not is_square(count)


FAMILY = BigVision(
    name="google-research/big_vision",
    table=Table(
        ("[Transformer/|]pos_embedding", POSITION, Layout(None, _read_positions, SAME.write)),
        ("embedding/kernel", PROJECTION, Layout(None, _read_kernel, SAME.write)),
        (MAP + "probe", "pool/probe", SAME),
        *tables.flax_attention(MAP + "MultiHeadDotProductAttention_0", "pool/attention"),
        *tables.flax_norm(MAP + "LayerNorm_0", "pool/norm"),
        *tables.flax_dense(MAP + "MlpBlock_0/Dense_0", "pool/mlp/dense_1"),
        *tables.flax_dense(MAP + "MlpBlock_0/Dense_1", "pool/mlp/dense_2"),
        *google.ROWS,
    ),
    defaults=google.FAMILY.defaults,
    config={"width": "width", "image": "image_size"},
)
