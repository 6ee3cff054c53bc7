"""The network of `keras_vit.models.vit`, with what later families and methods add to it."""

import dataclasses
from collections.abc import Sequence

import keras

from keras_vit import layers
from keras_vit.checks import rate
from keras_vit.extensions import Extensions
from keras_vit.layers.extensions.blocks import BLOCKS
from keras_vit.layers.extensions.patches import ResizablePatches
from keras_vit.layers.extensions.remat import REMAT_BLOCKS
from keras_vit.layers.extensions.token_merging import MERGING_BLOCKS
from keras_vit.layers.head import linear_map, pre_logits
from keras_vit.layers.norm import NORMS
from keras_vit.models.vit import Network
from keras_vit.text import brief

RATES = ("dropout", "attention_dropout", "stochastic_depth", "patch_dropout")


def is_needed(v, methods):
    """Whether a `Variant` or one of `methods`, by name, asks for what the paper has not."""
    return (
        v.extensions != Extensions()
        or v.pool not in ("token", "mean")
        or v.norm_after_pool
        or has_positions_in_blocks(v)
        or any(methods.values())
    )


@dataclasses.dataclass
class ExtendedNetwork(Network):
    """The network of the paper with other parts where a variant or an argument asks for them.

    Args:
        remat, variable_size, patch_dropout, token_merging: as in `keras_vit.VisionTransformer`.
    """

    remat: bool = False
    variable_size: bool = False
    patch_dropout: float = 0.0
    token_merging: int | Sequence[int] = 0

    def __call__(self, images):
        patches = self.cut(self.stem(images))
        x, size = self.encode(self.embed(patches), patches)
        return self.read_out(x, size)

    def cut(self, x):
        if not self.variable_size:
            return super().cut(x)
        v = self.variant
        patches = ResizablePatches(
            v.patch_size,
            keep_grid=True,
            drop_incomplete=v.stem is not None,
            dtype=self.dtype,
            name="patches",
        )
        return patches(x)

    def embed(self, patches):
        v = self.variant
        return super().embed(
            patches,
            distillation=v.distillation,
            bias=v.patch_bias,
            norm=v.patch_norm,
            epsilon=v.epsilon,
        )

    def encode(self, x, patches):
        """The tokens after the last block, and the patches that each stands for (`None`: one)."""
        v, positions = self.variant, self.position_layers()
        rotations = {each: each(patches) for each in positions} if v.rotary else {}
        if self.patch_dropout:
            drop = layers.PatchDropout(
                self.patch_dropout, v.learned_tokens, dtype=self.dtype, name="patch_dropout"
            )
            x, *kept = drop([x, *rotations.values()]) if rotations else [drop(x)]
            rotations = dict(zip(rotations, kept))
        x = NORMS[v.pre_norm](v.epsilon, dtype=self.dtype, name="pre_norm")(x)
        if self.token_merging:
            return self.merge(x)
        argument = position_argument(v)
        for i, position in enumerate(positions):
            attended = {}
            if argument:
                attended = {argument: rotations[position] if v.rotary else position(x)}
            elif position is not None:
                x = position(x)
            x = self.block(i)(x, **attended)
        return x, None

    def merge(self, x):
        """As `encode`, by blocks that merge tokens, from the first one on that does."""
        v, size = self.variant, None
        for i, merged in enumerate(merged_tokens(v, self.token_merging)):
            if merged or size is not None:
                block = MERGING_BLOCKS[v.block](
                    **self.block_arguments(i),
                    extensions=v.extensions,
                    merged=merged,
                    protected=v.learned_tokens,
                )
                x, size = block(x, size=size)
            else:
                x = self.block(i)(x)
        return x, size

    def block(self, i):
        """Block `i`: one of the paper's, unless the variant has extensions."""
        v, arguments = self.variant, self.block_arguments(i)
        if v.extensions == Extensions() and not v.is_relative:
            block = layers.RematTransformerBlock if self.remat else layers.TransformerBlock
            return block(**arguments)
        if v.block == "axial":  # two layers in place of one block
            arguments |= {
                "grid": self.grid,
                "axis": ("row", "column")[i % 2],
                "stochastic_depth": self.stochastic_depth * i / (2 * v.depth - 1),
            }
        blocks = REMAT_BLOCKS if self.remat else BLOCKS
        return blocks[v.block](**arguments, extensions=v.extensions)

    def position_layers(self):
        """The position layer before each block: none, its own, or the one that all share."""
        v = self.variant
        if not v.rotary and not has_positions_in_blocks(v):
            return [None] * v.block_layers
        is_shared = not v.rotary.learned if v.rotary else v.position_at == "shared"
        if is_shared:
            return [self.position_layer()] * v.block_layers
        return [self.position_layer(f"_{i}") for i in range(v.block_layers)]

    def position_layer(self, suffix=""):
        """One of the position layers; the suffix ends its name."""
        v, dtype = self.variant, self.dtype
        if v.rotary:
            return layers.RotaryPosition(
                v.rotary,
                v.num_heads,
                head_width=v.width // v.num_heads,
                grid=self.grid,
                learned_tokens=v.learned_tokens,
                dtype=dtype,
                name=f"rotary{suffix}",
            )
        name = f"position{suffix}"
        if v.position == "relative":
            return layers.RelativePosition(v.num_heads, dtype=dtype, name=name)
        if v.position == "relative_2d":
            return layers.RelativePosition2D(
                v.num_heads, self.grid, class_token=v.class_token, dtype=dtype, name=name
            )
        return layers.PositionEmbedding(
            v.position,
            self.grid,
            class_token=v.class_token,
            registers=v.learned_tokens - int(v.class_token),
            interpolation=v.interpolation,
            dtype=dtype,
            name=name,
        )

    def read_out(self, tokens, size=None):
        """The logits of the tokens after the last block, or the mean of two heads' logits."""
        v, dtype = self.variant, self.dtype
        norm = NORMS[v.norm if v.final_norm else None](v.epsilon, dtype=dtype, name="norm")
        x = self.pooled(tokens, size, norm)
        rank = len(x.shape)
        if v.representation_size:
            x = pre_logits(rank, v.representation_size, dtype=dtype)(x)
        if v.projection:
            x = linear_map(rank, v.projection, dtype=dtype, name="projection")(x)
        x = self.head(x)
        if not v.distillation:
            return x
        second = layers.ExtendedTokenPool(
            "distillation", True, dtype=dtype, name="distillation_token"
        )
        y = self.head(norm(second(tokens)), name="head_distillation")
        return keras.layers.Average(dtype=x.dtype, name="mean")([x, y])

    def pooled(self, x, size, norm):
        """What the head sees of the tokens, normalised."""
        v, dtype = self.variant, self.dtype
        if v.pool is None:
            return norm(x)
        if v.pool in ("map", "probe"):
            pool = layers.AttentionPool(
                v.pool_heads or v.num_heads,
                (v.pool_mlp_dim or v.mlp_dim) if v.pool == "map" else None,
                gelu=v.gelu,
                qkv_bias=v.pool == "map" or v.qkv_bias,  # MAP has them in any case
                epsilon=v.epsilon,
                skipped=v.learned_tokens if v.pool_patches else 0,
                activation=v.activation if v.mlp == "mlp" else None,  # a gate has another one
                dtype=dtype,
                name="pool",
            )
            return pool(norm(x), size=size)
        make_pool = layers.ExtendedTokenPool if v.pool == "token_mean" else layers.TokenPool
        registers = v.learned_tokens - int(v.class_token)
        pool = make_pool(v.pool, v.class_token, registers=registers, dtype=dtype, name="pool")
        # A norm works on each token by itself: normalising the one that is read is enough.
        reads_many = v.pool in ("mean", "token_mean") and not v.norm_after_pool
        return pool(norm(x), size=size) if reads_many else norm(pool(x, size=size))


def has_positions_in_blocks(v):
    """Whether blocks of a `Variant` add positions, or attend by them, beside rotary ones."""
    return v.position_at != "input" and v.position != "none"


def position_argument(v):
    """The argument of a block that takes the positions of a `Variant`; `None` if none does."""
    if v.rotary:
        return "rotation"
    return {"relative": "distances", "relative_2d": "bias"}.get(v.position)


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
    is_merging = any(merged_tokens(v, options["token_merging"]))
    _refuse("patch_dropout", options, dropping if options["patch_dropout"] else {})
    _refuse("token_merging", options, merging if is_merging else {})


def _refuse(name, options, reasons):
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(
                f"{name}={options[name]!r} cannot be: {reason}. Choose {name}=0 or another model."
            )


def merged_tokens(v, token_merging):
    """The number of tokens that each block of a `Variant` merges."""
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
