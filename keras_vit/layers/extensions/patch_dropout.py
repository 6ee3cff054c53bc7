"""Patch dropout: training on a random part of the patches (Liu et al., 2022)."""

import keras
from keras import ops

from keras_vit.layers.dropout import Dropout


@keras.saving.register_keras_serializable("keras_vit")
class PatchDropout(Dropout):
    """While training, keeps a random part of the patches of each image (Liu et al., 2022).

    Of N patches max(1, int(N * (1 - rate))) stay, others for each image, in a random order. The
    learned tokens in front of them stay.

    Shapes: (batch, tokens, width) -> (batch, fewer tokens, width). A list of tokens and of outputs
    of `RotaryPosition`, (2, tokens, 1 or heads, D_h) -> a list of those tokens and their angles,
    (2, batch, fewer tokens, 1 or heads, D_h). Outside of training everything stays as it is.

    Args:
        rate: share of the patches that are dropped, in [0, 1).
        learned_tokens: number of tokens before those of the patches.
        seed: integer for repeatable draws.
    """

    def __init__(self, rate, learned_tokens=0, seed=None, **kwargs):
        super().__init__(rate, seed, **kwargs)
        self.learned_tokens = learned_tokens

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        x, *angles = keras.tree.flatten(inputs)
        learned, (batch, tokens, _) = self.learned_tokens, ops.shape(x)
        kept = self.kept(tokens - learned)
        noise = keras.random.uniform(
            (batch, tokens - learned), dtype="float32", seed=self.seed_generator
        )
        places = ops.cast(ops.argsort(noise, axis=1)[:, :kept] + learned, "int32")
        if learned:
            first = ops.broadcast_to(ops.arange(learned, dtype="int32"), (batch, learned))
            places = ops.concatenate([first, places], axis=1)
        x = ops.take_along_axis(x, places[:, :, None], axis=1)
        angles = [ops.take(each, places, axis=1) for each in angles]
        return keras.tree.pack_sequence_as(inputs, [x, *angles])

    def kept(self, patches):
        """How many of so many patches stay."""
        if isinstance(patches, int):
            return max(1, int(patches * (1.0 - self.rate)))
        # On TensorFlow the number is known only when the graph of images of any size runs.
        kept = ops.cast(ops.cast(patches, "float64") * (1.0 - self.rate), "int32")
        return ops.maximum(1, kept)

    def compute_output_spec(self, inputs, training=False):
        # The angles of outside of training; attention reads the number of their axes anew.
        x, *angles = keras.tree.flatten(inputs)
        x = self._output((x.shape[0], None, x.shape[2]))
        angles = [self._output(each.shape) for each in angles]
        return keras.tree.pack_sequence_as(inputs, [x, *angles])
