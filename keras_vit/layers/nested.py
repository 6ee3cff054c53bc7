"""Calls of layers without what Keras does around them, where nothing comes of that."""

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
    return layer.call(x, **options) if are_direct((layer,), x) else layer(x, **options)


def is_direct(layer, x, variable):
    """Whether a call by anybody may leave out Keras's part, as `nested` does within a block.

    Args:
        layer: has no masks and takes one tensor.
        x: what it is called with.
        variable: one of its variables, which must come in the type of `x` and lie beside it:
            around a model of mixed precision, Keras changes what variables are read as.
    """
    if not keras.ops.is_tensor(x) or not are_direct((layer,), x):
        return False
    value = kernels.bare(variable)
    return (value.dtype, value.device) == (x.dtype, x.device)


def are_direct(layers, x):
    """Whether Keras's part may be left out around calls of layers that compute in one type."""
    is_watched = kernels.fast("is_watched")
    if not is_watched or isinstance(x, keras.KerasTensor) or keras.distribution.distribution():
        return False
    if layers[0].compute_dtype != layers[0].variable_dtype and not kernels.fast("is_compiling")():
        # PyTorch's backward pass has left the scope in which weights are cast.
        if is_rematerialized():
            return False
    dtype = keras.backend.standardize_dtype(x.dtype)
    return all(_needs_nothing(layer, dtype) and not is_watched(layer) for layer in layers)


def _needs_nothing(layer, dtype):
    is_changed = (
        getattr(layer, "quantization_mode", None)
        or getattr(layer, "_remat_mode", None)
        or layer.activity_regularizer
    )
    return layer.built and not is_changed and layer.compute_dtype == dtype
