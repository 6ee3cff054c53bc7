"""The published models by name: a row of a table, a model, its weights."""

import contextlib
import dataclasses
import inspect
import os
import re
from typing import Any

from keras_vit.arguments import BiTOptions, ViTOptions
from keras_vit.checks import check_names, marked
from keras_vit.families import FAMILIES
from keras_vit.models import BIT_VARIANTS, BiT, VisionTransformer
from keras_vit.models.record import argument_names
from keras_vit.models.surgery import building_arguments
from keras_vit.text import shortened, unknown
from keras_vit.variants import VARIANTS, get_variant
from keras_vit.weights import catalog
from keras_vit.weights.assign import assign, plan_load
from keras_vit.weights.fetch import locate
from keras_vit.weights.load import computed_positions, fit_to_model, read

# What a size is; other kinds of blocks make another family of it.
SIZE = ("width", "depth", "num_heads", "mlp_dim", "stem", "blocks", "mlp", "norm", "block")
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
_OF_VIT = {
    "model": "VisionTransformer",
    "decided": "GELU, epsilon, pooling",
    "options": "`pool`, `representation_size`, `dropout`, `position`, `gelu`, `channels`, `remat`",
}
_OF_BIT = {
    "model": "BiT",
    "decided": "its constants",
    "options": "`channels`, `numerics`",
}
_HYBRID = "ViT-{} after a ResNet with {} units (section 3.1)"
# The variants of the paper and of its authors, and what the docstrings of their builders call them.
TITLES = {
    **{name: f"ViT-{name}" for name in ("Ti/16", "S/32", "S/16")},
    "S/16-plain": "The 'better plain ViT' S/16 (Beyer et al., 2022)",
    "B/32": "ViT-B/32 (Table 1)",
    "B/16": "ViT-B/16 (Table 1)",
    "B/8": "ViT-B/8",
    **{name: f"ViT-{name} (Table 1)" for name in ("L/32", "L/16", "H/14")},
    **{name: f"ViT-{name} (Zhai et al., 2022)" for name in ("g/14", "G/14")},
    "So400m/14": "ViT-So400m/14 (Alabdulmohsin et al., 2023)",
    "22B/14": "ViT-22B/14 (Dehghani et al., 2023)",
    **{f"R50+{size}/16": _HYBRID.format(size, "3, 4, 9") for size in "BL"},
    **{f"R50+{size}/32": _HYBRID.format(size, "3, 4, 6, 3") for size in "BL"},
    **{f"R26+{size}/32": _HYBRID.format(size, "2, 2, 2, 2") for size in "SB"},
    "R+Ti/16": "ViT-Ti on 8 x 8 patches of a ResNet's root",
}
_LATER_TITLES = {line.name.format(size): line.title for line in FAMILIES for size in line.sizes}
_SIZE, _WEIGHTS = int | tuple[int, int], str | os.PathLike[str] | None


def builder_name(variant):
    """The name of the builder of a variant, which that of its models is in lower case.

    It is `"ViT_B16"` of `"B/16"`, `"R50_ViT_B16"` of `"R50+B/16"`, `"BiT_R50x1"` of `"R50x1"` and
    `"DINOv3_Splus16"` of `"DINOv3-S+/16"`.
    """
    if variant in BIT_VARIANTS:
        return f"BiT_{variant}"
    if variant in _LATER_TITLES:
        name = re.sub(r"(\d)/", r"\1_", variant.replace("+", "plus"))
        return name.replace("/", "").replace("-", "_")
    stem, _, size = variant.rpartition("+") if variant in TITLES else ("", "", variant)
    return (f"{stem}_ViT_" if stem else "ViT_") + re.sub(r"\W", "_", size.replace("/", ""))


def _builder(variant):
    """The builder of a variant, by which models get its name in lower case."""
    name = builder_name(variant)
    if row := BIT_VARIANTS.get(variant):
        model, of_model, options_of_model = BiT, _OF_BIT, BiTOptions
        title = f"BiT-{variant} (Kolesnikov et al., 2020): {sum(row.blocks)} units."
        fits = "for its preprocessing, as the model takes images of any size"
    else:
        model, of_model, options_of_model = VisionTransformer, _OF_VIT, ViTOptions
        row = get_variant(variant)
        title = TITLES.get(variant) or _LATER_TITLES.get(variant, variant)
        title += f": {row.depth} blocks, width {row.width}, {row.num_heads} heads."
        fits = _fits(row)

    def build(
        num_classes: int = 1000,
        image_size: _SIZE = 224,
        weights: _WEIGHTS = None,
        include_top: bool = True,
        **options,
    ):
        options = {"name": name.lower(), "num_classes": num_classes, **options}
        options |= {"image_size": image_size, "include_top": include_top}
        if weights is None:
            return model(variant, **options)
        return _build_and_load(model, variant, row, weights=weights, options=options)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = title + _ARGUMENTS.format(fits=fits, **of_model)
    # The arguments of the model too, for `help` and notebooks.
    *parameters, _ = inspect.signature(build).parameters.values()
    defaults = {p.name: p.default for p in inspect.signature(model).parameters.values()}
    defaults |= {**vars(row), "name": name.lower()}
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=x
        )
        for name, x in options_of_model.__annotations__.items()
    ]
    build.__signature__ = inspect.Signature(parameters, return_annotation=model)
    return build


def _fits(v):
    """Which sizes of images a Vision Transformer takes, for its docstring."""
    if v.stem is None:
        return f"{v.patch_size[0]} must divide it"
    if v.patch_size == (1, 1):
        return "any, as the stem rounds up"
    return f"its 4th part, rounded up, must be a multiple of {v.patch_size[0]}"


def _build_and_load(model, variant, row, weights, options):
    """A model of a published size, a row of its table, with the weights of a checkpoint.

    A field of the variant that a checkpoint decides (`inherited`) and that is not in `options`
    comes from the checkpoint.
    """
    check_names(type(row), options, argument_names(model))  # before a long download
    try:
        _, record = locate(weights)
    except ValueError as error:
        raise ValueError(f"{error} {_published_for(variant)}.") from None
    _check_variant(record, variant, row=row, options=options)
    # Only what the arrays of a file may leave open comes from the row.
    names = ("width", "num_heads", "interpolation")
    of_row = {n: getattr(row, n) for n in names if hasattr(row, n)}
    checkpoint = read(weights, {**of_row, **computed_positions(row), **options})
    of_file = checkpoint.arguments
    inherited = {n: of_file[n] for n in marked(type(row), "inherited") if n in of_file}
    built = model(variant, **{**inherited, **building_arguments(options)})
    assign(built, plan_load(built, fit_to_model(checkpoint, built, options.get("interpolation"))))
    return built


def _check_variant(record, variant, row, options):
    """Raises a ValueError, before anything is downloaded, for weights of another variant."""
    published = {**VARIANTS, **{f"BiT-{name}": v for name, v in BIT_VARIANTS.items()}}
    of_weights = published.get(record.variant) if record else None
    names = [n for n in (*SIZE, "patch_size") if hasattr(row, n) and n not in options]
    if of_weights and any(getattr(of_weights, n, None) != getattr(row, n) for n in names):
        raise ValueError(
            f"The weights are of another model. Received: weights={record.name!r}, which are of "
            f"{record.variant}, for {variant}. {_published_for(variant)}; "
            "keras_vit.from_checkpoint builds the model that fits its weights."
        )


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
            if meant := _variants_named(str(variant)):
                raise ValueError(
                    f"Unknown variant. Received: variant={variant!r}, which is "
                    f"{' or '.join(map(repr, meant))} here; keras_vit.from_checkpoint(name) builds "
                    "the model of published weights."
                ) from None
            listed = "list(keras_vit.VARIANTS)"
            raise unknown("variant", variant, known, listed=listed) from None
    return _builder(variant)(weights=weights, **options)


def _published_for(variant):
    """The checkpoints of a variant as text."""
    names = [c.name for c in catalog.checkpoints() if c.variant in (variant, f"BiT-{variant}")]
    return f"Published for {variant}: {shortened(names, 5) if names else 'none'}"


def _variants_named(text):
    """The variants that a name stands for: of a checkpoint, of timm, or spelt as `"vit_b_16"`."""
    everything = catalog.checkpoints()
    records = catalog.lookup(text) or [c for c in everything if c.name.startswith(f"{text}.")]
    with contextlib.suppress(ValueError):  # which proposes names
        records = records or catalog.checkpoints(variant=text)
    return list(dict.fromkeys(record.variant.removeprefix("BiT-") for record in records))


def name_of(model):
    """The name of a model's architecture, such as `"B/16"`, or `None` where no published size fits.

    The published weights that the model began with tell it, or the only architecture that is equal.
    Where several are, as families share theirs, it is the size of the paper that differs least,
    also with other patches, as in `"B/24"`.
    """
    variant, tables = model.variant, VARIANTS | BIT_VARIANTS
    names = [field.name for field in dataclasses.fields(variant)]
    equal = {}  # name -> number of fields that are equal
    for name, row in tables.items():
        if type(row) is type(variant):
            fields = [n for n in names if getattr(row, n) == getattr(variant, n)]
            if all(n in fields for n in SIZE if n in names):
                equal[name] = len(fields)
    records = catalog.lookup(model.weights_from) if model.weights_from else ()
    published = {record.variant.removeprefix("BiT-") for record in records} & equal.keys()
    for fitting in (published, {n for n, count in equal.items() if count == len(names)}):
        if len(fitting) == 1:
            return fitting.pop()
    plain = [name for name in equal if "-" not in name]
    name = max(plain or equal, key=equal.get, default=None)
    patch = getattr(variant, "patch_size", None)
    if name is None or patch is None or tables[name].patch_size == patch:
        return name
    square = variant.stem is None and patch[0] == patch[1]
    return f"{name.partition('/')[0]}/{patch[0]}" if square else None


LATER = {builder_name(variant): _builder(variant) for variant in _LATER_TITLES}
_PAPER = {builder_name(variant): _builder(variant) for variant in (*TITLES, *BIT_VARIANTS)}
globals().update(_PAPER | LATER)

__all__ = ["build", *_PAPER, *LATER]
