"""Blocks whose backward pass computes them again instead of keeping their inside."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.dropout import drawn_seeds
from keras_vit.layers.extensions.blocks import BLOCKS
from keras_vit.layers.transformer_block import TransformerBlock


class Remat:
    """A block whose backward pass computes it again instead of keeping its inside.

    It takes less memory and about a third more time. The outputs and gradients are the same.
    """

    def call(self, x, training=False, **positions):
        call = super().call
        if not training:
            return call(x, **positions)
        # The second run must drop what the first one dropped. Drawing seeds inside would change
        # the masks on TensorFlow and leak a tracer on JAX, so they are drawn outside.
        generators = _generators(self)

        def block(seeds, x, *tensors):
            with drawn_seeds(generators, seeds):
                return call(x, **dict(zip(positions, tensors)), training=True)

        seeds = [generator.next() for generator in generators]
        return kernels.remat(block)(seeds, x, *positions.values())


def _generators(layer):
    """The seed generators of the dropouts in a layer; on PyTorch of those that got a seed.

    Without one PyTorch draws from its own state, which it restores before the second run. (Keras's
    `_flatten_layers` compares layers by identity, so that each block would be a program.)
    """
    is_unused = kernels.BACKEND == "torch" and getattr(layer, "seed", None) is None
    own = [layer.seed_generator] if getattr(layer, "drops", False) and not is_unused else []
    return own + [each for part in layer._layers for each in _generators(part)]


def with_remat(block):
    """A subclass of `block`, a class, whose blocks compute the same and keep less."""
    name = f"Remat{block.__qualname__}"
    members = {"__module__": __name__, "__qualname__": name, "__doc__": Remat.__doc__}
    remat = type(f"Remat{block.__name__}", (Remat, block), members)
    return keras.saving.register_keras_serializable("keras_vit", name)(remat)


RematTransformerBlock = with_remat(TransformerBlock)
"""A `TransformerBlock` that is computed again in the backward pass."""
REMAT_BLOCKS = {name: with_remat(block) for name, block in BLOCKS.items()}
RematExtendedBlock = REMAT_BLOCKS["pre_norm"]
"""An `ExtendedBlock` that is computed again in the backward pass."""
RematPostNormBlock = REMAT_BLOCKS["post_norm"]
"""A `PostNormBlock` that is computed again in the backward pass."""
RematAddNormBlock = REMAT_BLOCKS["add_norm"]
"""An `AddNormBlock` that is computed again in the backward pass."""
RematParallelBlock = REMAT_BLOCKS["parallel"]
"""A `ParallelBlock` that is computed again in the backward pass."""
RematAxialBlock = REMAT_BLOCKS["axial"]
"""An `AxialBlock` that is computed again in the backward pass."""
