"""Checkpoints into models: read -> canonical names -> resize -> strict assignment -> a report."""

import dataclasses
import os
import warnings
from typing import Any

from keras_vit.checks import check_names, marked
from keras_vit.models import BiT, VisionTransformer
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.models.classifier import argument_names
from keras_vit.variants import VARIANTS, get_variant
from keras_vit.weights.assign import MODELS, LoadReport, assign
from keras_vit.weights.canonical import check_architecture, reading_of_config
from keras_vit.weights.evidence import CATALOGUE
from keras_vit.weights.family import nearest
from keras_vit.weights.fetch import DownloadError, fetch
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.formats import (
    aimv2,
    bit,
    google,
    huggingface,
    huggingface_beit,
    huggingface_dino,
    keras_hub,
    official,
    open_clip,
    peft,
    timm,
    torchvision,
    vision_towers,
)
from keras_vit.weights.locate import locate, published_for
from keras_vit.weights.network import check_model
from keras_vit.weights.parts import find_model
from keras_vit.weights.resize import for_a_model

# No two recognise the same file, but for timm's and the last, whose names official ones and
# big_vision share, and which come after these.
FAMILIES = (
    huggingface.FAMILY,
    *open_clip.FAMILIES,
    *official.FAMILIES,
    vision_towers.CLIP,
    vision_towers.SIGLIP,
    aimv2.FAMILY,
    aimv2.APPLE,
    *huggingface_beit.FAMILIES,
    *huggingface_dino.FAMILIES,
    timm.FAMILY,
    *bit.FAMILIES,
    torchvision.FAMILY,
    keras_hub.FAMILY,
    google.BIG_VISION_FAMILY,
    google.FAMILY,
)
# What a size is; other kinds of blocks make another family of it.
SIZE = ("width", "depth", "num_heads", "mlp_dim", "stem", "blocks", "mlp", "norm", "block")


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
    canonical = read(*locate(weights), caller, prefix)
    report = assign(model, canonical, interpolation, resize_patches, fresh_head)
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
    canonical = read(*locate(weights), {**overrides, "file_image_size": file_image_size}, prefix)
    model = MODELS[canonical.model](**{**canonical.architecture, **for_a_model(overrides)})
    assign(
        model,
        canonical,
        overrides.get("interpolation"),
        patches_too="patch_size" in overrides,
        choices=tuple(overrides),
    )
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
    _check_variant(record, variant, row, options)
    # The row says what the arrays of a file may not; all else is the file's to say.
    names = ("width", "num_heads", "interpolation")
    of_row = {n: getattr(row, n) for n in names if hasattr(row, "num_heads")}
    canonical = read(source, record, {**of_row, **_computed_positions(row), **options})
    if canonical.model != name:
        raise CheckpointError(
            f"{canonical.path!r} holds a {canonical.model}; this builder makes a {name}. "
            "keras_vit.from_checkpoint builds the model that fits a file."
        )
    evidence = canonical.evidence
    inherited = {n: evidence[n] for n in marked(type(row), "inherited") if n in evidence}
    model = MODELS[name](variant, **{**inherited, **for_a_model(options)})
    assign(model, canonical, options.get("interpolation"))
    return model


def _check_variant(record, variant, row, options):
    """Raises a ValueError, before anything is downloaded, for weights of another variant."""
    published = {**VARIANTS, **{f"BiT-{name}": v for name, v in BIT_VARIANTS.items()}}
    theirs = published.get(record.variant) if record else None
    fields = [n for n in (*SIZE, "patch_size") if hasattr(row, n)]
    fits = theirs is None or type(theirs) is type(row)
    for name in fields if theirs and fits else ():
        fits = fits and (name in options or getattr(theirs, name) == getattr(row, name))
    if not fits:
        raise ValueError(
            f"The weights are of another model. Received: weights={record.name!r}, which are of "
            f"{record.variant}, for {variant}. {published_for(variant)}; "
            "keras_vit.from_checkpoint builds the model that fits its weights."
        )


def file_of(weights):
    """The path of a checkpoint that is here, or has been downloaded."""
    source, record = locate(weights)
    return _fetched(source, record) if isinstance(source, str) else source


def _fetched(source, record):
    """The path of a download, or a `DownloadError` that says for which published weights."""
    try:
        return fetch(source, size=record and record.size)
    except DownloadError as error:
        raise DownloadError(f"{record.name}: {error}" if record else str(error)) from error


def read(source, record, caller, prefix=None):
    """The `Canonical` of a path or URL, with what its record in the catalogue says.

    `caller` is a dict of arguments that a caller gave, or that the model to be filled has.
    """
    if record is None:
        is_url = isinstance(source, str)
        canonical = read_checkpoint(fetch(source) if is_url else source, caller, prefix)
        canonical.source = source if is_url else source.resolve().name
        return canonical
    caller = {**_computed_positions(VARIANTS.get(record.variant)), **caller}
    canonical = read_checkpoint(_fetched(source, record), caller, prefix)
    canonical.preprocessing = record.preprocessing or canonical.preprocessing
    canonical.assumed.pop("preprocessing", None)  # the catalogue says it, or that it is the usual
    canonical.label_set, canonical.source = record.label_set, record.name
    canonical.evidence.add(CATALOGUE, **dict(record.overrides))
    return canonical


def _computed_positions(row):
    """The `position` of a variant that no file has, as a dict; empty for any other variant."""
    position = getattr(row, "position", "learned_1d")
    return {} if position == "learned_1d" else {"position": position}


def read_checkpoint(path, caller, prefix=None):
    """The `Canonical` of a file or folder of any family, told by the names of its arrays."""
    (contents, base), path = peft.open_model(path, FAMILIES), str(path)
    try:
        part = find_model(contents.arrays, FAMILIES, prefix)
    except CheckpointError as error:
        raise CheckpointError(f"{path!r}: {error} Nothing was loaded.") from error
    family = part.family
    if family is None:
        raise CheckpointError(
            f"{path!r} is of no family known here. {nearest(contents.arrays, FAMILIES)} "
            "docs/checkpoints.md lists the formats; what Keras itself wrote (.weights.h5) is read "
            "by model.load_weights(path)."
        )
    named = contents.config.get("model_type")
    theirs = [f.name for f in FAMILIES if named in f.model_types]
    if family.model_types and theirs and family.name not in theirs:
        raise CheckpointError(
            f"{path!r} has a config.json of another model: model_type={named!r} stands for "
            f"{' or '.join(theirs)}, and the arrays are those of {family.name}. Put the one of "
            "this model beside the file, or none."
        )
    try:
        canonical = family.read(dataclasses.replace(contents, arrays=part.arrays), caller)
        check_architecture(canonical)
        canonical.reading = reading_of_config(contents.config) or canonical.reading
    except CheckpointError as error:
        raise CheckpointError(f"{path!r}: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"{path!r}, or the config beside it, says what cannot be of a model of "
            f"{family.name}: {type(error).__name__}: {error}. Nothing was loaded."
        ) from error
    part.settle(canonical, contents.arrays)
    if base is not None:
        canonical.family += f", with an adapter of PEFT on {base}"
    canonical.path = path
    return canonical
