"""Whose checkpoint it is: told by the names of the arrays, never by the name of the file."""

import dataclasses

from keras_vit.checks import positive_int
from keras_vit.layers.patches import grid_of
from keras_vit.variants import Variant
from keras_vit.weights import big_vision, bit, google, huggingface, keras_hub, timm
from keras_vit.weights.canonical import shortened
from keras_vit.weights.files import CheckpointError

FAMILIES = (huggingface, timm, *bit.FORMATS, big_vision, google)


def read(contents, hints):
    """The `Canonical` of a checkpoint of any family.

    Args:
        contents: a `Contents`.
        hints: dict of what the caller knows beside it, with the constructor's argument names.

    Raises:
        CheckpointError: no family knows these names, its reader refuses the file, or what the
            file says about its architecture cannot be.
    """
    family = _family_of(contents)
    try:
        canonical = family.read(contents, hints)
        _check_architecture(canonical)
    except CheckpointError as error:
        raise CheckpointError(f"{str(contents.path)!r}: {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"{str(contents.path)!r}, or the config beside it, says what cannot be of a model of "
            f"{family.FAMILY}: {type(error).__name__}: {error}. Nothing was loaded."
        ) from error
    canonical.path = str(contents.path)
    return canonical


def _family_of(contents):
    if not contents.arrays:  # an HDF5 file, which is its family's to open
        return keras_hub
    for family in FAMILIES:
        if family.recognises(contents.arrays):
            return family
    raise CheckpointError(
        f"{str(contents.path)!r} is of no family known here. Its arrays are "
        f"{shortened(sorted(contents.arrays))}; expected a model of "
        f"{', '.join(family.FAMILY for family in (*FAMILIES, keras_hub))}."
    )


def _check_architecture(canonical):
    """Raises a ValueError for numbers that no model has; a config may say anything."""
    found = canonical.architecture
    positive_int(found["channels"], "channels")
    if canonical.model == "BiT":
        return
    fields = {field.name for field in dataclasses.fields(Variant)}
    variant = Variant(**{name: value for name, value in found.items() if name in fields})
    grid_of(variant.feature_map(found["image_size"]), variant.patch_size)
