"""Which patches speak for a class: gradients of a logit by attention, or by the pixels."""

import keras
import numpy as np

from keras_vit.checks import check_choice
from keras_vit.inspection.forward import (
    as_inputs,
    as_list,
    batches,
    cached,
    gradients,
    inference,
    iterate_outputs,
    layout_of,
    to_array,
    transformer_blocks,
)
from keras_vit.layers import kernels


def relevance_maps(model, images, classes=None, method="chefer", batch_size=4):
    """How much each patch speaks for a class, by attention times the class's gradient by it.

    `"chefer"` carries relevance through all blocks: R = I at the input, then R += Ā R with
    Ā = mean over heads of (∇A ⊙ A)⁺. `"last_block"` is Ā of the last block alone. The map is the
    class token's row or, if the head reads all tokens, the mean of the patches' rows. The I, what
    each token is by itself, is left out.

    Args:
        model, images, batch_size: as in `attention_weights`; the gradients need the memory of
            training.
        classes: one class number for all images, or one for each; `None` for the most probable.
        method: `"chefer"` or `"last_block"`.

    Returns:
        float64 array of shape (batch, rows, columns), not below 0; only ratios within an image
        have a meaning.

    Raises:
        ValueError: a model without attention or without classes, or classes that it does not
            have.

    Source: Chefer et al. (2021), "Generic attention-model explainability", Eq. 5 and 6 for
    self-attention.
    """
    check_choice("method", method, ("chefer", "last_block"))
    blocks, images = transformer_blocks(model), as_inputs(model, images)
    layout = layout_of(model, images.shape[1:3])
    query = 0 if model.variant.pool in ("token", "first") else "mean"  # what the head reads
    classes = _classes(model, images, classes, batch_size)
    run = cached(model, "gradients by attention", lambda: _attention_gradients(model, blocks))
    maps = []
    outputs = iterate_outputs(model, model.outputs, images, batch_size)
    for (batch, count), (labels, _), ((logits,), _) in zip(
        batches(images, batch_size), batches(classes, batch_size), outputs
    ):
        steps, found = run(batch, labels)
        _check_logits(found, to_array(logits), model)
        steps = [step[:count] for step in steps]
        relevance = steps[-1]
        if method == "chefer":
            relevance = np.broadcast_to(np.eye(layout.tokens), relevance.shape)
            for step in steps:
                relevance = relevance + step @ relevance
            relevance = relevance - np.eye(layout.tokens)  # equal for all patches
        maps.append(layout.query_rows(relevance, query))
    return np.concatenate(maps)


def input_gradients(model, images, classes=None, batch_size=8):
    """Gradient of a class's logit times the pixels: for any model of images.

    Args:
        model: a Keras model that gives (batch, classes).
        images, classes, batch_size: as in `relevance_maps`.

    Returns:
        float array of the shape of the images. With piecewise linear layers only, and no biases,
        the values of an image would sum to its logit.

    Raises:
        ValueError: no classes, or classes that the model does not have.
    """
    images = as_inputs(model, images)
    classes = _classes(model, images, classes, batch_size)
    chosen = _number_of_classes(model)

    def make():
        tapped = keras.Model(model.inputs, model.outputs)

        def logit(x, labels):
            outputs = keras.tree.flatten(tapped(x, training=False))
            return _sum_of_logits(outputs[0], labels, chosen)

        return gradients(logit, tapped.variables)

    run = cached(model, "gradients by pixels", make)
    parts = zip(batches(images, batch_size), batches(classes, batch_size))
    found = [to_array(run([x], labels)[0])[:n] * x[:n] for (x, n), (labels, _) in parts]
    return np.concatenate(found)


def _attention_gradients(model, blocks):
    """The function of images and class numbers to means over heads of (∇A ⊙ A)⁺, and logits.

    A block does not take A as an argument, so its parts compute it here from a given A, and the
    graph of the model what lies between the blocks. `_check_logits` compares the logits.
    """
    ends = [model.inputs[0], *(block.output for block in blocks)]
    begins = [*(as_list(block.input) for block in blocks), model.outputs]
    between = [_segment(end, begin) for end, begin in zip(ends, begins)]
    chosen, variables = _number_of_classes(model), model.variables

    def attention(x):
        """A of each block as the model computes it, and the logits."""
        found = []
        for segment, block in zip(between, blocks):
            inputs = segment(x)
            found.append(block.attention_scores(*inputs))
            x = _block_with(block, inputs, found[-1])
        return found, between[-1](x)[0]

    def logit(weights, x, labels):
        for segment, block, a in zip(between, blocks, weights):
            x = _block_with(block, segment(x), a)
        return _sum_of_logits(between[-1](x)[0], labels, chosen)

    forward, backward = inference(attention, variables), gradients(logit, variables)

    def run(images, labels):
        weights, logits = forward(images)
        slopes = backward(list(weights), images, labels)
        products = (to_array(a) * to_array(g) for a, g in zip(weights, slopes))
        means = [np.maximum(p, 0.0).mean(axis=1).astype("float64") for p in products]
        return means, to_array(logits)

    return run


def _segment(end, begins):
    """The function from one tensor of a graph to a list of others."""
    further = [tensor for tensor in begins if tensor is not end]
    model = keras.Model([end], further) if further else None

    def run(x):
        found = iter(as_list(model([x], training=False)) if further else ())
        return [x if tensor is end else next(found) for tensor in begins]

    return run


def _block_with(block, inputs, weights):
    """The output of a block whose attention weights are given (Eq. 2 and 3)."""
    x = inputs[0]
    values = block.attention.value(block.norm_1(x))
    heads = kernels.weighted_sum(keras.ops.cast(weights, values.dtype), values)
    x = x + block.layer_scale_1(block.attention.out(heads))
    return x + block.layer_scale_2(block.mlp(block.norm_2(x), training=False))


def _check_logits(found, expected, model):
    """Raises a ValueError if `_block_with` does not compute what the model's blocks do."""
    error, largest = np.abs(found - expected).max(), np.abs(expected).max()
    if not error <= 0.05 * largest + 1e-3:  # bfloat16 keeps two or three digits
        raise ValueError(
            "Relevance needs blocks that compute Eq. 2 and 3; input_gradients takes any model. "
            f"Received: {model.name!r}, whose logits these give with an error of {error:.3g}."
        )


def _sum_of_logits(outputs, labels, classes):
    hot = keras.ops.one_hot(keras.ops.cast(labels, "int32"), classes, dtype=outputs.dtype)
    return keras.ops.sum(outputs * hot)


def _number_of_classes(model):
    shape = getattr(model, "output_shape", None)
    if getattr(model, "num_classes", None) == 0 or not (
        isinstance(shape, tuple) and len(shape) == 2 and shape[1]
    ):
        raise ValueError(
            "Relevance is that for a class, so the model must give (batch, classes); build it with "
            f"num_classes and a pool. Received: {model.name!r} with output shape {shape}."
        )
    return shape[1]


def _classes(model, images, classes, batch_size):
    """One class number for each image."""
    number = _number_of_classes(model)
    if classes is None:
        outputs = iterate_outputs(model, model.outputs, images, batch_size)
        found = [to_array(x)[:count].argmax(axis=-1) for (x,), count in outputs]
        return np.concatenate(found).astype("int32")
    given = np.asarray(classes)
    integers = given.dtype.kind in "iu" and given.shape in ((), (len(images),))
    if not integers or given.min() < 0 or given.max() >= number:
        raise ValueError(
            f"classes must be numbers from 0 to {number - 1}, one for all images or one for each "
            f"of the {len(images)}. Received: classes={classes!r}."
        )
    return np.broadcast_to(given, (len(images),)).astype("int32")
