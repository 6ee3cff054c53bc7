"""What a trained model looks at, as arrays and as figures."""

from keras_vit.inspection.attention import attention_maps, attention_weights
from keras_vit.inspection.figures import plot_history, plot_predictions

__all__ = ["attention_maps", "attention_weights", "plot_history", "plot_predictions"]
