"""Layers in files of earlier versions, as layers of this one."""

from keras_vit.layers import resnet_v1, resnet_v2
from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.extensions.attention import ExtendedAttention
from keras_vit.layers.extensions.blocks import ExtendedBlock
from keras_vit.layers.extensions.mlp import ExtendedMLP
from keras_vit.layers.extensions.patch_encoder import ExtendedPatchEncoder
from keras_vit.layers.extensions.pools import ExtendedTokenPool
from keras_vit.layers.extensions.remat import RematExtendedBlock, RematTransformerBlock
from keras_vit.layers.head import TokenPool
from keras_vit.layers.layer import EARLIER_CONFIGS
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.transformer_block import TransformerBlock

EXTENDED = {
    MLP: ExtendedMLP,
    MultiHeadSelfAttention: ExtendedAttention,
    TransformerBlock: ExtendedBlock,
    RematTransformerBlock: RematExtendedBlock,
}

OF_TOKENS = {PatchEncoder: ExtendedPatchEncoder, TokenPool: ExtendedTokenPool}
OF_VERSION_2 = {
    resnet_v1.Root: resnet_v2.Root,
    resnet_v1.Bottleneck: resnet_v2.Bottleneck,
}


def of_earlier_versions(cls, config):
    """The class that now takes the config of a layer, which is changed in place.

    In version 0.1 the paper's layers had the argument `later`, today `extensions`; afterwards one
    class served both versions of a ResNet's part.
    """
    if "version" in config and cls in OF_VERSION_2:
        return OF_VERSION_2[cls] if config.pop("version") == "v2" else cls
    if "later" in config:
        config["extensions"] = config.pop("later")
        return EXTENDED.get(cls, cls)
    # Before the paper's layers of tokens knew the class token alone, they had these arguments.
    is_extended = cls in OF_TOKENS and "registers" in config
    return OF_TOKENS[cls] if is_extended else cls


EARLIER_CONFIGS.append(of_earlier_versions)
