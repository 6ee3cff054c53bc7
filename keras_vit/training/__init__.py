"""What stands around `model.fit`."""

from keras_vit.training.callbacks import Checkpoint, HistoryCSV
from keras_vit.training.optimizers import NO_DECAY, adamw

__all__ = ["NO_DECAY", "Checkpoint", "HistoryCSV", "adamw"]
