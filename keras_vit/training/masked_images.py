"""What models have in common that learn from images of which they do not see all patches."""

import keras
from keras import ops

from keras_vit.layers import kernels
from keras_vit.layers.extensions.blocks import with_position
from keras_vit.layers.patches import Patches
from keras_vit.models.trainer import Trainer
from keras_vit.models.vision_transformer import VisionTransformer


@keras.saving.register_keras_serializable("keras_vit")
class DrawnPatches(keras.layers.Layer):
    """Draws for each image which of its patches are hidden.

    In training each call draws anew. Otherwise the draw is the same at each call, so that two
    evaluations can be compared.

    Args:
        seed: optional integer for repeatable draws in training.
    """

    numbers = 1  # of random numbers for each patch

    def __init__(self, seed=None, **kwargs):
        super().__init__(autocast=False, **kwargs)  # random numbers would become equal
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        self.patches = input_shape[1]
        if self.patches is None or self.patches < 2:
            raise ValueError(f"An image must have at least two patches. Received: {self.patches}.")
        self.built = True

    def draw(self, x, training):
        """Random numbers in [0, 1) for tokens (batch, N, width): a list of (batch, N)."""
        shape = (self.numbers, ops.shape(x)[0], self.patches)
        seed = self.seed_generator if training else 0
        return ops.unstack(keras.random.uniform(shape, dtype="float32", seed=seed), self.numbers)


def ordered(noise):
    """The patches in the order of their random numbers, and the place of each in that order.

    Shapes: (batch, N) -> twice (batch, N) of integers.
    """
    order = ops.argsort(noise, axis=1)
    return order, ops.argsort(order, axis=1)


def gather(x, positions):
    """The rows of every sequence at its positions: (batch, N, d), (batch, k) -> (batch, k, d)."""
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


@keras.saving.register_keras_serializable("keras_vit")
class MaskedImageModel(Trainer, keras.Model):
    """A model around the encoder of a plain Vision Transformer, which it trains without labels.

    A subclass has `call`, which returns a dict, and `errors` of it: (batch, patches, values).

    Args:
        encoder: a `keras_vit.VisionTransformer`, trained in place up to and with `norm`.
        config: the other arguments of the subclass, for `get_config`.
    """

    task = "Pre-training on masked images"

    def __init__(self, encoder, config, name=None, **kwargs):
        if not isinstance(encoder, VisionTransformer):
            received = type(encoder).__name__
            raise TypeError(f"encoder must be a keras_vit.VisionTransformer. Received: {received}.")
        if reasons := [reason for reason, present in self.obstacles(encoder).items() if present]:
            raise ValueError(
                f"{self.task} needs a plain ViT for images of one size. Received: "
                f"{encoder.name!r}, {', '.join(reasons)}; build it without."
            )
        # Under a policy of half precision Keras would round the images before they are compared.
        super().__init__(name=name or f"masked_{encoder.name}", autocast=False, **kwargs)
        v, layers = encoder.variant, {layer.name: layer for layer in encoder.layers}
        # Keras does not look into a closure: it would train and save what comes after `norm`.
        self._get_encoder, self.config = lambda: encoder, config
        self.patches, self.patch_encoder = layers["patches"], layers["patch_encoder"]
        self.blocks = [layers[f"block_{i}"] for i in range(v.block_layers)]
        self.pre_norm, self.norm = layers.get("pre_norm"), layers.get("norm")
        # The position layer before each block: its own, the one that all share, or none.
        prefix = "rotary" if v.rotary else "position"
        shared = layers.get("rotary", layers.get("position"))
        self.positions = [layers.get(f"{prefix}_{i}", shared) for i in range(v.block_layers)]
        # Half precision would move colours into a neighbouring bin.
        dtype = encoder.dtype_policy.variable_dtype
        self.pixels = Patches(v.patch_size, dtype=dtype, name="pixels")

    def obstacles(self, encoder):
        """What an encoder may have and must not -> whether it has it."""
        return {
            "a hybrid, whose patches are features of a ResNet": encoder.variant.stem is not None,
            "variable_size=True": encoder.variable_size,
        }

    @property
    def encoder(self):
        """The VisionTransformer whose layers are trained."""
        return self._get_encoder()

    @property
    def preprocessing(self):
        return self.encoder.preprocessing

    def compile(self, optimizer="adam", loss=None, metrics=None, **kwargs):
        """As in Keras, but without a loss and metrics: the model has its own."""
        if loss is not None or metrics:
            raise ValueError(f"Leave loss and metrics to the model. Received: {loss=}, {metrics=}.")
        super().compile(optimizer, **kwargs)

    def run_blocks(self, tokens, training):
        """The tokens after the last block and the norm behind it, where the encoder has one."""
        tokens = tokens if self.pre_norm is None else self.pre_norm(tokens)
        for block, position in zip(self.blocks, self.positions):
            tokens, arguments = with_position(tokens, position)
            tokens = block(tokens, **arguments, training=training)
        return tokens if self.norm is None else self.norm(tokens)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        losses = kernels.mean(kernels.mean(self.errors(y_pred), axis=2), axis=1)
        if sample_weight is not None:
            losses = losses * ops.cast(ops.reshape(sample_weight, (-1,)), losses.dtype)
        return kernels.mean(losses, axis=0)

    def classifier(self, num_classes, **options):
        """A VisionTransformer for fine-tuning: a copy of the encoder's weights and a zero head.

        The hidden layer of a pre-training head is left out (section 3.2). A pooling that differs
        from the encoder's begins fresh.

        Args:
            num_classes: number of logits, or 0 for none.
            **options: arguments of `keras_vit.VisionTransformer` that differ from the encoder's.

        Raises:
            ValueError: a layer of the encoder does not fit into a model with these options.
        """
        left_out = ("representation_size", "frozen", "class_names", "label_set", "reading")
        config = {**self.encoder.get_config(), **dict.fromkeys(left_out)}
        config |= {"num_classes": num_classes, **options}
        model = VisionTransformer.from_config(config)
        trained = (self.patch_encoder, self.pre_norm, *self.blocks, *self.positions, self.norm)
        for layer in filter(None, trained):
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
        encoder = keras.saving.serialize_keras_object(self.encoder)
        return {"name": self.name, "encoder": encoder, **self.config}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects)
        return cls(**{**config, "encoder": encoder})
