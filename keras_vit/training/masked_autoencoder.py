"""Masked autoencoders: self-supervised pre-training by filling in patches (He et al., 2022)."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.checks import positive_int, rate, require
from keras_vit.layers import kernels
from keras_vit.models import VisionTransformer
from keras_vit.training.masked_decoder import MaskedDecoder, assign_decoder, read_decoder
from keras_vit.training.masked_images import DrawnPatches, MaskedImageModel, gather, ordered
from keras_vit.weights.load import from_checkpoint

EPSILON = 1e-6  # added to the variance of a patch's pixels


def visible_patches(masked, patches):
    """How many of the patches of an image stay visible: N * (1 - masked), rounded down."""
    visible = int(patches * (1 - rate(masked, "masked", within="(0, 1)")))
    if not 0 < visible < patches:
        raise ValueError(
            f"Some of {patches} patches must be visible, some masked. Received: {masked=}, which "
            f"leaves {visible} visible; choose another share."
        )
    return visible


@keras.saving.register_keras_serializable("keras_vit")
class MaskedAutoencoder(MaskedImageModel):
    """Pre-trains the encoder of a plain Vision Transformer without labels (He et al., 2022).

    Three quarters of the patches are hidden, drawn anew in each step. The encoder runs on the
    others alone, which makes a step cheap; a small decoder gets its tokens, a learned [mask] token
    at every other place, and predicts the pixels. The loss is the mean squared error of the hidden
    patches, whose pixels are normalised to mean 0 and variance 1 in each patch. Afterwards the
    decoder is thrown away: `classifier` gives the model for fine-tuning, and `encoder` is trained.
    Labels are ignored; sample weights weigh images (Keras wants labels beside them).

    Shapes: (batch, height, width, channels) -> a dict: "predictions" and "targets" of all patches
    (batch, N, P²·C), pixels in the order (row, column, channel); "positions" of the k masked
    patches (batch, k).

    Args:
        encoder: a `keras_vit.VisionTransformer` with its positions at the input (the authors' are
            fixed, `position="sincos_2d"`) and without a stem. It is trained in place, up to and
            with `norm`; what follows is not saved with this model.
        masked: share of the patches that are hidden.
        decoder_width, decoder_depth, decoder_heads, decoder_mlp_dim: of the decoder; `None` for
            four times its width.
        norm_pix_loss: whether the pixels of a patch are normalised before they are compared.
        seed: optional integer for repeatable masks.

    Raises:
        TypeError: the encoder is no VisionTransformer.
        ValueError: the encoder is no such ViT, or a share or size is out of range.
    """

    task = "A masked autoencoder"

    def __init__(
        self,
        encoder: VisionTransformer,
        masked: float = 0.75,
        decoder_width: int = 512,
        decoder_depth: int = 8,
        decoder_heads: int = 16,
        decoder_mlp_dim: int | None = None,
        norm_pix_loss: bool = True,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        config = {
            "masked": masked,
            "decoder_width": decoder_width,
            "decoder_depth": decoder_depth,
            "decoder_heads": decoder_heads,
            "decoder_mlp_dim": decoder_mlp_dim,
            "norm_pix_loss": norm_pix_loss,
            "seed": seed,
        }
        super().__init__(encoder, config, name, **kwargs)
        v, policy = encoder.variant, encoder.dtype_policy
        pixels, self.norm_pix_loss = math.prod(v.patch_size) * encoder.channels, norm_pix_loss
        rule = "A patch of one value cannot be normalised; choose norm_pix_loss=False"
        require(pixels > 1 or not norm_pix_loss, rule, received=v.patch_size)
        self.masking = DrawnPatches(seed, dtype=policy, name="masking")
        self.masking.build((None, math.prod(encoder.grid), v.width))
        self.visible = visible_patches(masked, self.masking.patches)
        mlp_dim = 4 * decoder_width if decoder_mlp_dim is None else decoder_mlp_dim
        self.decoder = MaskedDecoder(
            encoder.grid,
            v.learned_tokens,
            pixels=pixels,
            width=decoder_width,
            depth=decoder_depth,
            num_heads=decoder_heads,
            mlp_dim=positive_int(mlp_dim, "decoder_mlp_dim"),
            gelu=v.gelu,
            qkv_bias=v.qkv_bias,
            epsilon=v.epsilon,
            remat=encoder.get_config()["remat"],
            dtype=policy,
            name="decoder",
        )
        self.decoder.build((None, None, v.width))
        self.built = True

    @classmethod
    def from_checkpoint(cls, path, masked=None, norm_pix_loss=None, seed=None, **options):
        """The masked autoencoder of a folder of Hugging Face's `ViTMAEForPreTraining`.

        Positions are not trained there, and not here; those of `classifier` are.

        Args:
            path: the folder, with its config.json.
            masked, norm_pix_loss: `None` for what config.json says (for facebook/vit-mae-base
                `norm_pix_loss=False`, though the authors' published models were trained with it).
            seed: as in the constructor.
            **options: of `keras_vit.from_checkpoint` for the encoder, such as `remat` and `dtype`.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: it has no decoder, is of another model, or damaged.
        """
        encoder = from_checkpoint(path, **{"num_classes": 0, **options})
        if (position := encoder.get_layer("patch_encoder").position) is not None:
            position.trainable = False
        options, arrays = read_decoder(path)
        options["masked"] = options["masked"] if masked is None else masked
        if norm_pix_loss is not None:
            options["norm_pix_loss"] = norm_pix_loss
        model = cls(encoder, seed=seed, **options)
        assign_decoder(model.decoder, arrays, path)
        return model

    def obstacles(self, encoder):
        v = encoder.variant
        return super().obstacles(encoder) | {
            "rotary positions": v.rotary,
            "axial blocks, which need every patch": v.block == "axial",
            f"position_at={v.position_at!r}": v.position_at != "input",
        }

    def call(self, images, noise=None, training=False):
        """Masks patches, encodes those that stay and predicts the pixels of all.

        Numbers `noise` (batch, N) decide the masks instead of random ones: the patches with the
        smallest stay visible.
        """
        images = self.encoder.check_images(images)
        tokens = self.patch_encoder(self.patches(images), training=training)
        learned, patches = ops.split(tokens, [self.encoder.variant.learned_tokens], axis=1)
        noise = self.masking.draw(patches, training)[0] if noise is None else noise
        order, places = ordered(noise)
        visible, masked = ops.split(order, [self.visible], axis=1)
        tokens = ops.concatenate([learned, gather(patches, visible)], axis=1)
        tokens = self.run_blocks(tokens, training)
        targets = self.pixels(images)
        if self.norm_pix_loss:
            mean, deviation = _moments(targets)
            targets = (targets - mean) / deviation
        predictions = self.decoder(tokens, places, training=training)
        return {"predictions": predictions, "targets": targets, "positions": masked}

    def errors(self, outputs):
        squares = ops.square(outputs["predictions"] - outputs["targets"])
        return gather(squares, outputs["positions"])

    def reconstruct(self, images, batch_size=32):
        """What the model makes of images, three quarters of which it does not see.

        With `norm_pix_loss` it predicts what a patch looks like but for brightness and contrast;
        these are then taken from the image itself.

        Args:
            images: (n, height, width, channels), as the encoder takes them.
            batch_size: images in one call of the model.

        Returns:
            Two arrays: the predicted images, (n, height, width, channels), also where a patch was
            visible; and which pixels were hidden, (n, height, width) of bools.
        """
        images, size = np.asarray(images), self.encoder.image_size
        outputs = self.predict(images, batch_size, verbose=0)
        patches, mask = outputs["predictions"], np.zeros(outputs["targets"].shape, "float32")
        if self.norm_pix_loss:
            mean, deviation = map(ops.convert_to_numpy, _moments(self.pixels(images)))
            patches = patches * deviation + mean
        np.put_along_axis(mask, outputs["positions"][:, :, None], 1.0, axis=1)
        predicted, mask = (self.pixels.inverse(each, size) for each in (patches, mask))
        return ops.convert_to_numpy(predicted), ops.convert_to_numpy(mask)[..., 0] > 0


def _moments(patches):
    """Mean and standard deviation of each patch, as the authors compute it, over P²·C - 1."""
    mean, count = kernels.mean(patches, axis=-1, keepdims=True), patches.shape[-1]
    variance = kernels.mean(ops.square(patches - mean), axis=-1, keepdims=True)
    return mean, ops.sqrt(variance * (count / (count - 1)) + EPSILON)
