"""The published BiT ResNets as data: one dataclass, one table.

BiT ("Big Transfer", Kolesnikov et al., 2020) is the convolutional baseline of the ViT paper.
"""

import dataclasses

from keras_vit.checks import check_choice, positive_float, positive_int
from keras_vit.layers.standardize import GROUPS, NUMERICS
from keras_vit.models.stages import ROOT_FILTERS
from keras_vit.variants import choice

VERSIONS = ("v1", "v2")


@dataclasses.dataclass(frozen=True)
class BiTVariant:
    """The architecture of one BiT ResNet; the defaults are R50x1.

    Args:
        blocks: units of each stage.
        width: factor of the channels, a multiple of 0.5; with 1, stages have 256, 512, 1024 and
            2048.
        version: `"v2"`, norms before convolutions, as published; `"v1"`, after them, as in
            big_vision's `bit.py`.
        numerics: whose constants (epsilons, padding of the max pooling) it has, a name of
            `keras_vit.layers.standardize.NUMERICS`.
        folded: whether the kernels are standardised already (`keras_vit.fold`).

    Raises:
        ValueError: a value is outside its range.

    Source: section 3.1 and bit_tf2/models.py of google-research/big_transfer.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: float = 1.0
    version: str = choice("v2", inherited=True, compared=True)
    numerics: str = choice("bit", inherited=True, compared=True)
    folded: bool = False

    def __post_init__(self):
        object.__setattr__(self, "blocks", _blocks(self.blocks))
        object.__setattr__(self, "width", _width(self.width))
        check_choice("version", self.version, VERSIONS)
        check_choice("numerics", self.numerics, tuple(NUMERICS))

    @property
    def features(self):
        """The length of the pooled features: the channels of the last stage."""
        return self.channels_of(len(self.blocks))

    def channels_of(self, stage):
        """The channels that a stage gives; the first stage has number 1."""
        return 4 * self.filters_of(stage)

    def filters_of(self, stage):
        """The channels of the 3 x 3 convolutions of a stage; those of the first are the root's."""
        return int(ROOT_FILTERS * self.width) * 2 ** (stage - 1)

    def replace(self, **choices):
        """A copy with the named fields changed.

        Raises:
            ValueError: a name that is no field.
        """
        known = [field.name for field in dataclasses.fields(self)]
        unknown = sorted(set(choices) - set(known))
        if unknown:
            raise ValueError(f"Unknown arguments: {unknown}. A BiT is made of {known}.")
        return dataclasses.replace(self, **choices)


def _blocks(blocks):
    if not isinstance(blocks, (tuple, list)) or not blocks:
        raise ValueError(
            "blocks must be the number of units of each stage, such as (3, 4, 6, 3). Received: "
            f"blocks={blocks!r}."
        )
    return tuple(positive_int(units, "each number of blocks") for units in blocks)


def _width(width):
    width = positive_float(width, "width")
    if ROOT_FILTERS * width % GROUPS:
        raise ValueError(
            f"width must be a multiple of {GROUPS / ROOT_FILTERS}, because group norm splits the "
            f"channels into {GROUPS} groups. Received: width={width}."
        )
    return width


def _table():
    depths = {"R50": (3, 4, 6, 3), "R101": (3, 4, 23, 3), "R152": (3, 8, 36, 3)}
    depths["R200"] = (3, 24, 36, 3)
    # R50x2 and R152x1 are of the Vision Transformer's Table 6; the others are published.
    widths_of = {"R50": (1, 2, 3), "R101": (1, 3), "R152": (1, 2, 4), "R200": (3,)}
    return {
        f"{name}x{width}": BiTVariant(depths[name], float(width))
        for name, widths in widths_of.items()
        for width in widths
    }


BIT_VARIANTS = _table()


def get_bit_variant(variant=None, **choices):
    """The `BiTVariant` that `variant` stands for, with `choices` changed in it.

    Args:
        variant: a `BiTVariant`, a name of `BIT_VARIANTS` such as `"R50x1"`, or `None` for R50x1.
        choices: fields of `BiTVariant` to change.

    Raises:
        ValueError: an unknown name or field.
    """
    if variant is None:
        return BiTVariant().replace(**choices)
    if isinstance(variant, BiTVariant):
        return variant.replace(**choices)
    if str(variant) in BIT_VARIANTS:
        return BIT_VARIANTS[str(variant)].replace(**choices)
    raise ValueError(
        f"Unknown variant. Received: variant={variant!r}; expected one of {list(BIT_VARIANTS)}, or "
        "a keras_vit.BiTVariant with other blocks or width."
    )
