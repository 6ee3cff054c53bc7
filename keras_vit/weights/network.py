"""The network of a model that weights belong to."""

import keras

from keras_vit.heads import heads_of
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
            heads = ", ".join(map(repr, heads_of(model)))
            owner = f" of a model with the heads {heads}" if heads else ""
            raise ValueError(
                f"What stands around the {type(network).__name__} in {model.name!r} has no place "
                f"here. Received: further weights {shortened([v.path for v in others])}{owner}; "
                "give the network alone, keras_vit.backbone(model), or keep all with "
                "model.save(path)."
            )
        return network
    raise TypeError(
        "The model must be a keras_vit.VisionTransformer or a keras_vit.BiT, or have one inside. "
        f"Received: {model!r}. Take Keras's own load_weights and save_weights for any other model."
    )
