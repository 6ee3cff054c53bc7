"""Families of the catalogue: who published weights, and what people call architectures."""

import re

from keras_vit.text import unknown

FAMILIES = (*"google big_vision timm huggingface meta torchvision bit keras_hub keras_vit".split(),)


def of_family(family, everything):
    """The checkpoints of a publisher or of architectures of a name; `None` where none is given.

    A name is a part of the variant or of the checkpoint's own name, perhaps with a version after
    it; or else what the variant begins with.
    """
    if family is None:
        return None
    if family in FAMILIES:
        return {c for c in everything if c.family == family}
    letters = lambda text: re.sub(r"[^0-9a-z]", "", str(text).lower())  # noqa: E731
    word = re.compile(re.escape(letters(family)) + r"(v?\d+)?")
    parts = lambda text: re.split(r"[^0-9a-z]+", text.lower())  # noqa: E731
    found = {c for c in everything if any(map(word.fullmatch, parts(f"{c.variant} {c.name}")))}
    found = found or {c for c in everything if letters(c.variant).startswith(letters(family))}
    if not found or not letters(family):
        known = dict.fromkeys(re.split(r"[-/+]|v?\d", c.variant)[0] for c in everything)
        known = sorted({name for name in known if len(name) > 2} - {"mini"})
        raise unknown("family", family, [*known, *FAMILIES])
    return found
