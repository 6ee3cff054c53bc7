"""Which patches speak for a class: gradients of a logit by attention, or by the pixels."""

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checks import check_choice, to_array
from keras_vit.heads import check_one_head
from keras_vit.inspection import forward
from keras_vit.layers import kernels
from keras_vit.models import VisionTransformer
from keras_vit.models.backbone import replaced


def relevance_maps(
    model: VisionTransformer,
    images: Any,
    classes: int | Sequence[int] | None = None,
    method: str = "chefer",
    batch_size: int = 4,
) -> np.ndarray:
    """How much each patch speaks for a class, by attention times the class's gradient by it.

    `"chefer"` carries relevance through all blocks: R = I at the input, then R += Ā R with
    Ā = mean over heads of (∇A ⊙ A)⁺. ∇A is the total derivative of the logit by the attention of
    one block, with all that changes in the blocks after it. `"last_block"` is Ā of the last block
    alone. The map is the row of the token that the head reads, or the mean of the patches if it
    reads all; of several, as with a distillation token, their mean. I itself is left out.

    Args:
        model, images, batch_size: as in `attention_weights`; gradients need the memory of training.
        classes: one class number for all images, or one for each; `None` for the most probable.
        method: `"chefer"` or `"last_block"`.

    Returns:
        A float64 array (batch, rows, columns), not below 0; only ratios within an image count.

    Raises:
        ValueError: a model without attention or classes, or classes that it does not have.

    Source: Chefer et al. (2021), "Generic attention-model explainability", Eq. 5 and 6.
    """
    check_choice("method", method, ("chefer", "last_block"))
    blocks, images = forward.transformer_blocks(model), forward.floats_of(model, images)
    network, first = forward.look_into(model, images[:1])
    layout = forward.layout_of(network, first.shape[1:3])
    # The tokens that the heads read, as queries of `attention_maps`.
    by_pool = {"token": [0], "first": [0], "token_mean": [0, "mean"]}
    read = by_pool.get(network.variant.pool, ["mean"])
    read += [1] if network.variant.distillation else []
    run = forward.compiled(model, "by attention", _by_attention(model, blocks))
    maps, dtypes = [], [kernels.at_least_float32(block.compute_dtype) for block in blocks]
    for x, hot, expected, count in _batches_with_classes(model, images, classes, batch_size):
        size = len(x), blocks[0].attention.num_heads, layout.tokens, layout.tokens
        additions = [np.zeros(size, dtype) for dtype in dtypes]
        slopes, (logits, *weights) = run(additions, hot, x)
        error = np.abs(to_array(logits) - expected).max()
        if not error <= 0.05 * np.abs(expected).max() + 1e-3:  # bfloat16 keeps two or three digits
            raise ValueError(
                "Relevance needs this library's blocks; input_gradients takes any model. "
                f"Received: {model.name!r}, whose logits these give with an error of {error:.3g}."
            )
        pairs = zip(map(to_array, weights), map(to_array, slopes))
        steps = [np.maximum(a * slope, 0).mean(axis=1)[:count].astype(float) for a, slope in pairs]
        relevance = steps[-1]
        if method == "chefer":
            relevance = identity = np.eye(layout.tokens)
            for step in steps:
                relevance = relevance + step @ relevance
            relevance = relevance - identity  # equal for all patches
        maps.append(np.mean([layout.query_rows(relevance, query) for query in read], axis=0))
    return np.concatenate(maps)


def input_gradients(
    model: keras.Model, images: Any, classes: int | Sequence[int] | None = None, batch_size: int = 8
) -> np.ndarray:
    """Gradient of a class's logit times the pixels, for any Keras model of images with classes.

    It has the shape of the images; of piecewise linear layers without biases it would sum to the
    logit. Arguments and errors are those of `relevance_maps`.
    """
    images, products = forward.as_inputs(model, images), []
    tapped = forward.graph(model, getattr(model, "outputs", None))
    logits = functools.partial(tapped, training=False)
    run = forward.compiled(model, "by pixels", functools.partial(forward.gradients, logits))
    for x, hot, _, count in _batches_with_classes(model, images, classes, batch_size):
        (slopes,), _ = run([x], hot)
        products.append((to_array(slopes) * x)[:count])
    return np.concatenate(products)


def _batches_with_classes(model, images, classes, batch_size):
    """The `forward.batches` of images, of their classes as one-hot rows, and of their logits."""
    check_one_head(model, "Relevance for a class")
    shape = getattr(model, "output_shape", None)
    if getattr(model, "num_classes", None) == 0 or not (
        isinstance(shape, tuple) and len(shape) == 2 and shape[1]
    ):
        raise ValueError(
            "Relevance speaks for a class, so the model must give (batch, classes); build it with "
            f"num_classes and a pool. Received: {model.name!r} with output shape {shape}."
        )
    given = np.asarray(0 if classes is None else classes)
    fits = given.dtype.kind in "iu" and given.shape in ((), (len(images),))
    if not fits or not ((given >= 0) & (given < shape[1])).all():
        raise ValueError(
            f"classes must be numbers from 0 to {shape[1] - 1}, one for all images or one for each "
            f"of the {len(images)}. Received: classes={classes!r}."
        )
    parts = forward.features(model, model.outputs, images, batch_size)
    logits = np.concatenate([logits for (logits,) in parts])
    given = logits.argmax(axis=-1) if classes is None else np.broadcast_to(given, len(images))
    hot = np.eye(shape[1], dtype=logits.dtype)[given]
    return forward.batches(batch_size, images, hot, logits)


def _by_attention(model, blocks):
    """The function of additions to each block's attention: its gradients, logits and attention."""
    outer = weakref.ref(model)  # see `forward.compiled`
    layers = [block.attention for block in blocks]

    def run(additions, hot, x):
        def logits(additions):
            calls, weights = {}, {}
            for layer, added in zip(layers, additions):
                calls[layer] = functools.partial(_attend, layer, added, weights)
            with replaced(calls):
                outputs = keras.tree.flatten(outer()(x, training=False))
            return [outputs[0], *(weights[layer] for layer in layers)]

        return forward.gradients(logits, additions, hot)

    return run


def _attend(attention, added, weights, x, training=False, **positions):
    """What stands for the `call` of an attention: A gets an addition, and is kept in `weights`."""
    scores = weights[attention] = attention.scores(x, **positions) + added
    v = attention.value(x)
    return attention.join(kernels.weighted_sum(scores, v))
