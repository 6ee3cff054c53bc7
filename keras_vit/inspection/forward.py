"""Running parts of a model on any backend: outputs batch by batch, and gradients."""

import contextlib
import weakref

import keras
import numpy as np

from keras_vit.checks import positive_int

_FUNCTIONS = weakref.WeakKeyDictionary()


def cached(model, key, make):
    """`make()`, once for a model and a key, as long as the model lives.

    What is made must not refer to the model itself, which could then never be freed.
    """
    functions = _FUNCTIONS.setdefault(model, {})
    if key not in functions:
        functions[key] = make()
    return functions[key]


def inference(function, variables):
    """`function` of arrays and tensors, run without keeping anything for gradients.

    On JAX it is compiled, for each operation by itself would be; the variables are arguments of
    the program and may change between calls.

    Args:
        function: computes with `keras.ops` and layers, and changes no state.
        variables: the Keras variables that it reads.
    """
    if keras.backend.backend() == "jax":
        import jax

        run = jax.jit(_stateless(function, variables))
        return lambda *arrays: run([v.value for v in variables], *arrays)

    def run(*arrays):
        with _no_gradients():
            return function(*map(keras.ops.convert_to_tensor, arrays))

    return run


def gradients(function, variables):
    """The gradients of a number with respect to arrays.

    Args:
        function: takes a list of tensors, and further tensors, and returns one number.
        variables: the Keras variables that it reads.

    Returns:
        A function of a list of arrays, and further arrays, that returns the list of the gradients
        with respect to the former.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        run = jax.jit(jax.grad(_stateless(function, variables), argnums=1))
        return lambda inputs, *others: run([v.value for v in variables], inputs, *others)
    tensors = lambda arrays: [keras.ops.convert_to_tensor(a) for a in arrays]  # noqa: E731
    if backend == "tensorflow":
        import tensorflow as tf

        def run(inputs, *others):
            inputs = tensors(inputs)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(inputs)
                number = function(inputs, *tensors(others))
            return tape.gradient(number, inputs)

        return run
    if backend == "torch":
        import torch

        def run(inputs, *others):
            with torch.enable_grad():
                inputs = [x.detach().requires_grad_() for x in tensors(inputs)]
                number = function(inputs, *tensors(others))
                return torch.autograd.grad(number, inputs)

        return run
    raise ValueError(
        "Gradients are taken on TensorFlow, JAX and PyTorch. Received: the backend "
        f"{backend!r}; set KERAS_BACKEND before Keras is imported."
    )


def _stateless(function, variables):
    def run(values, *arrays):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return function(*arrays)

    return run


def _no_gradients():
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def iterate_outputs(model, tensors, key, images, batch_size):
    """For each batch of images: a list with the backend's tensor for each symbolic one.

    Args:
        model: a Functional model.
        tensors: symbolic tensors of its graph.
        key: what names this choice of tensors among those of the model.
        images: array, as the model takes them.
        batch_size: images at once.

    Yields:
        (tensors, count): the last batch may be filled up, only `count` rows of it are images.
    """

    def make():
        tapped = keras.Model(model.inputs, list(tensors))
        return inference(lambda x: tapped(x, training=False), tapped.variables)

    run = cached(model, key, make)
    for batch, count in batches(images, batch_size):
        yield keras.tree.flatten(run(batch)), count


def batches(images, batch_size):
    """The images in turn, all batches of one size, for which a backend compiles once."""
    size = min(positive_int(batch_size, "batch_size"), len(images))
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        filling = np.repeat(batch[-1:], size - len(batch), axis=0)
        yield (np.concatenate([batch, filling]) if len(filling) else batch), len(batch)


def to_array(tensor):
    """A tensor as a NumPy array; bfloat16, which NumPy does not have, as float32."""
    if keras.backend.standardize_dtype(tensor.dtype) in ("bfloat16", "float16"):
        tensor = keras.ops.cast(tensor, "float32")
    return keras.ops.convert_to_numpy(tensor)


def as_list(tensors):
    """One tensor, or several, as a list."""
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
