"""Masked patch prediction: self-supervised pre-training (section 4.6, appendix B.1.2)."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.checks import check_choice, rate, require
from keras_vit.data.pixels import per_channel
from keras_vit.layers.linear import Linear
from keras_vit.layers.position import small_normal
from keras_vit.models import VisionTransformer
from keras_vit.training.masked_images import DrawnPatches, MaskedImageModel, gather, ordered

MASKED, SWAPPED = 0.8, 0.1  # of the corrupted patches; the others keep their embedding
BITS = 3  # per colour channel: 512 colours for RGB
CELLS = 4  # rows and columns of the downsized patch
# How the authors pre-trained ViT-B/16 (appendix B.1.2, which names no weight decay, clipping or
# augmentation).
PAPER = {"variant": "B/16", "dataset": "JFT-300M", "target": "mean_color", "corrupted": 0.5}
PAPER |= {"optimizer": "adam", "learning_rate": 2e-4, "warmup_steps": 10_000, "decay": "cosine"}
PAPER |= {"batch_size": 4096, "steps": 1_000_000, "epochs": 14, "weight_decay": 0.0}


@keras.saving.register_keras_serializable("keras_vit")
class MaskedPatchModel(MaskedImageModel):
    """Pre-trains the encoder of a plain Vision Transformer without labels.

    Half of the patch embeddings are corrupted before the position embedding is added (see
    `CorruptPatches`); the encoder runs on them, and a linear layer, zero when fresh, predicts each
    corrupted patch from its normalised output token. Loss and accuracy are those of the corrupted
    patches alone. Labels are ignored; sample weights weigh images (Keras wants labels beside them).

    Shapes: (batch, height, width, channels) -> a dict of what concerns the k corrupted patches:
    "predictions" (batch, k, cells, colours) or, for pixels, (batch, k, P²·C); "targets" (batch, k,
    cells) or (batch, k, P²·C); "positions" (batch, k).

    Args:
        encoder: a `keras_vit.VisionTransformer` for images of one size, without a stem. It is
            trained in place, up to and with `norm`; what follows is not saved with this model.
        target: `"mean_color"`, the paper's choice, `"colors_4x4"` or `"pixels"`; see `Target`.
        corrupted: share of the patches; the paper also tried 0.15.
        value_range: the values of black and white in the images that the encoder takes; by default
            those that `encoder.preprocessing`, which `fit` takes from a pipeline, makes of them.
        seed: optional integer for repeatable corruption.

    Raises:
        TypeError: the encoder is no VisionTransformer.
        ValueError: the encoder cannot be pre-trained so, or the target does not fit its patches.
    """

    task = "Masked patch prediction"

    def __init__(
        self,
        encoder: VisionTransformer,
        target: str = "mean_color",
        corrupted: float = 0.5,
        value_range: tuple[float, float] | None = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        if value_range is not None and not np.less(*value_range).all():
            raise ValueError(f"value_range must have black below white. Received: {value_range=}.")
        value_range = value_range and tuple(np.array(value_range, "float64").tolist())
        config = {"target": target, "corrupted": corrupted, "seed": seed}
        super().__init__(encoder, {**config, "value_range": value_range}, name, **kwargs)
        v, policy = encoder.variant, encoder.dtype_policy
        self.target = Target(target, v.patch_size, encoder.channels)
        self.corruption = CorruptPatches(corrupted, seed, dtype=policy, name="corruption")
        options = {"bias_axes": "k", "kernel_initializer": "zeros", "name": "prediction"}
        values = math.prod(self.target.shape)  # that are predicted of a patch
        self.prediction = Linear(
            "btd,dk->btk", (None, values), dtype=policy.variable_dtype, **options
        )
        self.corruption.build((None, math.prod(encoder.grid), v.width))
        self.prediction.build((None, None, v.width))
        if self.target.is_color:
            self.accuracy = keras.metrics.Mean(name="accuracy")
        self.built = True

    @property
    def value_range(self):
        """(black, white): two numbers, or two lists of one number for each channel."""
        if self.config["value_range"] is not None:
            return self.config["value_range"]
        mean, std = per_channel(self.preprocessing, self.encoder.channels)
        black, white = (((level - mean) / std).tolist() for level in (0, 1))
        return (black[0], white[0]) if len({*black}) == len({*white}) == 1 else (black, white)

    def call(self, images, training=False):
        images, encoder = self.encoder.check_images(images), self.patch_encoder
        # Eq. 1 as `patch_encoder` computes it, with the corruption right after E.
        embedded = encoder.project(self.patches(images))
        embedded, positions = self.corruption(embedded, training=training)
        tokens = encoder.prepend_learned_tokens(embedded)
        if encoder.position is not None:
            tokens = encoder.position(tokens)
        tokens = encoder.dropout(tokens, training=training)
        tokens = self.run_blocks(tokens, training)
        tokens = gather(tokens, positions + tokens.shape[1] - self.corruption.patches)
        targets = self.target.values(self.pixels(images), self.value_range)
        shape = (-1, self.corruption.count, *self.target.shape)
        predictions = ops.reshape(self.prediction(tokens), shape)
        targets = gather(targets, positions)
        return {"predictions": predictions, "targets": targets, "positions": positions}

    def errors(self, outputs):
        targets, predictions = outputs["targets"], outputs["predictions"]
        if not self.target.is_color:
            return ops.square(predictions - targets)
        crossentropy = keras.losses.sparse_categorical_crossentropy
        return crossentropy(targets, predictions, from_logits=True)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self.target.is_color:
            colors = ops.argmax(y_pred["predictions"], axis=-1)
            hits = ops.equal(ops.cast(colors, y_pred["targets"].dtype), y_pred["targets"])
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
            self.accuracy.update_state(ops.mean(hits, axis=(1, 2)), sample_weight)
        return self.get_metrics_result()


@keras.saving.register_keras_serializable("keras_vit")
class CorruptPatches(DrawnPatches):
    """Corrupts a share of the patch embeddings, as BERT does with words (appendix B.1.2).

    In every sequence the same number of patches is drawn: `corrupted`, a share in (0, 1], times N,
    rounded, at least one. Each of them independently becomes the learned [mask] embedding (80%),
    the embedding of another patch of the sequence, drawn at random (10%), or stays (10%).

    Shapes: (batch, N, width) -> the same, and positions (batch, k) of the corrupted patches.
    """

    numbers = 3

    def __init__(self, corrupted=0.5, seed=None, **kwargs):
        super().__init__(seed, **kwargs)
        self.corrupted = rate(corrupted, "corrupted", within="(0, 1]")

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
    """What is predicted for a patch, of (height, width) `patch_size` in images of some channels.

    - `"mean_color"`: the mean colour of the patch, 3 bits per channel: one of 512 for RGB. These
      are the channel's eighths in [0, 1], rounded down; the first channel is the most significant.
    - `"colors_4x4"`: the same for each of 4 x 4 equal cells of the patch: 16 predictions.
    - `"pixels"`: every value of the patch.

    The loss of colours is the cross-entropy, that of pixels the squared distance (L2).
    """

    def __init__(self, name, patch_size, channels):
        check_choice("target", name, ("mean_color", "colors_4x4", "pixels"))
        self.patch_size, self.channels = patch_size, channels
        self.is_color, self.side = name != "pixels", CELLS if name == "colors_4x4" else 1
        colors = 2 ** (BITS * channels)
        fits = channels <= 4 or not self.is_color
        rule = f"A colour of {channels} channels is one of {colors:,}; choose target='pixels'"
        require(fits, rule, received=name)
        rule = "target='colors_4x4' needs patches whose sides are multiples of 4; choose "
        fits = not any(size % self.side for size in patch_size)
        require(fits, f"{rule}'mean_color' or 'pixels'", received=patch_size)
        # The predictions for a patch: for each cell the logits of the colours, or its values.
        pixels = math.prod(patch_size) * channels
        self.shape = (self.side**2, colors) if self.is_color else (pixels,)

    def values(self, patches, value_range):
        """The target of every patch, as `Patches` cuts them, of images with values in a range.

        Shapes: (batch, N, P²·C) -> (batch, N, cells) of integers for colours, else the input.
        """
        if not self.is_color:
            return patches
        side, (p_h, p_w) = self.side, self.patch_size
        count = patches.shape[1]
        x = ops.reshape(patches, (-1, count, side, p_h // side, side, p_w // side, self.channels))
        dtype = keras.backend.standardize_dtype(x.dtype)
        low, high = (ops.convert_to_tensor(level, dtype) for level in value_range)
        mean = (ops.mean(x, axis=(3, 5)) - low) / (high - low)
        levels = ops.clip(ops.floor(mean * 2**BITS), 0, 2**BITS - 1)
        # Sums of few whole numbers are exact in float32.
        place = 2.0 ** (BITS * np.arange(self.channels)[::-1])
        colors = ops.sum(levels * ops.cast(place, levels.dtype), axis=-1)
        return ops.reshape(ops.cast(colors, "int32"), (-1, count, side * side))
