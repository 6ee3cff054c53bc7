"""The formats that are read, and what is told of a file that has none of them."""

import re

from keras_vit.weights.architecture import REQUIRED
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
    timm,
    torchvision,
    vision_towers,
)
from keras_vit.weights.reading import CheckpointError
from keras_vit.weights.tables import shortened

MAX_FORMS, MAX_PREFIXES = 500, 4  # of names, and of their beginnings, that `nearest` looks at

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


def check_family(family, contents):
    """Raises an error for a file of no format, or one with the config.json of another."""
    if family is None:
        raise CheckpointError(
            f"It is of no family known here. {nearest(contents.arrays)} "
            "docs/checkpoints.md lists the formats; what Keras itself wrote (.weights.h5) is read "
            "by model.load_weights(path)."
        )
    model_type = contents.config.get("model_type")
    of_config = [f.name for f in FAMILIES if model_type in f.model_types]
    if family.model_types and of_config and family.name not in of_config:
        raise CheckpointError(
            f"It has a config.json of another model: model_type={model_type!r} stands for "
            f"{' or '.join(of_config)}, and the arrays are those of {family.name}. Put the one of "
            "this model beside the file, or none."
        )


def nearest(names):
    """Which family has a place for most of the names, what it lacks and what is besides, as text.

    Names may stand under a prefix. Of those that differ in numbers alone, one is looked at.
    """
    forms = {re.sub(r"\d+", "0", name): name for name in sorted(names, reverse=True)}
    forms = sorted(forms.values())[:MAX_FORMS]
    rows = [(f, {n: place for n in forms if (place := _place(n, f))}) for f in FAMILIES]
    # Of several, the one whose table has most.
    family, fits = max(rows, key=lambda row: (len(row[1]), len(row[0].table.rows)))
    if not fits:
        return f"No family here has a name of its arrays, which are {shortened(forms, 4)}."
    present = {place for _, place in fits.values()}
    required = (n for n in REQUIRED if n not in present and n not in family.optional)
    missing = [family.table.name_of(name) for name in required]
    prefixes = sorted({prefix for prefix, _ in fits.values() if prefix})
    besides = [name for name in forms if name not in fits]
    under = f" under {shortened(prefixes, 2)}" if prefixes else ""
    lacks = shortened(missing, 4) if missing else "nothing that every model has"
    return (
        f"The nearest is {family.name}, with {len(fits)} of {len(forms)} kinds of arrays{under}, "
        f"such as {next(iter(fits))!r:.200}. Missing: {lacks}; without a place there: "
        f"{shortened(besides, 4) if besides else 'none'}."
    )


def _place(name, family):
    """A prefix of a name and the canonical name of what follows it in a family, or `None`."""
    starts = [0, *(match.end() for match in re.finditer(r"[./]", name))][:MAX_PREFIXES]
    for start in starts:
        plain = re.sub(family.stripped, "", name[start:])
        if targets := family.table.targets(plain):
            return name[:start], targets[0]
    return None
