"""keras_vit: the Vision Transformer in Keras 3, on TensorFlow, JAX and PyTorch."""

# ruff: noqa: F401, F403

import importlib
import importlib.util
import sys
import typing

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

from keras_vit import builders, data, distribution, layers, training, weights
from keras_vit.builders import *
from keras_vit.data import Prediction, Value, predict, preprocess
from keras_vit.efficientnet import EfficientNet_L2
from keras_vit.extensions import Extensions, Rotary
from keras_vit.models import (
    BIT_VARIANTS,
    BiT,
    BiTVariant,
    MultitaskModel,
    NaFlexVisionTransformer,
    VisionTransformer,
    add_heads,
    features,
)
from keras_vit.models.backbone import backbone
from keras_vit.models.surgery import fold, merge_tokens, resize
from keras_vit.preprocessing import Preprocessing
from keras_vit.variant import Variant
from keras_vit.variants import VARIANTS, get_variant
from keras_vit.version import __version__
from keras_vit.weights import (
    CheckpointError,
    LoadReport,
    from_checkpoint,
    list_weights,
    load_weights,
    save_weights,
)
from keras_vit.weights.formats.naflex import naflex_from_checkpoint

# Imported when they are first used; the others hold classes that saved models need to be known.
_MODULES = ("evaluation", "exports", "inspection", "recipes")
_LATER = {name: name for name in _MODULES}
_LATER |= {"export": "exports", "model_card": "hub", "push_to_hub": "hub"}
# What other libraries have for `from_checkpoint`, and for `list_weights`.
_BUILDING = """create_model from_pretrained from_preset load_pretrained AutoModel ViTModel
AutoModelForImageClassification ViTForImageClassification""".split()
_LISTING = ("list_models", "list_pretrained", "available_models")

if typing.TYPE_CHECKING:
    from keras_vit import evaluation, exports, inspection, recipes
    from keras_vit.exports import export
    from keras_vit.hub import model_card, push_to_hub
else:

    def __getattr__(name):
        if name in _LATER:
            module = importlib.import_module(f"keras_vit.{_LATER[name]}")
            return module if name in _MODULES else getattr(module, name)
        advice = "; list_weights() prints what is published" * (name in _LISTING)
        if name in _BUILDING:
            advice = "; from_checkpoint(name) builds a model with weights, build(variant) a new one"
        text = f"module 'keras_vit' has no attribute {name!r}{advice}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])


__all__ = [
    "BIT_VARIANTS",
    "VARIANTS",
    "BiT",
    "BiTVariant",
    "CheckpointError",
    "EfficientNet_L2",
    "Extensions",
    "LoadReport",
    "MultitaskModel",
    "NaFlexVisionTransformer",
    "Prediction",
    "Preprocessing",
    "Rotary",
    "Value",
    "Variant",
    "VisionTransformer",
    "__version__",
    "add_heads",
    "backbone",
    "data",
    "distribution",
    "evaluation",
    "export",
    "exports",
    "features",
    "fold",
    "from_checkpoint",
    "get_variant",
    "inspection",
    "layers",
    "list_weights",
    "load_weights",
    "merge_tokens",
    "model_card",
    "naflex_from_checkpoint",
    "predict",
    "preprocess",
    "push_to_hub",
    "recipes",
    "resize",
    "save_weights",
    "training",
    "weights",
]
__all__ += builders.__all__
