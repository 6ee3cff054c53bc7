"""Which patches are corrupted, and what becomes of their embeddings (appendix B.1.2)."""

import keras
from keras import ops

MASKED, SWAPPED = 0.8, 0.1  # of the corrupted patches; the others keep their embedding
_FIXED_SEED = 0  # where nothing is trained


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(keras.layers.Layer):
    """Corrupts a share of the patch embeddings, as BERT does with words (appendix B.1.2).

    In every sequence the same number of patches is drawn: `corrupted` times N, rounded, at least
    one. Each of them by itself becomes the learned [mask] embedding (80%), the embedding of
    another patch of the sequence, drawn at random (10%), or stays (10%).

    In training each call draws anew. Otherwise the draw is the same at each call, so that two
    evaluations can be compared.

    Shapes: (batch, N, width) -> the same, and positions (batch, k) of the corrupted patches.

    Args:
        corrupted: share of the patches, in (0, 1].
        seed: optional integer for repeatable draws in training.
    """

    def __init__(self, corrupted=0.5, seed=None, **kwargs):
        super().__init__(**kwargs)
        if isinstance(corrupted, bool) or not 0 < corrupted <= 1:
            raise ValueError(
                f"corrupted must be a share in (0, 1]. Received: corrupted={corrupted!r}."
            )
        self.corrupted, self.seed = float(corrupted), seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        _, self.patches, width = input_shape
        if self.patches is None or self.patches < 2:
            raise ValueError(
                "Masked patch prediction needs at least two patches per image, of a known number. "
                f"Received: {self.patches}."
            )
        self.count = max(round(self.corrupted * self.patches), 1)
        self.mask = self.add_weight(
            (1, 1, width), keras.initializers.RandomNormal(stddev=0.02), name="mask"
        )
        self.built = True

    def call(self, x, training=False):
        rank, kind, other = self._draw(ops.shape(x)[0], training)
        positions = ops.argsort(rank, axis=1)[:, : self.count]
        corrupted = ops.argsort(ops.argsort(rank, axis=1), axis=1) < self.count
        kind = ops.where(corrupted, kind, 1.0)
        swapped = ops.logical_and(kind >= MASKED, kind < MASKED + SWAPPED)
        others = ops.take_along_axis(x, self._other_patch(other)[:, :, None], axis=1)
        y = ops.where(swapped[:, :, None], others, x)
        y = ops.where(kind[:, :, None] < MASKED, ops.cast(self.mask, x.dtype), y)
        return y, positions

    def _draw(self, batch, training):
        """Three independent numbers in [0, 1) for each patch."""
        seed = self.seed_generator if training else _FIXED_SEED
        numbers = keras.random.uniform((3, batch, self.patches), dtype="float32", seed=seed)
        return numbers[0], numbers[1], numbers[2]

    def _other_patch(self, number):
        """For every patch the index of another one, each with the same probability."""
        steps = ops.cast(ops.floor(number * (self.patches - 1)), "int32")
        steps = ops.minimum(steps, self.patches - 2) + 1  # where rounding reaches 1
        return (ops.arange(self.patches, dtype="int32")[None] + steps) % self.patches

    def compute_output_shape(self, input_shape):
        return tuple(input_shape), (input_shape[0], self.count)

    def get_config(self):
        return {**super().get_config(), "corrupted": self.corrupted, "seed": self.seed}
