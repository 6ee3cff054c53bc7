"""keras_vit: the Vision Transformer in Keras 3, on TensorFlow, JAX and PyTorch."""

# ruff: noqa: F401

import importlib
import importlib.util
import types

try:
    import keras
except ModuleNotFoundError as error:
    if error.name not in ("tensorflow", "jax", "torch"):
        raise
    there = [name for name in ("jax", "tensorflow", "torch") if importlib.util.find_spec(name)]
    advice = f"set the environment variable KERAS_BACKEND={there[0]}" if there else "install it"
    raise ModuleNotFoundError(
        f"Keras computes with {error.name} here, which is not installed; {advice} before the first "
        f"import of Keras. Installed: {', '.join(there) or 'no backend'}.",
        name=error.name,
    ) from None

from keras_vit import builders, data, distribution, exports, layers, training, weights
from keras_vit.builders import (
    BiT_R50x1,
    BiT_R50x2,
    BiT_R50x3,
    BiT_R101x1,
    BiT_R101x3,
    BiT_R152x1,
    BiT_R152x2,
    BiT_R152x4,
    BiT_R200x3,
    R26_ViT_B32,
    R26_ViT_S32,
    R50_ViT_B16,
    R50_ViT_B32,
    R50_ViT_L16,
    R50_ViT_L32,
    R_ViT_Ti16,
    ViT_22B14,
    ViT_B8,
    ViT_B16,
    ViT_B32,
    ViT_G14,
    ViT_g14,
    ViT_H14,
    ViT_L16,
    ViT_L32,
    ViT_S16,
    ViT_S16_plain,
    ViT_S32,
    ViT_So400m14,
    ViT_Ti16,
    build,
)
from keras_vit.data import Prediction, predict, preprocess
from keras_vit.efficientnet import EfficientNet_L2
from keras_vit.exports import export
from keras_vit.hub import model_card, push_to_hub
from keras_vit.later import Later, Rotary
from keras_vit.models import (
    BIT_VARIANTS,
    BiT,
    BiTVariant,
    NaFlexVisionTransformer,
    VisionTransformer,
)
from keras_vit.preprocessing import Preprocessing
from keras_vit.variants import VARIANTS, Variant, get_variant
from keras_vit.version import __version__
from keras_vit.weights import (
    CheckpointError,
    LoadReport,
    from_checkpoint,
    list_weights,
    load_weights,
    save_weights,
)
from keras_vit.weights.naflex import naflex_from_checkpoint
from keras_vit.weights.resize import fold, merge_tokens, resize

globals().update(builders.LATER)  # DINOv2_S14 and so on, a builder for each of `families.FAMILIES`

# Imported when they are first used; the others hold classes that saved models need to be known.
_LATER = ("evaluation", "inspection", "recipes")


def __getattr__(name):
    if name in _LATER:
        return importlib.import_module(f"keras_vit.{name}")
    raise AttributeError(f"module 'keras_vit' has no attribute {name!r}")


__all__ = ["__version__", "data", "distribution", "exports", "layers", "training", "weights"]
__all__ += _LATER
__all__ += [
    name
    for name, value in vars().items()
    if not name.startswith("_") and not isinstance(value, types.ModuleType)
]
