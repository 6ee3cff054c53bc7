"""What models and weights are, told without a download or a model that is built for it."""

import dataclasses

from keras_vit.checks import pair
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.variants import VARIANTS
from keras_vit.weights import catalog
from keras_vit.weights.fetch import fetch
from keras_vit.weights.load import SIZE
from keras_vit.weights.locate import locate
from keras_vit.weights.readers import read


def name_of(model):
    """The name of a model's architecture, such as `"B/16"`, or `None` where no published size fits.

    The published weights that the model began with tell it, or the only architecture that is equal.
    Where several are, as families share theirs, it is the size of the paper that differs least,
    also with other patches, as in `"B/24"`.
    """
    variant, tables = model.variant, {**VARIANTS, **BIT_VARIANTS}
    names = [field.name for field in dataclasses.fields(variant)]
    equal = {
        name: sum(getattr(row, n) == getattr(variant, n) for n in names)
        for name, row in tables.items()
        if type(row) is type(variant)
        and all(getattr(row, n) == getattr(variant, n) for n in SIZE if n in names)
    }
    records = catalog.lookup(model.weights_from) if model.weights_from else ()
    published = {record.variant.removeprefix("BiT-") for record in records} & equal.keys()
    same = [name for name, count in equal.items() if count == len(names)]
    for known in (published, same):
        if len(known) == 1:
            return next(iter(known))
    plain = [name for name in equal if "-" not in name]
    name = max(plain or equal, key=equal.get, default=None)
    patch = getattr(variant, "patch_size", None)
    if name is None or patch is None or tables[name].patch_size == patch:
        return name
    square = variant.stem is None and patch[0] == patch[1]
    return f"{name.partition('/')[0]}/{patch[0]}" if square else None


def image_size_of(weights):
    """The (height, width) in pixels that a checkpoint was trained at.

    That of published weights is looked up in the catalogue, and nothing is downloaded for it.

    Raises:
        FileNotFoundError, ValueError: as `from_checkpoint`.
    """
    source, record = locate(weights)
    if record is not None and record.image_size:
        return pair(record.image_size, "image_size")
    return read(source, record, caller={}).architecture["image_size"]


def unfetched(weights):
    """The record of published weights that would have to be downloaded; `None` for all others."""
    source, record = locate(weights)
    if record is None:
        return None
    try:
        fetch(source, size=record.size, offline=True)
    except OSError:
        return record
    return None
