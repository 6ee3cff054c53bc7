"""Patches of many sizes by one set of patch kernels (FlexiViT; Beyer et al., 2023)."""

import contextlib

import keras
from keras import ops

from keras_vit.checks import pair
from keras_vit.layers import kernels
from keras_vit.layers.patches import Patches
from keras_vit.layers.resample import patch_matrix


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
        """Within it, images are cut into patches of another size, an int or (height, width).

        `method` is how FlexiViT resizes a patch, a method of `resize_matrix`.
        """
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
