"""Parts of a model on any backend: images, blocks, what tokens stand for, outputs and gradients."""

import contextlib
import operator
import typing
import weakref

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.preprocess import preprocess
from keras_vit.layers.transformer_block import TransformerBlock

_FUNCTIONS = weakref.WeakKeyDictionary()
_LARGEST = 32.0  # no preprocessing gives more; bytes that were only cast to float are larger


def as_inputs(model, images):
    """Images ready for the model: floats as they are, all others preprocessed as its weights ask.

    Raises:
        ValueError: another shape, no images, or values that no preprocessed image has.
    """
    if keras.ops.is_tensor(images):
        images = keras.ops.convert_to_numpy(images)
    if not (isinstance(images, np.ndarray) and images.dtype.kind == "f"):
        return preprocess(images, model)
    expected = tuple(model.inputs[0].shape) if getattr(model, "inputs", None) else images.shape
    if len(images.shape) != len(expected) or any(
        wanted not in (None, side) for side, wanted in zip(images.shape[1:], expected[1:])
    ):
        raise ValueError(
            f"{model.name} takes images of shape {('batch', *expected[1:])}; one image is "
            "images[None], and keras_vit.preprocess(images, model) resizes. Received: shape "
            f"{images.shape}."
        )
    if not len(images):
        raise ValueError("There must be at least one image. Received: none.")
    largest = np.abs(images).max()
    if not largest <= _LARGEST:
        raise ValueError(
            "Float images must be preprocessed, as keras_vit.preprocess(images, model) does; bytes "
            f"may be uint8. Received: floats with a largest absolute value of {largest:.4g}."
        )
    return images


def transformer_blocks(model, blocks=None):
    """The chosen blocks of a model, in the order asked for.

    Args:
        model: a `VisionTransformer`, or a Functional model with `TransformerBlock` layers.
        blocks: indices, negative ones counting from the last; `None` for all.

    Raises:
        ValueError: the model has no such block.
    """
    layers = getattr(model, "layers", ())
    layers = [layer for layer in layers if isinstance(layer, TransformerBlock)]
    count = len(layers)
    try:
        blocks = [operator.index(i) for i in (range(count) if blocks is None else blocks)]
    except TypeError as error:
        raise ValueError(f"blocks must be a list of indices. Received: blocks={blocks}.") from error
    if not layers or any(not -count <= index < count for index in blocks):
        raise ValueError(
            f"{model.name} has {count} Transformer blocks, so indices go from {-count} to "
            f"{count - 1}. Received: blocks={blocks}."
        )
    return [layers[index] for index in blocks]


class Layout(typing.NamedTuple):
    """What the tokens of a model stand for.

    Attributes:
        grid: (rows, columns) of the patches.
        stride: (height, width) in pixels from one patch to the next.
        learned: tokens before the patches: the class token and registers.
        class_token: whether token 0 is a class token.
    """

    grid: tuple[int, int]
    stride: tuple[int, int]
    learned: int
    class_token: bool

    @property
    def tokens(self):
        """The number of all tokens."""
        return self.learned + self.grid[0] * self.grid[1]

    def query_rows(self, matrix, query=None):
        """Rows of (..., tokens, tokens), laid out on the grid: shape (..., rows, columns).

        Args:
            matrix: attention, rollout or relevance; rows belong to the tokens that ask.
            query: `"class"` for the class token, `"mean"` for the mean over all patches, (row,
                column) for a patch, a number for any token; `None` for the class token or,
                without one, the mean.
        """
        matrix = np.asarray(matrix)
        if matrix.ndim < 2 or matrix.shape[-2:] != (self.tokens, self.tokens):
            raise ValueError(
                f"{self.learned} learned tokens and {self.grid} patches make matrices of shape "
                f"(..., {self.tokens}, {self.tokens}). Received: shape {matrix.shape}."
            )
        rows = matrix[..., self.learned :]
        if query is None:
            query = "class" if self.class_token else "mean"
        if query == "mean":
            rows = rows[..., self.learned :, :].mean(axis=-2)
        else:
            rows = rows[..., self.token(query), :]
        return rows.reshape(*rows.shape[:-1], *self.grid)

    def token(self, query):
        """The number of the token that `query` names: `"class"`, (row, column), or a number."""
        if isinstance(query, (tuple, list)) and len(query) == 2:
            if all(0 <= q < side for q, side in zip(query, self.grid)):
                return self.learned + int(query[0]) * self.grid[1] + int(query[1])
        elif isinstance(query, str):
            if query == "class" and self.class_token:
                return 0
        elif not isinstance(query, bool) and 0 <= query < self.tokens:
            return int(query)
        raise ValueError(
            f"query must be {'class, ' if self.class_token else ''}mean, (row, column) of one of "
            f"{self.grid[0]} x {self.grid[1]} patches, or a token from 0 to {self.tokens - 1}. "
            f"Received: query={query!r}."
        )


def layout_of(model, image_size=None):
    """The `Layout` of a model's tokens.

    Args:
        model: a `VisionTransformer`.
        image_size: (height, width) of the images, for a model that takes any; by default its own.

    Raises:
        ValueError: the model has no patches.
    """
    v = getattr(model, "variant", None)
    if not hasattr(v, "learned_tokens"):
        raise ValueError(
            "A VisionTransformer is needed, whose tokens are patches. Received: "
            f"{type(model).__name__} {getattr(model, 'name', '')!r}."
        )
    grid = v.grid(image_size or model.image_size)
    return Layout(grid, v.stride, v.learned_tokens, v.class_token)


def cached(model, key, make):
    """`make()`, once for a model and a key, as long as the model lives.

    JAX would compile again at each call. What is made must not refer to the model itself, which
    could then never be freed.
    """
    functions = _FUNCTIONS.setdefault(model, {})
    if key not in functions:
        functions[key] = make()
    return functions[key]


def inference(function, variables):
    """`function` of arrays and tensors, run without keeping anything for gradients.

    On JAX it is compiled as one program; the `variables` that it reads are arguments of the
    program and may change between calls.
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
    """The function of a list of arrays, and further arrays, that returns gradients by the former.

    Args:
        function: takes a list of tensors, and further tensors, and returns one number.
        variables: the Keras variables that it reads.
    """
    if keras.backend.backend() == "jax":
        import jax

        run = jax.jit(jax.grad(_stateless(function, variables), argnums=1))
        return lambda inputs, *others: run([v.value for v in variables], inputs, *others)

    def run(inputs, *others):
        inputs, others = ([keras.ops.convert_to_tensor(a) for a in x] for x in (inputs, others))
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(inputs)
                number = function(inputs, *others)
            return tape.gradient(number, inputs)
        import torch

        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in inputs]
            return torch.autograd.grad(function(inputs, *others), inputs)

    return run


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


def iterate_outputs(model, tensors, images, batch_size):
    """For each batch of images: the values of symbolic tensors of a Functional model.

    Yields:
        (values, count): a list of the backend's tensors, as long as `tensors`. The last batch may
        be filled up; only `count` rows of it are images.
    """

    def make():
        tapped = keras.Model(model.inputs, tensors)
        return inference(lambda x: tapped(x, training=False), tapped.variables)

    run = cached(model, tuple(map(id, tensors)), make)
    for batch, count in batches(images, batch_size):
        yield keras.tree.flatten(run(batch)), count


def batches(images, batch_size):
    """(batch, count) in turn, all of one size, for which a backend compiles once."""
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
