"""A Transformer block by one function of tensors, where Python between the products is time."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.nested import are_direct


def whole_block(block, x):
    """What `TransformerBlock.call` makes of `x`, dropping nothing and rematerialising nothing.

    Returns:
        A tensor; None where the backend has no such function, or one of the layers in the block
        was replaced or does more than the equations.
    """
    compute, attention, mlp = kernels.fast("block"), block.attention, block.mlp
    if compute is None or kernels.is_float64(x) or keras.config.is_flash_attention_enabled():
        return None
    norms = (block.norm_1, block.norm_2)
    linears = (attention.query, attention.key, attention.value, attention.out)
    linears += (mlp.dense_1, mlp.dense_2)
    layers = (attention, mlp, *norms, *linears)
    kinds = (type(attention), type(mlp), *map(type, norms), *map(type, linears))
    if kinds != block.KINDS or any(map(_is_changed, layers)) or not are_direct(layers, x):
        return None
    norms = [(*map(kernels.bare, (n.gamma, n.beta)), n.epsilon) for n in norms]
    linears = [(*map(kernels.bare, (n.kernel, n.bias)), n.activation) for n in linears]
    return compute(x, norms, linears)


def _is_changed(layer):
    """Whether a call of this layer alone computes something else: calibration replaces `call`."""
    return "call" in vars(layer) or getattr(layer, "lora_enabled", False)
