"""The catalogue of published checkpoints: find one by name, or list what there is.

Names, places and resolutions are the publishers'; the accuracies are what they measured with
their own preprocessing, so numbers of different families do not compare exactly. Several ports
report that the 21 843-way head of the original `imagenet21k/` files holds zeros, and leave it out:
those files are for fine-tuning, the `augreg/…-i21k-…` ones also predict.

Sources: the README, notebooks and configurations of google-research/vision_transformer,
google-research/big_vision, google-research/big_transfer, huggingface/pytorch-image-models,
huggingface/transformers, keras-team/keras-hub and facebookresearch/deit.
"""

import difflib
import functools
import re
import textwrap

from keras_vit.checks import check_choice
from keras_vit.weights.catalog_tables import (
    FAMILIES,
    VTAB_RUNS,
    VTAB_TASKS,
    Checkpoint,
    read_tables,
)

__all__ = ["FAMILIES", "Checkpoint", "aliases", "checkpoints", "find", "list_weights"]

_WIDTH = 50  # of the column of names: longer ones get a line of their own
_SHORT = {"imagenet-21k": "i21k", "imagenet-1k": "i1k"}


def find(name):
    """The checkpoint of a name.

    Besides the exact name these lead to it: its URL (for a file of Google's buckets with `gs://`
    or `https://storage.googleapis.com/`, with or without the part after the colon), the name of
    the file where no other checkpoint shares it, each with or without `.npz`; `timm/…` or
    `hf://timm/…`; `hf://…` for Hugging Face; a Kaggle handle without its version; and
    big_vision's own short names, such as `"howto-i21k-B/16"`. One file may be published under
    two names (Google's and timm's): its URL stands for Google's.

    Args:
        name: the name, such as `"augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"`
            or `"vit_base_patch16_224.augreg_in21k"`.

    Returns:
        A `Checkpoint`.

    Raises:
        ValueError: no such checkpoint, with the closest names, or several.
    """
    text = str(name)
    names, places, files = _index()
    for key in (text, text.removesuffix(".npz")):
        if key in names:
            return names[key]
    if _place(text) in places:
        return places[_place(text)]
    found = files.get(_place(text), ())
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(
            f"Several checkpoints have a file of this name. Received: name={name!r}; choose one "
            f"of {[checkpoint.name for checkpoint in found]}."
        )
    raise ValueError(_unknown(text, [*names, *places, *files]))


def checkpoints(variant=None, family=None):
    """The checkpoints of an architecture, of a family, or all.

    Args:
        variant: such as `"B/16"`, also written `"B16"`, `"ViT-B/16"`, `"ViT_B16"` or `"vit_b16"`;
            `None` for every one.
        family: one of `FAMILIES`, or `None` for every one.

    Returns:
        A tuple of `Checkpoint`, in the order of the catalogue.

    Raises:
        ValueError: a variant that no checkpoint has, or an unknown family.
    """
    everything, _ = read_tables()
    if family is not None:
        check_choice("family", family, FAMILIES)
    wanted = None if variant is None else _variant(variant)
    return tuple(
        checkpoint
        for checkpoint in everything
        if wanted in (None, checkpoint.variant) and family in (None, checkpoint.family)
    )


def list_weights(variant=None, family=None):
    """Prints a table of checkpoints and returns them.

    The columns are the name for `weights=`, the architecture, the resolution (px), the number of
    classes, the data sets (pre-training → fine-tuning), the size in MiB (after `~` computed from
    the number of float32 parameters), the published ImageNet top-1 accuracy, and the licence. The
    285 files of BiT on VTAB-1k share one line per model.

    Args:
        variant: as for `checkpoints`.
        family: as for `checkpoints`.

    Returns:
        A tuple of `Checkpoint`: those printed, each VTAB file by itself.

    Raises:
        ValueError: as for `checkpoints`.
    """
    found = checkpoints(variant, family)
    print(_table(found))
    return found


def aliases(name):
    """The further names of a checkpoint that do not follow from its name or URL.

    Args:
        name: as for `find`.

    Returns:
        A tuple of strings, each of which `find` takes.

    Raises:
        ValueError: no such checkpoint.
    """
    checkpoint = find(name)
    return tuple(alias for alias, of in read_tables()[1].items() if of == checkpoint.name)


@functools.cache
def _index():
    """Three dicts to checkpoints: from names, from places, and from file names to all of them."""
    everything, others = read_tables()
    names = {checkpoint.name: checkpoint for checkpoint in everything}
    names.update({alias: names[name] for alias, name in others.items()})
    places, files = {}, {}
    for checkpoint in everything:
        for place in _places(checkpoint):
            # Google's records come first, so that theirs are the URLs that timm's share.
            places.setdefault(place, checkpoint)
        if checkpoint.family in ("google", "big_vision", "bit"):
            files.setdefault(_place(checkpoint.url).split("/")[-1], []).append(checkpoint)
    return names, places, files


def _places(checkpoint):
    yield _place(checkpoint.url)
    if checkpoint.family == "timm":
        yield from (f"timm/{checkpoint.name}", f"hf://timm/{checkpoint.name}")
    if checkpoint.family == "keras_hub":
        yield checkpoint.url.rpartition("/")[0]


def _place(text):
    """One spelling for all URLs of a file in Google's buckets."""
    text = re.sub(r"(?<=\.npz):\w+$", "", text)
    text = re.sub(r"^https://storage\.googleapis\.com/", "gs://", text)
    return text.removesuffix(".npz")


def _unknown(text, known):
    spelled = {key.lower(): key for key in reversed(known)}
    close = difflib.get_close_matches(text.lower(), spelled, n=5, cutoff=0.6)
    message = f"Unknown checkpoint. Received: name={text!r}; "
    variants = _variants_like(text)
    if len(variants) == 1:
        message += f"that is an architecture: list_weights(variant={variants[0]!r}) prints its "
        return message + "checkpoints."
    if close:
        message += f"did you mean one of {[spelled[key] for key in close]}? "
    return message + "list_weights() prints all names."


def _variant(text):
    found = _variants_like(str(text))
    if len(found) == 1:
        return found[0]
    known = list(dict.fromkeys(checkpoint.variant for checkpoint in read_tables()[0]))
    raise ValueError(
        f"No checkpoint of such a variant is published. Received: variant={text!r}; expected one "
        f"of {known}, however punctuated and with or without 'ViT'."
    )


def _variants_like(text):
    """The variants that differ from `text` in punctuation only, or else in case too."""
    known = dict.fromkeys(checkpoint.variant for checkpoint in read_tables()[0])
    exact = [variant for variant in known if _letters(variant) == _letters(text)]
    # The case decides between names such as g/14 and G/14, and is ignored where it need not.
    return exact or [v for v in known if _letters(v).lower() == _letters(text).lower()]


def _letters(text):
    return re.sub(r"(?i)vit|bit|[^0-9a-z]", "", text)


def _table(found):
    titles = ("name", "variant", "px", "classes", "trained on", "MiB", "top-1", "licence")
    rows = {family: {} for family in FAMILIES}
    for checkpoint in found:
        row = _row(checkpoint)
        rows[checkpoint.family].setdefault(row[0], row)
    rows = {family: list(of.values()) for family, of in rows.items() if of}
    lines = [_line(titles)]
    for family, of in rows.items():
        lines += ["", f"{family}:", *map(_line, of)]
    return "\n".join([*lines, *_footnotes(found)])


def _row(checkpoint):
    vtab = checkpoint.name.startswith("vtab/")
    return (
        f"{checkpoint.name.partition('-run')[0]}-run*-*" if vtab else checkpoint.name,
        checkpoint.variant,
        _or_dash(checkpoint.image_size),
        "*" if vtab else _or_dash(checkpoint.num_classes),
        " → ".join(_data_sets(checkpoint, vtab)),
        _mib(checkpoint),
        _or_dash(_percent(dict(checkpoint.accuracy).get("imagenet top-1"))),
        checkpoint.licence,
    )


def _line(row):
    name, *facts = row
    formats = ("{:<10}", "{:>4}", "{:>7}", "{:<14}", "{:>5}", "{:>5}", "{:<10}")
    cells = "  ".join(form.format(cell) for form, cell in zip(formats, facts)).rstrip()
    separator = "  " if len(name) <= _WIDTH else "\n" + " " * (_WIDTH + 2)
    return f"{name:<{_WIDTH}}{separator}{cells}"


def _footnotes(found):
    names = {checkpoint.name for checkpoint in found}
    if any(name.startswith("vtab/") for name in names):
        runs, tasks = ", ".join(map(str, VTAB_RUNS)), ", ".join(VTAB_TASKS)
        text = f"The * of vtab/BiT-M-…-run*-* are the runs {runs} and the tasks {tasks}."
        yield "\n" + textwrap.fill(text, 116, break_on_hyphens=False)
    others = {a: name for a, name in read_tables()[1].items() if name in names and "://" not in a}
    if others:
        yield "\nother names:"
        yield from (f"{alias:<18}{name}" for alias, name in others.items())


def _data_sets(checkpoint, vtab):
    sets = (checkpoint.pretrained_on, "vtab-1k" if vtab else checkpoint.finetuned_on)
    return [_SHORT.get(data, data) for data in sets if data]


def _mib(checkpoint):
    if checkpoint.approximate_mib:
        return f"{checkpoint.approximate_mib:.0f}"
    return f"~{checkpoint.parameters * 4 / 2**20:.0f}" if checkpoint.parameters else "-"


def _percent(value):
    return None if value is None else f"{value:.2f}"


def _or_dash(value):
    return "-" if value in (None, 0) else str(value)
