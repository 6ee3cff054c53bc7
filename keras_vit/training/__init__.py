"""What stands around `model.fit`."""

from keras_vit.training.callbacks import Checkpoint, HistoryCSV, StopOnInterrupt
from keras_vit.training.optimizers import NO_DECAY, adamw

__all__ = ["NO_DECAY", "Checkpoint", "HistoryCSV", "StopOnInterrupt", "adamw"]
