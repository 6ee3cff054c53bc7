"""What a family of checkpoints calls its arrays, and how they are renamed."""

import dataclasses
import re

from keras_vit.text import shortened
from keras_vit.weights.canonical import CanonicalWeights
from keras_vit.weights.safety import CheckpointError, unsupported
from keras_vit.weights.tables import Table

NEVER = r"(?!)"  # a pattern that no name fits


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayNames:
    """What a family calls its arrays in files."""

    name: str  # whose format it is
    table: Table  # between the names in a file and canonical ones
    signature: str = NEVER  # pattern of a name by which its files are recognised
    # Pattern of what only the training of its authors leaves in a file, wherever in a name.
    training_state: str = NEVER
    stripped: str = NEVER  # pattern of the part of a name that is left out, such as a prefix
    ignored: tuple = ()  # patterns of names that are no part of a model
    # Pattern of names -> the part that no model here has.
    unsupported: dict = dataclasses.field(default_factory=dict)
    optional: tuple = ()  # names of `canonical.REQUIRED` that some models of the family lack
    joined_heads: bool = False  # whether the file has no axis for the heads

    def recognises(self, arrays):
        """Whether these are the names of this family."""
        return any(re.match(self.signature, name) for name in arrays)

    def knows_most(self, file):
        """Whether more than half of the names in a file are of this format."""
        plain = (self.plain_name(name, file) for name in file)
        ignored = re.compile("|".join(self.ignored) or NEVER)
        known = [n for n in plain if self.table.targets(n) or ignored.fullmatch(n)]
        return 2 * len(known) > len(file)

    def arrays_of(self, file):
        """The `CanonicalWeights` of the arrays in a file.

        Patch kernels have the shape (height, width, channels, width of a token).
        """
        plain = [self.plain_name(name, file) for name in file]
        names = dict(zip(plain, file))
        if twice := sorted({p for p, name in zip(plain, file) if names[p] != name}):
            raise CheckpointError(
                f"The file has the same arrays with and without {self.stripped}: "
                f"{shortened(twice, 4)}."
            )
        for pattern, what in self.unsupported.items():
            if named := [name for name in names if re.fullmatch(pattern, name)]:
                raise unsupported(f"{what} ({named[0]!r} and {len(named) - 1} more)")
        try:
            layers = self.single_layers({plain: file[name] for plain, name in names.items()})
        except (ValueError, LookupError) as error:
            text = f"Arrays that join several layers have other shapes ({error})."
            raise CheckpointError(text) from error
        weights = CanonicalWeights(*self.table.read(layers, self.name, self.ignored))
        weights.rename(names)
        return weights

    def plain_name(self, name, file):
        """The name of an array as it stands in the table."""
        return re.sub(self.stripped, "", name)

    def single_layers(self, arrays):
        """The arrays by plain names, each of them for one layer."""
        return arrays
