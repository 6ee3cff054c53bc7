"""The network of a model that weights belong to."""

import keras

from keras_vit.models.backbone import backbone, backbones, outside
from keras_vit.models.bit import BiT
from keras_vit.models.vit import VisionTransformer
from keras_vit.weights.tables import shortened


def check_model(model, whole=False):
    """The `VisionTransformer` or `BiT` that a model is, or has inside (`backbone`).

    Raises:
        TypeError: it has none.
        ValueError: it has several; or, if `whole`, further layers with weights.
    """
    inside = backbones(model) if isinstance(model, keras.Model) else {}
    if any(isinstance(each, (VisionTransformer, BiT)) for each in inside.values()):
        network = backbone(model)
        if whole and (others := outside(model)):
            raise ValueError(
                f"The format has no place for what stands around the {type(network).__name__} in "
                f"{model.name!r}. Received: further weights {shortened([v.path for v in others])}; "
                "model.save(path) keeps all, and keras_vit.save_weights(keras_vit.backbone(model), "
                "path) writes the network alone."
            )
        return network
    if not isinstance(model, (VisionTransformer, BiT)):
        raise TypeError(
            f"The model must be a keras_vit.{' or a keras_vit.'.join(each.__name__ for each in (VisionTransformer, BiT))}, or of a subclass. "
            f"Received: {model!r}. Take "
            "Keras's own load_weights and save_weights for any other model."
        )
