"""What a trained model looks at, as arrays and as figures."""

from keras_vit.inspection.attention import (
    attention_distance,
    attention_distances,
    attention_maps,
    attention_weights,
    probe_maps,
    rollout,
    rollout_maps,
    upsample,
)
from keras_vit.inspection.components import (
    FilterComponents,
    PatchComponents,
    filter_components,
    patch_components,
)
from keras_vit.inspection.explorer import explore
from keras_vit.inspection.forward import Layout, layout_of
from keras_vit.inspection.plot_images import (
    plot_components,
    plot_maps,
    plot_queries,
    plot_reconstructions,
)
from keras_vit.inspection.plot_model import (
    plot_distances,
    plot_filters,
    plot_layer_similarity,
    plot_position_similarity,
    plot_token_norms,
)
from keras_vit.inspection.predictions import plot_predictions
from keras_vit.inspection.relevance import input_gradients, relevance_maps
from keras_vit.inspection.similarity import (
    TokenNorms,
    layer_similarity,
    linear_cka,
    position_similarity,
    token_norms,
)

__all__ = ["Layout", "explore", "layout_of", "plot_predictions"]
__all__ += ["attention_distance", "attention_distances", "attention_maps", "attention_weights"]
__all__ += ["probe_maps", "rollout", "rollout_maps", "upsample"]
__all__ += ["FilterComponents", "PatchComponents", "filter_components", "patch_components"]
__all__ += ["plot_components", "plot_maps", "plot_queries", "plot_reconstructions"]
__all__ += ["plot_distances", "plot_filters", "plot_layer_similarity"]
__all__ += ["plot_position_similarity", "plot_token_norms"]
__all__ += ["input_gradients", "relevance_maps"]
__all__ += ["TokenNorms", "layer_similarity", "linear_cka", "position_similarity", "token_norms"]
