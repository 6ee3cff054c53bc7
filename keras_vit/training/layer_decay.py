"""Layer-wise learning rates: the nearer a layer is to the image, the smaller its steps."""

import re

BLOCK = re.compile(r"block_(\d+)")
POSITION = re.compile(r"position_(\d+)")  # of one block, where every block has its own
BEFORE_THE_BLOCKS = re.compile(r"root|stage_\d+_unit_\d+|patches|patch_encoder|position")
AFTER_THE_BLOCKS = re.compile(r"norm|pool|pre_logits|head")


def layer_rates(paths, layer_decay, num_blocks=None):
    """The factor of the learning rate for each variable, from the names of the layers.

    The head and all that follows the blocks have the factor 1, the last block `layer_decay`, the
    one before it `layer_decay`², and so on down to the embedding (with the stem of a hybrid),
    which has `layer_decay` to the power of the number of blocks + 1.

    Args:
        paths: paths of variables, such as `"block_3/attention/query/kernel"`; names of models
            around them do not matter.
        layer_decay: in (0, 1], or `None` for factors of 1.
        num_blocks: depth of the model; `None` counts up to the last block among the paths.

    Returns:
        A tuple of floats, one per path.

    Raises:
        ValueError: `layer_decay` is out of range, no variable belongs to a block, or a layer has
            none of the names that a place in the order follows from.

    Source: Clark et al., 2020 (ELECTRA), for ViTs Bao et al., 2022 (BEiT): `get_num_layer_for_vit`
    in optim_factory.py of microsoft/unilm.
    """
    if layer_decay is None:
        return (1.0,) * len(paths)
    if not isinstance(layer_decay, (int, float)) or not 0 < layer_decay <= 1:
        raise ValueError(
            "layer_decay must be a number in (0, 1], such as 0.75. Received: "
            f"layer_decay={layer_decay!r}."
        )
    places = [_place(path) for path in paths]
    blocks = [place for place in places if place is not None and 0 < place < float("inf")]
    if not blocks and not num_blocks:
        raise ValueError(
            "layer_decay needs layers named block_0, block_1 and so on, as a VisionTransformer "
            f"has. Received: variables {list(paths)[:3]}...; leave layer_decay out (None) for "
            "this model, or give num_blocks where all its blocks are frozen."
        )
    unknown = [path for path, place in zip(paths, places) if place is None]
    if unknown:
        raise ValueError(
            "layer_decay knows the layers of a VisionTransformer by their names. Received also: "
            f"variables {unknown[:3]}; leave layer_decay out (None), or name what follows the "
            "blocks 'head'."
        )
    last = (num_blocks or max(blocks)) + 1
    return tuple(float(layer_decay) ** (last - min(place, last)) for place in places)


def _place(path):
    """0 before the blocks, i + 1 in block i, infinity after them, None for another layer."""
    for name in path.split("/"):
        found = BLOCK.fullmatch(name) or POSITION.fullmatch(name)
        if found:
            return int(found[1]) + 1
        if BEFORE_THE_BLOCKS.fullmatch(name):
            return 0
        if AFTER_THE_BLOCKS.fullmatch(name):
            return float("inf")
    return None
