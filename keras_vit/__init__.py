"""keras_vit: the Vision Transformer in Keras 3, on TensorFlow, JAX and PyTorch."""

import importlib

from keras_vit import builders, data, distribution, layers, training, weights
from keras_vit.builders import *  # noqa: F403
from keras_vit.data import Prediction, predict, preprocess
from keras_vit.efficientnet import EfficientNet_L2
from keras_vit.models import BIT_VARIANTS, BiT, BiTVariant, VisionTransformer
from keras_vit.preprocessing import Preprocessing
from keras_vit.variants import VARIANTS, Later, Variant, get_variant
from keras_vit.version import __version__
from keras_vit.weights import (
    CheckpointError,
    LoadReport,
    from_checkpoint,
    list_weights,
    load_weights,
    save_weights,
)
from keras_vit.weights.resize import fold, resize

# Read when they are first used; the others hold classes that saved models need to be known.
_LATER = ("evaluation", "inspection", "recipes")


def __getattr__(name):
    if name in _LATER:
        return importlib.import_module(f"keras_vit.{name}")
    raise AttributeError(f"module 'keras_vit' has no attribute {name!r}")


__all__ = [
    "BIT_VARIANTS",
    "VARIANTS",
    "BiT",
    "BiTVariant",
    "CheckpointError",
    "EfficientNet_L2",
    "Later",
    "LoadReport",
    "Prediction",
    "Preprocessing",
    "Variant",
    "VisionTransformer",
    "__version__",
    "data",
    "distribution",
    "fold",
    "from_checkpoint",
    "get_variant",
    "layers",
    "list_weights",
    "load_weights",
    "predict",
    "preprocess",
    "resize",
    "save_weights",
    "training",
    "weights",
]
__all__ += [*_LATER, *builders.__all__]
