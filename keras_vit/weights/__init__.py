"""Checkpoints into models and back: read -> canonical names -> resize -> assignment -> a report."""

from keras_vit.models.resize_weights import resize_patches, resize_positions
from keras_vit.weights.assign import LoadReport
from keras_vit.weights.augreg import choose_augreg, read_augreg_index
from keras_vit.weights.catalog import Checkpoint, checkpoints, list_weights
from keras_vit.weights.downloads import DownloadError, cache_dir
from keras_vit.weights.fetch import fetch
from keras_vit.weights.load import from_checkpoint, load_weights
from keras_vit.weights.safety import CheckpointError
from keras_vit.weights.save import save_weights

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "DownloadError",
    "LoadReport",
    "cache_dir",
    "checkpoints",
    "choose_augreg",
    "fetch",
    "from_checkpoint",
    "list_weights",
    "load_weights",
    "read_augreg_index",
    "resize_patches",
    "resize_positions",
    "save_weights",
]
