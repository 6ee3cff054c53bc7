"""Whole networks."""

from keras_vit.models.bit import BIT_VARIANTS, BiT, BiTVariant
from keras_vit.models.features import features
from keras_vit.models.multitask import MultitaskModel, add_heads
from keras_vit.models.naflex import NaFlexVisionTransformer
from keras_vit.models.vision_transformer import VisionTransformer

__all__ = [
    "BIT_VARIANTS",
    "BiT",
    "BiTVariant",
    "MultitaskModel",
    "NaFlexVisionTransformer",
    "VisionTransformer",
    "add_heads",
    "features",
]
