"""The Vision Transformer for images in their own aspect ratio (NaFlex; Tschannen et al., 2025)."""

import dataclasses
import math
from typing import Any, Unpack

import keras

from keras_vit.arguments import ViTFields
from keras_vit.checks import check_names, pair, rate
from keras_vit.layers.changed_layers import apply_changes, changes_of
from keras_vit.layers.extensions.naflex import NaFlexPatchEncoder
from keras_vit.layers.extensions.token_merging import MERGING_BLOCKS
from keras_vit.models.extended import ExtendedNetwork
from keras_vit.models.record import ModelRecord, argument_names
from keras_vit.models.trainer import Trainer
from keras_vit.variant import Variant
from keras_vit.variants import get_variant
from keras_vit.workarounds import own_policy

# The values that fields of a `Variant` may have in a NaFlex model.
ALLOWED = {
    "class_token": (False,),
    "registers": (0,),
    "distillation": (False,),
    "pool": ("map", "mean", None),
    "position": ("learned_1d",),
    "position_at": ("input",),
    "rotary": (None,),
    "stem": (None,),
    "block": tuple(MERGING_BLOCKS),
    "representation_size": (None,),
    "projection": (None,),
    "patch_bias": (True,),
    "patch_norm": (None,),
    "pre_norm": (None,),
}


@keras.saving.register_keras_serializable("keras_vit")
class NaFlexVisionTransformer(Trainer, keras.Model):
    """A Vision Transformer for images of any shape, whose patches come as padded sequences.

    A Functional model with the layers `patch_encoder`, `block_0` and so on, `norm`, `pool` and
    `head`, whose variables have the same names as in `VisionTransformer`. It takes a dict, as
    `keras_vit.data.naflex_inputs` makes it:

    - `patches`: (batch, tokens, P²·C), those of an image in reading order, then padding;
    - `mask`: (batch, tokens), integers, 1 for patches and 0 for padding, which attention and
      pooling leave out;
    - `shapes`: (batch, 2), integers, (rows, columns) of the patches of each image.

    Shapes: -> (batch, num_classes), (batch, width) without classes, or with pool=None (batch,
    tokens, num_classes or width), where outputs of padding mean nothing.

    Args:
        variant: as in `VisionTransformer`.
        grid: int or (rows, columns) of the learned position table.
        num_classes: K, or 0 for no head.
        channels: of the images.
        dropout, attention_dropout, stochastic_depth: as in `VisionTransformer`.
        **architecture: fields of `keras_vit.Variant`; `pool` is `"map"` unless it is given, or
            `"mean"` or `None`. And Keras's `name`, `dtype`.

    Raises:
        ValueError: an architecture that NaFlex does not have.
    """

    def __init__(
        self,
        variant: str | Variant | None = None,
        grid: int | tuple[int, int] = 16,
        num_classes: int = 0,
        channels: int = 3,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        name: str | None = None,
        dtype: Any = None,
        **architecture: Unpack[ViTFields],
    ):
        check_names(Variant, architecture, argument_names(NaFlexVisionTransformer))
        v = get_variant(variant, **{"pool": "map", "class_token": False, **architecture})
        wrong = [name for name, values in ALLOWED.items() if getattr(v, name) not in values]
        if wrong:
            listed = ", ".join(f"{name} must be one of {ALLOWED[name]}" for name in wrong)
            received = ", ".join(f"{name}={getattr(v, name)!r}" for name in wrong)
            raise ValueError(f"Of a NaFlex model {listed}. Received: {received}.")
        rates = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "stochastic_depth": stochastic_depth,
        }
        for key, value in rates.items():
            rate(value, key)
        grid, values = pair(grid, "grid"), math.prod(v.patch_size) * channels
        record = ModelRecord(type(self), v, grid, num_classes, channels, dtype_policy=dtype)
        policy = record.dtype_policy
        inputs = {
            "patches": keras.Input((None, values), dtype=record.input_dtype, name="patches"),
            "mask": keras.Input((None,), dtype="int32", name="mask"),
            "shapes": keras.Input((2,), dtype="int32", name="shapes"),
        }
        encoder = NaFlexPatchEncoder(v.width, grid, dtype=policy, name="patch_encoder")
        # Padding is a token that stands for no patch.
        x, size = encoder(inputs["patches"], inputs["shapes"]), inputs["mask"]
        network = ExtendedNetwork(v, grid, num_classes=record.num_classes, dtype=policy, **rates)
        x, _ = network.encode_merging(x, size)
        super().__init__(inputs, network.read_out(x, size), name=name)
        self.variant, self.grid, self.channels, self._rates = v, grid, channels, rates
        self.num_classes, self.dtype_policy = record.num_classes, own_policy(policy)

    def get_config(self):
        return {
            **{name: getattr(self, name) for name in ("grid", "num_classes", "channels", "name")},
            **self._rates,
            **dataclasses.asdict(self.variant),
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **changes_of(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        changes = {name: config.get(name) for name in ("changed_layers", "frozen")}
        model = cls(**{name: value for name, value in config.items() if name not in changes})
        apply_changes(model, **changes)
        return model
