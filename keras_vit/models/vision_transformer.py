"""The Keras model of a Vision Transformer."""

import contextlib
from collections.abc import Sequence
from typing import Any, Unpack

import keras

from keras_vit.arguments import ViTFields
from keras_vit.checks import check_names, known
from keras_vit.models.classifier import Classifier
from keras_vit.models.extended import ExtendedNetwork, check_options
from keras_vit.models.record import ModelRecord, argument_names
from keras_vit.models.vit import Network
from keras_vit.variant import Variant
from keras_vit.variants import get_variant


@keras.saving.register_keras_serializable("keras_vit")
class VisionTransformer(Classifier):
    """An image classifier made of a Transformer encoder over patches.

    A Functional model of these layers, whose names and the paths of the variables under them are
    part of the interface:

    | layers | where |
    |---|---|
    | `root`, `stage_1_unit_1`, ... | with a `stem` |
    | `patches`, `patch_encoder` | always |
    | `pre_norm` | with the field of this name |
    | `block_0` to `block_{depth - 1}` | always; an axial block is two layers |
    | `position` or `position_0`, ... | with positions in the blocks |
    | `rotary` or `rotary_0`, ... | with rotary positions |
    | `norm`, `pool` | always, unless `final_norm=False` or `pool=None` |
    | `pre_logits` | with a `representation_size` |
    | `projection` | with the field of this name |
    | `head` | with classes |
    | `distillation_token`, `head_distillation`, `mean` | with a distillation token |

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
        variable_size: whether the model also takes images of other sizes, if the patch size
            divides them: it then resamples the position embedding in the graph.
        patch_dropout: share of the patches that each image loses in training, drawn anew for
            every batch (Liu et al., 2022); outside of training it loses none.
        token_merging: how many tokens each block merges into others, between attention and MLP
            (ToMe; Bolya et al., 2023): an int, or one for each block; see `keras_vit.merge_tokens`.
        name, dtype: as in `keras.Model`; the dtype may be a policy, such as `"mixed_bfloat16"`.
        **architecture: fields of `keras_vit.Variant`, in place of those of `variant`.
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
        rates = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
        }
        extras = {  # of later methods
            "patch_dropout": patch_dropout,
            "remat": remat,
            "variable_size": bool(variable_size),
            "token_merging": token_merging,
        }
        record = ModelRecord(
            type(self),
            v,
            image_size,
            num_classes=num_classes if include_top else 0,
            channels=channels,
            head_bias=head_bias,
            dtype_policy=dtype,
            options={**rates, **extras},
        )
        check_options(v, record.options)
        is_extended = v.is_extended or any(extras.values())
        make, options = (ExtendedNetwork, rates | extras) if is_extended else (Network, rates)
        network = make(
            v,
            grid=v.grid(record.image_size),
            num_classes=record.num_classes,
            head_bias=head_bias,
            dtype=record.dtype_policy,
            **options,
        )
        images = record.image_input(any_size=variable_size)
        super().__init__(images, network(images), record=record, name=name)

    variant_of = staticmethod(get_variant)

    @property
    def grid(self):
        """(rows, columns) of the patches of an image of `image_size`."""
        return self.variant.grid(self.image_size)

    @property
    def variable_size(self):
        return self.model_record.options["variable_size"]

    @property
    def token_merging(self):
        return self.model_record.options["token_merging"]

    def check_images(self, images):
        images = super().check_images(images)
        if self.variable_size:
            # Inside `cut_into` the patch size differs from `variant.patch_size`.
            v = self.variant.replace(patch_size=self.get_layer("patches").patch_size)
            sides = known(keras.tree.flatten(images)[0].shape[1:3])
            # A ValueError where the patches do not divide a side. A side that a graph leaves open
            # counts as one patch.
            v.grid([side or stride for side, stride in zip(sides, v.stride)])
        return images

    @contextlib.contextmanager
    def cut_into(self, patch_size, method="bilinear"):
        """Within it, the model has patches of another size, by the same weights (FlexiViT).

        Patches and the position embedding are resized in the graph (`ResizablePatches`; Beyer et
        al., 2023). Only calls of the model change. Programs that Keras has compiled, such as that
        of `predict`, keep their patch size: take `keras_vit.resize` for them, and
        `keras_vit.training.FlexiblePatches` for training.

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
