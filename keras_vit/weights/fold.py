"""Weight standardisation done once and for all, for inference and export."""

import keras

from keras_vit.layers.resnet import Bottleneck, Root
from keras_vit.layers.standardize import NUMERICS, standardize


def fold(model):
    """A copy of a hybrid or of BiT whose kernels are standardised already.

    It computes the same function without standardising its kernels at every call. It is meant for
    inference and export: training it would be training without weight standardisation, and its
    weights are no checkpoint of the family any more.

    Args:
        model: a `VisionTransformer` with a stem, or a `BiT`; it stays as it is.

    Returns:
        A new model of the same class, not trainable.

    Raises:
        ValueError: the model has no standardised convolutions, or is folded already.
    """
    v = model.variant
    field = "folded" if hasattr(v, "folded") else "stem_folded"
    if getattr(v, "stem", ()) is None or getattr(v, field):
        raise ValueError(
            "fold needs a hybrid or a BiT whose kernels are not standardised yet. Received: "
            f"{model.name!r}, which {'is folded' if getattr(v, field) else 'has no stem'}."
        )
    folded = type(model).from_config({**model.get_config(), field: True})
    kernels = {}
    for layer in model.layers:
        for conv in layer.convolutions() if isinstance(layer, (Root, Bottleneck)) else ():
            kernels[conv.kernel.path] = standardize(conv.kernel, NUMERICS[conv.numerics])
    for old, new in zip(model.weights, folded.weights):
        new.assign(keras.ops.convert_to_numpy(kernels.get(old.path, old)))
    folded.trainable = False
    return folded
