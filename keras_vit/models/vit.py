"""The Vision Transformer (Figure 1, Eq. 1 to 4)."""

import keras

from keras_vit.checks import check_names, rate
from keras_vit.later import LATER
from keras_vit.layers.head import AttentionPool, TokenPool, linear_head, pre_logits
from keras_vit.layers.norm import NORMS
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.position import PositionEmbedding, RelativePosition, RotaryPosition
from keras_vit.layers.resnet import resnet_stages
from keras_vit.layers.transformer_block import RematTransformerBlock, TransformerBlock
from keras_vit.models.classifier import Classifier, argument_names, arguments, image_input
from keras_vit.preprocessing import Preprocessing
from keras_vit.variants import Variant, get_variant


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(Classifier):
    """An image classifier made of a Transformer encoder over patches.

    A Functional model. Its layers are, in this order, `root` and `stage_1_unit_1` and so on (in a
    hybrid, which has a `stem`), `patches`, `patch_encoder`, `block_0` to
    `block_{depth - 1}`, `norm`, `pool`, `pre_logits` (with a `representation_size`) and `head`
    (with classes); models with positions in the blocks also have `position` or `position_0` and
    so on, or `rotary`. These names and the paths of the variables under them are part of the
    interface.

    What came with the weights is kept in `preprocessing` (how images are prepared), `class_names`
    and `label_set` (what the logits stand for, or `None`).

    Shapes: (batch, height, width, channels), values in [-1, 1] -> (batch, num_classes) logits;
    (batch, tokens, num_classes) with pool=None; the representation, of length
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
        **architecture: fields of `keras_vit.Variant`, and of its group `later`, to change or to
            give; and Keras's `name`, `dtype`.

    """

    def __init__(
        self,
        variant=None,
        image_size=224,
        num_classes=1000,
        include_top=True,
        channels=3,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth=0.0,
        head_bias=0.0,
        remat=False,
        variable_size=False,
        name=None,
        dtype=None,
        **architecture,
    ):
        check_names(Variant, architecture, [*LATER, *argument_names(VisionTransformer)])
        v = get_variant(variant, **architecture)
        if variable_size and v.position_at != "input" and v.position != "none":
            raise ValueError(
                "variable_size needs the position embedding at the input. Received: "
                f"position={v.position!r}, position_at={v.position_at!r}; build a model for each "
                "image size."
            )
        common = arguments(image_size, num_classes, include_top, channels, head_bias, dtype)
        grid = v.grid(image_size)
        rates = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
        }
        for key, value in rates.items():
            rate(value, key)
        policy = common["dtype_policy"]
        kind = {"dtype": policy}

        sides = (None, None) if variable_size else common["image_size"]
        x = images = image_input(*sides, common["channels"], policy)
        if v.stem is not None:
            x = resnet_stages(x, v.stem, v.stem_width, "v1", v.stem_numerics, v.stem_folded, policy)
        cut = Patches(v.patch_size, variable_size, v.stem is not None, **kind, name="patches")
        patches = cut(x)
        x = PatchEncoder(
            v.width,
            grid,
            v.class_token,
            v.position if v.position_at == "input" else "none",
            dropout,
            v.registers,
            v.interpolation,
            **kind,
            name="patch_encoder",
        )(patches)
        if v.later.pre_norm:
            x = NORMS[v.later.pre_norm](v.epsilon, **kind, name="pre_norm")(x)
        relative = None
        if v.later.rotary:
            head_width, learned = v.width // v.num_heads, v.learned_tokens
            rotary = (v.later.rotary, head_width, grid, learned)
            relative = RotaryPosition(*rotary, **kind, name="rotary")(patches)
        for i, position in enumerate(_block_positions(v, grid, kind)):
            if v.position == "relative":
                relative = position(x)
            elif position is not None:
                x = position(x)
            block = (RematTransformerBlock if remat else TransformerBlock)(
                v.num_heads,
                v.mlp_dim,
                gelu=v.gelu,
                qkv_bias=v.qkv_bias,
                epsilon=v.epsilon,
                dropout=dropout,
                attention_dropout=attention_dropout,
                stochastic_depth=stochastic_depth * i / max(v.depth - 1, 1),
                later=v.later,
                **kind,
                name=f"block_{i}",
            )
            x = block(x, relative_position=relative)
        x = _pooled(x, v, kind)
        if v.representation_size:
            x = pre_logits(len(x.shape), v.representation_size, **kind)(x)
        if common["num_classes"]:
            x = linear_head(len(x.shape), common["num_classes"], head_bias, **kind)(x)
        options = {**rates, "remat": remat, "variable_size": bool(variable_size)}
        super().__init__(images, x, v, common, Preprocessing(), name, **options)
        self.grid, self.variable_size = grid, bool(variable_size)

    def checked(self, images):
        images = super().checked(images)
        if self.variable_size:
            v = self.variant
            (shape,) = (x.shape for x in keras.tree.flatten(images))
            known = [side or stride for side, stride in zip(shape[1:3], v.stride)]
            v.grid(known)
        return images


def _pooled(x, v, kind):
    norm = NORMS[v.later.norm](v.epsilon, **kind, name="norm")
    if v.pool == "map":
        arguments = (v.num_heads, v.mlp_dim, v.gelu, v.qkv_bias, v.epsilon)
        return AttentionPool(*arguments, **kind, name="pool")(norm(x))
    if v.pool is None:
        return norm(x)
    pool = TokenPool(v.pool, v.class_token, v.registers, **kind, name="pool")
    # LayerNorm works on each token by itself: normalising the one that is read is enough.
    return norm(pool(x)) if v.pool != "mean" or v.norm_after_pool else pool(norm(x))


def _block_positions(v, grid, kind):
    """The position layer before each block: none, its own, or the one that all share."""

    def layer(name):
        if v.position == "relative":
            return RelativePosition(v.num_heads, **kind, name=name)
        tokens = (v.class_token, v.registers, v.interpolation)
        return PositionEmbedding(v.position, grid, *tokens, **kind, name=name)

    if v.position_at == "input" or v.position == "none":
        return [None] * v.depth
    if v.position_at == "shared":
        return [layer("position")] * v.depth
    return [layer(f"position_{i}") for i in range(v.depth)]
