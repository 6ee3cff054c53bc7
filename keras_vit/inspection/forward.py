"""Parts of a model on any backend: images, blocks, what tokens stand for, outputs and gradients."""

import typing
import weakref

import keras
import numpy as np

from keras_vit.checks import positive_int, to_array
from keras_vit.data.preprocess import preprocess
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.models import VisionTransformer
from keras_vit.models.backbone import backbone, backbones, entering, owner_of_images
from keras_vit.models.trainer import look, one_look
from keras_vit.workarounds import one_at_a_time

_PROGRAMS = weakref.WeakKeyDictionary()  # model -> key -> what JAX has compiled
_KNOWN = weakref.WeakValueDictionary()  # (id of a network, id) -> images that were looked at
_LARGEST = 32.0  # no preprocessing gives more; bytes that were only cast to float are larger


def as_inputs(model, images):
    """Images ready for the model: those of `floats_of`, unless they are bytes in float."""
    if not (largest := np.abs(images := floats_of(model, images)).max()) <= _LARGEST:
        raise ValueError(
            "Float images must be preprocessed, as keras_vit.preprocess(images, model) does; bytes "
            f"may be uint8. Received: floats with a largest absolute value of {largest:.4g}."
        )
    return images


def look_into(model, images):
    """(the network with blocks in a model, what enters it for images of the model)."""
    network, images = network_of(model), floats_of(model, images)
    images = to_array(entering(model, network, images))
    _KNOWN[id(network), id(images)] = images
    return network, as_inputs(network, images)


def floats_of(model, images):
    """Floats as they are, with the warning of `evaluate`; others as the weights ask for them."""
    network, images = network_of(model), to_array(images) if keras.ops.is_tensor(images) else images
    if not (isinstance(images, np.ndarray) and images.dtype.kind == "f"):
        images = preprocess(images, model)
        _KNOWN[id(network), id(images)] = images
    if not len(images):
        raise ValueError("There must be at least one image. Received: none.")
    check_shape(model, images)
    if not any((id(network), id(each)) in _KNOWN for each in (images, images.base)):
        with one_look():
            look(model, "predict", images, owner_of_images(model))
        _KNOWN[id(network), id(images)] = images
    return images


def check_shape(model, images):
    """Raises a ValueError where a model does not take images of this shape."""
    if not isinstance(expected := getattr(model, "input_shape", None), tuple):
        return
    sides = zip(expected[1:], images.shape[1:])
    if images.ndim != len(expected) or any(side not in (None, real) for side, real in sides):
        raise ValueError(
            f"{model.name} takes images of shape {('batch', *expected[1:])}; one image is "
            "images[None], and keras_vit.preprocess(images, model) resizes. Received: shape "
            f"{images.shape}."
        )


def shape_error(name, expected, array):
    """The ValueError for an array of another shape."""
    return ValueError(f"{name} must have shape {expected}. Received: shape {array.shape}.")


def transformer_blocks(model, blocks=None):
    """The chosen blocks of a model, in the order asked for; `None` for all."""
    model = network_of(model)
    parts = model.layers if getattr(model, "inputs", None) is not None else ()
    layers = [x for x in parts if isinstance(x, TransformerBlock)]
    if not layers:
        raise ValueError(
            "A model with Transformer blocks is needed. Received: "
            f"{described(model)}, which has 0 Transformer blocks in its graph."
        )
    _check_whole(model)
    if blocks is None:
        return layers
    # Of no index at all, it is an array of floats.
    indices = np.array(list(blocks) if np.iterable(blocks) else blocks)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError(
            f"blocks must be a list of at least one index, or be None. Received: blocks={blocks}."
        )
    check_indices(model, len(layers), "Transformer blocks", "blocks", indices.tolist())
    return [layers[index] for index in indices]


def check_indices(model, count, noun, argument, indices):
    """Raises a ValueError where an argument holds an index that is none of a model's parts."""
    if not all(-count <= index < count for index in np.ravel(indices)):
        raise ValueError(
            f"{model.name} has {count} {noun}, so indices go from {-count} to {count - 1}. "
            f"Received: {argument}={indices}."
        )


def network_of(model):
    """The network with blocks in a model, or the model itself where it has none of this library."""
    has_one = isinstance(model, keras.Model) and backbones(model)
    return backbone(model) if has_one else model


def described(model):
    """The class and the name of a model, for an error."""
    return f"{type(model).__name__} {getattr(model, 'name', '')!r}"


def _check_whole(model):
    if np.any(merged := getattr(model, "token_merging", 0)):
        raise ValueError(
            "Merged tokens have no place in the image. Received: a model with token_merging="
            f"{merged}; look into keras_vit.merge_tokens(model, 0)."
        )


class Layout(typing.NamedTuple):
    """What the tokens of a model stand for.

    Attributes:
        grid: (rows, columns) of the patches.
        stride: (height, width) in pixels from one patch to the next.
        learned: tokens before the patches: the class and distillation token, and registers.
        class_token: whether token 0 is a class token.
        distillation: whether a distillation token follows it.
    """

    grid: tuple[int, int]
    stride: tuple[int, int]
    learned: int
    class_token: bool
    distillation: bool = False

    @property
    def tokens(self):
        """The number of all tokens."""
        return self.learned + self.grid[0] * self.grid[1]

    @property
    def names(self):
        """Of the learned tokens, in their order."""
        known = {"class token": self.class_token, "distillation token": self.distillation}
        names = [name for name, is_present in known.items() if is_present]
        return [*names, *(f"register {i}" for i in range(self.learned - len(names)))]

    def query_rows(self, matrix, query=None):
        """Rows of (..., tokens, tokens), laid out on the grid: shape (..., rows, columns).

        Rows belong to the tokens that ask; `query` is as in `attention_maps`.
        """
        matrix = np.asarray(matrix)
        if matrix.ndim < 2 or matrix.shape[-2:] != (self.tokens, self.tokens):
            raise shape_error("matrix", f"(..., {self.tokens}, {self.tokens})", matrix)
        rows = matrix[..., self.learned :]
        if query == "mean" or (query is None and not self.class_token):
            rows = rows[..., self.learned :, :].mean(axis=-2)
        else:
            rows = rows[..., self.token("class" if query is None else query), :]
        return rows.reshape(*rows.shape[:-1], *self.grid)

    def token(self, query):
        """The number of a token: of `"class"`, `"distillation"`, (row, column), or a number."""
        if isinstance(query, (tuple, list)) and len(query) == 2:
            if all(0 <= q < side for q, side in zip(query, self.grid)):
                return self.learned + int(query[0]) * self.grid[1] + int(query[1])
        elif isinstance(query, str):
            if f"{query} token" in self.names:
                return self.names.index(f"{query} token")
        elif not isinstance(query, bool) and 0 <= query < self.tokens:
            return int(query)
        words = [name.removesuffix(" token") for name in self.names if name.endswith(" token")]
        raise ValueError(
            f"query must be {', '.join([*words, 'mean'])}, (row, column) of one of {self.grid[0]} "
            f"x {self.grid[1]} patches, or a token from 0 to {self.tokens - 1}. Received: {query=}."
        )


def layout_of(model: VisionTransformer, image_size: tuple[int, int] | None = None) -> Layout:
    """The `Layout` of the tokens of a `VisionTransformer`.

    `image_size`, (height, width), is needed only for a model that takes images of any size. Models
    without patches as tokens, and those that merge tokens, are a ValueError.
    """
    model = network_of(model)
    if not hasattr(v := getattr(model, "variant", None), "learned_tokens"):
        raise ValueError(
            f"A VisionTransformer is needed, with patches as tokens. Received: {described(model)}."
        )
    _check_whole(model)
    grid = v.grid(image_size or model.image_size)
    return Layout(grid, v.stride, v.learned_tokens, v.class_token, v.distillation)


def batches(batch_size, *arrays):
    """(*parts, count) in turn: parts of some arrays, all of one size, so a backend compiles once.

    The last parts may be filled up by their first rows: only `count` of their rows count.
    """
    size = min(positive_int(batch_size, "batch_size"), len(arrays[0]))
    for start in range(0, len(arrays[0]), size):
        parts = [array[start : start + size] for array in arrays]
        yield *(np.resize(part, (size, *part.shape[1:])) for part in parts), len(parts[0])


def graph(model, tensors):
    """The model from the inputs of a model to tensors of its graph."""
    if getattr(model, "inputs", None) is None:
        needed = "A built Functional or Sequential model is needed."
        raise ValueError(f"{needed} Received: {described(model)}.")
    return keras.Model(model.inputs, tensors)


def outputs(model, tensors, images, batch_size):
    """(values, count) for each of `batches`: the values of tensors of a model's graph."""
    tapped = graph(model, flat := keras.tree.flatten(tensors))
    run = compiled(model, tuple(map(id, flat)), lambda x: tapped([x], training=False))
    for batch, count in batches(batch_size, images):
        # Keras gives a single tensor without its list.
        yield keras.tree.pack_sequence_as(tensors, keras.tree.flatten(run(batch))), count


def features(model, tensors, images, batch_size):
    """For each batch of images: arrays of the values of tensors of a model's graph."""
    for values, count in outputs(model, tensors, images, batch_size):
        yield [to_array(value)[:count] for value in values]


def compiled(model, key, function):
    """A function of arrays that reads the model's variables, run without gradients being kept.

    On JAX it is compiled once for a model, its variables, whose values may change, and a `key`. It
    must not refer to the model itself, which could then never be freed.
    """
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()(function)
    if keras.backend.backend() != "jax":
        return function
    import jax

    def stateless(values, *arrays):
        with keras.StatelessScope(state_mapping=list(zip(variables, values))):
            return function(*arrays)

    variables, programs = model.variables, _PROGRAMS.setdefault(model, {})
    # LoRA and quantisation replace variables.
    program = programs.setdefault((key, *map(id, variables)), jax.jit(stateless))

    def run(*arrays):
        with one_at_a_time(model):
            return program([v.value for v in variables], *arrays)

    return run


def gradients(logits, arrays, hot):
    """(gradients of the logits that `hot` chooses by some arrays, list of what `logits` returns).

    `logits` is a function of the list of arrays: it returns the logits, and perhaps more.
    """

    def chosen(tensors):
        results = keras.tree.flatten(logits(tensors))
        return keras.ops.sum(keras.ops.multiply(results[0], hot)), results

    tensors = [keras.ops.convert_to_tensor(array) for array in arrays]
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(chosen, has_aux=True)(tensors)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tensors)
            number, results = chosen(tensors)
        return tape.gradient(number, tensors), results
    import torch

    with torch.enable_grad():
        tensors = [tensor.detach().requires_grad_() for tensor in tensors]
        number, results = chosen(tensors)
        return torch.autograd.grad(number, tensors), results
