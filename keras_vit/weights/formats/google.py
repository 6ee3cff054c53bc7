"""npz files of google-research: vision_transformer, which are read and written, and big_vision.

The files of vision_transformer exist in two generations, which number the modules of a block
differently (`LayerNorm_2`, `MlpBlock_3` and `MultiHeadDotProductAttention_1` in the published
ones); both are read, and the published one is written.

big_vision's, which are read, have the second generation's names. What differs: weights may lie
under a prefix, beside a text tower or the state of an optimizer; blocks may be stacked into one
array each (`scan`); the position embedding is added before the class token is prepended; and there
are attention pooling (MAP) and fixed sin-cos positions.
"""

import math
import re

from keras_vit.preprocessing import BIG_VISION, SIGLIP
from keras_vit.weights import tables
from keras_vit.weights.canonical import POSITION, PROJECTION
from keras_vit.weights.evidence import grid_for, shape_of
from keras_vit.weights.family import Family, reasons
from keras_vit.weights.files import MAX_ARRAYS, CheckpointError
from keras_vit.weights.tables import FLAX_PATCHES, SAME, VECTOR, Layout, Table

BLOCK = "Transformer/encoderblock_{i}/"
UNIT = "block{s}/unit{u}/"
GROUP_NORM = Layout(None, VECTOR.read, lambda a: a.reshape(1, 1, 1, -1))  # as published

RESNET_ROWS = (
    (UNIT + "conv{n}/kernel", "stage_{s}_unit_{u}/conv{n}/kernel", SAME),
    (UNIT + "conv_proj/kernel", "stage_{s}_unit_{u}/conv_proj/kernel", SAME),
    *tables.flax_norm("gn_root", "root/norm", GROUP_NORM),
    *tables.flax_norm(UNIT + "gn{n}", "stage_{s}_unit_{u}/norm{n}", GROUP_NORM),
    *tables.flax_norm(UNIT + "gn_proj", "stage_{s}_unit_{u}/norm_proj", GROUP_NORM),
)
ROWS = (
    ("cls", "patch_encoder/class_token", SAME),
    ("embedding/kernel", PROJECTION, FLAX_PATCHES),
    ("embedding/bias", "patch_encoder/projection/bias", SAME),
    ("Transformer/posembed_input/pos_embedding", POSITION, SAME),
    *tables.flax_norm(BLOCK + "LayerNorm_0", "block_{i}/norm_1"),
    *tables.flax_attention(BLOCK + "MultiHeadDotProductAttention_[1|0]", "block_{i}/attention"),
    *tables.flax_norm(BLOCK + "LayerNorm_[2|1]", "block_{i}/norm_2"),
    *tables.flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_0", "block_{i}/mlp/dense_1"),
    *tables.flax_dense(BLOCK + "MlpBlock_[3|0]/Dense_1", "block_{i}/mlp/dense_2"),
    *tables.flax_norm("Transformer/encoder_norm", "norm"),
    *tables.flax_dense("pre_logits", "pre_logits"),
    *tables.flax_dense("head", "head"),
    ("conv_root/kernel", "root/conv/kernel", SAME),
    *RESNET_ROWS,
)


class Google(Family):
    """npz files of google-research/vision_transformer."""

    def obstacles(self, model):
        v = model.variant
        mixed = v.pool == "mean" and v.class_token
        return super().obstacles(model) + reasons({"pool='mean' with a class token": mixed})


FAMILY = Google(
    name="google-research/vision_transformer",
    sign=r"Transformer/",
    table=Table(*ROWS),
    defaults={
        "interpolation": "align_corners",
        "gelu": "tanh",
        "epsilon": 1e-6,
        "stem_numerics": "google",
    },
    config={
        "hidden_size": "width",
        "classifier": (
            "pool",
            {"token": "token", "gap": "mean", "token_unpooled": None, "unpooled": None},
        ),
        "image": "image_size",
    },
    holds={"pool": ("token", "mean", "first", None), "registers": (0,)},
    computes={
        "pool": ("token", "mean", None),  # "first" is of big_vision alone
        "gelu": ("tanh",),
        "epsilon": (1e-6,),
        "stem_numerics": ("google",),
        "norm_after_pool": (False,),
        "qkv_bias": (True,),
    },
)


# ---- big_vision

PREFIXES = ("params/img/", "opt/target/img/", "params/", "opt/target/", "img/", "")
OWN_NAMES = r"(Transformer/)?pos_embedding|Transformer/encoderblock/|MAP"
OLDER_NAMES = r"Transformer/posembed_input/pos_embedding$|cls$"
MAP = "MAPHead_0/"
FLEXIVIT = "bilinear_antialias"  # its rule for positions


def _read_kernel(kernel):
    """(P, P, C, D), or (P²·C, D) for square patches of colour in NaFlex models."""
    if kernel.ndim == 4:
        return kernel
    side = math.isqrt(kernel.shape[0] // 3)
    return kernel.reshape(side, side, 3, -1)


def _read_positions(position):
    """(1, N, D), or (rows, columns, D) in NaFlex models, -> (1, N, D)."""
    if position.ndim == 3 and position.shape[0] != 1:
        return position.reshape(1, -1, position.shape[-1])
    return position


class BigVision(Family):
    """npz files of google-research/big_vision."""

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

    def complete(self, canonical, contents):
        evidence, prefix = canonical.evidence, self.prefix_of(contents.arrays)
        caller = evidence.caller
        names = [name.removeprefix(prefix) for name in contents.arrays]
        # The family's models without a table have sin-cos positions; those of the older one none.
        if prefix or _has_own_names(names) or evidence.config.get("posemb") == "sincos2d":
            evidence["position"] = "sincos_2d"
        canonical.preprocessing = SIGLIP if evidence["pool"] == "map" else BIG_VISION
        if caller.get("interpolation") == FLEXIVIT:  # whose files look like any others
            evidence["interpolation"] = FLEXIVIT
        # Positions were added before the class token came, which gets zeros; in files from before
        # that change it has a position already.
        arrays = canonical.arrays
        if POSITION in arrays and evidence["class_token"]:
            configured = evidence.from_config("image_size")
            sizes = (caller.get("file_image_size"), configured, caller.get("image_size"))
            count = arrays[POSITION].shape[1]
            if not _has_class_position(count, shape_of(evidence), sizes):
                canonical.add_zero_positions(at=0, count=1)


BIG_VISION_FAMILY = BigVision(
    name="google-research/big_vision",
    table=Table(
        ("[Transformer/|]pos_embedding", POSITION, Layout(None, _read_positions, SAME.write)),
        ("embedding/kernel", PROJECTION, Layout(None, _read_kernel, SAME.write)),
        (MAP + "probe", "pool/probe", SAME),
        *tables.flax_attention(MAP + "MultiHeadDotProductAttention_0", "pool/attention"),
        *tables.flax_norm(MAP + "LayerNorm_0", "pool/norm"),
        *tables.flax_dense(MAP + "MlpBlock_0/Dense_0", "pool/mlp/dense_1"),
        *tables.flax_dense(MAP + "MlpBlock_0/Dense_1", "pool/mlp/dense_2"),
        *ROWS,
    ),
    defaults=FAMILY.defaults,
    config={"width": "width", "image": "image_size"},
)


def _has_own_names(names):
    return any(re.match(OWN_NAMES, name) for name in names)


def _has_class_position(positions, shape, sizes):
    """What an image size says, where one is known that fits; else what makes a square."""
    for size in sizes:
        grid = size and grid_for(size, shape)
        if grid and grid[0] * grid[1] in (positions, positions - 1):
            return grid[0] * grid[1] == positions - 1
    is_square = [math.isqrt(max(n, 0)) ** 2 == n for n in (positions, positions - 1)]
    return is_square == [False, True]
