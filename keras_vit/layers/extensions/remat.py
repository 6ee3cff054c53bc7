"""Blocks whose backward pass computes them again instead of keeping their inside."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.dropout import drawn_seeds
from keras_vit.layers.extensions import blocks
from keras_vit.layers.transformer_block import TransformerBlock


class Remat:
    """A block whose backward pass computes it again instead of keeping its inside.

    It takes less memory and about a third more time. The outputs and gradients are the same.
    """

    def call(self, x, training=False, **positions):
        call = super().call
        if not training:
            return call(x, **positions)
        layers = [each for each in self._flatten_layers() if getattr(each, "rate", 0)]
        generators = [layer.seed_generator for layer in layers]

        # The second run must drop what the first one dropped. Drawing seeds inside would change
        # the masks on TensorFlow and leak a tracer on JAX, so they are drawn outside.
        def block(seeds, x, *tensors):
            with drawn_seeds(generators, seeds):
                return call(x, **dict(zip(positions, tensors)), training=True)

        seeds = [generator.next() for generator in generators]
        return kernels.remat(block)(seeds, x, *positions.values())


def with_remat(block):
    """The class of blocks that compute as those of `block` and keep less."""
    name = f"Remat{block.__qualname__}"
    members = {"__module__": __name__, "__qualname__": name, "__doc__": Remat.__doc__}
    remat = type(f"Remat{block.__name__}", (Remat, block), members)
    return keras.saving.register_keras_serializable("keras_vit", name)(remat)


RematTransformerBlock = with_remat(TransformerBlock)
"""A `TransformerBlock` that is computed again in the backward pass."""
RematExtendedBlock = with_remat(blocks.ExtendedBlock)
"""An `ExtendedBlock` that is computed again in the backward pass."""
RematPostNormBlock = with_remat(blocks.PostNormBlock)
"""A `PostNormBlock` that is computed again in the backward pass."""
RematAddNormBlock = with_remat(blocks.AddNormBlock)
"""An `AddNormBlock` that is computed again in the backward pass."""
RematParallelBlock = with_remat(blocks.ParallelBlock)
"""A `ParallelBlock` that is computed again in the backward pass."""
RematAxialBlock = with_remat(blocks.AxialBlock)
"""An `AxialBlock` that is computed again in the backward pass."""

REMAT_BLOCKS = {  # names of `keras_vit.Extensions.block`
    "pre_norm": RematExtendedBlock,
    "post_norm": RematPostNormBlock,
    "add_norm": RematAddNormBlock,
    "parallel": RematParallelBlock,
    "axial": RematAxialBlock,
}
