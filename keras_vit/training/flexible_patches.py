"""FlexiViT: one set of weights for patches of many sizes (Beyer et al., 2023)."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checks import positive_int, require


class FlexiblePatches(keras.callbacks.Callback):
    """A callback of `fit`, by which each batch has patches of another size (FlexiViT).

    Each batch is trained within `VisionTransformer.cut_into` one of the sizes, so that the patch
    kernels and the position embedding get gradients from every size. Evaluation, prediction and the
    saved model have the patch size of the model; `keras_vit.resize` makes one of another size. The
    size of a batch is a function of seed, epoch and batch, so that a run which is continued draws
    the same sizes as one without a break.

    Args:
        patch_sizes: sizes in pixels, each with the same probability; each must divide the images.
        seed: of the draws.
        interpolation: how patches are resized, the method of `VisionTransformer.cut_into`.

    Raises:
        ValueError: no size, or in `fit` a model without `variable_size=True`.
    """

    def __init__(self, patch_sizes: Sequence[int], seed: int = 0, interpolation: str = "bilinear"):
        super().__init__()
        self.patch_sizes = tuple(positive_int(size, "patch_sizes") for size in patch_sizes)
        require(self.patch_sizes, "patch_sizes must have at least one size", received=patch_sizes)
        self.seed, self.interpolation = seed, interpolation
        self.epoch, self.trained, self.programs = 0, None, {}

    def drawn(self, epoch, batch):
        """The patch size of a batch, both numbers counted from 0."""
        draw = np.random.default_rng((self.seed, epoch, batch)).integers(len(self.patch_sizes))
        return self.patch_sizes[draw]

    def on_train_begin(self, logs=None):
        if not getattr(self.model, "variable_size", False):
            raise ValueError(
                "FlexiblePatches needs a keras_vit.VisionTransformer(variable_size=True). Received:"
                f" {type(self.model).__name__} {self.model.name!r}."
            )
        # On JAX each look at `self.model` moves the state, which is under way within a batch.
        self.trained, self.programs = self.model, {}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        size = self.drawn(self.epoch, batch)
        cut = self.trained.cut_into(size, self.interpolation)
        self.trained.train_next_batch_within(cut, self.programs, size)
