"""What lies between the blocks of a network: tokens, maps of patches, attention."""

import re

import keras
import numpy as np
from keras import ops

from keras_vit.checks import pair
from keras_vit.layers import kernels
from keras_vit.layers.extensions.blocks import position_argument
from keras_vit.layers.extensions.patches import PatchDropout
from keras_vit.layers.layer import Layer
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.text import brief


def _blocks(model):
    """The Transformer blocks of a model, or else the last unit of each stage of a BiT."""
    layers = getattr(model, "layers", ())
    stages = {}
    for layer in layers:
        if unit := re.fullmatch(r"stage_(\d+)_unit_\d+", layer.name):
            stages[unit[1]] = layer
    return [x for x in layers if isinstance(x, TransformerBlock)] or [*stages.values()]


def chosen(model, blocks):
    """The indices of blocks, from 0 on, that `blocks` names; as in `features`."""
    count = len(_blocks(model))
    last = count if isinstance(blocks, str) and blocks == "all" else blocks
    if _is_whole(last) and 1 <= last <= count:
        return list(range(count - last, count))
    given = list(blocks) if np.ndim(blocks) == 1 else []
    indices = [int(i) % count for i in given if _is_whole(i) and -count <= i < count]
    if not given or len(set(indices)) < len(given):
        raise ValueError(
            f"{model.name} has {count} blocks. Received: blocks={brief(blocks)}; choose 'all', "
            f"the number of the last ones, 1 to {count}, or indices as in blocks=[0, -1], each "
            f"block once, from {-count} to {count - 1}."
        )
    return indices


def _is_whole(number):
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def block_features(model, blocks, as_maps, norm, learned_tokens, attention):
    """Dict of lists of tensors of a model's graph, one for each block; as in `features`."""
    every, encoder = _blocks(model), _layer_of(model, PatchEncoder)
    is_transformer = isinstance(every[0], TransformerBlock)
    learned = encoder.learned_tokens if encoder else 0
    reasons = {
        "the stages of a BiT give maps alone": (
            not is_transformer and (not as_maps or learned_tokens or attention)
        ),
        "the norm of a BiT is before its layer 'pool', which was left out; choose norm=False": (
            not is_transformer and norm and all(layer.name != "pool" for layer in model.layers)
        ),
        "merged tokens have no place in the image; take keras_vit.merge_tokens(model, 0)": any(
            getattr(block, "merged", 0) for block in every
        ),
        "each image has patches of its own shape, in a sequence; choose as_maps=False": (
            is_transformer and encoder is None and as_maps
        ),
        "the padding has attention too": is_transformer and encoder is None and attention,
        "patches that patch_dropout leaves out in training have no place in a map; build the model "
        "with patch_dropout=0, or choose as_maps=False": (
            as_maps and getattr(_layer_of(model, PatchDropout), "rate", 0)
        ),
        "all tokens stand for patches, as there is no class token": (
            is_transformer and learned_tokens and not learned
        ),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(
                f"These features cannot be: {reason}. Received: {type(model).__name__} "
                f"{model.name!r}, as_maps={as_maps}, norm={norm}, "
                f"learned_tokens={learned_tokens}, attention={attention}."
            )
    layers = [every[i] for i in blocks]
    if not is_transformer:
        last = model.get_layer("pool").input if norm else every[-1].output
        return {"maps": [last if layer is every[-1] else layer.output for layer in layers]}
    tokens = [keras.tree.flatten(block.output)[0] for block in layers]
    if norm and (last := final_norm(model)):
        tokens = [last(x) for x in tokens]
    elif norm and not model.variant.final_norm and _was_built_with_norm(model):
        raise ValueError(
            "norm=True needs the model's last norm, the layer 'norm'. Received: a graph that has "
            "the blocks of one and no such layer; choose norm=False."
        )
    dtype, grid, patches = layers[0].dtype_policy, None, []
    if as_maps:  # patches of images of any size keep their rows and columns, and tell both
        cut = _layer_of(model, Patches)
        grid, patches = (None, [cut.output]) if cut.keep_grid else (encoder.grid, [])
    select = Tokens(learned, grid=grid, dtype=dtype)
    features = {"maps" if as_maps else "tokens": [select(x, *patches) for x in tokens]}
    if learned_tokens:
        first = Tokens(0, learned, dtype=dtype)
        features["learned_tokens"] = [first(x) for x in tokens]
    if attention:
        features["attention"] = [
            BlockAttention(block, dtype=block.dtype_policy)(*keras.tree.flatten(block.input))
            for block in layers
        ]
    return features


def _layer_of(model, layer_class):
    """The first layer of a class, or `None`."""
    return next((layer for layer in model.layers if isinstance(layer, layer_class)), None)


def _was_built_with_norm(model):
    """Whether a graph of a user has left out the last norm of the model that it is made of."""
    v = getattr(model, "model_record", model).variant
    return getattr(v, "final_norm", False) and not v.norm_after_pool


def final_norm(model):
    """The norm that the tokens after the last block get, a layer; `None` where there is none.

    A norm after the mean of the tokens belongs to the head, as timm's `fc_norm`.
    """
    layers, variant = {layer.name: layer for layer in model.layers}, getattr(model, "variant", None)
    norm, pool = layers.get("norm"), layers.get("pool")
    after_mean = norm is not None and len(norm.input.shape) == 2 and pool.pool == "mean"
    return None if after_mean or getattr(variant, "norm_after_pool", False) else norm


@keras.saving.register_keras_serializable("keras_vit")
class Tokens(Layer):
    """Some of the tokens, in their order or as a map of the patches.

    Shapes: (batch, tokens, width) -> (batch, fewer tokens, width), or (batch, rows, columns,
    width) with a grid.

    Args:
        start, stop: the first token, and the one behind the last; `None` for all.
        grid: (rows, columns), or `None`.
    """

    def __init__(self, start=0, stop=None, grid=None, **kwargs):
        super().__init__(**kwargs)
        self.start, self.stop = start, stop
        self.grid = None if grid is None else pair(grid, "grid")

    def call(self, x, patches=None):
        """`patches` is the output of `Patches` with its grid, for images of any size."""
        x = x[:, self.start : self.stop]
        if patches is None and self.grid is None:
            return x
        rows, columns = self.grid or ops.shape(patches)[1:3]
        return ops.reshape(x, (-1, rows, columns, x.shape[-1]))

    def compute_output_spec(self, x, patches=None):
        batch, tokens, width = x.shape
        if patches is not None or self.grid is not None:
            return self._output((batch, *(self.grid or patches.shape[1:3]), width))
        if tokens is not None or self.stop is not None:
            tokens = len(range(tokens or self.stop)[self.start : self.stop])
        return self._output((batch, tokens, width))


@keras.saving.register_keras_serializable("keras_vit")
class BlockAttention(Layer):
    """A of Eq. 6 in a block, computed for what enters it.

    Shapes: (batch, tokens, width) -> (batch, heads, tokens, tokens), in float32 at least. It shares
    the `TransformerBlock` that it is made of.
    """

    def __init__(self, block, **kwargs):
        super().__init__(**kwargs)
        self.block = block

    def build(self, input_shape, *others):
        if not self.block.built:
            self.block.build(input_shape)

    def call(self, x, *positions):
        return self.block.attention_scores(x, **position_argument(self.block, *positions))

    def compute_output_spec(self, x, *positions):
        batch, tokens, _ = x.shape
        shape = (batch, self.block.attention.num_heads, tokens, tokens)
        return self._output(shape, kernels.at_least_float32(self.compute_dtype))

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "block": keras.saving.deserialize_keras_object(config["block"])})
