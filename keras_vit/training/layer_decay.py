"""Learning rates from layer to layer: the further from the head, the lower."""

import math
import re
from collections.abc import Sequence

from keras_vit.checks import positive_int, rate


def layer_rates(
    paths: Sequence[str], layer_decay: float | None, num_blocks: int | None = None
) -> tuple[float, ...]:
    """A tuple with the factor of the learning rate for each path, from the names of the layers.

    The head has the factor 1, and so have all layers after the blocks, such as a decoder, and the
    biases of relative positions that all blocks share. The last block has `layer_decay`, the one
    before it `layer_decay`², and so on down to the embedding, which includes the stem of a hybrid
    and a norm before the blocks.

    Args:
        paths: paths of variables, such as `"block_3/attention/query/kernel"`; names of models
            around them do not matter.
        layer_decay: in (0, 1], or `None` for factors of 1.
        num_blocks: depth of the network; layers of any other name, as a user's model has them
            around it, then have the factor 1. `None` counts the blocks, and refuses other names.

    Raises:
        ValueError: `layer_decay` is out of range, no variable belongs to a block, or a layer has
            none of the names that a place in the order follows from.

    Source: Clark et al., 2020 (ELECTRA), for ViTs Bao et al., 2022 (BEiT): `get_num_layer_for_vit`
    in optim_factory.py of microsoft/unilm.
    """
    if layer_decay is None:
        return (1.0,) * len(paths)
    layer_decay = rate(layer_decay, "layer_decay", within="(0, 1]")
    depths = [_depth(path) for path in paths]
    if num_blocks is None:
        num_blocks = max((n for n in depths if n not in (None, math.inf)), default=0)
        unknown = [path for path, depth in zip(paths, depths) if depth is None]
        if unknown or not num_blocks:
            raise ValueError(
                "layer_decay needs the layers of a VisionTransformer, named block_0 and so on. "
                f"Received: variables {(unknown or list(paths))[:3]}; leave layer_decay out, name "
                "what follows the blocks 'head', or give num_blocks where all are frozen."
            )
    head = positive_int(num_blocks, "num_blocks") + 1
    depths = [head if depth is None else min(depth, head) for depth in depths]
    return tuple(layer_decay ** (head - depth) for depth in depths)


def _depth(path):
    """0 before the blocks, i + 1 in block i, infinity after them, None for another layer."""
    if path.endswith("position/table"):  # biases of attention that all blocks share
        return math.inf
    for name in path.split("/"):
        if match := re.fullmatch(r"(?:block|position|rotary)_(\d+)", name):
            return int(match[1]) + 1
        if re.fullmatch(r"root|stage_\d+_unit_\d+|patches|patch_encoder|pre_norm|position", name):
            return 0
        if re.fullmatch(r"norm|pool|pre_logits|projection|head|head_distillation|decoder", name):
            return math.inf
    return None
