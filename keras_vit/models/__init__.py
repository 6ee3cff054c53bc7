"""Whole networks."""

from keras_vit.models.vit import VisionTransformer

__all__ = ["VisionTransformer"]
