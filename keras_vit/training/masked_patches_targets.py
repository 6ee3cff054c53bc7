"""What masked patch prediction predicts: the three targets of appendix B.1.2."""

import keras
from keras import ops

from keras_vit.checks import check_choice

TARGETS = ("mean_color", "colors_4x4", "pixels")
BITS = 3  # per colour channel: 512 colours for RGB
CELLS = 4  # rows and columns of the downsized patch
MAX_COLOR_CHANNELS = 4


class Target:
    """The number of values that are predicted for a patch, what they should be, and the loss.

    - `"mean_color"`: the mean colour of the patch, 3 bits per channel: one of 512 for RGB.
    - `"colors_4x4"`: the same for each of 4 x 4 equal cells of the patch: 16 predictions.
    - `"pixels"`: every value of the patch, by its squared distance (L2).

    A channel's 3 bits are its number of eighths in [0, 1], rounded down; the first channel is the
    most significant.

    Args:
        name: one of the three.
        patch_size: (height, width) of a patch in pixels.
        channels: colour channels of the images.

    Raises:
        ValueError: an unknown name, patches that 4 x 4 cells do not divide, or more channels than
            a table of colours has room for.
    """

    def __init__(self, name, patch_size, channels):
        check_choice("target", name, TARGETS)
        self.name, self.patch_size, self.channels = name, patch_size, channels
        self.is_color = name != "pixels"
        if self.is_color and channels > MAX_COLOR_CHANNELS:
            raise ValueError(
                f"A colour of {channels} channels is one of {2 ** (BITS * channels):,}. Received: "
                f"target={name!r}; choose target='pixels'."
            )
        if name == "colors_4x4" and any(side % CELLS for side in patch_size):
            raise ValueError(
                "target='colors_4x4' needs patches whose sides are multiples of 4. Received: "
                f"patch_size={patch_size}; choose 'mean_color' or 'pixels'."
            )
        cells = CELLS**2 if name == "colors_4x4" else 1
        pixels = patch_size[0] * patch_size[1] * channels
        # What is predicted for a patch: for each cell the logits of the colours, or its values.
        self.shape = (cells, 2 ** (BITS * channels)) if self.is_color else (pixels,)

    def values(self, patches, value_range):
        """The target of every patch.

        Shapes: (batch, N, P²·C) -> (batch, N, cells) of integers for colours, else the input.

        Args:
            patches: pixels in the order (row, column, channel), as `Patches` gives them.
            value_range: what black and white are in the images.
        """
        if not self.is_color:
            return patches
        low, high = value_range
        side = CELLS if self.name == "colors_4x4" else 1
        (p_h, p_w), count = self.patch_size, patches.shape[1]
        x = ops.reshape(patches, (-1, count, side, p_h // side, side, p_w // side, self.channels))
        mean = (ops.mean(x, axis=(3, 5)) - low) / (high - low)
        levels = ops.clip(ops.floor(mean * 2**BITS), 0, 2**BITS - 1)
        # Sums of few whole numbers are exact in float32.
        place = [float(2 ** (BITS * (self.channels - 1 - c))) for c in range(self.channels)]
        colors = ops.sum(levels * ops.cast(place, levels.dtype), axis=-1)
        return ops.reshape(ops.cast(colors, "int32"), (-1, count, side * side))

    def losses(self, targets, predictions):
        """The loss of every predicted patch: cross-entropy, or the mean squared distance.

        Shapes: (batch, k, ...) twice -> (batch, k).
        """
        if not self.is_color:
            return ops.mean(ops.square(predictions - targets), axis=-1)
        losses = keras.losses.sparse_categorical_crossentropy(
            targets, predictions, from_logits=True
        )
        return ops.mean(losses, axis=-1)

    def hits(self, targets, predictions):
        """Share of the cells of every predicted patch whose colour is right.

        Shapes: (batch, k, cells), (batch, k, cells, colours) -> (batch, k).
        """
        right = ops.equal(ops.cast(ops.argmax(predictions, axis=-1), targets.dtype), targets)
        return ops.mean(ops.cast(right, "float32"), axis=-1)
