"""What recipes know of the data sets: their TFDS names, sizes, classes and the authors' splits."""

import dataclasses

from keras_vit.recipes.names import unknown


@dataclasses.dataclass(frozen=True)
class DatasetFacts:
    """A data set as the recipes count it.

    Attributes:
        name: as in TensorFlow Datasets and `keras_vit.data`.
        examples: images for training, all of them.
        num_classes: K.
        held_out: share of the training images, in percent, that the authors set aside to choose
            settings on.
        test_split: TFDS split on which results are reported.
        aliases: other names.
    """

    name: str
    examples: int
    num_classes: int
    held_out: int = 0
    test_split: str = "test"
    aliases: tuple[str, ...] = ()

    @property
    def train_split(self):
        """TFDS split without what is held out."""
        return f"train[:{100 - self.held_out}%]" if self.held_out else "train"

    @property
    def validation_split(self):
        """TFDS split of what is held out, or `None`."""
        return f"train[{100 - self.held_out}%:]" if self.held_out else None

    @property
    def train_examples(self):
        """Images in `train_split`."""
        return round(self.examples * (100 - self.held_out) / 100)


# Sizes from TensorFlow Datasets; of JFT-300M, which is not public, from section 4.1 ("303M images",
# "18k classes", 18,291 in Sun et al., 2017). Held-out shares: appendix B.1.1.
_ALL = (
    DatasetFacts("jft300m", 303_000_000, 18_291, aliases=("jft",)),
    DatasetFacts("imagenet21k", 14_197_122, 21_843, aliases=("i21k",)),
    DatasetFacts("imagenet2012", 1_281_167, 1000, 1, "validation", ("imagenet", "i1k")),
    DatasetFacts("cifar10", 50_000, 10, 2),
    DatasetFacts("cifar100", 50_000, 100, 2),
    DatasetFacts("oxford_iiit_pet", 3680, 37, 10, aliases=("pets", "pet", "oxford_pets")),
    DatasetFacts("oxford_flowers102", 1020, 102, 10, aliases=("flowers", "flowers102")),
)
DATASETS = {facts.name: facts for facts in _ALL}
ALIASES = {alias: facts.name for facts in _ALL for alias in facts.aliases}


def plain_name(name):
    """A name in lower case, with `_` for what separates words, and the alias resolved."""
    plain = str(name).strip().lower().replace(" ", "_").replace("-", "_")
    if plain in ALIASES:
        return ALIASES[plain]
    joined = plain.replace("_", "")
    for known in (*DATASETS, *ALIASES):
        if joined == known.replace("_", ""):
            return ALIASES.get(known, known)
    return plain


def find_dataset(name, among=None):
    """The facts of a data set by its name or an alias.

    Args:
        name: such as `"cifar100"`, `"CIFAR-100"` or `"pets"`.
        among: names to choose from; `None` for all.

    Raises:
        ValueError: no such data set, or none of these; the message lists the nearest.
    """
    plain = plain_name(name)
    if plain not in (DATASETS if among is None else among):
        raise unknown("dataset", name, DATASETS if among is None else among)
    return DATASETS[plain]
