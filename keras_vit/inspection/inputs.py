"""What is inspected: images as the model takes them, and what its tokens stand for."""

import operator
import typing

import keras
import numpy as np

from keras_vit.checks import check_choice, grid_of
from keras_vit.data.preprocess import preprocess
from keras_vit.layers.transformer_block import TransformerBlock

LARGEST = 32.0  # no preprocessing gives more; bytes that were only cast to float do


def as_inputs(model, images):
    """Images ready for the model: floats as they are, all else prepared as its weights want it.

    Args:
        model: any Keras model of images.
        images: float array of shape (batch, height, width, channels), preprocessed; or uint8
            arrays, paths and PIL images, which go through `keras_vit.data.preprocess`.

    Raises:
        ValueError: another shape, no images, or values that no preprocessed image has.
    """
    if keras.ops.is_tensor(images):
        images = keras.ops.convert_to_numpy(images)
    if not (isinstance(images, np.ndarray) and images.dtype.kind == "f"):
        return preprocess(images, model)
    expected = tuple(model.inputs[0].shape[1:]) if getattr(model, "inputs", None) else None
    if expected and not _fits(images.shape, expected):
        sides = (side or name for side, name in zip(expected, ("height", "width", "channels")))
        raise ValueError(
            f"{model.name} takes images of shape (batch, {', '.join(map(str, sides))}). Received: "
            f"shape {images.shape}; one image is images[None], and preprocess(images, model) of "
            "keras_vit resizes."
        )
    if not len(images):
        raise ValueError("There must be at least one image. Received: none.")
    largest = np.abs(images).max()
    if not largest <= LARGEST:
        raise ValueError(
            "Float images must be preprocessed, as keras_vit.preprocess(images, model) does; bytes "
            "may be given as uint8. Received: floats with a largest absolute value of "
            f"{largest:.4g}."
        )
    return images


def _fits(shape, expected):
    return len(shape) == 1 + len(expected) and all(
        wanted in (None, side) for side, wanted in zip(shape[1:], expected)
    )


def transformer_blocks(model, blocks=None):
    """The chosen blocks of a model with attention, in the order asked for.

    Args:
        model: a `VisionTransformer`, or a Functional model with `TransformerBlock` layers.
        blocks: indices, negative ones counting from the last; `None` for all.

    Raises:
        ValueError: the model has no such block.
    """
    layers = [
        layer for layer in getattr(model, "layers", ()) if isinstance(layer, TransformerBlock)
    ]
    try:
        blocks = [operator.index(i) for i in (range(len(layers)) if blocks is None else blocks)]
    except TypeError as error:
        raise ValueError(f"blocks must be a list of indices. Received: blocks={blocks}.") from error
    if not layers or any(not -len(layers) <= index < len(layers) for index in blocks):
        exist = (
            f"so indices go from {-len(layers)} to {len(layers) - 1}"
            if layers
            else ("so there is no attention to look at; a VisionTransformer has them")
        )
        raise ValueError(
            f"{model.name} has {len(layers)} Transformer blocks, {exist}. "
            f"Received: blocks={blocks}."
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
                f"A grid of {self.grid[0]}x{self.grid[1]} patches after {self.learned} learned "
                f"tokens makes matrices of shape (..., {self.tokens}, {self.tokens}). Received: "
                f"shape {matrix.shape}."
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
        """The number of the token that `query` names."""
        if query == "class" and not self.class_token:
            raise ValueError(
                "The model has no class token. Received: query='class'; choose 'mean', for the "
                "mean over all patches, or a patch (row, column)."
            )
        if isinstance(query, str):
            check_choice("query", query, ("class", "mean"))
            return 0  # "mean" is no token and does not come here
        if isinstance(query, (tuple, list)):
            if len(query) == 2 and all(0 <= q < side for q, side in zip(query, self.grid)):
                return self.learned + int(query[0]) * self.grid[1] + int(query[1])
            raise ValueError(
                f"The patches lie in {self.grid[0]} rows and {self.grid[1]} columns, counted from "
                f"0. Received: query={query!r}."
            )
        if isinstance(query, bool) or not 0 <= query < self.tokens:
            raise ValueError(f"Tokens go from 0 to {self.tokens - 1}. Received: query={query!r}.")
        return int(query)


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
    grid = grid_of(v.feature_map(image_size or model.image_size), v.patch_size)
    return Layout(grid, v.stride, v.learned_tokens, v.class_token)
