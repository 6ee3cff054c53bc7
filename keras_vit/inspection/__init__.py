"""What a trained model looks at, as arrays and as figures."""

from keras_vit.inspection.attention import attention_maps, attention_weights
from keras_vit.inspection.distance import attention_distance, attention_distances
from keras_vit.inspection.figures import plot_history, plot_predictions
from keras_vit.inspection.rollout import rollout, rollout_maps
from keras_vit.inspection.upsample import upsample

__all__ = [
    "attention_distance",
    "attention_distances",
    "attention_maps",
    "attention_weights",
    "plot_history",
    "plot_predictions",
    "rollout",
    "rollout_maps",
    "upsample",
]
