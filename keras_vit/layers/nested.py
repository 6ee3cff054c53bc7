"""A call of a layer by the layer that it is part of."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.dropout import is_rematerialized


def nested(layer, x, **options):
    """`layer(x, **options)`, without what Keras does around a call where nothing comes of it.

    Keras checks, casts, opens scopes and records, which is about 0.1 ms of Python for each call.
    On PyTorch that is spent in every step, in a small model as long as the computation itself. It
    is left out for a layer that is built, computes in the type of `x`, and is not quantised,
    rematerialised, regularised, distributed or watched by hooks.
    """
    is_watched = kernels.fast("is_watched")
    if is_watched and _needs_nothing(layer, x) and not is_watched(layer):
        return layer.call(x, **options)
    return layer(x, **options)


def _needs_nothing(layer, x):
    if isinstance(x, keras.KerasTensor) or not layer.built:
        return False
    if is_rematerialized() and layer.compute_dtype != layer.variable_dtype:
        return False  # PyTorch's backward pass has left the scope in which weights are cast
    is_changed = (
        getattr(layer, "quantization_mode", None)
        or getattr(layer, "_remat_mode", None)
        or layer.activity_regularizer
        or keras.distribution.distribution()
    )
    return not is_changed and layer.compute_dtype == keras.backend.standardize_dtype(x.dtype)
