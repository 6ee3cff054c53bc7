"""Which options a model may have: rates, images of any size, patches dropped, tokens merged."""

from keras_vit.checks import rate
from keras_vit.layers.extensions.token_merging import MERGING_BLOCKS
from keras_vit.text import brief

RATES = ("dropout", "attention_dropout", "stochastic_depth", "patch_dropout")


def check_options(v, options):
    """Raises a ValueError where a model of a `Variant` cannot have some arguments, by name."""
    for name in RATES:
        rate(options[name], name)
    if options["variable_size"] and (has_positions_in_blocks(v) or v.block == "axial"):
        raise ValueError(
            "variable_size needs the position embedding at the input, and blocks that are not "
            f"axial. Received: position={v.position!r}, position_at={v.position_at!r}, block="
            f"{v.block!r}; build a model for each image size."
        )
    if dropped := options["patch_dropout"]:
        _check(v, f"patch_dropout={dropped}", "patch_dropout=0")
    merged_tokens(v, options)


def has_positions_in_blocks(v):
    """Whether blocks of a `Variant` add positions, or attend by them, beside rotary ones."""
    return v.position_at != "input" and v.position != "none"


def merged_tokens(v, options):
    """The number of tokens that each block of a `Variant` merges.

    Raises:
        ValueError: numbers out of range, or a model whose tokens cannot be merged.
    """
    token_merging = options["token_merging"]
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
        "remat is for training, and merging for inference": options["remat"],
        "the number of tokens must be known, so build a model for each image size": options[
            "variable_size"
        ],
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
            has_positions_in_blocks(v) and not v.is_relative
        ),
    }
    for reason, is_so in reasons.items():
        if is_so:
            raise ValueError(f"{received} cannot be: {reason}. Choose {instead} or another model.")
