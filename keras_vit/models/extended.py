"""The network of `keras_vit.models.vit`, with what later families and methods add to it."""

import dataclasses
from collections.abc import Sequence

import keras

from keras_vit import layers
from keras_vit.checks import rate
from keras_vit.extensions import Extensions
from keras_vit.layers.extensions.blocks import BLOCKS, position_argument
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
        remat, variable_size, patch_dropout, token_merging: as in `keras_vit.VisionTransformer`.
    """

    remat: bool = False
    variable_size: bool = False
    patch_dropout: float = 0.0
    token_merging: int | Sequence[int] = 0

    def __call__(self, images):
        v, patches = self.variant, self.cut(self.stem(images))
        x, positions = self.embed(patches), self.position_layers()
        rotations = [rotary(patches) for rotary in positions] if v.rotary else []
        if self.patch_dropout:
            x, rotations = self.drop_patches(x, rotations)
        x = NORMS[v.pre_norm](v.epsilon, dtype=self.dtype, name="pre_norm")(x)
        size = None  # the patches that each token stands for: one, until tokens are merged
        for i, merged in enumerate(merged_tokens(v, self.token_merging)):
            if merged or size is not None:
                x, size = self.merging_block(i, merged)(x, size=size)
            elif v.rotary:
                x = self.block(i)(x, rotation=rotations[i % len(rotations)])
            else:
                x = self.call_block(i, x, positions)
        return self.read_out(x, size)

    def cut(self, x):
        if not self.variable_size:
            return super().cut(x)
        v = self.variant
        options = {"drop_incomplete": v.stem is not None, "dtype": self.dtype, "name": "patches"}
        return ResizablePatches(v.patch_size, keep_grid=True, **options)(x)

    def embed(self, patches):
        v = self.variant
        encoder = layers.ExtendedPatchEncoder(
            **self.encoder_arguments(),
            registers=v.registers,
            distillation=v.distillation,
            bias=v.patch_bias,
            norm=v.patch_norm,
            epsilon=v.epsilon,
        )
        return encoder(patches)

    def position_layers(self):
        """The layers of positions beside or in the blocks: none, one for all, or one for each."""
        v = self.variant
        if not v.rotary and not v.has_positions_in_blocks:
            return []
        is_shared = not v.rotary.learned if v.rotary else v.position_at == "shared"
        suffixes = [""] if is_shared else [f"_{i}" for i in range(v.block_layers)]
        return [self.position_layer(suffix) for suffix in suffixes]

    def position_layer(self, suffix):
        """A position layer, whose name ends with the suffix."""
        v, heads = self.variant, self.variant.num_heads
        options = {"dtype": self.dtype, "name": f"{'rotary' if v.rotary else 'position'}{suffix}"}
        if v.rotary:
            options |= {"learned_tokens": v.learned_tokens, "head_width": v.width // heads}
            return layers.RotaryPosition(v.rotary, heads, grid=self.grid, **options)
        if v.position == "relative":
            return layers.RelativePosition(heads, **options)
        if v.position == "relative_2d":
            return layers.RelativePosition2D(heads, self.grid, class_token=v.class_token, **options)
        options |= {"class_token": v.class_token, "interpolation": v.interpolation}
        options |= {"registers": v.learned_tokens - int(v.class_token)}
        return layers.PositionEmbedding(v.position, self.grid, **options)

    def drop_patches(self, x, rotations):
        """In training fewer patches, and the rotations of those that are left."""
        options = {"dtype": self.dtype, "name": "patch_dropout"}
        drop = layers.PatchDropout(self.patch_dropout, self.variant.learned_tokens, **options)
        if not rotations:
            return drop(x), []
        x, *rotations = drop([x, *rotations])
        return x, rotations

    def block(self, i):
        v, arguments = self.variant, self.block_arguments(i)
        if v.extensions == Extensions() and not v.is_relative:
            block = layers.RematTransformerBlock if self.remat else layers.TransformerBlock
            return block(**arguments)
        if v.block == "axial":
            arguments |= {"grid": self.grid, "axis": ("row", "column")[i % 2]}
        block = (REMAT_BLOCKS if self.remat else BLOCKS)[v.block]
        return block(**arguments, extensions=v.extensions)

    def call_block(self, i, x, positions):
        """The tokens after block `i`, where positions are added before it or it attends by them."""
        if not positions:
            return self.block(i)(x)
        position = positions[i % len(positions)]
        if not self.variant.is_relative:
            return self.block(i)(position(x))
        distances, block = position(x), self.block(i)
        return block(x, **position_argument(block, distances))

    def merging_block(self, i, merged=0):
        """A new block `i`, which takes tokens with their sizes, and joins some of the tokens."""
        v = self.variant
        options = {"extensions": v.extensions, "merged": merged, "protected": v.learned_tokens}
        return MERGING_BLOCKS[v.block](**self.block_arguments(i), **options)

    def read_out(self, tokens, size=None):
        """The logits of the tokens after the last block, or the mean of two heads' logits."""
        v, dtype = self.variant, self.dtype
        norm = NORMS[v.norm if v.final_norm else None](v.epsilon, dtype=dtype, name="norm")
        logits = self.classify(self.pooled(tokens, size, norm))
        if not v.distillation:
            return logits
        options = {"dtype": dtype, "name": "distillation_token"}
        second = layers.ExtendedTokenPool("distillation", True, **options)(tokens)
        others = self.head(norm(second), name="head_distillation")
        return keras.layers.Average(dtype=logits.dtype, name="mean")([logits, others])

    def head(self, x, name="head"):
        projection = self.variant.projection
        if projection:
            x = linear_map(x, projection, dtype=self.dtype, name="projection")
        return super().head(x, name)

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


def make_network(v, options, **arguments):
    """The paper's `Network`, or an `ExtendedNetwork` where the variant or an option asks for one.

    `options` are rates of dropout, and what an `ExtendedNetwork` takes beside the paper's one.
    """
    of_paper = {field.name for field in dataclasses.fields(Network)} & options.keys()
    if v.is_extended or any(options[name] for name in options.keys() - of_paper):
        return ExtendedNetwork(v, **options, **arguments)
    return Network(v, **{name: options[name] for name in of_paper}, **arguments)


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
