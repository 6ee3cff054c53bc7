"""The published models by name: a row of a table, a model, its weights."""

import inspect
import os
import re
from typing import Any

from keras_vit.arguments import BiTOptions, ViTOptions
from keras_vit.families import FAMILIES
from keras_vit.models import BIT_VARIANTS, BiT, BiTVariant, VisionTransformer
from keras_vit.models.backbone import MODELS
from keras_vit.text import unknown
from keras_vit.variants import VARIANTS, Variant, get_variant
from keras_vit.weights.load import build_and_load
from keras_vit.weights.locate import variants_named

_ARGUMENTS = """

    Args:
        num_classes: number of logits; 0 for none.
        image_size: int or (height, width), in pixels; {fits}.
        weights: `None`, or a checkpoint to load: a name of `keras_vit.list_weights`, the path of
            a file or folder, or a URL. What its family decides ({decided}) is then taken from it
            unless it is an argument here; a head for another number of classes is left out, and
            the model's own is zero. What happened is in `model.load_report`.
        include_top: `False` for the representation instead of logits.
        **options: any other argument of `keras_vit.{model}`, such as {options}, `dtype`. The
            signature shows those of a model without weights.

    Returns:
        A `keras_vit.{model}`.
    """


def _further(model, variant, options):
    """The parameters of a builder that are those of its model, for `help` and notebooks."""
    defaults = {name: p.default for name, p in inspect.signature(model).parameters.items()}
    defaults |= vars(variant())
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=k
        )
        for name, k in options.__annotations__.items()
    ]


_FURTHER = {
    "VisionTransformer": _further(VisionTransformer, Variant, ViTOptions),
    "BiT": _further(BiT, BiTVariant, BiTOptions),
}


# One object for all builders, so that importing them stays cheap.
_SIZE, _WEIGHTS = int | tuple[int, int], str | os.PathLike[str] | None
_PARAMETERS = {}


_NAMES = {}  # variant -> name of its builder


def _builder(variant, name):
    """The builder of a row of a table; its models have its name in lower case."""
    _NAMES.setdefault(variant, name)
    model = "BiT" if variant in BIT_VARIANTS else "VisionTransformer"

    def build(
        num_classes: int = 1000,
        image_size: _SIZE = 224,
        weights: _WEIGHTS = None,
        include_top: bool = True,
        **options,
    ):
        options = {
            "name": name.lower(),
            "num_classes": num_classes,
            "image_size": image_size,
            "include_top": include_top,
            **options,
        }
        if weights is None:
            return MODELS[model](variant, **options)
        return build_and_load(variant, weights, options)

    build.__name__ = build.__qualname__ = name
    row = {"name": name.lower(), **vars(BIT_VARIANTS.get(variant) or get_variant(variant))}
    *first, _ = inspect.signature(build).parameters.values()
    further = [
        p if row.get(p.name, p.default) == p.default else p.replace(default=row[p.name])
        for p in _FURTHER[model]
    ]
    shared = [_PARAMETERS.setdefault(p, p) for p in (*first, *further)]
    build.__signature__ = inspect.Signature(shared, return_annotation=MODELS[model])
    return build


def _vit(variant, title, name=None):
    row = VARIANTS[variant]
    build = _builder(variant, name or "ViT_" + variant.replace("/", "").replace("-", "_"))
    fits = f"{row.patch_size[0]} must divide it"
    if row.stem is not None:
        fits = f"its 4th part, rounded up, must be a multiple of {row.patch_size[0]}"
        fits = "any, as the stem rounds up" if row.patch_size == (1, 1) else fits
    title = f"{title}: {row.depth} blocks, width {row.width}, {row.num_heads} heads."
    build.__doc__ = title + _ARGUMENTS.format(
        fits=fits,
        decided="GELU, epsilon, pooling",
        model="VisionTransformer",
        options="`pool`, `representation_size`, `dropout`, `position`, `gelu`, `channels`, `remat`",
    )
    return build


def _bit(variant):
    build = _builder(variant, f"BiT_{variant}")
    units = sum(BIT_VARIANTS[variant].blocks)
    build.__doc__ = f"BiT-{variant} (Kolesnikov et al., 2020): {units} units." + _ARGUMENTS.format(
        fits="for its preprocessing, as the model takes images of any size",
        decided="its constants",
        model="BiT",
        options="`channels`, `numerics`",
    )
    return build


def build(
    variant: str, weights: str | os.PathLike[str] | None = None, **options: Any
) -> VisionTransformer | Any:  # a BiT, of a variant of one
    """A model by the name of its variant, as the builders `ViT_B16`, `BiT_R50x1` and so on make.

    Args:
        variant: a key of `keras_vit.VARIANTS`, such as `"B/16"`, `"R50+B/16"` or `"DINOv2-S/14"`,
            or one of these sizes with another patch size, such as `"Ti/4"`; or a key of
            `keras_vit.BIT_VARIANTS`, such as `"R50x1"`.
        weights: `None`, or a checkpoint: see `keras_vit.ViT_B16`.
        **options: arguments of that builder, such as `num_classes` and `image_size`.

    Returns:
        A `VisionTransformer` or a `BiT`.

    Raises:
        ValueError: no such variant; the message has the nearest names.
    """
    known = [*VARIANTS, *BIT_VARIANTS]
    if variant not in known:
        try:
            get_variant(variant)
        except ValueError:
            if meant := variants_named(str(variant)):
                raise ValueError(
                    f"Unknown variant. Received: variant={variant!r}, which is "
                    f"{' or '.join(map(repr, meant))} here; keras_vit.from_checkpoint(name) builds "
                    "the model of published weights."
                ) from None
            listed = "list(keras_vit.VARIANTS)"
            raise unknown("variant", variant, known, listed=listed) from None
    return _builder(variant, builder_name(variant))(weights=weights, **options)


def builder_name(variant):
    """The name of the builder of a variant, which that of its models is in lower case."""
    return _NAMES.get(variant) or "ViT_" + re.sub(r"\W", "_", variant.replace("/", ""))


ViT_Ti16 = _vit("Ti/16", "ViT-Ti/16")
ViT_S32 = _vit("S/32", "ViT-S/32")
ViT_S16 = _vit("S/16", "ViT-S/16")
ViT_S16_plain = _vit("S/16-plain", "The 'better plain ViT' S/16 (Beyer et al., 2022)")
ViT_B32 = _vit("B/32", "ViT-B/32 (Table 1)")
ViT_B16 = _vit("B/16", "ViT-B/16 (Table 1)")
ViT_B8 = _vit("B/8", "ViT-B/8")
ViT_L32 = _vit("L/32", "ViT-L/32 (Table 1)")
ViT_L16 = _vit("L/16", "ViT-L/16 (Table 1)")
ViT_H14 = _vit("H/14", "ViT-H/14 (Table 1)")
ViT_g14 = _vit("g/14", "ViT-g/14 (Zhai et al., 2022)")
ViT_G14 = _vit("G/14", "ViT-G/14 (Zhai et al., 2022)")
ViT_So400m14 = _vit("So400m/14", "ViT-So400m/14 (Alabdulmohsin et al., 2023)")
ViT_22B14 = _vit("22B/14", "ViT-22B/14 (Dehghani et al., 2023)")

_hybrid = "ViT-{} after a ResNet with {} units (section 3.1)"
R50_ViT_B16 = _vit("R50+B/16", _hybrid.format("B", "3, 4, 9"), "R50_ViT_B16")
R50_ViT_L16 = _vit("R50+L/16", _hybrid.format("L", "3, 4, 9"), "R50_ViT_L16")
R50_ViT_B32 = _vit("R50+B/32", _hybrid.format("B", "3, 4, 6, 3"), "R50_ViT_B32")
R50_ViT_L32 = _vit("R50+L/32", _hybrid.format("L", "3, 4, 6, 3"), "R50_ViT_L32")
R26_ViT_S32 = _vit("R26+S/32", _hybrid.format("S", "2, 2, 2, 2"), "R26_ViT_S32")
R26_ViT_B32 = _vit("R26+B/32", _hybrid.format("B", "2, 2, 2, 2"), "R26_ViT_B32")
R_ViT_Ti16 = _vit("R+Ti/16", "ViT-Ti on 8 x 8 patches of a ResNet's root", "R_ViT_Ti16")

BiT_R50x1 = _bit("R50x1")
BiT_R50x2 = _bit("R50x2")
BiT_R50x3 = _bit("R50x3")
BiT_R101x1 = _bit("R101x1")
BiT_R101x3 = _bit("R101x3")
BiT_R152x1 = _bit("R152x1")
BiT_R152x2 = _bit("R152x2")
BiT_R152x4 = _bit("R152x4")
BiT_R200x3 = _bit("R200x3")


def _later():
    """The builders of later families: `DINOv3_Splus16` of the variant `"DINOv3-S+/16"`, ..."""
    variants = {line.name.format(size): line.title for line in FAMILIES for size in line.sizes}
    for variant, title in variants.items():
        name = re.sub(r"(\d)/", r"\1_", variant.replace("+", "plus")).replace("/", "")
        name = name.replace("-", "_")
        yield name, _vit(variant, title, name)


LATER = dict(_later())
globals().update(LATER)

__all__ = ["build", *(name for name, each in vars().items() if hasattr(each, "__signature__"))]
