"""The layers of the paper, one short file each, and under `extensions` those of later families.

Nothing but this list of names imports from `extensions`.
"""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.dropout import Dropout, StochasticDepth
from keras_vit.layers.extensions.attention import AxialAttention, ExtendedAttention
from keras_vit.layers.extensions.blocks import (
    AddNormBlock,
    AxialBlock,
    ExtendedBlock,
    ParallelBlock,
    PostNormBlock,
)
from keras_vit.layers.extensions.mlp import ExtendedMLP, SwiGLU
from keras_vit.layers.extensions.norm import LayerScale, RMSNorm
from keras_vit.layers.extensions.patch_encoder import ExtendedPatchEncoder
from keras_vit.layers.extensions.patches import PatchDropout
from keras_vit.layers.extensions.pools import AttentionPool, ExtendedTokenPool
from keras_vit.layers.extensions.position import RelativePosition2D, RotaryPosition
from keras_vit.layers.extensions.remat import (
    RematAddNormBlock,
    RematAxialBlock,
    RematExtendedBlock,
    RematParallelBlock,
    RematPostNormBlock,
    RematTransformerBlock,
)
from keras_vit.layers.head import TokenPool
from keras_vit.layers.linear import Linear
from keras_vit.layers.mlp import MLP
from keras_vit.layers.norm import LayerNorm
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.patches import Patches
from keras_vit.layers.position import PositionEmbedding
from keras_vit.layers.relative import RelativeAttention, RelativePosition
from keras_vit.layers.resample import resize_grid, resize_matrix
from keras_vit.layers.resnet import GroupNorm, StdConv2D
from keras_vit.layers.resnet_v1 import Bottleneck as BottleneckV1
from keras_vit.layers.resnet_v1 import Root as RootV1
from keras_vit.layers.resnet_v2 import Bottleneck as BottleneckV2
from keras_vit.layers.resnet_v2 import Root as RootV2
from keras_vit.layers.transformer_block import TransformerBlock

__all__ = ["MLP", "LayerNorm", "Linear", "MultiHeadSelfAttention", "TransformerBlock"]
__all__ += ["PatchEncoder", "Patches", "PositionEmbedding", "TokenPool"]
__all__ += ["Dropout", "RelativeAttention", "RelativePosition", "StochasticDepth"]
__all__ += ["resize_grid", "resize_matrix"]
__all__ += ["BottleneckV1", "BottleneckV2", "GroupNorm", "RootV1", "RootV2", "StdConv2D"]
# Of later families and methods.
__all__ += ["AddNormBlock", "AxialBlock", "ExtendedBlock", "ParallelBlock", "PostNormBlock"]
__all__ += ["RematAddNormBlock", "RematAxialBlock", "RematExtendedBlock", "RematParallelBlock"]
__all__ += ["RematPostNormBlock", "RematTransformerBlock"]
__all__ += ["AttentionPool", "AxialAttention", "ExtendedAttention", "ExtendedMLP", "SwiGLU"]
__all__ += ["ExtendedPatchEncoder", "ExtendedTokenPool", "LayerScale", "PatchDropout", "RMSNorm"]
__all__ += ["RelativePosition2D", "RotaryPosition"]
