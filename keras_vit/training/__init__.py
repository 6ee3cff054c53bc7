"""What stands around `model.fit`."""

from keras_vit.seeding import set_random_seed
from keras_vit.training.allocator import keep_memory
from keras_vit.training.callbacks import Checkpoint, HistoryCSV, StopOnInterrupt
from keras_vit.training.checkpoints import CheckpointError
from keras_vit.training.divergence import DivergenceError
from keras_vit.training.ema import EvaluateAverages, averaged_weights
from keras_vit.training.fit import fit
from keras_vit.training.freeze import TrainableSummary, freeze, unfreeze
from keras_vit.training.gradient_norm import track_gradient_norm
from keras_vit.training.layer_decay import layer_rates
from keras_vit.training.lora import enable_lora, load_lora, merge_lora, save_lora
from keras_vit.training.losses import Accuracy, SigmoidLoss, SoftmaxLoss, sigmoid_head_bias
from keras_vit.training.masked_patches import MaskedPatchModel
from keras_vit.training.optimizers import NO_DECAY, SGDM, AdamW, adamw
from keras_vit.training.schedules import WarmupCosine, WarmupLinear, WarmupRsqrt, WarmupStairs
from keras_vit.training.signals import Interrupted
from keras_vit.training.sweep import SweepResult, sweep

__all__ = [
    "NO_DECAY",
    "SGDM",
    "Accuracy",
    "AdamW",
    "Checkpoint",
    "CheckpointError",
    "DivergenceError",
    "EvaluateAverages",
    "HistoryCSV",
    "Interrupted",
    "MaskedPatchModel",
    "SigmoidLoss",
    "SoftmaxLoss",
    "StopOnInterrupt",
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
    "save_lora",
    "set_random_seed",
    "sigmoid_head_bias",
    "sweep",
    "track_gradient_norm",
    "unfreeze",
]
