"""FlexiViT: one set of weights for patches of many sizes (Beyer et al., 2023)."""

import functools
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.checks import positive_int


class FlexiblePatches(keras.callbacks.Callback):
    """A callback of `fit`, by which each batch has patches of another size (FlexiViT).

    The model stays what it is, one of its own patch size; while it trains on a batch, its patch
    kernels and its position embedding are resized in the graph, so that their gradients come from
    every size. Evaluation and prediction have the model's own size; what is saved is an ordinary
    model, and `keras_vit.resize(model, patch_size=..., patch_interpolation="bilinear")` makes that
    of another size.

    The size of a batch is a function of the seed, the epoch and the number of the batch in it, so
    that a run which is continued draws what it would have drawn. Each size is compiled once.

    Args:
        patch_sizes: sizes in pixels, each with the same probability; each must divide the images.
        seed: of the draws.
        interpolation: how kernels are resized, as in `VisionTransformer.cut_into`.
    """

    def __init__(self, patch_sizes: Sequence[int], seed: int = 0, interpolation: str = "bilinear"):
        super().__init__()
        self.patch_sizes = tuple(positive_int(size, "patch_sizes") for size in patch_sizes)
        if not self.patch_sizes:
            raise ValueError("patch_sizes must have at least one size. Received: none.")
        self.seed, self.interpolation = seed, interpolation
        self.epoch, self.trained, self.functions = 0, None, {}

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
        self.trained, self.functions = self.model, {}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        size = self.drawn(self.epoch, batch)
        self.trained.train_function = functools.partial(self._train, size)

    def _train(self, size, *arguments):
        """What Keras calls for one batch, on every backend."""
        try:
            with self.trained.cut_into(size, self.interpolation):
                return self._function(size)(*arguments)
        finally:
            self.trained.train_function = None  # a training without this callback makes its own

    def _function(self, size):
        """Keras's function for a batch, which is traced when patches of this size are cut."""
        if size not in self.functions:
            model = self.trained
            # JAX shares one program between functions that are equal, as a model's methods are.
            model.train_step = functools.partial(model.train_step)
            try:
                model.make_train_function(force=True)
            finally:
                del model.train_step
            self.functions[size] = model.train_function
        return self.functions[size]
