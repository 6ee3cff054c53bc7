"""The published Vision Transformers: the `Variant` of each by its name."""

import difflib
import re
from typing import Any

from keras_vit.families import FAMILIES, SIZES
from keras_vit.variant import Variant


def _table():
    table = {}
    for name in "Ti/16 S/32 S/16 B/32 B/16 B/8 L/32 L/16 H/14 g/14 G/14 So400m/14".split():
        size, patch = name.split("/")
        table[name] = Variant(**_numbers(size), patch_size=int(patch))
    # Section 3.1 and Table 6: R50 with its stage 4 merged into stage 3, or the whole R50; the small
    # ones are from "How to train your ViT?". The number of a name is the stride in pixels.
    for stem, units, sizes in (
        ("R50", (3, 4, 9), ("B/16", "L/16")),
        ("R50", (3, 4, 6, 3), ("B/32", "L/32")),
        ("R26", (2, 2, 2, 2), ("S/32", "B/32")),
    ):
        table |= {f"{stem}+{s}": table[s].replace(stem=units, patch_size=1) for s in sizes}
    # The authors' name; the stride is 4 * 8 = 32 pixels.
    table["R+Ti/16"] = table["Ti/16"].replace(stem=(), patch_size=8)
    # Beyer et al., 2022, "Better plain ViT baselines for ImageNet-1k".
    table["S/16-plain"] = table["S/16"].replace(
        pool="mean", position="sincos_2d", representation_size=384
    )
    # Dehghani et al., 2023: norms without centering and bias, projections without bias.
    table["22B/14"] = Variant(
        **_numbers("22B"),
        patch_size=14,
        pool="map",
        block="parallel",
        qkv_bias=False,
        norm="rms_norm",
        qk_norm="rms_norm",
    )
    for family in FAMILIES:  # such as "DINOv2-{}", which has the size "S/14" among others
        for name, of_size in family.sizes.items():
            size, _, patch = name.partition("/")
            fields = {**_numbers(size), "patch_size": int(patch), **family.fields, **of_size}
            table[family.name.format(name)] = Variant(**fields)
    return table


def _numbers(size):
    """The fields of a row of `SIZES`; none for a size that its family describes by itself."""
    return dict(zip(("width", "depth", "num_heads", "mlp_dim"), SIZES.get(size, ())))


VARIANTS = _table()
"""The `Variant` of each published model, by its name, such as `"B/16"`."""


def get_variant(variant: str | Variant | None = None, **choices: Any) -> Variant:
    """The `Variant` that `variant` stands for, with `choices` changed in it.

    Args:
        variant: a `Variant`, a name of the table such as `"B/16"`, a size of the table with any
            other patch size such as `"B/24"`, or `None` for the defaults (ViT-B/16).
        choices: fields of `Variant` to change.

    Raises:
        ValueError: no such variant.
    """
    if variant is None:
        return Variant().replace(**choices)
    if isinstance(variant, Variant):
        return variant.replace(**choices)
    if str(variant) in VARIANTS:
        return VARIANTS[str(variant)].replace(**choices)
    size, _, patch = str(variant).partition("/")
    of_size = re.compile(re.escape(size) + r"/\d+")
    siblings = [v for name, v in VARIANTS.items() if of_size.fullmatch(name) and v.stem is None]
    if siblings and patch.isdecimal() and int(patch) > 0:
        return siblings[0].replace(**{"patch_size": int(patch), **choices})
    paper = [name for name in VARIANTS if "-" not in name]
    later = [name for name in VARIANTS if "-" in name]  # such as "DINOv2-S/14"
    near = difflib.get_close_matches(str(variant), later, cutoff=0)
    raise ValueError(
        f"Unknown variant. Received: variant={variant!r}; expected one of {paper}, one of these "
        f"sizes with another patch size (such as 'B/24'), one of a later family (near: {near}; "
        "list(keras_vit.VARIANTS) has all), or a keras_vit.Variant."
    )


def size_of(name):
    """A size for messages: `"ViT-B"` of `"B/16"`, and `"DINOv2-S"` of `"DINOv2-S/14"`."""
    size = name.partition("/")[0]
    return size if "-" in size else f"ViT-{size}"
