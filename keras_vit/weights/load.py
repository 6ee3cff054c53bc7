"""Checkpoints into models: read -> canonical names -> resize -> assignment -> a report."""

import warnings

from keras_vit.models.bit_variants import BiTVariant
from keras_vit.variants import VARIANTS, Variant, marked
from keras_vit.weights import families
from keras_vit.weights.assign import MODELS, assign, check_model
from keras_vit.weights.canonical import CONFIG
from keras_vit.weights.contents import open_checkpoint
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.locate import locate
from keras_vit.weights.resize import for_a_model


def load_weights(
    model,
    weights,
    interpolation=None,
    file_image_size=None,
    resize_patches=False,
    fresh_head=False,
):
    """Gives `model` the weights of a checkpoint.

    Formats: npz of google-research/vision_transformer (both generations) and of big_vision, timm
    state dicts (safetensors, or PyTorch files), folders of Hugging Face transformers, KerasHub
    presets. Which it is follows from its content.

    Everything must fit, with three exceptions. Position embeddings of another grid are resampled.
    A head for another number of classes is left out, and the model keeps its own. The pre-logits
    layer is used where the model has an equal one and is otherwise dropped, together with the head
    that was trained on it.

    Args:
        model: a `VisionTransformer` or a `BiT`, also of a subclass.
        weights: a name of `keras_vit.list_weights`, the path of a file or folder, or a URL
            (https://, gs://, hf://).
        interpolation: how position embeddings are resampled, as in `keras_vit.resize`; `None` for
            the rule of the checkpoint's family.
        file_image_size: int or (height, width) that the checkpoint was trained at, where its grid
            is not square and nothing beside it says so.
        resize_patches: whether patch kernels may be resized too (FlexiViT), for a checkpoint of
            another patch size.
        fresh_head: whether the model keeps its own head even where that of the file fits.

    Returns:
        A `LoadReport`.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError: `model` is neither.
        ValueError: checkpoint and model do not fit; lists both sides and the likely cause. The
            model is then unchanged.
    """
    check_model(model)
    hints = {"image_size": model.image_size, "file_image_size": file_image_size}
    for name in ("width", "num_heads", "pool", "representation_size"):
        if hasattr(model.variant, name):
            hints[name] = getattr(model.variant, name)
    canonical, record = _read(weights, hints)
    report = assign(model, canonical, interpolation, resize_patches, fresh_head)
    _carry_facts(model, canonical, record, report)
    if report.differs:
        warnings.warn(
            f"The model computes something else than its weights:\n{report}", stacklevel=2
        )
    return report


def from_checkpoint(weights, file_image_size=None, **overrides):
    """A model with the architecture and the weights of a checkpoint.

    What the file cannot say (the heads in a timm file, a grid that is not square) comes from
    `overrides`, from a config beside it, or from the custom of its family; the report says which.

    Args:
        weights: as in `load_weights`.
        file_image_size: as in `load_weights`.
        overrides: arguments of the model's class that shall be otherwise than in the file, such
            as `num_classes=10`, `image_size=384` or `patch_size=8` (weights are resized),
            `pool=None`, `channels=1`, `dropout=0.1`; `interpolation` says how positions are
            resampled, as in `keras_vit.resize`.

    Returns:
        The model, a `VisionTransformer` or a `BiT`; what was loaded is in `model.load_report`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no such checkpoint or contradicts `overrides`.
    """
    canonical, record = _read(weights, {**overrides, "file_image_size": file_image_size})
    model = MODELS[canonical.model](**{**canonical.architecture, **for_a_model(overrides)})
    model.load_report = assign(
        model,
        canonical,
        overrides.get("interpolation"),
        patches_too="patch_size" in overrides,
        adapt_channels=True,
    )
    _carry_facts(model, canonical, record, model.load_report)
    return model


def builder_of(model, variant, name, module):
    """A function that builds a model of a published size and, if asked, loads its weights.

    Args:
        model: name of the class, one of `MODELS`.
        variant: name of a row of the table of the class.
        name: of the function; its models have it in lower case.
        module: where the function stands, for pickle.
    """

    def build(num_classes=1000, image_size=224, weights=None, include_top=True, **options):
        options = {
            "name": name.lower(),
            "num_classes": num_classes,
            "image_size": image_size,
            "include_top": include_top,
            **options,
        }
        if weights is None:
            return MODELS[model](variant, **options)
        return build_and_load(variant, weights, options, model)

    build.__name__ = build.__qualname__ = name
    build.__module__ = module
    return build


def build_and_load(variant, weights, options, model="VisionTransformer"):
    """A model of a published size with the weights of a checkpoint, for the builders.

    Args:
        variant: name of a row of the table of the class.
        weights: as in `load_weights`.
        options: arguments of the class; a field of the variant that a checkpoint decides
            (`inherited`) and that is not among them comes from there. `interpolation` as in
            `from_checkpoint`.
        model: name of the class, one of `MODELS`.
    """
    row = VARIANTS.get(variant)
    heads = {"width": row.width, "num_heads": row.num_heads} if row else {}  # a BiT has none
    canonical, record = _read(weights, {**heads, **options})
    if canonical.model != model:
        raise CheckpointError(
            f"{canonical.path!r} holds a {canonical.model}; this builder makes a {model}. "
            "keras_vit.from_checkpoint builds the model that fits a file."
        )
    inherited = marked(BiTVariant if model == "BiT" else Variant, "inherited")
    found = {n: canonical.architecture[n] for n in inherited if n in canonical.architecture}
    model = MODELS[model](variant, **{**found, **for_a_model(options)})
    model.load_report = assign(model, canonical, options.get("interpolation"))
    _carry_facts(model, canonical, record, model.load_report)
    return model


def _read(weights, hints):
    path, record = locate(weights)
    canonical = families.read(open_checkpoint(path), hints)
    for name, value in record.overrides if record else ():
        # The catalogue speaks for files that come alone; a config beside one knows better.
        if canonical.assumed.get(name) != CONFIG:
            canonical.architecture[name] = value
            canonical.assumed[name] = "the catalogue"
    return canonical, record


def _carry_facts(model, canonical, record, report):
    """Preprocessing belongs to the weights; names of classes to the head that they came with."""
    model.preprocessing = record.preprocessing if record else canonical.preprocessing
    if "head/kernel" in report.loaded:
        model.class_names = canonical.class_names
        model.label_set = record.label_set if record else None
