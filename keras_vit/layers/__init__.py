"""The layers of the paper, one short file each."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.extensions.patch_dropout import PatchDropout
from keras_vit.layers.head import AttentionPool, TokenPool
from keras_vit.layers.linear import Linear
from keras_vit.layers.mlp import MLP, SwiGLU
from keras_vit.layers.norm import LayerNorm, LayerScale, RMSNorm
from keras_vit.layers.other_blocks import (
    AddNormBlock,
    AxialBlock,
    ParallelBlock,
    PostNormBlock,
    RematAddNormBlock,
    RematAxialBlock,
    RematParallelBlock,
    RematPostNormBlock,
)
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.position import PositionEmbedding, RelativePosition, RelativePosition2D
from keras_vit.layers.resample import resize_grid, resize_matrix
from keras_vit.layers.resnet import Bottleneck, GroupNorm, Root, StdConv2D
from keras_vit.layers.rotary import RotaryPosition
from keras_vit.layers.transformer_block import RematTransformerBlock, TransformerBlock

__all__ = [
    "MLP",
    "AddNormBlock",
    "AttentionPool",
    "AxialBlock",
    "Bottleneck",
    "Dropout",
    "GroupNorm",
    "LayerNorm",
    "LayerScale",
    "Linear",
    "MultiHeadSelfAttention",
    "ParallelBlock",
    "PatchDropout",
    "PatchEncoder",
    "Patches",
    "PositionEmbedding",
    "PostNormBlock",
    "RMSNorm",
    "RelativePosition",
    "RelativePosition2D",
    "RematAddNormBlock",
    "RematAxialBlock",
    "RematParallelBlock",
    "RematPostNormBlock",
    "RematTransformerBlock",
    "Root",
    "RotaryPosition",
    "StdConv2D",
    "StochasticDepth",
    "SwiGLU",
    "TokenPool",
    "TransformerBlock",
    "resize_grid",
    "resize_matrix",
]
