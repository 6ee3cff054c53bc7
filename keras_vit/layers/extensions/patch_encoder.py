"""Tokens of later families: registers, a distillation token, a norm of the patches' tokens."""

import keras

from keras_vit.checks import pair, positive_int
from keras_vit.layers.dropout import Dropout
from keras_vit.layers.extensions.norm import NORMS
from keras_vit.layers.layer import Layer
from keras_vit.layers.patch_encoder import PatchEncoder, patch_projection, prepend
from keras_vit.layers.position import PositionEmbedding, small_normal


@keras.saving.register_keras_serializable("keras_vit", name="ExtendedPatchEncoder")
class ExtendedPatchEncoder(PatchEncoder):
    """A `PatchEncoder` with other learned tokens, and other parts where the patches are projected.

    Shapes: as `PatchEncoder`, with a token more for distillation and for each register.

    Args:
        width, grid, class_token, position, dropout, interpolation: as in `PatchEncoder`.
        registers: number of learned tokens after the class token and the distillation token
            (Darcet et al., 2024).
        distillation: whether a distillation token, which is learned, follows the class token.
        bias: whether the projection has a bias.
        norm, epsilon: norm of the patches' tokens, a name of `keras_vit.Extensions.norm` or `None`.
    """

    def __init__(
        self,
        width,
        grid,
        class_token=True,
        position="learned_1d",
        dropout=0.0,
        interpolation="align_corners",
        registers=0,
        distillation=False,
        bias=True,
        norm=None,
        epsilon=1e-6,
        **kwargs,
    ):
        Layer.__init__(self, **kwargs)  # `PatchEncoder` would make the paper's parts
        self.width, self.grid = positive_int(width, "width"), pair(grid, "grid")
        self.has_class_token, self.counts = bool(class_token), (int(distillation), registers)
        self.learned_tokens, policy = int(class_token) + sum(self.counts), self.dtype_policy
        self.projection = patch_projection(width, bias, dtype=policy)
        self.norm = NORMS[norm](epsilon, dtype=policy, name="norm")
        self.position = None
        if position != "none":
            options = {"interpolation": interpolation, "dtype": policy, "name": "position"}
            options["registers"] = self.learned_tokens - int(class_token)
            self.position = PositionEmbedding(position, grid, class_token=class_token, **options)
        self.dropout = Dropout.of(dropout, dtype=policy, name="dropout")

    def build_tokens(self):
        super().build_tokens()
        of_distillation, registers = self.counts
        self.distillation_token = self.add_tokens("distillation_token", of_distillation)
        self.register_tokens = self.add_tokens("registers", registers)

    def add_tokens(self, name, count):
        if not count:  # an initializer would draw a seed, on which all later weights depend
            return None
        return self.add_weight((1, count, self.width), small_normal(), name=name)

    def build(self, input_shape):
        self.norm.build((*input_shape[:-1], self.width))
        super().build(input_shape)

    def project(self, patches):
        return self.norm(self.projection(patches))

    def prepend_learned_tokens(self, x):
        """[x_class; x_distillation; registers; x]."""
        return prepend([self.class_token, self.distillation_token, self.register_tokens], x)


# Keras's files name a layer, and the place of its weights, by its class; these are older than it.
ExtendedPatchEncoder.__name__ = "PatchEncoder"
