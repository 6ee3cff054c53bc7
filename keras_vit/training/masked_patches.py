"""Masked patch prediction: self-supervised pre-training (section 4.6, appendix B.1.2)."""

import dataclasses
import math

import keras
from keras import ops

from keras_vit.layers.linear import Linear
from keras_vit.layers.patches import Patches
from keras_vit.layers.position import RelativePosition
from keras_vit.models.vit import VisionTransformer
from keras_vit.training.masked_patches_corrupt import CorruptPatches
from keras_vit.training.masked_patches_targets import Target


@dataclasses.dataclass(frozen=True)
class MaskedPatchSettings:
    """How the authors pre-trained ViT-B/16 by masked patch prediction (appendix B.1.2).

    They saw little further gain in transfer after 100,000 steps, and similar gains from
    pre-training on ImageNet. The appendix names no weight decay, clipping or augmentation.
    """

    variant: str = "B/16"
    dataset: str = "JFT-300M"
    target: str = "mean_color"
    corrupted: float = 0.5
    optimizer: str = "adam"
    learning_rate: float = 2e-4
    warmup_steps: int = 10_000
    decay: str = "cosine"
    batch_size: int = 4096
    steps: int = 1_000_000
    epochs: int = 14
    weight_decay: float = 0.0


PAPER = MaskedPatchSettings()


@keras.saving.register_keras_serializable("keras_vit")
class MaskedPatchModel(keras.Model):
    """Pre-trains the encoder of a plain Vision Transformer without labels.

    Half of the patch embeddings are corrupted before the position embedding is added (see
    `CorruptPatches`); the encoder runs on them, and a linear layer, zero when fresh, predicts each
    corrupted patch from its normalised output token. Loss and accuracy are those of the corrupted
    patches alone.

        masked = MaskedPatchModel(keras_vit.ViT_B16(num_classes=0))
        masked.compile(keras.optimizers.Adam(2e-4))
        masked.fit(images)
        model = masked.classifier(num_classes=10)

    `compile` takes no loss. Data may be images alone or with labels, which nothing looks at;
    sample weights weigh images (Keras drops them where there are no labels). Called on images,
    the model returns a dict: `"predictions"` for and `"targets"` of the corrupted patches, and
    their `"positions"`.

    Shapes: (batch, height, width, channels) -> predictions (batch, k, cells, colours) or, for
    pixels, (batch, k, P²·C); targets (batch, k, cells) or (batch, k, P²·C); positions (batch, k).

    Args:
        encoder: a `keras_vit.VisionTransformer` without a stem. It is trained in place, up to and
            with `norm`; its pooling, pre-logits and head take no part and are not saved with this
            model.
        target: `"mean_color"`, the paper's choice, `"colors_4x4"` or `"pixels"`; see `Target`.
        corrupted: share of the patches; the paper also tried 0.15.
        value_range: what black and white are in the images that the encoder takes.
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
        super().__init__(name=name or f"masked_{encoder.name}", **kwargs)
        v, policy = encoder.variant, encoder.dtype_policy
        self.target = Target(target, v.patch_size, encoder.channels)
        self.value_range = _check_value_range(value_range)
        # In a closure Keras does not see it: what stands behind `norm` would be trained and saved.
        self._get_encoder = lambda: encoder
        self.patches, self.patch_encoder = map(encoder.get_layer, ("patches", "patch_encoder"))
        self.norm = encoder.get_layer("norm")
        self.blocks = [encoder.get_layer(f"block_{i}") for i in range(v.depth)]
        self.positions = _positions(encoder)
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
        rows, columns = encoder.grid
        self.corruption.build((None, rows * columns, v.width))
        self.prediction.build((None, None, v.width))
        if self.target.is_color:
            self.accuracy = keras.metrics.Mean(name="accuracy")
        self.built = True

    @property
    def encoder(self):
        """The VisionTransformer whose layers are trained."""
        return self._get_encoder()

    def compile(self, optimizer="adam", loss=None, metrics=None, **kwargs):
        """As in Keras, but the model brings its loss and its metrics itself."""
        if loss is not None or metrics is not None:
            raise ValueError(
                "The target decides the loss and the metrics of masked patch prediction. "
                f"Received: loss={loss!r}, metrics={metrics!r}; leave them out."
            )
        super().compile(optimizer, **kwargs)

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def call(self, images, training=False):
        images = self.encoder.checked(images)
        tokens, positions = self._corrupted_tokens(self.patches(images), training)
        for block, position in zip(self.blocks, self.positions):
            tokens, relative_position = _with_position(tokens, position)
            tokens = block(tokens, relative_position=relative_position, training=training)
        learned = tokens.shape[1] - self.corruption.patches
        # LayerNorm works on each token by itself: normalising those that are read is enough.
        tokens = self.norm(_gather(tokens, positions + learned))
        predictions = self.prediction(tokens)
        targets = self.target.values(self.pixels(images), self.value_range)
        return {
            "predictions": ops.reshape(
                predictions, (-1, self.corruption.count, *self.target.shape)
            ),
            "targets": _gather(targets, positions),
            "positions": positions,
        }

    def _corrupted_tokens(self, patches, training):
        """What `patch_encoder` does, with the corruption between E and all that is added."""
        encoder = self.patch_encoder
        x, positions = self.corruption(encoder.projection(patches), training=training)
        x = encoder.prepend_learned_tokens(x)
        if encoder.position is not None:
            x = encoder.position(x)
        return encoder.dropout(x, training=training), positions

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = self.target.losses(y_pred["targets"], y_pred["predictions"])
        losses = ops.mean(losses, axis=1)
        if sample_weight is not None:
            losses = losses * ops.cast(ops.reshape(sample_weight, (-1,)), losses.dtype)
        return ops.mean(losses)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self.target.is_color:
            hits = self.target.hits(y_pred["targets"], y_pred["predictions"])
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
            self.accuracy.update_state(ops.mean(hits, axis=1), sample_weight)
        return self.get_metrics_result()

    def classifier(self, num_classes, **options):
        """A VisionTransformer for fine-tuning: a copy of the encoder's weights and a zero head.

        The hidden layer of a pre-training head is left out (section 3.2). Whatever is pooled
        otherwise than in the encoder begins fresh.

        Args:
            num_classes: number of logits, or 0 for none.
            **options: arguments of `keras_vit.VisionTransformer` that shall differ from the
                encoder's, such as `pool`, `dropout`, `stochastic_depth`, `remat`.

        Raises:
            ValueError: a layer of the encoder does not fit into a model with these options.
        """
        facts = {"frozen": None, "class_names": None, "label_set": None}
        fresh = {"num_classes": num_classes, "representation_size": None}
        config = {**self.encoder.get_config(), **facts, **fresh, **options}
        model = VisionTransformer.from_config(config)
        for layer in (self.patch_encoder, *self.blocks, *filter(None, self.positions), self.norm):
            _copy_weights(layer, model, options)
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
            "encoder must be a keras_vit.VisionTransformer. Received: an object of type "
            f"{type(encoder).__name__}."
        )
    if encoder.variant.stem is not None:
        raise ValueError(
            "Masked patch prediction needs a plain ViT, whose patches are pixels. Received: "
            f"{encoder.name!r}, a hybrid, whose patches are cut from the feature map of a ResNet."
        )
    later = encoder.variant.later
    if later.pre_norm or later.rotary:
        raise ValueError(
            "Masked patch prediction needs blocks that follow the embedding and see no patches. "
            f"Received: pre_norm={later.pre_norm!r}, rotary={later.rotary!r}; build it without."
        )
    if encoder.variable_size:
        raise ValueError(
            "Masked patch prediction needs images of one size. Received: "
            f"{encoder.name!r} with variable_size=True; build it without, with the same weights."
        )


def _check_value_range(value_range):
    low, high = map(float, value_range)
    if not low < high:
        raise ValueError(
            "value_range must be (black, white), black below white. Received: "
            f"value_range={value_range!r}."
        )
    return low, high


def _positions(encoder):
    """The position layer before each block, `None` where there is none."""
    v = encoder.variant
    if v.position_at == "input" or v.position == "none":
        return [None] * v.depth
    names = ["position"] * v.depth
    if v.position_at != "shared":
        names = [f"position_{i}" for i in range(v.depth)]
    return [encoder.get_layer(name) for name in names]


def _with_position(tokens, position):
    if position is None:
        return tokens, None
    if isinstance(position, RelativePosition):
        return tokens, position(tokens)
    return position(tokens), None


def _gather(x, positions):
    """The rows of every sequence at its positions: (batch, N, d), (batch, k) -> (batch, k, d)."""
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


def _copy_weights(layer, model, options):
    twin = model.get_layer(layer.name)
    if [w.shape for w in twin.weights] != [w.shape for w in layer.weights]:
        raise ValueError(
            f"The encoder's {layer.name!r} has other weights than a model with these options. "
            f"Received: {options}; hand the encoder over as it is and resize it afterwards: save "
            "it with keras_vit.save_weights and load that with another image_size."
        )
    twin.set_weights(layer.get_weights())
