"""What stands around `model.fit`."""

from keras_vit.training.best import BestWeights, best_epoch
from keras_vit.training.checkpoint import CheckpointError
from keras_vit.training.distillation import Distiller
from keras_vit.training.ema import EvaluateAverages, averaged_weights, return_weights
from keras_vit.training.fit import fit
from keras_vit.training.flexible_patches import FlexiblePatches
from keras_vit.training.freeze import TrainableSummary, freeze, unfreeze
from keras_vit.training.layer_decay import layer_rates
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
from keras_vit.training.same_run import remove_checkpoints
from keras_vit.training.schedules import WarmupCosine, WarmupLinear, WarmupRsqrt, WarmupStairs
from keras_vit.training.stop import DivergenceError, Interrupted, RunEnded
from keras_vit.training.sweep import SweepResult, sweep
from keras_vit.workarounds import keep_memory, set_random_seed

__all__ = ["CheckpointError", "DivergenceError", "Interrupted", "RunEnded", "fit"]
__all__ += ["SGDM", "AdamW", "adamw", "layer_rates"]
__all__ += ["WarmupCosine", "WarmupLinear", "WarmupRsqrt", "WarmupStairs"]
__all__ += ["Accuracy", "DistillationLoss", "SigmoidLoss", "SoftmaxLoss", "sigmoid_head_bias"]
__all__ += ["Distiller", "FlexiblePatches", "MaskedAutoencoder", "MaskedPatchModel"]
__all__ += ["BestWeights", "EvaluateAverages", "averaged_weights", "best_epoch", "return_weights"]
__all__ += ["TrainableSummary", "freeze", "unfreeze"]
__all__ += ["enable_lora", "load_lora", "merge_lora", "save_lora"]
__all__ += ["SweepResult", "keep_memory", "remove_checkpoints", "set_random_seed", "sweep"]
