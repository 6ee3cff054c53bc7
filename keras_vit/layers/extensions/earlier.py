"""Files of earlier versions in the words of this one.

In version 0.1 the paper's layers had the extensions too, in an argument `later`, and blocks took
every position as `relative_position`. This is the one place that knows of it: `Layer.from_config`
and `Layer.__call__` ask the two tables that are filled here.
"""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.extensions.attention import ExtendedAttention
from keras_vit.layers.extensions.blocks import ExtendedBlock, named
from keras_vit.layers.extensions.mlp import ExtendedMLP
from keras_vit.layers.extensions.pools import ExtendedTokenPool
from keras_vit.layers.extensions.remat import RematExtendedBlock, RematTransformerBlock
from keras_vit.layers.head import TokenPool
from keras_vit.layers.layer import EARLIER_ARGUMENTS, EARLIER_CONFIGS
from keras_vit.layers.mlp import MLP
from keras_vit.layers.transformer_block import TransformerBlock

EXTENDED = {
    MLP: ExtendedMLP,
    MultiHeadSelfAttention: ExtendedAttention,
    TransformerBlock: ExtendedBlock,
    RematTransformerBlock: RematExtendedBlock,
}


def with_extensions(cls, config):
    """A block, an attention or an MLP of before, whose extensions may be none."""
    if "later" not in config:
        return cls, config
    others = {name: value for name, value in config.items() if name != "later"}
    return EXTENDED.get(cls, cls), {**others, "extensions": config["later"]}


def with_its_pool(cls, config):
    """A `TokenPool` of before, some of whose pools have another class now."""
    is_extended = cls is TokenPool and config["pool"] in ExtendedTokenPool.pools
    return (ExtendedTokenPool if is_extended else cls), config


EARLIER_CONFIGS.extend([with_extensions, with_its_pool])
EARLIER_ARGUMENTS["relative_position"] = named
