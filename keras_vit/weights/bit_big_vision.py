"""Names of google-research/big_vision's two ResNets -> canonical names.

`bit_paper.py` is the published, pre-activation BiT; `bit.py` a post-activation one, whose units
are called as in the stems of hybrids.
"""

import re

from keras_vit.preprocessing import BIG_VISION, BIT
from keras_vit.weights.bit_canonical import canonical_of, vector
from keras_vit.weights.canonical import rename

FAMILY = "google-research/big_vision (BiT)"
PREFIXES = ("params/", "opt/target/", "")
UNIT = r"block0*([1-9]\d*)/unit0*([1-9]\d*)/"
OURS = r"stage_\1_unit_\2/"
KINDS = (("scale", "gamma"), ("bias", "beta"))

TABLE = (
    (r"(?:root_block/)?conv_root/kernel", "root/conv/kernel", None),
    (UNIT + r"(conv[123]|conv_proj)/kernel", OURS + r"\3/kernel", None),
    *(
        row
        for theirs, ours in KINDS
        for row in (
            (rf"gn_root/{theirs}", f"root/norm/{ours}", vector),
            (rf"{UNIT}gn([123]|_proj)/{theirs}", rf"{OURS}norm\3/{ours}", vector),
            (rf"norm-pre-head/{theirs}", f"norm/{ours}", vector),
        )
    ),
    (r"head/(kernel|bias)", r"head/\1", None),
)


def recognises(arrays):
    """Whether these are the names of this family, rather than those of a hybrid."""
    tower, _, _ = _tower(arrays)
    stem = any(re.match(r"(root_block/)?conv_root/|block\d+/unit\d+/", name) for name in tower)
    return stem and not any(re.match(r"embedding/|Transformer/|cls$", name) for name in tower)


def read(contents, hints):
    """The `Canonical` of a file; arguments and errors as in `google.read`."""
    tower, prefix, left_out = _tower(contents.arrays)
    arrays, origin, _ = rename(tower, TABLE, FAMILY)
    origin = {name: prefix + where for name, where in origin.items()}
    is_v1 = "root/norm/gamma" in arrays
    return canonical_of(
        FAMILY,
        (arrays, origin, left_out),
        "google" if is_v1 else "bit_paper",
        hints,
        preprocessing=BIG_VISION if is_v1 else BIT,
    )


def _tower(arrays):
    """The arrays of the model without their prefix, the prefix, and names of all others."""
    prefix = next(p for p in PREFIXES if any(name.startswith(p) for name in arrays) or not p)
    tower = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
    return tower, prefix, tuple(name for name in arrays if not name.startswith(prefix))
