"""npz files of google-research: vision_transformer, read and written, and big_vision, read.

Files exist in two generations, which number the modules of a block differently: of `[2|1]` in
`ROWS` both are read, and the first, as published, is written.

big_vision has the names of the second generation. What differs: blocks may be stacked into one
array each (`scan`); positions are added before the class token is prepended; and there are
attention pooling (MAP) and fixed sin-cos positions.
"""

import math
import re

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import BIG_VISION, SIGLIP
from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.safety import MAX_ARRAYS, CheckpointError
from keras_vit.weights.tables import FLAX_PATCHES, SAME, VECTOR, Layout, Table
from keras_vit.weights.writable import DIFFERS, WritableFamily

BLOCK = "Transformer/encoderblock_{i}/"
UNIT = "block{s}/unit{u}/"
# (C,) of a norm, which is published as (1, 1, 1, C).
GROUP_NORM = Layout(read=VECTOR.read, write=lambda a: a.reshape(1, 1, 1, -1))

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
    ("conv_root/kernel", "root/conv/kernel", SAME),  # of a hybrid
    *RESNET_ROWS,
)


class Google(WritableFamily):
    def obstacles(self, model):
        """The authors' code takes the mean over the class token, too; a model here does not."""
        v = model.variant
        mixed = v.pool == "mean" and v.class_token and DIFFERS
        return super().obstacles(model) | {"pool='mean' with a class token": mixed}


FAMILY = Google(
    name="google-research/vision_transformer",
    signature=r"Transformer/",
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
    can_store={"pool": ("token", "mean", "first", None), "registers": (0,)},
    can_compute={
        "pool": ("token", "mean", None),  # "first" is of big_vision alone
        "gelu": ("tanh",),
        "epsilon": (1e-6,),
        "stem_numerics": ("google",),
        "norm_after_pool": (False,),
        "qkv_bias": (True,),
    },
)


# ---- big_vision

PREFIXES = ("params/", "opt/target/", "img/")  # that its training gives to names
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
        older = any(re.match(OLDER_NAMES, name) for name in arrays)
        return "embedding/kernel" in arrays and (_has_own_names(arrays) or not older)

    def single_layers(self, arrays):
        """Blocks that were stacked for `scan`, as arrays of their own."""
        stacked = {n: a for n, a in arrays.items() if n.startswith("Transformer/encoderblock/")}
        blocks = {name: array for name, array in arrays.items() if name not in stacked}
        for name, array in stacked.items():
            if not array.size or not array.ndim or array.shape[0] > MAX_ARRAYS:
                raise CheckpointError(f"{name!r} stacks no blocks. Received: shape {array.shape}.")
            for i, part in enumerate(array):
                blocks[name.replace("encoderblock/", f"encoderblock_{i}/")] = part
        return blocks

    def complete(self, weights, arguments, contents):
        is_own = contents.prefix.endswith(PREFIXES) or _has_own_names(contents.arrays)
        # The family's models without a table have sin-cos positions; those of the older one none.
        if is_own or arguments.config.get("posemb") == "sincos2d":
            arguments["position"] = "sincos_2d"
        if arguments.caller.get("interpolation") == FLEXIVIT:  # whose files look like any others
            arguments["interpolation"] = FLEXIVIT
        # Positions were added before the class token came, which gets zeros; in files from before
        # that change it has a position already.
        if POSITION in weights.arrays and arguments["class_token"]:
            if not _has_class_position(weights.arrays[POSITION].shape[1], arguments):
                weights.add_zero_positions(at=0, count=1)

    def images(self, arguments, contents):
        return SIGLIP if arguments["pool"] == "map" else BIG_VISION, (), True


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


OF_BIG_VISION = BigVision(
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
FAMILIES = (OF_BIG_VISION, FAMILY)
