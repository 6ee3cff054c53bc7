"""A family of checkpoints: what its files call the arrays, and what its library computes."""

import dataclasses
import re

from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.weights.canonical import (
    CONFIG,
    CUSTOM,
    PROJECTION,
    ROOT,
    Canonical,
    architecture_of,
    choose_heads,
    choose_image_size,
    choose_position,
    heads_of,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import Table, join_heads, simplified, split_heads


@dataclasses.dataclass(frozen=True)
class Family:
    """A format of Vision Transformers: a table of names, and what its library computes.

    A family is an instance with a table, a sign and defaults. One whose files need more than names
    is of a subclass with `complete`, or with another of the methods.

    Attributes:
        name: whose format it is.
        table: a `Table`.
        sign: pattern of a name that only this family has.
        stripped: pattern of the part of a name that is left out, such as a prefix.
        ignored: patterns of names that are no part of a model.
        unsupported: pattern of names -> the part that no model here has.
        joined_heads: whether the file has no axis for the heads.
        defaults: fields of the variant as the library of the family computes them.
        config: key of config.json -> (argument, dict from its values to ours or `None`); an
            argument of `None` for a value that is only checked.
        confirmed: key of config.json -> field that the arrays tell.
        needs_config: whether a config.json that contradicts the arrays is an error; if not, it
            is of another model and not read.
        preprocessing: how images are prepared.
        holds: field -> values that the format has a place for, where that is not all.
        computes: field -> values that the library of the family computes with.
    """

    name: str
    table: Table
    sign: str = r"(?!)"
    stripped: str = r"(?!)"
    ignored: tuple = ()
    unsupported: dict = dataclasses.field(default_factory=dict)
    joined_heads: bool = False
    defaults: dict = dataclasses.field(default_factory=dict)
    config: dict = dataclasses.field(default_factory=dict)
    confirmed: dict = dataclasses.field(default_factory=dict)
    needs_config: bool = False
    preprocessing: Preprocessing = GOOGLE
    holds: dict = dataclasses.field(default_factory=dict)
    computes: dict = dataclasses.field(default_factory=dict)

    # ---- reading

    def recognises(self, arrays):
        """Whether these are the names of this family."""
        return any(re.match(self.sign, name) for name in arrays)

    def arrays_of(self, file):
        """Canonical arrays of those in a file, their names there, and the names left aside.

        Patch kernels have the shape (height, width, channels, width of a token).
        """
        tower, names = simplified(file, self.stripped)
        for pattern, what in self.unsupported.items():
            if found := [name for name in tower if re.fullmatch(pattern, name)]:
                raise CheckpointError(
                    f"The file has {what} ({found[0]!r} and {len(found) - 1} more), which the "
                    "Vision Transformer of this library has not."
                )
        arrays, origin, ignored = self.table.read(tower, self.name, self.ignored)
        origin = {target: names[where] for target, where in origin.items()}
        return arrays, origin, tuple(names[name] for name in ignored)

    def read(self, contents, hints):
        """The `Canonical` of a `Contents`; `hints` are arguments of the model that are known."""
        arrays, origin, ignored = self.arrays_of(contents.arrays)
        found = architecture_of(arrays, self.name)
        found |= {k: v for k, v in self.defaults.items() if k != "stem_numerics" or ROOT in arrays}
        arrays[PROJECTION] = arrays[PROJECTION].reshape(-1, found["width"])
        if not self.joined_heads:
            found["num_heads"] = heads_of(arrays)
        canonical = Canonical(self.name, arrays, origin, found, ignored=ignored)
        canonical.preprocessing = self.preprocessing
        config = self.config_of(contents, found)
        said = self.meaning_of(config)
        for field in dict.fromkeys(field for field, _ in self.config.values()):
            # Attention pooling shows in the arrays, whatever a config says.
            is_open = field in self.defaults or (field == "pool" and found["pool"] != "map")
            if field in said and is_open:
                found[field], canonical.assumed[field] = said[field], CONFIG
            elif field in self.defaults:
                canonical.assumed[field] = CUSTOM
        self.complete(canonical, contents, config, said, hints)
        if self.joined_heads:
            heads, source = choose_heads(said.get("num_heads"), hints, found)
            found["num_heads"], canonical.assumed["num_heads"] = heads, source
            split_heads(arrays, heads)
        choose_position(canonical, said.get("position"), hints)
        choose_image_size(canonical, said.get("image_size"), hints)
        return canonical

    def flat_config(self, contents):
        """The config.json beside the arrays as one dict."""
        return contents.config

    def config_of(self, contents, found):
        """The config.json beside the arrays if it is of this model, else an empty dict."""
        config = self.flat_config(contents)
        pairs = {k: (config[k], found[f]) for k, f in self.confirmed.items() if k in config}
        wrong = {key: values for key, values in pairs.items() if values[0] != values[1]}
        if wrong and self.needs_config:
            raise CheckpointError(
                f"The config.json is of another model; (config, file) differ in {wrong}."
            )
        return {} if wrong else config

    def meaning_of(self, config):
        """What a config says, as arguments of the model."""
        said = {}
        for key, (field, meanings) in self.config.items():
            if key not in config:
                continue
            value = config[key]
            if meanings is not None:
                if value is None and None not in meanings:
                    continue
                if not isinstance(value, (str, type(None))) or value not in meanings:
                    raise CheckpointError(
                        f"The model of the file was built with {key}={value!r} (its config), which "
                        "the Vision Transformer of this library has not; expected one of "
                        f"{list(meanings)}."
                    )
                value = meanings[value]
            if field is not None:
                said[field] = value
        return said

    def complete(self, canonical, contents, config, said, hints):
        """What is special in a family; changes `canonical` and `said`."""

    # ---- writing

    def write(self, model, arrays):
        """The arrays of a file from canonical ones."""
        if PROJECTION in arrays:
            kernel = arrays[PROJECTION]
            shape = (*model.variant.patch_size, -1, kernel.shape[-1])
            arrays = {**arrays, PROJECTION: kernel.reshape(shape)}
        return self.table.write(join_heads(arrays) if self.joined_heads else arrays)

    def json_files(self, model):
        """Name of a file beside the arrays -> what it says, as a dict."""
        return {}

    def impossible(self, model):
        """What of a model the format has no place for, as texts."""
        return differing(model.variant, self.holds)

    def obstacles(self, model):
        """What of a model the library of the family computes otherwise, as texts."""
        return differing(model.variant, self.computes)


def differing(variant, allowed):
    """The fields of a variant that are outside `allowed`, as texts such as "gelu='erf'"."""
    has_stem = getattr(variant, "stem", None) is not None
    values = {n: getattr(variant, n) for n in allowed if has_stem or n != "stem_numerics"}
    return [f"{n}={value!r}" for n, value in values.items() if value not in allowed[n]]
