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
        config = {**config, "extensions": config["later"]}
        return EXTENDED.get(cls, cls), {k: v for k, v in config.items() if k != "later"}
    is_extended = cls is TokenPool and config["pool"] in ExtendedTokenPool.pools
    return (ExtendedTokenPool if is_extended else cls), config


EARLIER_CONFIGS.append(of_version_0_1)
