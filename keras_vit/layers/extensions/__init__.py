"""What later families and methods add to the paper's layers; `keras_vit.layers` lists the names."""

import keras_vit.layers.extensions.earlier  # noqa: F401

__all__ = []
