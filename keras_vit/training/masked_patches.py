"""Masked patch prediction: self-supervised pre-training (section 4.6, appendix B.1.2)."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.layers.linear import Linear
from keras_vit.models import VisionTransformer
from keras_vit.training.masked_images import MaskedImageModel, gather
from keras_vit.training.masked_patches_task import CorruptPatches, Target

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
    patches alone.

    The data may be images alone, or images with labels, which are ignored; sample weights weigh
    images (Keras drops them where there are no labels).

    Shapes: (batch, height, width, channels) -> a dict of what concerns the k corrupted patches:
    "predictions" (batch, k, cells, colours) or, for pixels, (batch, k, P²·C); "targets" (batch, k,
    cells) or (batch, k, P²·C); "positions" (batch, k).

    Args:
        encoder: a `keras_vit.VisionTransformer` without a stem. It is trained in place, up to and
            with `norm`; the layers after that take no part and are not saved with this model.
        target: `"mean_color"`, the paper's choice, `"colors_4x4"` or `"pixels"`; see `Target`.
        corrupted: share of the patches; the paper also tried 0.15.
        value_range: the values of black and white in the images that the encoder takes.
        seed: optional integer for repeatable corruption.

    Raises:
        TypeError: the encoder is no VisionTransformer.
        ValueError: the encoder is a hybrid or takes images of any size, or the target does not
            fit its patches.
    """

    task = "Masked patch prediction"

    def __init__(
        self,
        encoder: VisionTransformer,
        target: str = "mean_color",
        corrupted: float = 0.5,
        value_range: tuple[float, float] = (-1.0, 1.0),
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(encoder, name, **kwargs)
        low, high = self.value_range = tuple(map(float, value_range))
        if not low < high:
            raise ValueError(f"value_range must have black below white. Received: {value_range=}.")
        v, policy = encoder.variant, encoder.dtype_policy
        self.target = Target(target, v.patch_size, encoder.channels)
        self.corruption = CorruptPatches(corrupted, seed, dtype=policy, name="corruption")
        self.prediction = Linear(
            "btd,dk->btk",
            (None, math.prod(self.target.shape)),
            bias_axes="k",
            kernel_initializer="zeros",
            dtype=policy.variable_dtype,
            name="prediction",
        )
        self.corruption.build((None, math.prod(encoder.grid), v.width))
        self.prediction.build((None, None, v.width))
        if self.target.is_color:
            self.accuracy = keras.metrics.Mean(name="accuracy")
        self.built = True

    def call(self, images, training=False):
        images, encoder = self.encoder.check_images(images), self.patch_encoder
        # Eq. 1 as `patch_encoder` computes it, with the corruption right after E.
        embedded = encoder.norm(encoder.projection(self.patches(images)))
        embedded, positions = self.corruption(embedded, training=training)
        tokens = encoder.prepend_learned_tokens(embedded)
        if encoder.position is not None:
            tokens = encoder.position(tokens)
        tokens = encoder.dropout(tokens, training=training)
        tokens = self.run_blocks(tokens, training)
        learned = tokens.shape[1] - self.corruption.patches
        # LayerNorm works on each token by itself: normalising those that are read is enough.
        tokens = self.normalised(gather(tokens, positions + learned))
        targets = self.target.values(self.pixels(images), self.value_range)
        shape = (-1, self.corruption.count, *self.target.shape)
        return {
            "predictions": ops.reshape(self.prediction(tokens), shape),
            "targets": gather(targets, positions),
            "positions": positions,
        }

    def errors(self, outputs):
        targets, predictions = outputs["targets"], outputs["predictions"]
        if self.target.is_color:
            crossentropy = keras.losses.sparse_categorical_crossentropy
            return crossentropy(targets, predictions, from_logits=True)
        return ops.square(predictions - targets)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self.target.is_color:
            colors = ops.argmax(y_pred["predictions"], axis=-1)
            hits = ops.equal(ops.cast(colors, y_pred["targets"].dtype), y_pred["targets"])
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
            self.accuracy.update_state(ops.mean(hits, axis=(1, 2)), sample_weight)
        return self.get_metrics_result()

    def get_config(self):
        return {
            **super().get_config(),
            "target": self.target.name,
            "corrupted": self.corruption.corrupted,
            "value_range": self.value_range,
            "seed": self.corruption.seed,
        }
