"""Whole networks."""

from keras_vit.models.bit import BiT
from keras_vit.models.bit_variants import BIT_VARIANTS, BiTVariant
from keras_vit.models.vit import VisionTransformer

__all__ = ["BIT_VARIANTS", "BiT", "BiTVariant", "VisionTransformer"]
