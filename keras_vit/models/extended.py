"""The network of `keras_vit.models.vit`, with what later families and methods add to it."""

import dataclasses
import functools
from collections.abc import Sequence

import keras

from keras_vit import layers
from keras_vit.checks import rate
from keras_vit.extensions import Extensions
from keras_vit.layers.extensions.blocks import BLOCKS, with_position
from keras_vit.layers.extensions.norm import NORMS
from keras_vit.layers.extensions.patches import ResizablePatches
from keras_vit.layers.extensions.remat import REMAT_BLOCKS
from keras_vit.layers.extensions.token_merging import MERGING_BLOCKS
from keras_vit.layers.head import linear_map
from keras_vit.models.vit import Network
from keras_vit.text import brief


@dataclasses.dataclass
class ExtendedNetwork(Network):
    """The network of the paper with other parts where a variant or an argument asks for them.

    Args:
        patch_dropout, remat, variable_size, token_merging: as in `keras_vit.VisionTransformer`.
    """

    patch_dropout: float = 0.0
    remat: bool = False
    variable_size: bool = False
    token_merging: int | Sequence[int] = 0

    def __call__(self, images):
        patches = self.cut(self.stem(images))
        x, rotations = self.drop_patches(self.embed(patches), self.rotations(patches))  # Eq. 1
        x = self.norm(self.variant.pre_norm, name="pre_norm")(x)
        if any(merged_tokens(self.variant, self.token_merging)):
            x, size = self.encode_merging(x)  # Eq. 2 and 3
        else:
            x, size = self.encode(x, rotations), None
        return self.read_out(x, size)  # Eq. 4

    def norm(self, kind, name):
        return NORMS[kind](self.variant.epsilon, dtype=self.dtype, name=name)

    def cut(self, x):
        if self.variable_size:
            return super().cut(x, ResizablePatches, keep_grid=True)
        return super().cut(x)

    def embed(self, patches):
        v = self.variant
        options = {"registers": v.registers, "distillation": v.distillation}
        options |= {"bias": v.patch_bias, "norm": v.patch_norm, "epsilon": v.epsilon}
        return super().embed(patches, layers.ExtendedPatchEncoder, **options)

    def rotations(self, patches):
        """Rotary positions: none, one tensor for all blocks, or one for each."""
        v, rotary = self.variant, self.variant.rotary
        if not rotary:
            return []
        suffixes = [f"_{i}" for i in range(v.block_layers)] if rotary.learned else [""]
        sizes = {"head_width": v.width // v.num_heads, "grid": self.grid}
        options = {**sizes, "learned_tokens": v.learned_tokens, "dtype": self.dtype}
        make = functools.partial(layers.RotaryPosition, rotary, v.num_heads, **options)
        return [make(name=f"rotary{suffix}")(patches) for suffix in suffixes]

    def drop_patches(self, x, rotations):
        """In training fewer patches, and the rotations of those that are left."""
        if not self.patch_dropout:
            return x, rotations
        options = {"dtype": self.dtype, "name": "patch_dropout"}
        drop = layers.PatchDropout(self.patch_dropout, self.variant.learned_tokens, **options)
        if not rotations:
            return drop(x), []
        x, *rotations = drop([x, *rotations])
        return x, rotations

    def encode(self, x, rotations):
        """Eq. 2 and 3: the tokens after the last block."""
        for i, position in enumerate(self.position_layers()):
            x, arguments = with_position(x, position)
            if rotations:
                arguments["rotation"] = rotations[i % len(rotations)]
            x = self.block(i)(x, **arguments)
        return x

    def encode_merging(self, x, size=None):
        """`encode` by blocks that join tokens (ToMe), and how many patches each token stands for.

        `size` are these numbers before the first block, `None` for one patch each.
        """
        v = self.variant
        options = {"extensions": v.extensions, "protected": v.learned_tokens}
        for i, merged in enumerate(merged_tokens(v, self.token_merging)):
            if merged or size is not None:
                block = Network.block(self, i, MERGING_BLOCKS[v.block], merged=merged, **options)
                x, size = block(x, size=size)
            else:
                x = self.block(i)(x)
        return x, size

    def position_layers(self):
        """The layer of positions before each block: its own, one that all share, or `None`."""
        v, count = self.variant, self.variant.block_layers
        if not v.has_positions_in_blocks:
            return [None] * count
        if v.position_at == "shared":
            return [self.position_layer("position")] * count
        return [self.position_layer(f"position_{i}") for i in range(count)]

    def position_layer(self, name):
        v, options = self.variant, {"dtype": self.dtype, "name": name}
        if v.position == "relative":
            return layers.RelativePosition(v.num_heads, **options)
        options["class_token"] = v.class_token
        if v.position == "relative_2d":
            return layers.RelativePosition2D(v.num_heads, self.grid, **options)
        options |= {"registers": v.learned_tokens - int(v.class_token)}
        return layers.PositionEmbedding(
            v.position, self.grid, interpolation=v.interpolation, **options
        )

    def block(self, i):
        v = self.variant
        if v.extensions == Extensions() and not v.is_relative:
            block = layers.RematTransformerBlock if self.remat else layers.TransformerBlock
            return super().block(i, block)
        options = {"extensions": v.extensions}
        if v.block == "axial":
            options |= {"grid": self.grid, "axis": ("row", "column")[i % 2]}
        return super().block(i, (REMAT_BLOCKS if self.remat else BLOCKS)[v.block], **options)

    def read_out(self, tokens, size=None):
        """The logits of the tokens after the last block, or the mean of two heads' logits."""
        v, dtype = self.variant, self.dtype
        norm = self.norm(v.norm if v.final_norm else None, name="norm")
        logits = self.head(self.representation(self.pooled(tokens, size, norm)))
        if not v.distillation:
            return logits
        options = {"dtype": dtype, "name": "distillation_token"}
        second = layers.ExtendedTokenPool("distillation", True, **options)(tokens)
        others = self.head(norm(second), name="head_distillation")
        return keras.layers.Average(dtype=logits.dtype, name="mean")([logits, others])

    def representation(self, x):
        x, units = super().representation(x), self.variant.projection
        return linear_map(x, units, dtype=self.dtype, name="projection") if units else x

    def pooled(self, x, size, norm):
        """What the head sees of the tokens, normalised."""
        v, options = self.variant, {"dtype": self.dtype, "name": "pool"}
        if v.pool is None:
            return norm(x)
        if v.pool in ("map", "probe"):
            pool = layers.AttentionPool(
                v.pool_heads or v.num_heads,
                (v.pool_mlp_dim or v.mlp_dim) if v.pool == "map" else None,
                gelu=v.gelu,
                qkv_bias=v.pool == "map" or v.qkv_bias,  # MAP always has them
                epsilon=v.epsilon,
                skipped=v.learned_tokens if v.pool_patches else 0,
                activation=v.activation if v.mlp == "mlp" else None,  # a gate has another one
                **options,
            )
            return pool(norm(x), size=size)
        options["registers"] = v.learned_tokens - int(v.class_token)
        pool = layers.ExtendedTokenPool(v.pool, v.class_token, **options)
        # A norm works on each token by itself: normalising the one that is read is enough.
        reads_many = v.pool in ("mean", "token_mean") and not v.norm_after_pool
        return pool(norm(x), size=size) if reads_many else norm(pool(x, size=size))


def check_options(v, options):
    """Raises a ValueError where a model of a `Variant` cannot have some arguments, by name."""
    for name in ("dropout", "attention_dropout", "stochastic_depth", "patch_dropout"):
        rate(options[name], name)
    is_axial, is_any_size = v.block == "axial", options["variable_size"]
    if is_any_size and (v.has_positions_in_blocks or is_axial):
        raise ValueError(
            "variable_size needs the position embedding at the input, and blocks that are not "
            f"axial. Received: position={v.position!r}, position_at={v.position_at!r}, block="
            f"{v.block!r}; build a model for each image size."
        )
    dropping = {
        f"the answers of pool={v.pool!r} belong to single patches": v.pool in (None, "first"),
        "relative positions need every token in its place": v.is_relative,
        "axial blocks need every patch in its place": is_axial,
        f"position_at={v.position_at!r} adds positions to tokens that are gone": (
            v.has_positions_in_blocks
        ),
    }
    merging = dropping | {
        "a merged token has no single place for a rotary position": v.rotary,
        f"{v.block} blocks do not merge tokens": v.block not in MERGING_BLOCKS,
        "remat is for training, and merging for inference": options["remat"],
        "the number of tokens must be known, so build a model for each image size": is_any_size,
    }
    is_merging = any(merged_tokens(v, options["token_merging"]))
    for name, is_used, reasons in (
        ("patch_dropout", options["patch_dropout"], dropping),
        ("token_merging", is_merging, merging),
    ):
        reason = next((reason for reason, is_so in reasons.items() if is_so), None)
        if is_used and reason:
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
