"""Patches of many sizes (FlexiViT), and training on a random part of them (patch dropout)."""

import contextlib

import keras
import numpy as np
from keras import ops

from keras_vit.checks import pair
from keras_vit.layers import kernels
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.patches import Patches
from keras_vit.layers.resample import resize_matrix


@keras.saving.register_keras_serializable("keras_vit")
class ResizablePatches(Patches):
    """Patches whose size can be another one for a while, with the same patch kernels.

    FlexiViT makes kernels P w for patches of another size, where P = (Rᵀ)⁺ (`patch_matrix`). A
    token xᵀ(P w) is also (Pᵀ x)ᵀ w, so it is the patches that are resized here, by Pᵀ, and the
    layer that has the kernels knows nothing of it.

    Shapes: as `Patches`; the last axis is P²·C of `patch_size` in any case.
    """

    def __init__(self, patch_size, keep_grid=False, drop_incomplete=False, **kwargs):
        super().__init__(patch_size, keep_grid, drop_incomplete=drop_incomplete, **kwargs)
        self.kernel_size, self.matrices = self.patch_size, None

    @contextlib.contextmanager
    def cut_into(self, patch_size, method="bilinear"):
        """As `cut_into` of `VisionTransformer`."""
        before, size = (self.patch_size, self.matrices), pair(patch_size, "patch_size")
        matrices = [patch_matrix(*sides, method) for sides in zip(self.kernel_size, size)]
        self.patch_size, self.matrices = size, None if size == self.kernel_size else matrices
        try:
            yield
        finally:
            self.patch_size, self.matrices = before

    def call(self, images):
        patches = super().call(images)
        if self.matrices is None:
            return patches
        precise, channels = kernels.at_least_float32(patches.dtype), images.shape[3]
        rows, columns = (ops.convert_to_tensor(matrix, precise) for matrix in self.matrices)
        x = ops.reshape(ops.cast(patches, precise), (-1, *self.patch_size, channels))
        x = ops.einsum("nrqc,ro->noqc", x, rows)
        x = ops.einsum("noqc,qp->nopc", x, columns)
        shape = (*ops.shape(patches)[:-1], self._values(channels))
        return ops.cast(ops.reshape(x, shape), patches.dtype)

    def compute_output_spec(self, images):
        *shape, _ = super().compute_output_spec(images).shape
        return self._output((*shape, self._values(images.shape[3])))

    def _values(self, channels):
        return self.kernel_size[0] * self.kernel_size[1] * channels


@keras.saving.register_keras_serializable("keras_vit")
class PatchDropout(Dropout):
    """While training, keeps a random part of the patches of each image (Liu et al., 2022).

    Of N patches max(1, int(N * (1 - rate))) stay, others for each image, in a random order. The
    learned tokens in front of them stay.

    Shapes: (batch, tokens, width) -> (batch, fewer tokens, width). A list of tokens and of outputs
    of `RotaryPosition`, (2, tokens, 1 or heads, D_h) -> a list of those tokens and their angles,
    (2, batch, fewer tokens, 1 or heads, D_h). Outside of training everything stays as it is.

    Args:
        rate, seed: share of the patches that are dropped, in [0, 1); `seed` is as in `Dropout`.
        learned_tokens: number of tokens before those of the patches.
    """

    def __init__(self, rate, learned_tokens=0, seed=None, **kwargs):
        super().__init__(rate, seed, **kwargs)
        self.learned_tokens = learned_tokens

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        x, *angles = keras.tree.flatten(inputs)
        learned, (batch, tokens, _) = self.learned_tokens, ops.shape(x)
        kept = self.kept(tokens - learned)
        noise = keras.random.uniform(
            (batch, tokens - learned), dtype="float32", seed=self.seed_generator
        )
        places = ops.cast(ops.argsort(noise, axis=1)[:, :kept] + learned, "int32")
        if learned:
            first = ops.broadcast_to(ops.arange(learned, dtype="int32"), (batch, learned))
            places = ops.concatenate([first, places], axis=1)
        x = ops.take_along_axis(x, places[:, :, None], axis=1)
        angles = [ops.take(each, places, axis=1) for each in angles]
        return keras.tree.pack_sequence_as(inputs, [x, *angles])

    def kept(self, patches):
        """The number of patches that stay."""
        if isinstance(patches, int):
            return max(1, int(patches * (1.0 - self.rate)))
        # On TensorFlow the number is known only when the graph of images of any size runs.
        kept = ops.cast(ops.cast(patches, "float64") * (1.0 - self.rate), "int32")
        return ops.maximum(1, kept)

    def compute_output_spec(self, inputs, training=False):
        # Angles as outside of training; in a call, attention reads the number of their axes.
        x, *angles = keras.tree.flatten(inputs)
        x = self._output((x.shape[0], None, x.shape[2]))
        angles = [self._output(each.shape) for each in angles]
        return keras.tree.pack_sequence_as(inputs, [x, *angles])


def patch_matrix(old, new, method):
    """The matrix of shape (new, old) that resizes one axis of patch kernels (Beyer et al., 2023).

    It is (Rᵀ)⁺, where R resizes a patch: with the new kernels, tokens of resized patches differ
    least from the old tokens.

    Args:
        old, new: sizes in pixels.
        method: how a patch is resized, a method of `resize_matrix`.
    """
    return np.linalg.pinv(resize_matrix(old, new, method).T)
