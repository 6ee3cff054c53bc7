"""The Vision Transformer (Figure 1, Eq. 1 to 4)."""

import contextlib
from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_vit.arguments import ViTFields
from keras_vit.checks import check_names, known
from keras_vit.layers import LayerNorm, PatchEncoder, Patches, TokenPool, TransformerBlock
from keras_vit.layers.extensions.patches import ResizablePatches
from keras_vit.layers.head import linear_head, pre_logits
from keras_vit.layers.resnet import resnet_stages
from keras_vit.models import extended
from keras_vit.models.classifier import Classifier, argument_names, arguments, image_input
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
        checked = arguments(
            image_size, num_classes, include_top, channels, head_bias=head_bias, dtype=dtype
        )
        options = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
            "patch_dropout": patch_dropout,
            "remat": remat,
            "variable_size": bool(variable_size),
            "token_merging": token_merging,
        }
        extended.check_options(v, options)
        grid, dtype = v.grid(image_size), checked["dtype_policy"]
        height, width = (None, None) if variable_size else checked["image_size"]
        head = {"num_classes": checked["num_classes"], "head_bias": head_bias, "dtype": dtype}

        images = image_input(height, width, channels=checked["channels"], policy=dtype)
        x, patches = embed(images, v, grid=grid, options=options, dtype=dtype)  # Eq. 1
        if extended.is_needed(v, options):
            x, size = extended.encode(x, patches, v, grid=grid, options=options, dtype=dtype)
            outputs = extended.read_out(x, size, v, **head)
        else:
            x = encode(x, v, options=options, dtype=dtype)  # Eq. 2 and 3, L times
            outputs = read_out(x, v, **head)  # Eq. 4
        super().__init__(images, outputs, v, checked, Preprocessing(), name, **options)

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


def embed(images, v, grid, options, dtype):
    """Eq. 1: (the tokens z_0, the patches that they are made of). A hybrid has a ResNet first."""
    x, is_hybrid = images, v.stem is not None
    if is_hybrid:
        x = resnet_stages(
            x,
            v.stem,
            width=v.stem_width,
            version="v1",
            numerics=v.stem_numerics,
            folded=v.stem_folded,
            dtype=dtype,
        )
    cut = (ResizablePatches if options["variable_size"] else Patches)(
        v.patch_size,
        keep_grid=options["variable_size"],
        drop_incomplete=is_hybrid,
        dtype=dtype,
        name="patches",
    )
    encoder = PatchEncoder(
        v.width,
        grid,
        class_token=v.class_token,
        position=v.position if v.position_at == "input" else "none",
        dropout=options["dropout"],
        registers=v.registers,
        interpolation=v.interpolation,
        distillation=v.distillation,
        bias=v.patch_bias,
        norm=v.patch_norm,
        epsilon=v.epsilon,
        dtype=dtype,
        name="patch_encoder",
    )
    patches = cut(x)
    return encoder(patches), patches


def encode(x, v, options, dtype):
    """Eq. 2 and 3, L times; stochastic depth grows from 0 at the first block."""
    for i in range(v.depth):
        x = TransformerBlock(
            v.num_heads,
            v.mlp_dim,
            gelu=v.gelu,
            qkv_bias=v.qkv_bias,
            epsilon=v.epsilon,
            dropout=options["dropout"],
            attention_dropout=options["attention_dropout"],
            stochastic_depth=options["stochastic_depth"] * i / max(v.depth - 1, 1),
            dtype=dtype,
            name=f"block_{i}",
        )(x)
    return x


def read_out(x, v, num_classes, head_bias, dtype):
    """Eq. 4, the hidden layer of a pre-training head, and the head."""
    norm = LayerNorm(v.epsilon, dtype=dtype, name="norm")
    pool = TokenPool(v.pool, v.class_token, registers=v.registers, dtype=dtype, name="pool")
    # LayerNorm works on each token by itself: normalising the one that is read is enough.
    x = norm(pool(x)) if v.pool == "token" else pool(norm(x))
    if v.representation_size:
        x = pre_logits(2, v.representation_size, dtype=dtype)(x)
    if num_classes:
        x = linear_head(2, num_classes, bias=head_bias, dtype=dtype)(x)
    return x
