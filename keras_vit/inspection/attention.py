"""Attention weights of a model, exactly as it computes them (Eq. 6)."""

import keras
import numpy as np

from keras_vit.layers.transformer_block import TransformerBlock


def attention_weights(model, images, blocks=None):
    """A = softmax(q kᵀ / √D_h) of some blocks for some images.

    The model is read, not changed: its outputs stay what they are.

    Args:
        model: a `VisionTransformer`.
        images: preprocessed images, (batch, height, width, channels).
        blocks: indices of blocks, negative ones counting from the last; `None` for all.

    Returns:
        A list with one float array of shape (batch, heads, tokens, tokens) per block; rows belong
        to queries and sum to 1. The class token, if any, is token 0.

    Raises:
        ValueError: the model has no such block.
    """
    layers = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    if isinstance(blocks, int):
        raise ValueError(f"blocks must be a list of indices. Received: blocks={blocks}.")
    blocks = list(range(len(layers)) if blocks is None else blocks)
    if not layers or any(not -len(layers) <= index < len(layers) for index in blocks):
        raise ValueError(
            f"{model.name} has {len(layers)} Transformer blocks, so indices go from "
            f"{-len(layers)} to {len(layers) - 1}. Received: blocks={blocks}."
        )
    chosen = [layers[index] for index in blocks]
    entering = keras.Model(
        model.input, {str(i): _as_list(block.input) for i, block in enumerate(chosen)}
    )
    tokens = entering(images, training=False)
    return [
        keras.ops.convert_to_numpy(block.attention_scores(*_as_list(tokens[str(i)])))
        for i, block in enumerate(chosen)
    ]


def attention_maps(model, images, block=-1):
    """Where one block looks in each image: attention from the class token to the patches.

    The mean over the heads; without class token, the mean over all patches that ask. The values
    of an image sum to the attention that is not given to the class token.

    Args:
        model: a `VisionTransformer`.
        images: preprocessed images, (batch, height, width, channels).
        block: index of the block.

    Returns:
        float array of shape (batch, rows, columns), one value per patch.
    """
    (weights,) = attention_weights(model, images, [block])
    weights = weights.mean(axis=1)
    maps = weights[:, 0, 1:] if model.variant.class_token else weights.mean(axis=1)
    return np.reshape(maps, (-1, *model.grid))


def _as_list(tensors):
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
