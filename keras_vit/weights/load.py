"""Published checkpoints into models: read -> canonical form -> fit -> plan -> assign -> report.

The positions in Google's ViT-B_16.npz, on their way into a model for 384 x 384 pixels:

1. `open_checkpoint` opens the file (files.py). `find_model` finds the model in it, and by names
   that begin with `Transformer/` its family, that of formats/google.py (readers.py).
2. `Family.read` calls `Transformer/posembed_input/pos_embedding` by the table of the family
   `patch_encoder/position/embedding`, as the model calls its variable (family.py).
3. `fit_to_model` resamples its 14 x 14 patches to 24 x 24; the class token keeps its position.
4. `plan_load` finds a variable of its shape, as every array must have one, and lists it under
   `resized` in the `LoadReport`; `assign` gives it to the variable (assign.py).
"""

import dataclasses
import os
import re
from typing import Any

from keras_vit.checks import pair, to_array
from keras_vit.layers.resnet import NUMERICS, StdConv2D, standardize
from keras_vit.models import BiT, VisionTransformer, resize_weights
from keras_vit.models.backbone import MODELS, check_model
from keras_vit.models.resize_weights import PATCH_METHODS, POSITIONS, PROJECTION
from keras_vit.models.surgery import building_arguments
from keras_vit.variants import VARIANTS
from keras_vit.weights.assign import FITTING, LoadReport, assign, plan_load
from keras_vit.weights.canonical import ROOT, CanonicalCheckpoint, Source
from keras_vit.weights.fetch import local_path, locate
from keras_vit.weights.files import open_checkpoint
from keras_vit.weights.formats import peft
from keras_vit.weights.model_arguments import CATALOGUE
from keras_vit.weights.readers import find_model
from keras_vit.weights.safety import CheckpointError, check_architecture, naming, warn

# The matrix of a head: its name, behind what the names of a model around it begin with.
MATRIX_OF_HEAD = re.compile(
    r"(?P<outer>(.*[./])?)(heads?|classifier|fc|linear)[./]((head|fc)[./])?(weight|kernel)"
)


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

    Everything must fit, except that

    - position embeddings of another grid are resampled, and with `resize_patches` the kernels of
      patches;
    - kernels that see RGB images are adapted to a model of another number of channels, as in timm:
      one channel gets the sum of the three, any other number has them in turn, times 3 / channels;
    - a head for another number of classes is left out, and the model keeps its own;
    - the pre-logits layer is used where the model has an equal one and is otherwise dropped,
      together with the head that was trained on it;
    - LayerScale that a model lacks becomes part of the kernels before it, with the same outputs.

    Args:
        model: a `VisionTransformer` or a `BiT`, or what has one inside (`keras_vit.backbone`).
        weights: a name of `keras_vit.list_weights`, the path of a file or folder, or a URL
            (https://, gs://, hf://). `"digits"` comes with this package.
        interpolation: how position embeddings are resampled, as in `keras_vit.resize`; `None` for
            the rule of the checkpoint's family.
        file_image_size: int or (height, width) that the checkpoint was trained at, where its grid
            is not square and nothing beside it says so.
        resize_patches: whether patch kernels of another size may be resized, too (FlexiViT).
        fresh_head: whether the model keeps its own head even where that of the file fits.
        prefix: what the names of the model's arrays begin with in a file with several models, such
            as `"student."`. `None` takes what is a whole model under one prefix, and of several
            alike the average over training (teacher, EMA, momentum); the report names the prefix.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError: `model` is no `VisionTransformer` or `BiT`, and has none inside.
        ValueError: checkpoint and model do not fit; lists both sides and the likely cause. The
            model is then unchanged.
    """
    model = check_model(model)
    # What a file leaves open, such as the number of heads, the model knows.
    of_model = {**vars(model.variant), "image_size": model.image_size}
    checkpoint = read(weights, {**of_model, "file_image_size": file_image_size}, prefix=prefix)
    checkpoint = fit_to_model(
        checkpoint, model, interpolation=interpolation, resize_patches=resize_patches
    )
    report = assign(model, plan_load(model, checkpoint, fresh_head=fresh_head))
    if report.differs:
        warn(f"The model computes something else than its weights:\n{report}")
    return report


def from_checkpoint(
    weights: str | os.PathLike[str],
    file_image_size: int | tuple[int, int] | None = None,
    prefix: str | None = None,
    **overrides: Any,
) -> VisionTransformer | Any:  # `BiT` for a file of a BiT
    """A model with the architecture and the weights of a checkpoint.

    What the file cannot say (the heads in a timm file, a grid that is not square) comes from
    `overrides`, from a config beside it, or from the custom of its family; the report says which.

    Args:
        weights, file_image_size, prefix: as in `load_weights`.
        overrides: arguments of the model's class that replace what the file says, such as
            `num_classes=10`, `image_size=384` or `patch_size=8` (weights are resized),
            `pool=None`, `channels=5` (kernels are adapted as by `load_weights`), `dropout=0.1`;
            `interpolation` says how positions are resampled, as in `keras_vit.resize`.

    Returns:
        The model, a `VisionTransformer` or a `BiT`; what was loaded is in `model.load_report`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no such checkpoint or contradicts `overrides`.
    """
    checkpoint = read(weights, {**overrides, "file_image_size": file_image_size}, prefix=prefix)
    arguments = {**checkpoint.arguments, **building_arguments(overrides)}
    model = MODELS[checkpoint.model](**arguments)
    interpolation, resize_patches = overrides.get("interpolation"), "patch_size" in overrides
    checkpoint = fit_to_model(
        checkpoint, model, interpolation=interpolation, resize_patches=resize_patches
    )
    advice = "Its arrays contradict each other, or the config beside them."
    if overrides:
        advice = f"Leave out what the file has otherwise, of {', '.join(overrides)}."
    assign(model, plan_load(model, checkpoint, advice=advice))
    return model


# ---- read


def read(weights, model_arguments, prefix=None):
    """The `CanonicalCheckpoint` of a path, a URL or a published name, as in `load_weights`.

    `model_arguments` are those that a caller gave, or all of the model that is to be filled. They
    decide what the file leaves open, such as the number of heads.
    """
    place, record = locate(weights)  # a path or a URL, and its row in the catalogue or `None`
    if record is not None:
        model_arguments = {**computed_positions(VARIANTS.get(record.variant)), **model_arguments}
    contents = open_checkpoint(local_path(place, record))
    checkpoint = read_contents(contents, model_arguments, prefix=prefix)
    if prefix is None and not checkpoint.arguments["num_classes"]:
        _warn_of_head(checkpoint)
    changes = {"weights_from": place if isinstance(place, str) else place.resolve().name}
    if record is not None:
        changes = {"weights_from": record.name, "label_set": record.label_set}
        changes |= {"preprocessing": record.preprocessing} if record.preprocessing else {}
        # The catalogue says how images are prepared, or that it is as usual in the family.
        checkpoint.arguments.assumed.pop("preprocessing", None)
        checkpoint.arguments.add(CATALOGUE, **dict(record.overrides))
    metadata = dataclasses.replace(checkpoint.metadata, **changes)
    return dataclasses.replace(checkpoint, metadata=metadata)


def read_contents(contents, model_arguments, prefix=None):
    """As `read`, of the arrays of a file by their names there, and the JSON files beside it."""
    with naming(contents.path):
        contents = peft.merge_adapter(contents)  # of LoRA, if it is one
        model = find_model(contents, prefix)
        family, everything = model.family, contents.arrays
        contents = dataclasses.replace(contents, arrays=model.arrays, prefix=model.prefix)
        weights, arguments = family.read(contents, model_arguments)
        check_architecture(family.model, arguments, weights.arrays)
        metadata = family.metadata(arguments, contents)
    weights.rename(model.names_in_file, everything)  # for the report
    adapted = f", with an adapter of PEFT on {contents.adapted}" if contents.adapted else ""
    source = Source(family.name + adapted, str(contents.path), model.prefix, model.others)
    return CanonicalCheckpoint(family.model, arguments, weights, metadata, source)


def _warn_of_head(checkpoint):
    """Warns of a head that stands beside the prefix of a model, or beside a part of it."""
    path, inner = checkpoint.source.path, checkpoint.source.prefix
    heads = map(MATRIX_OF_HEAD.fullmatch, checkpoint.weights.ignored)
    names = [m[0] for m in heads if m and inner != m["outer"] and inner.startswith(m["outer"])]
    if names:
        warn(
            f"A head beside the model is not loaded. Received: {names[0]!r} in {path!r}, where the "
            f"names of the model begin with {inner!r}; give its names the same beginning, or say "
            f"prefix={inner!r} to do without it."
        )


def computed_positions(variant):
    """`{"position": ...}` of a variant that computes its positions: its files do not say it."""
    position = getattr(variant, "position", "learned_1d")
    return {} if position == "learned_1d" else {"position": position}


def image_size_of(weights):
    """The (height, width) in pixels that a checkpoint was trained at; raises as `read` does.

    That of published weights is looked up in the catalogue, and nothing is downloaded for it.
    """
    _, record = locate(weights)
    if record is not None and record.image_size:
        return pair(record.image_size, "image_size")
    return read(weights, {}).arguments["image_size"]


# ---- fit to the model


def fit_to_model(checkpoint, model, interpolation=None, resize_patches=False):
    """A copy of a checkpoint with patches, positions and channels in the sizes of a model.

    `interpolation` and `resize_patches` are as in `load_weights`. A head for other classes is left
    out by `plan_load`.
    """
    if not isinstance(model, MODELS[checkpoint.model]):
        raise CheckpointError(
            f"{checkpoint.source.path!r} holds a {checkpoint.model}; the model {model.name!r} is a "
            f"{type(model).__name__}. Nothing was loaded. {FITTING}"
        )
    arguments, weights = checkpoint.arguments, checkpoint.weights.copy()
    metadata = checkpoint.metadata
    if checkpoint.model == "VisionTransformer":
        if model.variant.layer_scale is None and model.variant.block != "parallel":
            weights.fold_layer_scale()
        if resize_patches:
            _fit_patches(weights, arguments, model)
        _fit_positions(weights, arguments, model, interpolation)
    if arguments["channels"] == 3 and model.channels != 3:
        _fit_channels(weights, model.channels)
        preprocessing = metadata.preprocessing.for_channels(model.channels)
        metadata = dataclasses.replace(metadata, preprocessing=preprocessing)
    for layer in model._flatten_layers():  # of a folded model; a file has kernels as trained
        name = isinstance(layer, StdConv2D) and layer.folded and layer.kernel.path
        if name in weights.arrays:
            kernel = weights.arrays[name].astype("float32")
            weights.arrays[name] = to_array(standardize(kernel, NUMERICS[layer.numerics]))
    return dataclasses.replace(checkpoint, weights=weights, metadata=metadata)


def _fit_patches(weights, of_file, model):
    """Resizes the patch kernel to patches of another size."""
    old, new, kernel = of_file["patch_size"], model.variant.patch_size, weights.arrays[PROJECTION]
    if old != new:
        method = PATCH_METHODS.get(of_file["interpolation"], "bicubic")
        kernel = resize_weights.resize_patches(kernel, old=old, new=new, method=method)
        weights.replace(PROJECTION, kernel, f"pseudo-inverse, {method}")


def _fit_positions(weights, of_file, model, interpolation):
    """Resamples position embeddings from the grid of the file's images to that of the model's.

    Positions of another scheme are left to `plan_load`, which reports that they do not fit.
    """
    v, tokens = model.variant, of_file.learned_tokens
    has_grid = v.position in ("learned_1d", "relative_2d")
    if not has_grid or of_file["position"] != v.position or tokens != v.learned_tokens:
        return
    grid, method = of_file.grid(of_file["image_size"]), interpolation or of_file["interpolation"]
    arrays = weights.arrays
    tables = {n: arrays[n].astype("float64") for n in arrays if re.fullmatch(POSITIONS, n)}
    changed = resize_weights.resize_positions(
        tables, old_grid=grid, new_grid=model.grid, learned_tokens=tokens, method=method
    )
    arrays.update(changed)
    weights.resized += tuple((name, grid, model.grid, method) for name in changed)


def _fit_channels(weights, channels):
    """Adapts the kernel that sees the images."""
    name = ROOT if ROOT in weights.arrays else PROJECTION
    kernel = weights.arrays[name]
    *window, _, units = kernel.shape
    by_color = kernel.reshape(*window, -1, 3, units)  # a patch kernel has one axis for all pixels
    kernel = resize_weights.adapt_channels(by_color, channels).reshape(*window, -1, units)
    rule = f"those of red, green and blue in turn, times 3 / {channels}"
    rule = "sum over the colours" if channels == 1 else rule
    weights.replace(name, kernel, rule)
