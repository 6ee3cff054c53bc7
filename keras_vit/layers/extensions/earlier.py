"""Layers in files of version 0.1, in the words of this one."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.extensions.attention import ExtendedAttention
from keras_vit.layers.extensions.blocks import ExtendedBlock
from keras_vit.layers.extensions.mlp import ExtendedMLP
from keras_vit.layers.extensions.pools import ExtendedTokenPool
from keras_vit.layers.extensions.remat import RematExtendedBlock, RematTransformerBlock
from keras_vit.layers.head import TokenPool
from keras_vit.layers.layer import EARLIER_CONFIGS
from keras_vit.layers.mlp import MLP
from keras_vit.layers.transformer_block import TransformerBlock

EXTENDED = {
    MLP: ExtendedMLP,
    MultiHeadSelfAttention: ExtendedAttention,
    TransformerBlock: ExtendedBlock,
    RematTransformerBlock: RematExtendedBlock,
}


def of_version_0_1(cls, config):
    """A layer of version 0.1, in which the paper's layers had the extensions too, as `later`."""
    if "later" in config:
        config["extensions"] = config.pop("later")
        return EXTENDED.get(cls, cls)
    is_extended = cls is TokenPool and config["pool"] in ExtendedTokenPool.pools
    return ExtendedTokenPool if is_extended else cls


EARLIER_CONFIGS.append(of_version_0_1)
