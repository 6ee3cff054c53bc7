"""A family of checkpoints that is written, too: what its files and its library have a place for."""

import dataclasses

from keras_vit.extensions import Extensions
from keras_vit.models.resize_weights import PROJECTION
from keras_vit.weights.family import Family
from keras_vit.weights.tables import Table, join_heads, key_of

ANY = "any"  # in place of the values of an argument: all of them
DIFFERS = "differs"  # of an obstacle that only changes what a model computes


@dataclasses.dataclass(frozen=True)
class WritableFamily(Family):
    """A `Family` whose `table` and `config` are used in the other direction, too."""

    # Argument -> the values that a file can store, and those that the library can compute, or
    # `ANY`. What `Extensions` has and `can_store` does not is as in the paper.
    can_store: dict = dataclasses.field(default_factory=dict)
    can_compute: dict = dataclasses.field(default_factory=dict)

    def write(self, model, arrays):
        """The arrays of a file from canonical ones."""
        if PROJECTION in arrays:
            kernel = arrays[PROJECTION]
            shape = (*model.variant.patch_size, -1, kernel.shape[-1])
            arrays = {**arrays, PROJECTION: kernel.reshape(shape)}
        rows = self.rows_for(model.variant)
        table = Table(*rows, *self.table.rows) if rows else self.table
        return table.write(join_heads(arrays) if self.joined_heads else arrays)

    def rows_for(self, variant):
        """Rows that come before those of `table` to write a variant, whose names differ."""
        return ()

    def config_for(self, model):
        """What `config` says of a model, as the library of the family says it."""
        config = {}
        for key, field, meanings in self.settings():
            if field is not None:
                value = getattr(model.variant if hasattr(model.variant, field) else model, field)
                if isinstance(value, tuple):
                    value = value[0] if len(set(value)) == 1 else list(value)
                config[key] = value if meanings is None else key_of(meanings, value)
        return config

    def json_files(self, model):
        """Name of a file beside the arrays -> what it says, as a dict."""
        return {}

    def obstacles(self, model):
        """What may keep a model out of the format: text -> whether it does.

        It is `DIFFERS` of what the library of the family computes otherwise; for anything else that
        is true the format has no place.
        """
        v, storable = model.variant, self.can_store
        if isinstance(v, Extensions):
            paper = {name: (value,) for name, value in vars(Extensions()).items()}
            at_input = {} if v.position == "none" else {"position_at": ("input",)}
            storable = {**paper, **at_input, **storable}
        computed = dict.fromkeys(differing(v, self.can_compute), DIFFERS)
        return {**computed, **dict.fromkeys(differing(v, storable), True)}


def differing(variant, allowed):
    """The fields of a variant that are outside `allowed`, as texts such as "gelu='erf'"."""
    has_stem = getattr(variant, "stem", None) is not None
    values = {n: getattr(variant, n) for n in allowed if has_stem or n != "stem_numerics"}
    return [f"{n}={v!r}" for n, v in values.items() if allowed[n] != ANY and v not in allowed[n]]
