"""The Vision Transformer, from images to logits (Figure 1, Eq. 1 to 4).

Each layer stands in a file of `keras_vit/layers`: the tokens of Eq. 1 in patches.py and
patch_encoder.py, a block (Eq. 2 and 3) in transformer_block.py, with attention.py (Eq. 5 to 8) and
mlp.py, and the pool and the head of Eq. 4 in head.py.
"""

import dataclasses
from typing import Any

from keras_vit.layers import (
    LayerNorm,
    PatchEncoder,
    Patches,
    TokenPool,
    TransformerBlock,
    resnet,
    resnet_v1,
)
from keras_vit.layers.head import linear_head, pre_logits
from keras_vit.variant import Variant


@dataclasses.dataclass
class Network:
    """Builds the network of the paper: a call makes its layers and applies them to images.

        logits = Network(get_variant("B/16"), grid=(14, 14))(keras.Input((224, 224, 3)))

    `keras_vit.VisionTransformer` is the Keras model of these logits. Parts that are not in the
    paper, such as blocks of later families, are in `models/extended.py`, whose subclass calls the
    methods here with another class as `layer` and its further arguments as `options`.

    Shapes: (batch, height, width, channels), values in [-1, 1] -> (batch, num_classes) logits;
    without classes (batch, representation_size or width).

    Args:
        variant: the architecture.
        grid: (rows, columns) of the patches of an image.
        num_classes: K, or 0 for no head.
        head_bias, dropout, attention_dropout, stochastic_depth: as in `VisionTransformer`.
        dtype: dtype policy of the layers.
    """

    variant: Variant
    grid: tuple[int, int]
    num_classes: int = 1000
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    stochastic_depth: float = 0.0
    dtype: Any = None

    def __post_init__(self):
        if type(self) is Network and self.variant.is_extended:
            raise ValueError(
                "Network has the parts of the paper alone; take keras_vit.VisionTransformer. "
                f"Received: variant={self.variant}."
            )

    def __call__(self, images):
        x = self.embed(self.cut(self.stem(images)))  # Eq. 1
        for i in range(self.variant.depth):
            x = self.block(i)(x)  # Eq. 2 and 3
        return self.read_out(x)  # Eq. 4

    def stem(self, images):
        """The images, or in a hybrid the feature map that a ResNet makes of them (section 3.1)."""
        v = self.variant
        if v.stem is None:
            return images
        options = {"numerics": v.stem_numerics, "folded": v.stem_folded, "dtype": self.dtype}
        return resnet.stages(images, v.stem, resnet_v1, width=v.stem_width, **options)

    def cut(self, x, layer=Patches, **options):
        """x_p: the patches of images, or of feature maps, in a sequence."""
        v = self.variant
        patches = layer(
            v.patch_size,
            drop_incomplete=v.stem is not None,
            dtype=self.dtype,
            name="patches",
            **options,
        )
        return patches(x)

    def embed(self, patches, layer=PatchEncoder, **options):
        """Eq. 1: the tokens z_0."""
        v = self.variant
        encoder = layer(
            v.width,
            self.grid,
            class_token=v.class_token,
            position=v.position if v.position_at == "input" else "none",
            interpolation=v.interpolation,
            dropout=self.dropout,
            dtype=self.dtype,
            name="patch_encoder",
            **options,
        )
        return encoder(patches)

    def block(self, i, layer=TransformerBlock, **options):
        """A new block `i`; stochastic depth grows from 0 at the first block."""
        v = self.variant
        return layer(
            v.num_heads,
            v.mlp_dim,
            gelu=v.gelu,
            qkv_bias=v.qkv_bias,
            epsilon=v.epsilon,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            stochastic_depth=self.stochastic_depth * i / max(v.block_layers - 1, 1),
            dtype=self.dtype,
            name=f"block_{i}",
            **options,
        )

    def read_out(self, x):
        """Eq. 4: the token or the mean that stands for the image; then the head on it."""
        v = self.variant
        norm = LayerNorm(v.epsilon, dtype=self.dtype, name="norm")
        pool = TokenPool(v.pool, v.class_token, dtype=self.dtype, name="pool")
        # LayerNorm works on each token by itself: normalising the one that is read is enough.
        x = pool(norm(x)) if v.pool == "mean" else norm(pool(x))
        return self.head(self.representation(x))

    def representation(self, x):
        """The inputs of the head: x, or the hidden layer of a pre-training head (section 3.1)."""
        size = self.variant.representation_size
        return pre_logits(x, size, dtype=self.dtype) if size else x

    def head(self, x, name="head"):
        """The logits; without classes the representation itself."""
        if not self.num_classes:
            return x
        return linear_head(x, self.num_classes, bias=self.head_bias, dtype=self.dtype, name=name)
