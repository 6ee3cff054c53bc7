"""Which patches are corrupted, and what is predicted of them (appendix B.1.2)."""

import math

import keras
from keras import ops

from keras_vit.checks import check_choice
from keras_vit.layers.position import small_normal
from keras_vit.training.masked_images import DrawnPatches, gather, ordered

MASKED, SWAPPED = 0.8, 0.1  # of the corrupted patches; the others keep their embedding
BITS = 3  # per colour channel: 512 colours for RGB
CELLS = 4  # rows and columns of the downsized patch


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(DrawnPatches):
    """Corrupts a share of the patch embeddings, as BERT does with words (appendix B.1.2).

    In every sequence the same number of patches is drawn: `corrupted` times N, rounded, at least
    one. Each of them independently becomes the learned [mask] embedding (80%), the embedding of
    another patch of the sequence, drawn at random (10%), or stays (10%).

    Shapes: (batch, N, width) -> the same, and positions (batch, k) of the corrupted patches.

    Args:
        corrupted: share of the patches, in (0, 1].
        seed: optional integer for repeatable draws in training.
    """

    numbers = 3

    def __init__(self, corrupted=0.5, seed=None, **kwargs):
        super().__init__(seed, **kwargs)
        if isinstance(corrupted, bool) or not 0 < corrupted <= 1:
            raise ValueError(f"corrupted must be a share in (0, 1]. Received: {corrupted=}.")
        self.corrupted = float(corrupted)

    def build(self, input_shape):
        super().build(input_shape)
        self.count = max(round(self.corrupted * self.patches), 1)
        self.mask = self.add_weight((1, 1, input_shape[2]), small_normal(), name="mask")

    def call(self, x, training=False):
        rank, fate, other = self.draw(x, training)
        order, place = ordered(rank)
        fate = ops.where(place < self.count, fate, 1.0)[:, :, None]
        # Another patch: 1 to N - 1 places further, each with the same probability.
        steps = ops.cast(ops.floor(other * (self.patches - 1)), "int32") + 1
        steps = ops.minimum(steps, self.patches - 1)  # where rounding reached N
        others = (ops.arange(self.patches, dtype="int32")[None] + steps) % self.patches
        swapped = ops.logical_and(fate >= MASKED, fate < MASKED + SWAPPED)
        y = ops.where(swapped, gather(x, others), x)
        y = ops.where(fate < MASKED, ops.cast(self.mask, x.dtype), y)
        return y, order[:, : self.count]


class Target:
    """What is predicted for a patch.

    - `"mean_color"`: the mean colour of the patch, 3 bits per channel: one of 512 for RGB.
    - `"colors_4x4"`: the same for each of 4 x 4 equal cells of the patch: 16 predictions.
    - `"pixels"`: every value of the patch.

    The loss of colours is the cross-entropy, that of pixels the squared distance (L2). A channel's
    3 bits are its number of eighths in [0, 1], rounded down; the first channel is the most
    significant.

    Args:
        name: one of the three.
        patch_size: (height, width) of a patch in pixels.
        channels: colour channels of the images; at most 4 for a target of colours.

    Raises:
        ValueError: an unknown name, patches that 4 x 4 cells do not divide, or too many channels.
    """

    def __init__(self, name, patch_size, channels):
        check_choice("target", name, ("mean_color", "colors_4x4", "pixels"))
        self.name, self.patch_size, self.channels = name, patch_size, channels
        self.is_color, self.side = name != "pixels", CELLS if name == "colors_4x4" else 1
        colors = 2 ** (BITS * channels)
        if self.is_color and channels > 4:
            raise ValueError(
                f"A colour of {channels} channels is one of {colors:,}. Received: target={name!r}; "
                "choose target='pixels'."
            )
        if any(size % self.side for size in patch_size):
            raise ValueError(
                "target='colors_4x4' needs patches whose sides are multiples of 4. Received: "
                f"patch_size={patch_size}; choose 'mean_color' or 'pixels'."
            )
        # The predictions for a patch: for each cell the logits of the colours, or its values.
        pixels = math.prod(patch_size) * channels
        self.shape = (self.side**2, colors) if self.is_color else (pixels,)

    def values(self, patches, value_range):
        """The target of every patch.

        Shapes: (batch, N, P²·C) -> (batch, N, cells) of integers for colours, else the input.

        Args:
            patches: pixels in the order (row, column, channel), as `Patches` gives them.
            value_range: the values of black and white.
        """
        if not self.is_color:
            return patches
        (low, high), side, (p_h, p_w) = value_range, self.side, self.patch_size
        count = patches.shape[1]
        x = ops.reshape(patches, (-1, count, side, p_h // side, side, p_w // side, self.channels))
        mean = (ops.mean(x, axis=(3, 5)) - low) / (high - low)
        levels = ops.clip(ops.floor(mean * 2**BITS), 0, 2**BITS - 1)
        # Sums of few whole numbers are exact in float32.
        place = [float(2 ** (BITS * (self.channels - 1 - c))) for c in range(self.channels)]
        colors = ops.sum(levels * ops.cast(place, levels.dtype), axis=-1)
        return ops.reshape(ops.cast(colors, "int32"), (-1, count, side * side))
