"""Checkpoints into models: read -> canonical names -> resize -> assign -> report."""

import dataclasses
import os
import warnings
from typing import Any

from keras_vit.checks import check_names, marked
from keras_vit.models import BiT, VisionTransformer
from keras_vit.models.backbone import MODELS, check_model
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.models.classifier import argument_names
from keras_vit.models.surgery import building_arguments
from keras_vit.variants import VARIANTS, get_variant
from keras_vit.weights.assign import LoadReport, assign
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.locate import SIZE, locate, published_for
from keras_vit.weights.readers import computed_positions, read
from keras_vit.weights.resize import resized


def load_weights(
    model: VisionTransformer | BiT,
    weights: str | os.PathLike[str],
    interpolation: str | None = None,
    file_image_size: int | tuple[int, int] | None = None,
    resize_patches: bool = False,
    fresh_head: bool = False,
    prefix: str | None = None,
) -> LoadReport:
    """Gives `model` the weights of a checkpoint of any format that docs/checkpoints.md lists.

    Everything must fit, with four exceptions. Position embeddings of another grid are resampled.
    Kernels that see RGB images are adapted to a model of another number of channels, as in timm:
    one channel gets the sum of the three, any other number has them in turn, times 3 / channels. A
    head for another number of classes is left out, and the model keeps its own. The pre-logits
    layer is used where the model has an equal one and is otherwise dropped, together with the head
    that was trained on it.

    Args:
        model: a `VisionTransformer` or a `BiT`, or what has one inside (`keras_vit.backbone`).
        weights: a name of `keras_vit.list_weights`, the path of a file or folder, or a URL
            (https://, gs://, hf://). `"digits"` comes with this package.
        interpolation: how position embeddings are resampled, as in `keras_vit.resize`; `None` for
            the rule of the checkpoint's family.
        file_image_size: int or (height, width) that the checkpoint was trained at, where its grid
            is not square and nothing beside it says so.
        resize_patches: whether patch kernels may be resized too (FlexiViT), for a checkpoint of
            another patch size.
        fresh_head: whether the model keeps its own head even where that of the file fits.
        prefix: what the names of the model's arrays begin with in a file with several models, such
            as `"student."`. `None` takes what is a whole model under one prefix, and of several
            the average that training kept (teacher, EMA, momentum); the report names the prefix.

    Returns:
        A `LoadReport`.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError: `model` is neither.
        ValueError: checkpoint and model do not fit; lists both sides and the likely cause. The
            model is then unchanged.
    """
    model = check_model(model)
    caller = {f.name: getattr(model.variant, f.name) for f in dataclasses.fields(model.variant)}
    caller |= {"image_size": model.image_size, "file_image_size": file_image_size}
    source, record = locate(weights)
    canonical = read(source, record, caller=caller, prefix=prefix)
    canonical, changes = resized(
        canonical, model, interpolation=interpolation, patches_too=resize_patches
    )
    report = assign(model, canonical, changes=changes, fresh_head=fresh_head)
    if report.differs:
        warnings.warn(
            f"The model computes something else than its weights:\n{report}", stacklevel=2
        )
    return report


def from_checkpoint(
    weights: str | os.PathLike[str],
    file_image_size: int | tuple[int, int] | None = None,
    prefix: str | None = None,
    **overrides: Any,
) -> VisionTransformer | Any:  # a BiT, of a file of one
    """A model with the architecture and the weights of a checkpoint.

    What the file cannot say (the heads in a timm file, a grid that is not square) comes from
    `overrides`, from a config beside it, or from the custom of its family; the report says which.

    Args:
        weights, file_image_size, prefix: as in `load_weights`.
        overrides: arguments of the model's class that shall be otherwise than in the file, such
            as `num_classes=10`, `image_size=384` or `patch_size=8` (weights are resized),
            `pool=None`, `channels=5` (kernels are adapted as by `load_weights`), `dropout=0.1`;
            `interpolation` says how positions are resampled, as in `keras_vit.resize`.

    Returns:
        The model, a `VisionTransformer` or a `BiT`; what was loaded is in `model.load_report`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no such checkpoint or contradicts `overrides`.
    """
    source, record = locate(weights)
    caller = {**overrides, "file_image_size": file_image_size}
    canonical = read(source, record, caller=caller, prefix=prefix)
    model = MODELS[canonical.model](**{**canonical.evidence, **building_arguments(overrides)})
    canonical, changes = resized(
        canonical,
        model,
        interpolation=overrides.get("interpolation"),
        patches_too="patch_size" in overrides,
    )
    assign(model, canonical, changes=changes, choices=tuple(overrides))
    return model


def build_and_load(variant, weights, options):
    """A model of a published size with the weights of a checkpoint, for the builders.

    A field of the variant that a checkpoint decides (`inherited`) and that is not in `options`
    comes from the checkpoint.
    """
    row = BIT_VARIANTS.get(variant) or get_variant(variant)
    name = "BiT" if variant in BIT_VARIANTS else "VisionTransformer"
    check_names(type(row), options, argument_names(MODELS[name]))  # before a long download
    try:
        source, record = locate(weights)
    except ValueError as error:
        raise ValueError(f"{error} {published_for(variant)}.") from None
    _check_variant(record, variant, row=row, options=options)
    # The row says what the arrays of a file may not; all else is the file's to say.
    names = ("width", "num_heads", "interpolation")
    of_row = {n: getattr(row, n) for n in names if hasattr(row, "num_heads")}
    caller = {**of_row, **computed_positions(row), **options}
    canonical = read(source, record, caller=caller)
    if canonical.model != name:
        raise CheckpointError(
            f"{canonical.path!r} holds a {canonical.model}; this builder makes a {name}. "
            "keras_vit.from_checkpoint builds the model that fits a file."
        )
    of_file = canonical.evidence
    inherited = {n: of_file[n] for n in marked(type(row), "inherited") if n in of_file}
    model = MODELS[name](variant, **{**inherited, **building_arguments(options)})
    canonical, changes = resized(canonical, model, interpolation=options.get("interpolation"))
    assign(model, canonical, changes=changes)
    return model


def _check_variant(record, variant, row, options):
    """Raises a ValueError, before anything is downloaded, for weights of another variant."""
    published = {**VARIANTS, **{f"BiT-{name}": v for name, v in BIT_VARIANTS.items()}}
    of_weights = published.get(record.variant) if record else None
    if of_weights is None:
        return
    names = [n for n in (*SIZE, "patch_size") if hasattr(row, n) and n not in options]
    is_other = type(of_weights) is not type(row)
    if is_other or any(getattr(of_weights, n) != getattr(row, n) for n in names):
        raise ValueError(
            f"The weights are of another model. Received: weights={record.name!r}, which are of "
            f"{record.variant}, for {variant}. {published_for(variant)}; "
            "keras_vit.from_checkpoint builds the model that fits its weights."
        )
