"""Published checkpoints into models: read the file -> fit to the model -> assign -> report.

The way of one array, the positions in Google's ViT-B_16.npz, into a model for 384 x 384 pixels:

1. `locate` (fetch.py) finds the file, and `open_checkpoint` (files.py) opens it.
2. `find_model` (readers.py) finds the model in it, and by names that begin with `Transformer/` the
   family, that of formats/google.py.
3. `Family.read` (family.py) brings it into canonical form: by the table of the family
   `Transformer/posembed_input/pos_embedding` is the variable `patch_encoder/position/embedding`.
4. `fit_to_model` resamples its 14 x 14 patches to 24 x 24; the class token keeps its position.
5. `assign` (assign.py) gives it to the variable, once every array has a variable of its shape.
6. The `LoadReport` lists it under `resized`.
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
from keras_vit.preprocessing import Preprocessing
from keras_vit.variants import VARIANTS
from keras_vit.weights.assign import FITTING, LoadReport, assign
from keras_vit.weights.canonical import ROOT
from keras_vit.weights.fetch import local_path, locate
from keras_vit.weights.files import open_checkpoint
from keras_vit.weights.formats import peft
from keras_vit.weights.huggingface_images import class_names_of, reading_of_config
from keras_vit.weights.readers import find_model
from keras_vit.weights.safety import CheckpointError, check_architecture, naming, warn

# The name of the matrix of a head, behind what the names of a model around it begin with.
HEAD = re.compile(
    r"(?P<outer>(.*[./])?)(heads?|classifier|fc|linear)[./]((head|fc)[./])?(weight|kernel)"
)
# What comes with weights, as a model has it of which nobody has set it.
UNSET = {"preprocessing": Preprocessing(), "reading": None, "class_names": None}


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
    known = {**vars(model.variant), "image_size": model.image_size}
    checkpoint = read(weights, {**known, "file_image_size": file_image_size}, prefix=prefix)
    checkpoint = fit_to_model(
        checkpoint, model, interpolation=interpolation, resize_patches=resize_patches
    )
    before = {name: getattr(model, name) for name in UNSET}
    report = assign(model, checkpoint, fresh_head=fresh_head)
    for name, value in before.items():
        new = getattr(model, name)
        if value not in (UNSET[name], new):
            warn(
                f"model.{name} comes with the weights. Received: {value!s:.200} before, now "
                f"{new!s:.200}; set it again if it still holds."
            )
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
    assign(model, checkpoint, advice=advice)
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
    if record is None:
        checkpoint.name = place if isinstance(place, str) else place.resolve().name
    else:
        checkpoint.add_record(record)
    return checkpoint


def read_contents(contents, model_arguments, prefix=None):
    """As `read`, of the arrays of a file by their names there, and the JSON files beside it."""
    path = contents.path
    with naming(path):
        contents = peft.merge_adapter(contents)  # of LoRA, if it is one
        model = find_model(contents, prefix)
        model_contents = dataclasses.replace(contents, arrays=model.arrays, prefix=model.prefix)
        checkpoint = model.family.read(model_contents, model_arguments)
        check_architecture(checkpoint)
        # The arrays show whether the config is that of this model.
        add_outputs(checkpoint, contents.config if checkpoint.arguments.config else {})
    checkpoint.restore_names(model.names_in_file, contents.arrays)  # for the report
    checkpoint.prefix, checkpoint.others = model.prefix, model.others
    if contents.adapted is not None:
        checkpoint.family += f", with an adapter of PEFT on {contents.adapted}"
    checkpoint.path = str(path)
    return checkpoint


def add_outputs(checkpoint, config):
    """Adds what the config of a model says of its outputs: their reading and their names."""
    checkpoint.reading = reading_of_config(config) or checkpoint.reading
    count, stated = checkpoint.arguments["num_classes"], config.get("num_classes")
    checkpoint.class_names, unfit = class_names_of(config, count)
    if stated not in (None, count):
        unfit += (f"num_classes={stated!r:.100} in its config, for {count} in its arrays",)
    checkpoint.ignored = (*unfit, *checkpoint.ignored)


def _warn_of_head(checkpoint):
    """Warns of a head that stands beside the prefix of a model, or beside a part of it."""
    inner, heads = checkpoint.prefix, map(HEAD.fullmatch, checkpoint.ignored)
    names = [m[0] for m in heads if m and inner != m["outer"] and inner.startswith(m["outer"])]
    if names:
        warn(
            f"A head beside the model is not loaded. Received: {names[0]!r} in "
            f"{checkpoint.path!r}, where the names of the model begin with {inner!r}; give its "
            f"names the same beginning, or say prefix={inner!r} to do without it."
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

    `interpolation` and `resize_patches` are as in `load_weights`; heads are left to `assign`.
    """
    if not isinstance(model, MODELS[checkpoint.model]):
        raise CheckpointError(
            f"{checkpoint.path!r} holds a {checkpoint.model}; the model {model.name!r} is a "
            f"{type(model).__name__}. Nothing was loaded. {FITTING}"
        )
    checkpoint = dataclasses.replace(
        checkpoint, arrays=dict(checkpoint.arrays), names_in_file=dict(checkpoint.names_in_file)
    )
    if checkpoint.model == "VisionTransformer":
        if model.variant.layer_scale is None and model.variant.block != "parallel":
            checkpoint.fold_layer_scale()
        if resize_patches:
            _fit_patches(checkpoint, model.variant.patch_size)
        _fit_positions(checkpoint, model, interpolation)
    if checkpoint.arguments["channels"] == 3 and model.channels != 3:
        _fit_channels(checkpoint, model.channels)
    for layer in model._flatten_layers():  # of a folded model; a file has kernels as trained
        name = isinstance(layer, StdConv2D) and layer.folded and layer.kernel.path
        if name in checkpoint.arrays:
            kernel = checkpoint.arrays[name].astype("float32")
            checkpoint.arrays[name] = to_array(standardize(kernel, NUMERICS[layer.numerics]))
    return checkpoint


def _fit_patches(checkpoint, patch_size):
    """Resizes the patch kernel to patches of another size."""
    old_size, kernel = checkpoint.arguments["patch_size"], checkpoint.arrays[PROJECTION]
    if old_size != patch_size:
        method = PATCH_METHODS.get(checkpoint.arguments["interpolation"], "bicubic")
        kernel = resize_weights.resize_patches(kernel, old=old_size, new=patch_size, method=method)
        checkpoint.replace_array(PROJECTION, kernel, f"pseudo-inverse, {method}")


def _fit_positions(checkpoint, model, interpolation):
    """Resamples position embeddings from the grid of the file's images to that of the model's.

    Positions of another scheme are left to `assign`, which reports that they do not fit.
    """
    of_file, v = checkpoint.arguments, model.variant
    tokens = of_file.learned_tokens
    has_grid = v.position in ("learned_1d", "relative_2d")
    if not has_grid or of_file["position"] != v.position or tokens != v.learned_tokens:
        return
    grid = of_file.grid(of_file["image_size"])
    method = interpolation or of_file["interpolation"]
    arrays = checkpoint.arrays
    tables = {n: arrays[n].astype("float64") for n in arrays if re.fullmatch(POSITIONS, n)}
    changed = resize_weights.resize_positions(
        tables, old_grid=grid, new_grid=model.grid, learned_tokens=tokens, method=method
    )
    arrays.update(changed)
    checkpoint.resized += tuple((name, grid, model.grid, method) for name in changed)


def _fit_channels(checkpoint, channels):
    """Adapts the kernel that sees the images, and their mean and standard deviation."""
    name = ROOT if ROOT in checkpoint.arrays else PROJECTION
    kernel = checkpoint.arrays[name]
    *window, _, units = kernel.shape
    by_color = kernel.reshape(*window, -1, 3, units)  # a patch kernel has one axis for all pixels
    kernel = resize_weights.adapt_channels(by_color, channels).reshape(*window, -1, units)
    rule = f"those of red, green and blue in turn, times 3 / {channels}"
    rule = "sum over the colours" if channels == 1 else rule
    checkpoint.replace_array(name, kernel, rule)
    checkpoint.preprocessing = checkpoint.preprocessing.for_channels(channels)
