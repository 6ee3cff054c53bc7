"""The Vision Transformer (Figure 1, Eq. 1 to 4)."""

import contextlib
from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_vit.arguments import ViTFields
from keras_vit.checks import check_names, known, rate
from keras_vit.layers.extensions.patch_dropout import PatchDropout
from keras_vit.layers.extensions.resizable_patches import ResizablePatches
from keras_vit.layers.head import (
    AttentionPool,
    TokenPool,
    linear_head,
    pre_logits,
    projection,
)
from keras_vit.layers.norm import NORMS
from keras_vit.layers.other_blocks import BLOCKS
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.position import PositionEmbedding, RelativePosition, RelativePosition2D
from keras_vit.layers.resnet import resnet_stages
from keras_vit.layers.rotary import RotaryPosition
from keras_vit.layers.token_merging import MERGING
from keras_vit.models.classifier import Classifier, argument_names, arguments, image_input
from keras_vit.models.tokens import check_patch_dropout, merged_tokens
from keras_vit.preprocessing import Preprocessing
from keras_vit.variants import Variant, get_variant


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(Classifier):
    """An image classifier made of a Transformer encoder over patches.

    A Functional model. Its layers are, in this order, `root` and `stage_1_unit_1` and so on (in a
    hybrid, which has a `stem`), `patches`, `patch_encoder`, `pre_norm` (if any), `block_0` to
    `block_{depth - 1}`, `norm`, `pool`, `pre_logits` (with a `representation_size`), `projection`
    (if any) and `head` (with classes); models with positions in the blocks also have `position` or
    `position_0` and so on, or `rotary` or `rotary_0` and so on; those with a distillation token
    have `distillation_token`, `head_distillation` and `mean`; an axial block is two layers, so that
    there are `2 * depth` of them. These names and the paths of the variables under them are part of
    the interface.

    What came with the weights is kept in `preprocessing` (how images are prepared), `class_names`
    and `label_set` (what the logits stand for, or `None`), and `weights_from` (the checkpoint that
    was loaded last, by its name or address, or `None`).

    Shapes: (batch, height, width, channels), values in [-1, 1] -> (batch, num_classes) logits;
    (batch, tokens, num_classes) with pool=None; the representation, of length `projection`,
    `representation_size` or `width`, where there are no classes.

    Args:
        variant: a name such as `"B/16"`, a `keras_vit.Variant`, or `None` for ViT-B/16's numbers.
        image_size: int or (height, width), in pixels; the patch size must divide it.
        num_classes: K, or 0 for no head.
        include_top: `False` is the same as `num_classes=0`.
        channels: 3 for RGB, 1 for grayscale, any other number.
        dropout: rate after the position embedding, after the attention and in the MLP.
        attention_dropout: rate at which attention weights are dropped.
        stochastic_depth: probability that the last block is left out for an example; grows
            linearly from 0 at the first block.
        head_bias: initial bias of the head, for sigmoid losses.
        remat: whether the backward pass computes each block again instead of keeping its
            intermediate values: less memory, about a third more time.
        variable_size: whether images of other sizes than `image_size` are taken too, as far as
            the patch size divides them: the position embedding is then resampled in the graph.
        patch_dropout: share of the patches that are left out in training, others for each image
            (Liu et al., 2022); as rates go, none of them outside of training.
        token_merging: tokens that each block joins with others between attention and MLP (ToMe;
            Bolya et al., 2023), an int or one for each block; see `keras_vit.merge_tokens`.
        **architecture: fields of `keras_vit.Variant` to change or to give; and Keras's `name`,
            `dtype`.
    """

    def __init__(
        self,
        variant: str | Variant | None = None,
        image_size: int | tuple[int, int] = 224,
        num_classes: int = 1000,
        include_top: bool = True,
        channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        head_bias: float = 0.0,
        remat: bool = False,
        variable_size: bool = False,
        patch_dropout: float = 0.0,
        token_merging: int | Sequence[int] = 0,
        name: str | None = None,
        dtype: Any = None,
        **architecture: Unpack[ViTFields],
    ):
        check_names(Variant, architecture, argument_names(VisionTransformer))
        v = get_variant(variant, **architecture)
        in_blocks = v.position_at != "input" and v.position != "none"
        if variable_size and (in_blocks or v.block == "axial"):
            raise ValueError(
                "variable_size needs the position embedding at the input, and blocks that are not "
                f"axial. Received: position={v.position!r}, position_at={v.position_at!r}, block="
                f"{v.block!r}; build a model for each image size."
            )
        common = arguments(image_size, num_classes, include_top, channels, head_bias, dtype)
        grid = v.grid(image_size)
        rates = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
            "patch_dropout": patch_dropout,
        }
        for key, value in rates.items():
            rate(value, key)
        check_patch_dropout(v, patch_dropout)
        merged = merged_tokens(v, token_merging, variable_size, remat)
        policy = common["dtype_policy"]
        kind = {"dtype": policy}

        sides = (None, None) if variable_size else common["image_size"]
        x = images = image_input(*sides, common["channels"], policy)
        if v.stem is not None:
            x = resnet_stages(
                x,
                v.stem,
                width=v.stem_width,
                version="v1",
                numerics=v.stem_numerics,
                folded=v.stem_folded,
                dtype=policy,
            )
        cut = ResizablePatches if variable_size else Patches
        cut = cut(v.patch_size, variable_size, v.stem is not None, **kind, name="patches")
        patches = cut(x)
        x = PatchEncoder(
            v.width,
            grid,
            v.class_token,
            v.position if v.position_at == "input" else "none",
            dropout,
            v.registers,
            v.interpolation,
            v.distillation,
            v.patch_bias,
            v.patch_norm,
            v.epsilon,
            **kind,
            name="patch_encoder",
        )(patches)
        positions = _block_positions(v, grid, kind)
        angles = {layer: layer(patches) for layer in positions} if v.rotary else {}
        if patch_dropout:
            drop = PatchDropout(patch_dropout, v.learned_tokens, **kind, name="patch_dropout")
            x, *kept = drop([x, *angles.values()]) if angles else [drop(x)]
            angles = dict(zip(angles, kept))
        x = NORMS[v.pre_norm](v.epsilon, **kind, name="pre_norm")(x)
        relative = size = None
        for i, position in enumerate(positions):
            if v.rotary:
                relative = angles[position]
            elif v.is_relative:
                relative = position(x)
            elif position is not None:
                x = position(x)
            merging = size is not None or merged[i] > 0
            how = {"merged": merged[i], "protected": v.learned_tokens} if merging else {}
            if v.block == "axial":
                how = {"grid": grid, "axis": ("row", "column")[i % 2]}
            block = MERGING[v.block] if merging else BLOCKS[v.block, bool(remat)]
            block = block(**block_arguments(v, i, rates), **how, **kind)
            if merging:
                x, size = block(x, size=size)
            else:
                x = block(x, relative_position=relative)
        norm = NORMS[v.norm if v.final_norm else None](v.epsilon, **kind, name="norm")
        tokens, x = x, pooled(x, size, v, norm, kind)
        if v.representation_size:
            x = pre_logits(len(x.shape), v.representation_size, **kind)(x)
        if v.projection:
            x = projection(len(x.shape), v.projection, **kind)(x)
        head = (len(x.shape), common["num_classes"], head_bias, policy)
        if common["num_classes"]:
            x = linear_head(*head)(x)
        if v.distillation:
            y = norm(TokenPool("distillation", True, **kind, name="distillation_token")(tokens))
            if common["num_classes"]:
                y = linear_head(*head, name="head_distillation")(y)
            x = keras.layers.Average(dtype=x.dtype, name="mean")([x, y])
        options = {**rates, "remat": remat, "variable_size": bool(variable_size)}
        options["token_merging"] = token_merging
        super().__init__(images, x, v, common, Preprocessing(), name, **options)

    variant_of = staticmethod(get_variant)

    @property
    def grid(self):
        """(rows, columns) of the patches of an image of `image_size`."""
        return self.variant.grid(self.image_size)

    @property
    def variable_size(self):
        return self.origin.options["variable_size"]

    @property
    def token_merging(self):
        return self.origin.options["token_merging"]

    def checked(self, images):
        images = super().checked(images)
        if self.variable_size:
            # Within `cut_into` it is another one than the variant's.
            v = self.variant.replace(patch_size=self.get_layer("patches").patch_size)
            (shape,) = (x.shape for x in keras.tree.flatten(images))
            v.grid([side or stride for side, stride in zip(known(shape[1:3]), v.stride)])
        return images

    @contextlib.contextmanager
    def cut_into(self, patch_size, method="bilinear"):
        """Within it, the model has patches of another size, by the same weights (FlexiViT).

        Patches and the position embedding are resized in the graph (`ResizablePatches`; Beyer et
        al., 2023). It holds for calls of the model; programs that Keras has compiled, as those of
        `predict`, keep the size for which they were compiled, so take `keras_vit.resize` for these
        and `keras_vit.training.FlexiblePatches` for training.

        Args:
            patch_size: int or (height, width), in pixels.
            method: how a patch is resized, as in `keras_vit.layers.resize_matrix`.

        Raises:
            ValueError: the model does not have `variable_size=True`.
        """
        if not self.variable_size:
            raise ValueError(
                "Patches of another size need variable_size=True. Received: "
                f"patch_size={patch_size!r}; keras_vit.resize(model, variable_size=True) adds it."
            )
        with self.get_layer("patches").cut_into(patch_size, method):
            yield


def block_arguments(v, i, rates):
    """Arguments of block `i` of a `Variant`; stochastic depth grows from 0 at the first block."""
    return {
        "num_heads": v.num_heads,
        "mlp_dim": v.mlp_dim,
        "gelu": v.gelu,
        "qkv_bias": v.qkv_bias,
        "epsilon": v.epsilon,
        "dropout": rates["dropout"],
        "attention_dropout": rates["attention_dropout"],
        "stochastic_depth": rates["stochastic_depth"] * i / max(v.block_layers - 1, 1),
        "later": v.extensions,
        "name": f"block_{i}",
    }


def pooled(x, size, v, norm, kind):
    if v.pool in ("map", "probe"):
        heads, mlp_dim = v.pool_heads or v.num_heads, v.pool_mlp_dim or v.mlp_dim
        mlp_dim = mlp_dim if v.pool == "map" else None
        skipped = v.learned_tokens if v.pool_patches else 0
        activation = v.activation if v.mlp == "mlp" else None  # that of a gate is another choice
        biases = v.pool == "map" or v.qkv_bias  # which MAP has in any case
        arguments = (heads, mlp_dim, v.gelu, biases, v.epsilon, skipped, activation)
        return AttentionPool(*arguments, **kind, name="pool")(norm(x), size=size)
    if v.pool is None:
        return norm(x)
    others = v.learned_tokens - int(v.class_token)
    pool = TokenPool(v.pool, v.class_token, others, **kind, name="pool")
    # LayerNorm works on each token by itself: normalising the one that is read is enough.
    reads_many = v.pool in ("mean", "token_mean") and not v.norm_after_pool
    return pool(norm(x), size=size) if reads_many else norm(pool(x, size=size))


def _block_positions(v, grid, kind):
    """The position layer before each block: none, its own, or the one that all share."""

    def layer(name):
        if v.rotary:
            rotary = (v.rotary, v.num_heads, v.width // v.num_heads, grid, v.learned_tokens)
            return RotaryPosition(*rotary, **kind, name=name.replace("position", "rotary"))
        if v.position == "relative":
            return RelativePosition(v.num_heads, **kind, name=name)
        if v.position == "relative_2d":
            return RelativePosition2D(v.num_heads, grid, v.class_token, **kind, name=name)
        others = v.learned_tokens - int(v.class_token)
        tokens = (v.class_token, others, v.interpolation)
        return PositionEmbedding(v.position, grid, *tokens, **kind, name=name)

    if v.rotary:
        shared = not v.rotary.learned
    elif v.position_at == "input" or v.position == "none":
        return [None] * v.block_layers
    else:
        shared = v.position_at == "shared"
    if shared:
        return [layer("position")] * v.block_layers
    return [layer(f"position_{i}") for i in range(v.block_layers)]
