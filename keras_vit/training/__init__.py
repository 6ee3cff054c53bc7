"""What stands around `model.fit`."""

from keras_vit.training.checkpoint import CheckpointError
from keras_vit.training.distillation import Distiller
from keras_vit.training.ema import EvaluateAverages, averaged_weights, return_weights
from keras_vit.training.fit import fit
from keras_vit.training.flexible_patches import FlexiblePatches
from keras_vit.training.freeze import TrainableSummary, freeze, unfreeze
from keras_vit.training.lora import enable_lora, load_lora, merge_lora, save_lora
from keras_vit.training.losses import (
    Accuracy,
    DistillationLoss,
    SigmoidLoss,
    SoftmaxLoss,
    sigmoid_head_bias,
)
from keras_vit.training.masked_autoencoder import MaskedAutoencoder
from keras_vit.training.masked_patches import MaskedPatchModel
from keras_vit.training.optimizers import SGDM, AdamW, adamw
from keras_vit.training.schedules import (
    WarmupCosine,
    WarmupLinear,
    WarmupRsqrt,
    WarmupStairs,
    layer_rates,
)
from keras_vit.training.stop import DivergenceError, Interrupted
from keras_vit.training.sweep import SweepResult, sweep
from keras_vit.workarounds import keep_memory, set_random_seed

__all__ = [
    "SGDM",
    "Accuracy",
    "AdamW",
    "CheckpointError",
    "DistillationLoss",
    "Distiller",
    "DivergenceError",
    "EvaluateAverages",
    "FlexiblePatches",
    "Interrupted",
    "MaskedAutoencoder",
    "MaskedPatchModel",
    "SigmoidLoss",
    "SoftmaxLoss",
    "SweepResult",
    "TrainableSummary",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupRsqrt",
    "WarmupStairs",
    "adamw",
    "averaged_weights",
    "enable_lora",
    "fit",
    "freeze",
    "keep_memory",
    "layer_rates",
    "load_lora",
    "merge_lora",
    "return_weights",
    "save_lora",
    "set_random_seed",
    "sigmoid_head_bias",
    "sweep",
    "unfreeze",
]
