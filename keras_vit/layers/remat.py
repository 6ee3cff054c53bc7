"""A Transformer block that keeps less for the backward pass."""

import keras

from keras_vit.layers import kernels
from keras_vit.layers.dropout import drawn_seeds
from keras_vit.layers.transformer_block import TransformerBlock


@keras.saving.register_keras_serializable("keras_vit")
class RematTransformerBlock(TransformerBlock):
    """A `TransformerBlock` whose backward pass computes it again instead of keeping its inside.

    It takes less memory and about a third more time. The outputs and gradients are the same.

    The second run must drop what the first one dropped. Therefore the seeds are drawn here,
    outside, and handed in: drawing inside would change the masks on TensorFlow and leak a tracer
    on JAX.
    """

    def call(self, x, relative_position=None, training=False):
        if not training:
            return super().call(x, relative_position=relative_position)
        call, generators = super().call, self._seed_generators_in_use()

        def block(seeds, x, *relative_position):
            with drawn_seeds(generators, seeds):
                return call(x, *relative_position, training=True)

        inputs = (x,) if relative_position is None else (x, relative_position)
        return kernels.remat(block)([generator.next() for generator in generators], *inputs)

    def _seed_generators_in_use(self):
        layers = (
            self.attention.dropout,
            self.dropout,
            self.drop_path_1,
            self.mlp.dropout_1,
            self.mlp.dropout_2,
            self.drop_path_2,
        )
        return [layer.seed_generator for layer in layers if layer.rate > 0]
