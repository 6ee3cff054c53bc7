"""Masked patch prediction: self-supervised pre-training (section 4.6, appendix B.1.2)."""

import math

import keras
from keras import ops

from keras_vit.layers.linear import Linear
from keras_vit.layers.patches import Patches
from keras_vit.layers.position import PositionEmbedding
from keras_vit.models.vit import VisionTransformer
from keras_vit.training.masked_patches_task import CorruptPatches, Target, gather

# How the authors pre-trained ViT-B/16 (appendix B.1.2, which names no weight decay, clipping or
# augmentation).
PAPER = {"variant": "B/16", "dataset": "JFT-300M", "target": "mean_color", "corrupted": 0.5}
PAPER |= {"optimizer": "adam", "learning_rate": 2e-4, "warmup_steps": 10_000, "decay": "cosine"}
PAPER |= {"batch_size": 4096, "steps": 1_000_000, "epochs": 14, "weight_decay": 0.0}


@keras.saving.register_keras_serializable("keras_vit")
class MaskedPatchModel(keras.Model):
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

    def __init__(
        self,
        encoder,
        target="mean_color",
        corrupted=0.5,
        value_range=(-1.0, 1.0),
        seed=None,
        name=None,
        **kwargs,
    ):
        _check_encoder(encoder)
        low, high = self.value_range = tuple(map(float, value_range))
        if not low < high:
            raise ValueError(f"value_range must have black below white. Received: {value_range=}.")
        super().__init__(name=name or f"masked_{encoder.name}", **kwargs)
        v, policy = encoder.variant, encoder.dtype_policy
        layers = {layer.name: layer for layer in encoder.layers}
        self.target = Target(target, v.patch_size, encoder.channels)
        # Keras does not look into a closure: it would train and save what comes after `norm`.
        self._get_encoder = lambda: encoder
        self.patches, self.patch_encoder = layers["patches"], layers["patch_encoder"]
        self.blocks = [layers[f"block_{i}"] for i in range(v.depth)]
        self.pre_norm, self.norm = layers.get("pre_norm"), layers.get("norm")
        # The position layer before each block: its own, the one that all share, or none.
        kind = "rotary" if v.rotary else "position"
        shared = layers.get("rotary", layers.get("position"))
        self.positions = [layers.get(f"{kind}_{i}", shared) for i in range(v.depth)]
        # Half precision would move colours into a neighbouring bin.
        self.pixels = Patches(v.patch_size, dtype=policy.variable_dtype, name="pixels")
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

    @property
    def encoder(self):
        """The VisionTransformer whose layers are trained."""
        return self._get_encoder()

    def compile(self, optimizer="adam", loss=None, metrics=None, **kwargs):
        """As in Keras, but without a loss and metrics: the target decides them."""
        if loss is not None or metrics is not None:
            raise ValueError(
                f"Leave loss and metrics to the target. Received: {loss=}, {metrics=}."
            )
        super().compile(optimizer, **kwargs)

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def call(self, images, training=False):
        images, encoder = self.encoder.checked(images), self.patch_encoder
        # Eq. 1 as `patch_encoder` computes it, with the corruption before learned tokens join.
        embedded = encoder.norm(encoder.projection(self.patches(images)))
        embedded, positions = self.corruption(embedded, training=training)
        tokens = encoder.prepend_learned_tokens(embedded)
        if encoder.position is not None:
            tokens = encoder.position(tokens)
        tokens = encoder.dropout(tokens, training=training)
        if self.pre_norm is not None:
            tokens = self.pre_norm(tokens)
        for block, position in zip(self.blocks, self.positions):
            relative = None
            if isinstance(position, PositionEmbedding):
                tokens = position(tokens)
            elif position is not None:
                relative = position(tokens)
            tokens = block(tokens, relative_position=relative, training=training)
        learned = tokens.shape[1] - self.corruption.patches
        # LayerNorm works on each token by itself: normalising those that are read is enough.
        tokens = gather(tokens, positions + learned)
        if self.norm is not None:
            tokens = self.norm(tokens)
        targets = self.target.values(self.pixels(images), self.value_range)
        shape = (-1, self.corruption.count, *self.target.shape)
        return {
            "predictions": ops.reshape(self.prediction(tokens), shape),
            "targets": gather(targets, positions),
            "positions": positions,
        }

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        targets, predictions = y_pred["targets"], y_pred["predictions"]
        if self.target.is_color:
            crossentropy = keras.losses.sparse_categorical_crossentropy
            losses = crossentropy(targets, predictions, from_logits=True)
        else:
            losses = ops.square(predictions - targets)
        losses = ops.mean(losses, axis=(1, 2))
        if sample_weight is not None:
            losses = losses * ops.cast(ops.reshape(sample_weight, (-1,)), losses.dtype)
        return ops.mean(losses)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self.target.is_color:
            found = ops.argmax(y_pred["predictions"], axis=-1)
            hits = ops.equal(ops.cast(found, y_pred["targets"].dtype), y_pred["targets"])
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
            self.accuracy.update_state(ops.mean(hits, axis=(1, 2)), sample_weight)
        return self.get_metrics_result()

    def classifier(self, num_classes, **options):
        """A VisionTransformer for fine-tuning: a copy of the encoder's weights and a zero head.

        The hidden layer of a pre-training head is left out (section 3.2). A pooling that differs
        from the encoder's begins fresh.

        Args:
            num_classes: number of logits, or 0 for none.
            **options: arguments of `keras_vit.VisionTransformer` that shall differ from the
                encoder's, such as `pool`, `dropout`, `stochastic_depth`, `remat`.

        Raises:
            ValueError: a layer of the encoder does not fit into a model with these options.
        """
        fresh = {"num_classes": num_classes, "representation_size": None}
        fresh |= {"frozen": None, "class_names": None, "label_set": None}
        config = {**self.encoder.get_config(), **fresh, **options}
        model = VisionTransformer.from_config(config)
        further = filter(None, (self.pre_norm, *self.positions, self.norm))
        for layer in (self.patch_encoder, *self.blocks, *further):
            twin = model.get_layer(layer.name)
            if [w.shape for w in twin.weights] != [w.shape for w in layer.weights]:
                raise ValueError(
                    f"The encoder's {layer.name!r} has other weights than a model with these "
                    f"options. Received: {options}; leave out what changes shapes, and use "
                    "keras_vit.resize for another image_size."
                )
            twin.set_weights(layer.get_weights())
        return model

    def get_config(self):
        return {
            "name": self.name,
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "target": self.target.name,
            "corrupted": self.corruption.corrupted,
            "value_range": self.value_range,
            "seed": self.corruption.seed,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects)
        return cls(**{**config, "encoder": encoder})


def _check_encoder(encoder):
    if not isinstance(encoder, VisionTransformer):
        raise TypeError(
            f"encoder must be a keras_vit.VisionTransformer. Received: {type(encoder).__name__}."
        )
    v = encoder.variant
    reasons = {
        "a hybrid, whose patches are features of a ResNet": v.stem is not None,
        "variable_size=True": encoder.variable_size,
    }
    if found := [reason for reason, present in reasons.items() if present]:
        raise ValueError(
            "Masked patch prediction needs a plain ViT for images of one size. Received: "
            f"{encoder.name!r}, {', '.join(found)}; build it without."
        )
