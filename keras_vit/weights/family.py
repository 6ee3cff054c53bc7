"""A family of checkpoints: what its files call the arrays, and what its library computes.

`Family.read` brings a file into canonical form, and collects the arguments of its model:

1. `arrays_of` renames the arrays by `table`.
2. `architecture` tells most arguments from the shapes of the arrays.
3. `defaults` are what the library of the family computes.
4. `config` translates the config.json beside the file, if it does not contradict the arrays.
5. `complete`, in a subclass, does what is special in the family.
6. `settle` decides what is still open: activation, heads, positions, image size.

Of two sources that name an argument the one counts that `model_arguments.ORDER` has first. What
writes a file is in writable.py.
"""

import dataclasses
import re

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.text import shortened
from keras_vit.weights.canonical import ROOT, CanonicalCheckpoint, architecture_of, heads_of
from keras_vit.weights.model_arguments import ARRAYS, CONFIG, CUSTOM, UNREPORTED, Arguments, settle
from keras_vit.weights.safety import CheckpointError
from keras_vit.weights.tables import Table


@dataclasses.dataclass(frozen=True)
class Family:
    """A format of Vision Transformers: an instance, or one of a subclass with other methods."""

    name: str  # whose format it is
    table: Table
    signature: str = r"(?!)"  # pattern of a name by which its files are recognised
    # Pattern of what only the training of its authors leaves in a file, wherever in a name.
    training_state: str = r"(?!)"
    stripped: str = r"(?!)"  # pattern of the part of a name that is left out, such as a prefix
    ignored: tuple = ()  # patterns of names that are no part of a model
    # Pattern of names -> the part that no model here has.
    unsupported: dict = dataclasses.field(default_factory=dict)
    optional: tuple = ()  # names of `canonical.REQUIRED` that some models of the family lack
    joined_heads: bool = False  # whether the file has no axis for the heads
    # Fields of the variant as the library of the family computes them.
    defaults: dict = dataclasses.field(default_factory=dict)
    # Key of config.json -> argument, or (argument, dict from its values to those here). What arrays
    # show is compared; for the argument `None` the value is only checked.
    config: dict = dataclasses.field(default_factory=dict)
    # What a config.json calls the models whose arrays have these names, where it says so.
    model_types: tuple = ()
    # Key of config.json -> an array that is there just where its value is true: its canonical name
    # or that in the file.
    arrays_by_key: dict = dataclasses.field(default_factory=dict)
    # Whether a config.json that contradicts the arrays is an error; if not, it is of another model
    # and not read.
    needs_config: bool = False
    preprocessing: Preprocessing = GOOGLE  # how images are prepared
    model = "VisionTransformer"  # the name of its class

    @classmethod
    def with_fields_of(cls, family, **changes):
        """A family of this class that has the fields of another, but for `changes`."""
        return cls(**{**vars(family), **changes})

    def recognises(self, arrays):
        """Whether these are the names of this family."""
        return any(re.match(self.signature, name) for name in arrays)

    def knows_most(self, file):
        """Whether more than half of the names in a file are of this format."""
        plain = (self.plain_name(name, file) for name in file)
        ignored = re.compile("|".join(self.ignored) or r"(?!)")
        known = [n for n in plain if self.table.targets(n) or ignored.fullmatch(n)]
        return 2 * len(known) > len(file)

    def arrays_of(self, file):
        """Canonical arrays of those in a file, their names there, and the names left aside.

        Patch kernels have the shape (height, width, channels, width of a token).
        """
        plain = [self.plain_name(name, file) for name in file]
        names = dict(zip(plain, file))
        if twice := sorted({p for p, name in zip(plain, file) if names[p] != name}):
            raise CheckpointError(
                f"The file has the same arrays with and without {self.stripped}: "
                f"{shortened(twice, 4)}."
            )
        tower = {plain: file[name] for plain, name in names.items()}
        for pattern, what in self.unsupported.items():
            if named := [name for name in tower if re.fullmatch(pattern, name)]:
                raise unsupported(f"{what} ({named[0]!r} and {len(named) - 1} more)")
        try:
            layers = self.unstacked(tower)
        except (ValueError, LookupError) as error:
            text = f"Arrays that join several layers have other shapes ({error})."
            raise CheckpointError(text) from error
        arrays, origin, ignored = self.table.read(layers, self.name, self.ignored)
        origin = {target: names.get(where, where) for target, where in origin.items()}
        return arrays, origin, tuple(names.get(name, name) for name in ignored)

    def plain_name(self, name, file):
        """The name of an array as it stands in the table."""
        return re.sub(self.stripped, "", name)

    def unstacked(self, tower):
        """The arrays, each of them for one layer."""
        return tower

    def read(self, contents, caller):
        """The `CanonicalCheckpoint` of a `Contents`, for the arguments that a caller gave."""
        arrays, origin, ignored = self.arrays_of(contents.arrays)
        arguments = Arguments(caller)
        arguments.add(ARRAYS, **self.architecture(arrays))
        canonical = CanonicalCheckpoint(
            self.name, arrays, origin, arguments, ignored, self.preprocessing, model=self.model
        )
        configurable = {field for _, field, _ in self.settings()}
        for field, value in self.defaults.items():
            if field != "stem_numerics" or ROOT in arrays:
                why = None if field in configurable else UNREPORTED
                arguments.add(CUSTOM, why, **{field: value})
        arguments.config = self.config_of_model(contents, arguments)
        self.add_config(arguments)
        self.check_arrays_by_key(origin, arguments.config)
        self.complete(canonical, contents)
        self.settle(canonical)
        return canonical

    def architecture(self, arrays):
        """Arguments that the shapes of canonical arrays tell; the patches become a matrix."""
        arguments = architecture_of(arrays, self.name, self.optional)
        arrays[PROJECTION] = arrays[PROJECTION].reshape(-1, arguments["width"])
        return arguments if self.joined_heads else {**arguments, "num_heads": heads_of(arrays)}

    def settle(self, canonical):
        """Decides what is still open; changes `canonical` and its arguments."""
        settle(canonical, joined_heads=self.joined_heads)

    def settings(self):
        """The rows of `config` as (key, argument, meanings or `None`)."""
        rows = self.config.items()
        return [(key, *row) if isinstance(row, tuple) else (key, row, None) for key, row in rows]

    def flat_config(self, contents):
        """The config.json beside the arrays as one dict."""
        return contents.config

    def config_of_model(self, contents, arguments):
        """The config.json beside the arrays as one dict, empty if it is of another model."""
        config = self.flat_config(contents)
        fields = {key: field for key, field, _ in self.settings() if key in config}
        wrong = arguments.contradictions(config, fields)
        if wrong and self.needs_config:
            raise of_other_model(config, f"(config, file) differ in {wrong}")
        is_of_model = self.needs_config or (fields and not wrong)
        return config if is_of_model else {}

    def add_config(self, arguments):
        """Adds what the config of the model says of its arguments."""
        config = arguments.config
        for key, field, meanings in self.settings():
            if key not in config:
                continue
            value = config[key]
            if meanings is not None:
                if value is None and None not in meanings:
                    continue
                if not isinstance(value, (str, bool, type(None))) or value not in meanings:
                    what = f"been built with {key}={value!r} (its config)"
                    raise unsupported(what, f"; expected one of {list(meanings)}")
                value = meanings[value]
            # Attention pooling and a LayerScale show in the arrays, whatever a config says.
            is_map = field == "pool" and arguments["pool"] in ("map", "probe")
            lacks_scale = field == "layer_scale" and not (value and arguments["layer_scale"])
            if not (field is None or arguments.is_shown(field) or is_map or lacks_scale):
                why = UNREPORTED if field == "layer_scale" else None
                arguments.add(CONFIG, why, **{field: value})

    def check_arrays_by_key(self, origin, config):
        """Raises a CheckpointError where the arrays are not those of the model of a config.

        Sizes may be equal in models of several classes, which compute other things: a config is
        believed only where each array has a use in its model, and none is missing there.
        """
        texts = []
        for key, array in self.arrays_by_key.items():
            names = [name for path, name in origin.items() if array in (path, name)]
            if key in config and bool(config[key]) != bool(names):
                has = repr(names[0]) if names else f"no {array!r}"
                texts.append(f"it says {key}={config[key]!r:.200}, and the file has {has}")
        if texts:
            raise of_other_model(config, "; ".join(texts[:4]))

    def complete(self, canonical, contents):
        """What is special in a family; changes `canonical` and its arguments."""


def unsupported(what, advice=""):
    """The error for a part of a file that no model here has."""
    return CheckpointError(f"The file has {what}, which no model of this library has{advice}.")


def of_other_model(config, what):
    """The error for a config.json of another model than the arrays beside it."""
    names = [f" ({config[k]!r:.100})" for k in ("architecture", "model_type") if k in config]
    return CheckpointError(
        f"The config.json{names[0] if names else ''} is of another model: {what}. Put the one of "
        "this model beside the file, or none: then say what the arrays do not show."
    )


def reasons(rows):
    """The texts of a dict whose condition, the value, is true."""
    return [text for text, is_so in rows.items() if is_so]
