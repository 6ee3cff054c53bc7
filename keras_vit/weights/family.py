"""A family of checkpoints: the names of its arrays, its config, and what its library computes.

`Family.read` brings the arrays of a model into canonical form, and collects its arguments:

1. `arrays_of` (array_names.py) renames the arrays by `table`.
2. `architecture` tells most arguments from the shapes of the arrays.
3. `add_defaults` adds `defaults`, what the library of the family computes.
4. `add_config` (config_json.py) translates the config.json beside the file by `config`.
5. `complete`, in a subclass, does what is special in the family.
6. `settle` decides what is still open: activation, heads, positions, image size.

`Family.metadata` then tells how its images are prepared and what its outputs mean.
Of two sources that name an argument the one counts that `model_arguments.ORDER` has first. What
writes a file is in writable.py.
"""

import dataclasses
import re

from keras_vit.extensions import get_rotary
from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.text import shortened
from keras_vit.weights import model_arguments
from keras_vit.weights.array_names import ArrayNames
from keras_vit.weights.canonical import REQUIRED, ROOT, Metadata, architecture_of, heads_of
from keras_vit.weights.config_json import ConfigKeys
from keras_vit.weights.huggingface_images import class_names_of, reading_of_config
from keras_vit.weights.model_arguments import ARRAYS, CUSTOM, UNREPORTED, Arguments
from keras_vit.weights.safety import CheckpointError
from keras_vit.weights.tables import split_heads

MAX_FORMS, MAX_STARTS = 500, 4  # of names, and of their beginnings, that `of_no_family` looks at


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family(ArrayNames, ConfigKeys):
    """A format of Vision Transformers: an instance, or one of a subclass with other methods."""

    # Arguments of the model as the library of the family computes them.
    defaults: dict = dataclasses.field(default_factory=dict)
    preprocessing: Preprocessing = GOOGLE  # how images are prepared
    model = "VisionTransformer"  # the name of the class of its models

    @classmethod
    def with_fields_of(cls, family, **changes):
        """A family of this class that has the fields of another, but for `changes`."""
        return cls(**{**vars(family), **changes})

    def read(self, contents, caller):
        """The `CanonicalWeights` of a `Contents` and their `Arguments`, which know a caller's."""
        weights, arguments = self.arrays_of(contents.arrays), Arguments(caller)
        arguments.add(ARRAYS, **self.architecture(weights.arrays))
        self.add_defaults(arguments, has_stem=ROOT in weights.arrays)
        arguments.config = self.config_of_model(contents, arguments)
        self.add_config(arguments)
        self.check_arrays(weights.names_in_file, arguments.config)
        self.complete(weights, arguments, contents)
        self.settle(weights.arrays, arguments)
        return weights, arguments

    def architecture(self, arrays):
        """Arguments that the shapes of canonical arrays tell; the patches become a matrix."""
        arguments = architecture_of(arrays, self.name, self.optional)
        arrays[PROJECTION] = arrays[PROJECTION].reshape(-1, arguments["width"])
        return arguments if self.joined_heads else {**arguments, "num_heads": heads_of(arrays)}

    def add_defaults(self, arguments, has_stem):
        """Adds `defaults`; the report names those that a config could say."""
        configurable = {field for _, field, _ in self.settings()}
        for field, value in self.defaults.items():
            if field != "stem_numerics" or has_stem:
                why = None if field in configurable else UNREPORTED
                arguments.add(CUSTOM, why, **{field: value})

    def complete(self, weights, arguments, contents):
        """What is special in a family; changes `weights` and `arguments`."""

    def settle(self, arrays, arguments):
        """Decides what is still open; changes `arrays` and `arguments`."""
        model_arguments.infer_gelu(arguments)
        if self.joined_heads:
            model_arguments.infer_heads(arguments)
            split_heads(arrays, arguments["num_heads"], arguments.get("pool_heads"))
        model_arguments.infer_position(arrays, arguments)
        model_arguments.infer_image_size(arrays, arguments)
        arguments["rotary"] = get_rotary(arguments["rotary"])

    def metadata(self, arguments, contents):
        """The `Metadata` of the model in a `Contents`, whose `arguments` have been read.

        The load report names what no `Preprocessing` can say, and calls one assumed that no config
        says or that is only near to it; whoever uses it is warned.
        """
        preprocessing, beyond, is_stated = self.images(arguments, contents)
        why = "the family's, as no config beside the file says it; set model.preprocessing if not"
        if is_stated:
            why = f"the nearest to {', '.join(beyond)}, which nothing here does"
        if beyond or not is_stated:
            arguments.assumed["preprocessing"] = why
        config = contents.config if arguments.config else {}  # that of this model, as arrays show
        count, stated = arguments["num_classes"], config.get("num_classes")
        class_names, unfit = class_names_of(config, count)
        if stated not in (None, count):
            unfit += (f"num_classes={stated!r:.100} in its config, for {count} in its arrays",)
        arguments.ignored += (*unfit, *beyond)
        return Metadata(preprocessing, reading_of_config(config), class_names)

    def images(self, arguments, contents):
        """A `Preprocessing`, texts for what it cannot say, and whether it is known for the file."""
        return self.preprocessing, (), True


# ---- the refusal of files of no family


def of_no_family(names, families):
    """The error for a file of none of the families, by the names of its arrays."""
    if all(name.split(".")[-1].isdecimal() for name in names):
        return CheckpointError(
            "It holds a list of arrays without names, as torch-ema keeps averages, and which "
            "layers they are of is known only where it was written. Put them into the model "
            "there, as ema.copy_to(model.parameters()) does, and save model.state_dict()."
        )
    return CheckpointError(
        f"It is of no family known here. {_nearest(names, families)} "
        "docs/checkpoints.md lists the formats; what Keras itself wrote (.weights.h5) is read "
        "by model.load_weights(path)."
    )


def _nearest(names, families):
    """Which family has a place for most of the names, what it lacks and what it has no place for.

    Names may stand under a prefix. Of those that differ in numbers alone, one is looked at.
    """
    forms = {re.sub(r"\d+", "0", name): name for name in sorted(names, reverse=True)}
    forms = sorted(forms.values())[:MAX_FORMS]
    rows = [(f, {n: place for n in forms if (place := _place(n, f))}) for f in families]
    # Of several, the one whose table has most.
    family, fits = max(rows, key=lambda row: (len(row[1]), len(row[0].table.rows)))
    if not fits:
        return f"No family here has a name of its arrays, which are {shortened(forms, 4)}."
    present = {place for _, place in fits.values()}
    required = (n for n in REQUIRED if n not in present and n not in family.optional)
    missing = [family.table.name_of(name) for name in required]
    prefixes = sorted({prefix for prefix, _ in fits.values() if prefix})
    others = [name for name in forms if name not in fits]
    under = f" under {shortened(prefixes, 2)}" if prefixes else ""
    lacks = shortened(missing, 4) if missing else "nothing that every model has"
    return (
        f"The nearest is {family.name}, with {len(fits)} of {len(forms)} kinds of arrays{under}, "
        f"such as {next(iter(fits))!r:.200}. Missing: {lacks}; without a place there: "
        f"{shortened(others, 4) if others else 'none'}."
    )


def _place(name, family):
    """A prefix of a name and the canonical name of what follows it in a family, or `None`."""
    starts = [0, *(match.end() for match in re.finditer(r"[./]", name))][:MAX_STARTS]
    for start in starts:
        plain = re.sub(family.stripped, "", name[start:])
        if targets := family.table.targets(plain):
            return name[:start], targets[0]
    return None
