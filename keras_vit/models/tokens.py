"""Which models may drop patches or merge tokens, and what to do where one may not."""

from keras_vit.layers.extensions.token_merging import MERGING_BLOCKS
from keras_vit.text import brief


def check_patch_dropout(v, rate):
    """Raises a ValueError where a `Variant` cannot do without some of its patches."""
    if rate:
        _check(v, f"patch_dropout={rate}", "patch_dropout=0")


def merged_tokens(v, token_merging, variable_size, remat):
    """The number of tokens that each block of a `Variant` merges.

    Args:
        v: the `Variant`.
        token_merging: one number for all blocks, or one for each.
        variable_size, remat: as in `VisionTransformer`.

    Raises:
        ValueError: numbers out of range, or a model whose tokens cannot be merged.
    """
    each = isinstance(token_merging, (tuple, list))
    counts = tuple(token_merging) if each else (token_merging,) * v.block_layers
    if len(counts) != v.block_layers or any(
        isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts
    ):
        raise ValueError(
            "token_merging must be a number of tokens, 0 or more, or a sequence of one for each of "
            f"{v.block_layers} blocks. Received: token_merging={brief(token_merging)}."
        )
    if not any(counts):
        return counts
    received, instead = f"token_merging={token_merging!r}", "token_merging=0"
    _check(v, received, instead)
    reasons = {
        "a merged token has no one place by which rotary positions would turn it": v.rotary,
        f"blocks of the kind {v.block!r} do not merge tokens": v.block not in MERGING_BLOCKS,
        "remat is for training, and merging for inference": remat,
        "the number of tokens must be known, so build a model for each image size": variable_size,
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(f"{received} cannot be: {reason}. Choose {instead} or another model.")
    return counts


def _check(v, received, instead):
    reasons = {
        f"the answers of pool={v.pool!r} belong to single patches": v.pool in (None, "first"),
        "relative positions need every token in its place": v.is_relative,
        "axial blocks need every patch in its place": v.block == "axial",
        f"position_at={v.position_at!r} adds positions to tokens that are gone": (
            v.position != "none" and v.position_at != "input" and not v.is_relative
        ),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(f"{received} cannot be: {reason}. Choose {instead} or another model.")
