"""From the embedded patches to the logits, in models with something that the paper has not."""

import keras

from keras_vit.checks import rate
from keras_vit.extensions import Extensions
from keras_vit.layers import (
    AttentionPool,
    ExtendedTokenPool,
    PatchDropout,
    PositionEmbedding,
    RelativePosition,
    RelativePosition2D,
    RematTransformerBlock,
    RotaryPosition,
    TokenPool,
    TransformerBlock,
)
from keras_vit.layers.extensions.blocks import BLOCKS
from keras_vit.layers.extensions.remat import REMAT_BLOCKS
from keras_vit.layers.extensions.token_merging import MERGING_BLOCKS
from keras_vit.layers.head import linear_head, linear_map, pre_logits
from keras_vit.layers.norm import NORMS
from keras_vit.text import brief

RATES = ("dropout", "attention_dropout", "stochastic_depth", "patch_dropout")


def check_options(v, options):
    """Raises a ValueError where a model of a `Variant` cannot have some arguments, by name."""
    for name in RATES:
        rate(options[name], name)
    if options["variable_size"] and (has_positions_in_blocks(v) or v.block == "axial"):
        raise ValueError(
            "variable_size needs the position embedding at the input, and blocks that are not "
            f"axial. Received: position={v.position!r}, position_at={v.position_at!r}, block="
            f"{v.block!r}; build a model for each image size."
        )
    dropping = {
        f"the answers of pool={v.pool!r} belong to single patches": v.pool in (None, "first"),
        "relative positions need every token in its place": v.is_relative,
        "axial blocks need every patch in its place": v.block == "axial",
        f"position_at={v.position_at!r} adds positions to tokens that are gone": (
            has_positions_in_blocks(v) and not v.is_relative
        ),
    }
    merging = dropping | {
        "a merged token has no one place by which rotary positions would turn it": v.rotary,
        f"{v.block} blocks do not merge tokens": v.block not in MERGING_BLOCKS,
        "remat is for training, and merging for inference": options["remat"],
        "the number of tokens must be known, so build a model for each image size": options[
            "variable_size"
        ],
    }
    _refuse("patch_dropout", options, dropping if options["patch_dropout"] else {})
    _refuse("token_merging", options, merging if any(merged_tokens(v, options)) else {})


def _refuse(name, options, reasons):
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(
                f"{name}={options[name]!r} cannot be: {reason}. Choose {name}=0 or another model."
            )


def has_positions_in_blocks(v):
    """Whether blocks of a `Variant` add positions, or attend by them, beside rotary ones."""
    return v.position_at != "input" and v.position != "none"


def merged_tokens(v, options):
    """The number of tokens that each block of a `Variant` merges."""
    token_merging = options["token_merging"]
    each = isinstance(token_merging, (tuple, list))
    counts = tuple(token_merging) if each else (token_merging,) * v.block_layers
    if len(counts) != v.block_layers or any(
        isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts
    ):
        raise ValueError(
            "token_merging must be a number of tokens, 0 or more, or a sequence of one for each of "
            f"{v.block_layers} blocks. Received: token_merging={brief(token_merging)}."
        )
    return counts


def is_needed(v, options):
    """Whether a model of a `Variant` has something that `encode` of `models.vit` lacks.

    Args:
        v: the `Variant`.
        options: arguments of `VisionTransformer`, by name.
    """
    return (
        v.extensions != Extensions()
        or v.pool not in ("token", "mean")
        or v.norm_after_pool
        or has_positions_in_blocks(v)
        or any(options[name] for name in ("remat", "patch_dropout", "token_merging"))
    )


def encode(x, patches, v, grid, options, dtype):
    """The tokens after the last block, and the patches that each stands for (`None`: one each)."""
    positions = position_layers(v, grid, dtype)
    rotations = {each: each(patches) for each in positions} if v.rotary else {}
    if rate := options["patch_dropout"]:
        drop = PatchDropout(rate, v.learned_tokens, dtype=dtype, name="patch_dropout")
        x, *kept = drop([x, *rotations.values()]) if rotations else [drop(x)]
        rotations = dict(zip(rotations, kept))
    x = NORMS[v.pre_norm](v.epsilon, dtype=dtype, name="pre_norm")(x)
    if options["token_merging"]:
        return merging(x, v, options, dtype)
    argument = position_argument(v)
    for i, position in enumerate(positions):
        attended = {}
        if argument:
            attended = {argument: rotations[position] if v.rotary else position(x)}
        elif position is not None:
            x = position(x)
        x = make_block(i, v, grid=grid, options=options, dtype=dtype)(x, **attended)
    return x, None


def merging(x, v, options, dtype):
    """As `encode`, by blocks that merge tokens, from the first one on that does."""
    size = None
    for i, merged in enumerate(merged_tokens(v, options)):
        if merged or size is not None:
            block = MERGING_BLOCKS[v.block](
                **block_arguments(i, v, options, dtype),
                extensions=v.extensions,
                merged=merged,
                protected=v.learned_tokens,
            )
            x, size = block(x, size=size)
        else:
            x = make_block(i, v, grid=None, options=options, dtype=dtype)(x)
    return x, size


def read_out(x, size, v, num_classes, head_bias, dtype):
    """The logits of the tokens after the last block, or the mean of two heads' logits."""
    norm = NORMS[v.norm if v.final_norm else None](v.epsilon, dtype=dtype, name="norm")
    tokens, x = x, pooled(x, size, v, norm=norm, dtype=dtype)
    rank = len(x.shape)
    if v.representation_size:
        x = pre_logits(rank, v.representation_size, dtype=dtype)(x)
    if v.projection:
        x = linear_map(rank, v.projection, dtype=dtype, name="projection")(x)
    if num_classes:
        x = linear_head(rank, num_classes, bias=head_bias, dtype=dtype)(x)
    if not v.distillation:
        return x
    second = ExtendedTokenPool("distillation", True, dtype=dtype, name="distillation_token")
    y = norm(second(tokens))
    if num_classes:
        y = linear_head(rank, num_classes, bias=head_bias, dtype=dtype, name="head_distillation")(y)
    return keras.layers.Average(dtype=x.dtype, name="mean")([x, y])


def pooled(x, size, v, norm, dtype):
    """What the head sees of the tokens, normalised."""
    if v.pool is None:
        return norm(x)
    if v.pool in ("map", "probe"):
        pool = AttentionPool(
            v.pool_heads or v.num_heads,
            (v.pool_mlp_dim or v.mlp_dim) if v.pool == "map" else None,
            gelu=v.gelu,
            qkv_bias=v.pool == "map" or v.qkv_bias,  # MAP has them in any case
            epsilon=v.epsilon,
            skipped=v.learned_tokens if v.pool_patches else 0,
            activation=v.activation if v.mlp == "mlp" else None,  # that of a gate is another choice
            dtype=dtype,
            name="pool",
        )
        return pool(norm(x), size=size)
    pool = ExtendedTokenPool if v.pool == "token_mean" else TokenPool
    others = v.learned_tokens - int(v.class_token)
    pool = pool(v.pool, v.class_token, registers=others, dtype=dtype, name="pool")
    # LayerNorm works on each token by itself: normalising the one that is read is enough.
    reads_many = v.pool in ("mean", "token_mean") and not v.norm_after_pool
    return pool(norm(x), size=size) if reads_many else norm(pool(x, size=size))


def make_block(i, v, grid, options, dtype):
    """Block `i` of a `Variant`."""
    arguments, remat = block_arguments(i, v, options, dtype), options["remat"]
    if v.extensions == Extensions() and not v.is_relative:
        return (RematTransformerBlock if remat else TransformerBlock)(**arguments)
    if v.block == "axial":
        arguments |= {"grid": grid, "axis": ("row", "column")[i % 2]}
    blocks = REMAT_BLOCKS if remat else BLOCKS
    return blocks[v.block](**arguments, extensions=v.extensions)


def block_arguments(i, v, options, dtype):
    """Arguments of block `i` of a `Variant`; stochastic depth grows from 0 at the first block."""
    return {
        "num_heads": v.num_heads,
        "mlp_dim": v.mlp_dim,
        "gelu": v.gelu,
        "qkv_bias": v.qkv_bias,
        "epsilon": v.epsilon,
        "dropout": options["dropout"],
        "attention_dropout": options["attention_dropout"],
        "stochastic_depth": options["stochastic_depth"] * i / max(v.block_layers - 1, 1),
        "dtype": dtype,
        "name": f"block_{i}",
    }


def position_argument(v):
    """The argument of a block that takes the positions of a `Variant`; `None` if none does."""
    if v.rotary:
        return "rotation"
    return {"relative": "distances", "relative_2d": "bias"}.get(v.position)


def position_layers(v, grid, dtype):
    """The position layer before each block: none, its own, or the one that all share."""

    def layer(suffix=""):
        if v.rotary:
            return RotaryPosition(
                v.rotary,
                v.num_heads,
                head_width=v.width // v.num_heads,
                grid=grid,
                learned_tokens=v.learned_tokens,
                dtype=dtype,
                name=f"rotary{suffix}",
            )
        name = f"position{suffix}"
        if v.position == "relative":
            return RelativePosition(v.num_heads, dtype=dtype, name=name)
        if v.position == "relative_2d":
            return RelativePosition2D(v.num_heads, grid, v.class_token, dtype=dtype, name=name)
        return PositionEmbedding(
            v.position,
            grid,
            class_token=v.class_token,
            registers=v.learned_tokens - int(v.class_token),
            interpolation=v.interpolation,
            dtype=dtype,
            name=name,
        )

    if not v.rotary and not has_positions_in_blocks(v):
        return [None] * v.block_layers
    is_shared = not v.rotary.learned if v.rotary else v.position_at == "shared"
    if is_shared:
        return [layer()] * v.block_layers
    return [layer(f"_{i}") for i in range(v.block_layers)]
