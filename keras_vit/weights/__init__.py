"""Checkpoints into models: read -> canonical names -> strict assignment -> a report."""

from keras_vit.weights.load import LoadReport, from_checkpoint, load_weights

__all__ = ["LoadReport", "from_checkpoint", "load_weights"]
