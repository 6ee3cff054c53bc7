"""The search for the model in a file, by the names of its arrays.

A training script saves a model under the name of a wrapper (`model.`, `module.`), in a dict of its
own, or beside others: a student and its teacher, averaged weights, the state of an optimizer. Dots
and slashes join all such names to prefixes of an array's name. What lies under a prefix is a model
if it is a whole one of a known family.
"""

import dataclasses
import itertools
import re
from typing import Any

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.text import shortened
from keras_vit.weights.canonical import ROOT
from keras_vit.weights.safety import CheckpointError

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


@dataclasses.dataclass(frozen=True)
class ModelInFile:
    """Which arrays of a file are the model."""

    family: Any  # the `Family` of its format, or `None` where none has such names
    arrays: dict  # its arrays, by names without the prefix
    names_in_file: dict  # those names -> names in the file
    prefix: str = ""  # what the names in the file begin with
    others: tuple = ()  # prefixes of further models in the file

    @property
    def is_whole(self):
        """Whether its family has a place for every array, and patches of a model are among them."""
        try:
            canonical = self.family.arrays_of(self.arrays).arrays if self.family else {}
        except CheckpointError:
            return False
        return PROJECTION in canonical or ROOT in canonical

    def is_average_of(self, other):
        """Whether it is called an average and has the shapes of another, unlike a teacher."""
        words = set(re.split(r"[\W_\d]+", self.prefix.lower()))
        own, others = (  # heads of training may differ
            {(name, array.shape) for name, array in model.arrays.items() if "head" not in name}
            for model in (self, other)
        )
        return bool(AVERAGES & words) and (own <= others or others <= own)


class Search:
    """Finds the model among the arrays of a file, which has the format of one of `families`."""

    def __init__(self, arrays, families):
        self.arrays, self.families = arrays, families
        # Families whose own training left something in the file, which are tried first.
        self.trained = [f for f in families if any(re.search(f.training_state, n) for n in arrays)]

    def find(self, prefix=None):
        """The `ModelInFile` under a prefix, or for `None` the only one or the average."""
        start = "" if prefix is None else self.completed(prefix)
        everything = self.model_under(start)  # of the file, or of the part that was asked for
        if everything.is_whole:
            return everything
        models = self.with_outermost(start, self.models_below(start))
        if not any(model.prefix == start for model in models):
            # A family that knows most of the names: then the others are a fault in its model.
            has_fault = everything.family and everything.family.knows_most(everything.arrays)
            if has_fault or prefix == "":
                return everything
        return chosen(models, asked=None if prefix is None else start) or everything

    def completed(self, prefix):
        """A caller's prefix with the dot or slash that ends it in the names."""
        if not isinstance(prefix, str):
            raise CheckpointError(
                f"prefix must be a text such as 'student.'. Received: {prefix!r}."
            )
        for choice in (prefix + ".", prefix + "/", prefix):
            if any(name.startswith(choice) for name in self.arrays):
                return choice
        first = dict.fromkeys(re.match(r"[^./]*[./]?", name)[0] for name in self.arrays)
        raise CheckpointError(
            f"No name of an array begins with the prefix. Received: prefix={prefix!r}; the names "
            f"in the file begin with {shortened(first, 8)}."
        )

    def model_under(self, prefix, without=()):
        """The `ModelInFile` with names that begin with a prefix, and with none `without`."""
        names = {
            name.removeprefix(prefix): name
            for name in self.arrays
            if name.startswith(prefix) and not name.startswith(without)
        }
        unwrapped = {PYTORCH_WRAPPERS.sub("", plain): name for plain, name in names.items()}
        names = unwrapped if len(unwrapped) == len(names) else names
        arrays = {plain: self.arrays[name] for plain, name in names.items()}
        trained = (f for f in self.trained if ModelInFile(f, arrays, names).is_whole)
        recognised = (f for f in self.families if f.recognises(arrays))
        family = next(itertools.chain(trained, recognised), None)
        return ModelInFile(family, arrays, names, prefix)

    def models_below(self, start):
        """The whole models under longer prefixes than `start`, none of them a part of another."""
        models = []
        for prefix in self.prefixes(start):
            is_part = any(prefix.startswith(model.prefix) for model in models)
            if not is_part and (model := self.model_under(prefix)).is_whole:
                models.append(model)
        return models

    def prefixes(self, start):
        """Prefixes behind which a name is one that only some family has, the shortest first."""
        signatures = re.compile("|".join(f"(?:{family.signature})" for family in self.families))
        prefixes = {
            name[:end]
            for name in self.arrays
            for end in (m.end() for m in itertools.islice(re.finditer(r"[./]", name), MAX_DEPTH))
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

    def with_outermost(self, start, models):
        """The models, and before them what stands beside them under `start`, if it is a whole one.

        One of them may be its part, such as the encoder of a classifier.
        """
        states = {name[: m.end()] for name in self.arrays if (m := STATES.match(name.lower()))}
        for part in (None, *models):
            others = [model for model in models if model is not part]
            outermost = self.model_under(start, (*(model.prefix for model in others), *states))
            if outermost.is_whole:
                return [outermost, *others]
        return models


def chosen(models, asked):
    """The model with the prefix `asked` for, the only one, or the only average, if there is one."""
    models = [m for m in models if not STATES.match(m.prefix.lower())]
    averages = [m for m in models if any(m.is_average_of(o) for o in models if o is not m)]
    choice = [m for m in models if m.prefix == asked] or averages or models
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
