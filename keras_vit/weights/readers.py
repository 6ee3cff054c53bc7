"""Any checkpoint in canonical form: which family reads it, and what the catalogue adds."""

import dataclasses

from keras_vit.checks import pair
from keras_vit.variants import VARIANTS
from keras_vit.weights.canonical import Source
from keras_vit.weights.family import nearest
from keras_vit.weights.fetch import DownloadError, fetch
from keras_vit.weights.formats import (
    aimv2,
    big_vision,
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
from keras_vit.weights.huggingface_images import reading_of_config
from keras_vit.weights.locate import locate
from keras_vit.weights.model_arguments import CATALOGUE
from keras_vit.weights.prefixes import find_model
from keras_vit.weights.reading import CheckpointError, check_architecture

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
    big_vision.FAMILY,
    google.FAMILY,
)


def file_of(source, record):
    """The path of a checkpoint that `locate` has told; a URL is downloaded."""
    if not isinstance(source, str):
        return source
    try:
        return fetch(source, size=record and record.size)
    except DownloadError as error:  # which tells the URL, and not for which published weights
        raise DownloadError(f"{record.name}: {error}" if record else str(error)) from error


def read(weights, known, prefix=None):
    """The `CanonicalCheckpoint` of a path, URL or name, with what the catalogue says of it.

    `known` is a dict of arguments that a caller gave, or that the model to be filled has.
    """
    place, record = locate(weights)
    positions = computed_positions(VARIANTS.get(record.variant)) if record else {}
    canonical = read_checkpoint(file_of(place, record), {**positions, **known}, prefix)
    if record is None:
        name = place if isinstance(place, str) else place.resolve().name
        canonical.source = dataclasses.replace(canonical.source, name=name)
        return canonical
    names = {"name": record.name, "label_set": record.label_set}
    canonical.source = dataclasses.replace(canonical.source, **names)
    canonical.preprocessing = record.preprocessing or canonical.preprocessing
    # The catalogue says it, or that it is the usual one.
    canonical.arguments.assumed.pop("preprocessing", None)
    canonical.arguments.add(CATALOGUE, **dict(record.overrides))
    return canonical


def image_size_of(weights):
    """The (height, width) in pixels that a checkpoint was trained at; the errors are of `read`.

    That of published weights is looked up in the catalogue, and nothing is downloaded for it.
    """
    _, record = locate(weights)
    if record is not None and record.image_size:
        return pair(record.image_size, "image_size")
    return read(weights, known={}).arguments["image_size"]


def unfetched(weights):
    """The record of published weights that would have to be downloaded; `None` for all others."""
    source, record = locate(weights)
    try:
        if record is not None:
            fetch(source, size=record.size, offline=True)
    except OSError:
        return record
    return None


def computed_positions(row):
    """The `position` of a variant that no file has, as a dict; empty for any other variant."""
    position = getattr(row, "position", "learned_1d")
    return {} if position == "learned_1d" else {"position": position}


def read_checkpoint(path, known, prefix=None):
    """A checkpoint from a file or folder of any family, told by the names of its arrays."""
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
    of_config = [f.name for f in FAMILIES if named in f.model_types]
    if family.model_types and of_config and family.name not in of_config:
        raise CheckpointError(
            f"{path!r} has a config.json of another model: model_type={named!r} stands for "
            f"{' or '.join(of_config)}, and the arrays are those of {family.name}. Put the one of "
            "this model beside the file, or none."
        )
    try:
        canonical = family.read(dataclasses.replace(contents, arrays=part.arrays), known)
        check_architecture(canonical)
        canonical.reading = reading_of_config(contents.config) or canonical.reading
    except CheckpointError as error:
        raise CheckpointError(f"{path!r}: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"{path!r}, or the config beside it, says what cannot be of a model of "
            f"{family.name}: {type(error).__name__}: {error}. Nothing was loaded."
        ) from error
    part.restore_names(canonical, contents.arrays)
    if base is not None:
        canonical.family += f", with an adapter of PEFT on {base}"
    canonical.source = Source(path, prefix=part.prefix, others=part.others)
    return canonical
