"""Which of the arrays of a file are the model, and in which of the formats that are read.

A training script saves a model under the name of a wrapper (`model.`, `module.`), in a dict of its
own, or beside others: a student and its teacher, averaged weights, the state of an optimizer. Dots
and slashes join all such names to prefixes of an array's name, and what lies under one of them is
the model if it is a whole one of a known family.
"""

import dataclasses
import functools
import itertools
import re
from typing import Any

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.text import shortened
from keras_vit.weights.canonical import REQUIRED, ROOT
from keras_vit.weights.family import of_other_model
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
    timm,
    vision_towers,
)
from keras_vit.weights.safety import CheckpointError

# The first that recognises a file reads it: families that share names with others come before
# those that have less beside them.
FAMILIES = (
    *huggingface_beit.FAMILIES,
    *huggingface_dino.FAMILIES[::-1],
    huggingface.FAMILY,
    *open_clip.FAMILIES,
    *official.FAMILIES,
    vision_towers.CLIP,
    vision_towers.SIGLIP,
    aimv2.FAMILY,
    aimv2.APPLE,
    timm.FAMILY,
    *bit.FAMILIES,
    official.TORCHVISION,
    keras_hub.FAMILY,
    *google.FAMILIES,
)
MAX_DEPTH = 8  # of dicts and wrappers in each other
MAX_PREFIXES = 100  # that look like those of models
# Of several alike in a file, one of these is what its authors evaluate: an average over training.
AVERAGES = {*"teacher ema momentum target averaged average avg swa shadow polyak".split()}
# No model, though the names of its arrays are repeated there; `opt/target/` is one of Flax.
STATES = re.compile(
    r"(.*[./_])?(optim(izers?)?(_states?)?(_dicts?)?|exp_avg(_sq)?|mu|nu|\w*buffers?|grads?)[./]"
    r"|(.*[./])?opt(_states?)?[./](?!target[./])"
)
# Of layers, anywhere in a name.
PYTORCH_WRAPPERS = re.compile(r"(?<=\.)_(orig_mod|checkpoint_wrapped_module|fsdp_wrapped_module)\.")
MAX_FORMS, MAX_STARTS = 500, 4  # of names, and of their beginnings, that `nearest` looks at


@dataclasses.dataclass(frozen=True)
class ModelInFile:
    """Which arrays of a file are the model, as their names tell.

    Attributes:
        family: the `Family` of its format, or `None` where none has such names.
        arrays: its arrays, by names without the prefix.
        origin: those names -> names in the file.
        prefix: what the names in the file begin with.
        others: prefixes of further models in the file.
    """

    family: Any
    arrays: dict
    origin: dict
    prefix: str = ""
    others: tuple = ()

    @property
    def is_whole(self):
        """Whether its family has a place for every array, and patches of a model are among them."""
        try:
            canonical = self.family.arrays_of(self.arrays)[0] if self.family else {}
        except CheckpointError:
            return False
        return PROJECTION in canonical or ROOT in canonical


def find_model(contents, prefix=None):
    """The model in the `Contents` of a file, whose names begin with `prefix` there.

    Raises:
        CheckpointError: nothing begins with `prefix`, there are several models, or one of no known
            format, or beside it is the config.json of another.
    """
    model = _model_in(contents.arrays, prefix)
    if model.family is None:
        if all(name.split(".")[-1].isdecimal() for name in contents.arrays):
            raise CheckpointError(
                "It holds a list of arrays without names, as torch-ema keeps averages, and which "
                "layers they are of is known only where it was written. Put them into the model "
                "there, as ema.copy_to(model.parameters()) does, and save model.state_dict()."
            )
        raise CheckpointError(
            f"It is of no family known here. {nearest(contents.arrays)} "
            "docs/checkpoints.md lists the formats; what Keras itself wrote (.weights.h5) is read "
            "by model.load_weights(path)."
        )
    model_type, own = contents.config.get("model_type"), model.family.model_types
    of_config = [f.name for f in FAMILIES if model_type in f.model_types]
    if own and of_config and model_type not in own:
        stands_for = f"model_type={model_type!r} stands for {' or '.join(of_config)}"
        what = f"{stands_for}, and the arrays are those of {model.family.name}"
        raise of_other_model({}, what)
    return model


def _model_in(arrays, prefix):
    """The `ModelInFile` of the arrays of a file."""
    start = _completed_prefix("" if prefix is None else prefix, arrays)
    trained = [f for f in FAMILIES if any(re.search(f.training_state, name) for name in arrays)]
    under = functools.partial(_model_under, arrays=arrays, trained=trained)
    everything = under(start)
    if everything.is_whole:
        return everything
    models = _add_outermost(_models_below(start, arrays, under), start, arrays, under)
    is_outermost_whole = any(model.prefix == start for model in models)
    # A family that knows most of the names: then the others are a fault.
    has_fault = everything.family and everything.family.knows_most(everything.arrays)
    if not is_outermost_whole and (prefix == "" or has_fault):
        return everything
    return _chosen(models, asked=None if prefix is None else start) or everything


def _completed_prefix(prefix, names):
    """A caller's prefix with the dot or slash that ends it in the names."""
    if not isinstance(prefix, str):
        raise CheckpointError(f"prefix must be a text such as 'student.'. Received: {prefix!r}.")
    for choice in (prefix + ".", prefix + "/", prefix):
        if any(name.startswith(choice) for name in names):
            return choice
    if not names:
        raise CheckpointError("It holds no arrays. Give the file that the weights were saved in.")
    first = dict.fromkeys(re.match(r"[^./]*[./]?", name)[0] for name in names)
    raise CheckpointError(
        f"No name of an array begins with the prefix. Received: prefix={prefix!r}; the names in "
        f"the file begin with {shortened(first, 8)}."
    )


def _model_under(prefix, arrays, trained, besides=()):
    """The `ModelInFile` whose names begin with a prefix, and with none of those `besides`.

    `trained` are the families whose training left something in the file, which come first.
    """
    origin = {
        name.removeprefix(prefix): name
        for name in arrays
        if name.startswith(prefix) and not name.startswith(besides)
    }
    unwrapped = {PYTORCH_WRAPPERS.sub("", name): stored for name, stored in origin.items()}
    origin = unwrapped if len(unwrapped) == len(origin) else origin
    named = {name: arrays[stored] for name, stored in origin.items()}
    authors = (f for f in trained if ModelInFile(f, named, origin).is_whole)
    recognised = (f for f in FAMILIES if f.recognises(named))
    family = next(itertools.chain(authors, recognised), None)
    return ModelInFile(family, named, origin, prefix)


def _models_below(start, names, under):
    """The whole models under prefixes that begin with `start`, none of them a part of another."""
    models = []
    for prefix in _prefixes(names, start):
        is_part = any(prefix.startswith(model.prefix) for model in models)
        if not is_part and (model := under(prefix)).is_whole:
            models.append(model)
    return models


def _prefixes(names, start):
    """Prefixes behind which a name is one that only some family has, the shortest first."""
    signatures = re.compile("|".join(f"(?:{family.signature})" for family in FAMILIES))
    prefixes = {
        name[:end]
        for name in names
        for end in (dot.end() for dot in itertools.islice(re.finditer(r"[./]", name), MAX_DEPTH))
        if name.startswith(start) and end > len(start) and signatures.match(name, end)
        # The stem of a hybrid has the names of a BiT.
        if "patch_embed" not in name[:end]
    }
    if len(prefixes) > MAX_PREFIXES:
        raise CheckpointError(
            "Too many parts of the file look like models. Received: "
            f"{shortened(sorted(prefixes))}; say which one it is: prefix=..."
        )
    return sorted(prefixes, key=lambda prefix: (len(prefix), prefix))


def _add_outermost(models, start, names, under):
    """The models, and before them what stands beside them under `start`, if it is a whole one.

    One of them may be its part, such as the encoder of a classifier.
    """
    states = [name[: match.end()] for name in names if (match := STATES.match(name.lower()))]
    for part in (None, *models):
        others = [model for model in models if model is not part]
        outermost = under(start, besides=(*(model.prefix for model in others), *set(states)))
        if outermost.is_whole:
            return [outermost, *others]
    return models


def _chosen(models, asked):
    """The model with the prefix `asked` for, the only one, or the only average, if there is one."""
    models = [m for m in models if not STATES.match(m.prefix.lower())]
    choice = [m for m in models if m.prefix == asked]
    choice = choice or [m for m in models if _is_average(m, models)] or models
    if len(choice) > 1:
        listed = ", ".join(f"{len(m.arrays)} arrays under {m.prefix!r}" for m in models)
        raise CheckpointError(
            f"The file holds several models: {listed}. Say prefix={models[0].prefix!r} (of "
            "keras_vit.from_checkpoint or keras_vit.load_weights), or another of these."
        )
    if not choice:
        return None
    others = tuple(m.prefix for m in models if m is not choice[0])
    return dataclasses.replace(choice[0], others=others)


def _is_average(model, models):
    """Whether a model is called an average, and has the shapes of another, unlike a teacher."""
    words = set(re.split(r"[\W_\d]+", model.prefix.lower()))
    # Heads of training may differ.
    shapes = lambda m: {(n, a.shape) for n, a in m.arrays.items() if "head" not in n}  # noqa: E731
    pairs = ((shapes(model), shapes(other)) for other in models if other is not model)
    return bool(AVERAGES & words) and any(own <= other or other <= own for own, other in pairs)


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
    starts = [0, *(match.end() for match in re.finditer(r"[./]", name))][:MAX_STARTS]
    for start in starts:
        plain = re.sub(family.stripped, "", name[start:])
        if targets := family.table.targets(plain):
            return name[:start], targets[0]
    return None
