"""What recipes know of the data sets: their TFDS names, sizes, classes and the authors' splits."""

import dataclasses

from keras_vit.text import unknown


@dataclasses.dataclass(frozen=True)
class DatasetFacts:
    """A data set as the recipes count it.

    Attributes:
        name: as in TensorFlow Datasets and `keras_vit.data`.
        examples: images for training, all of them.
        num_classes: K.
        held_out: training images that the authors set aside to choose settings on: a share in
            percent of the end, or a number from the beginning (ImageNet-21k).
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
    def validation_split(self):
        """TFDS split of what is held out, or `None`."""
        if not self.held_out:
            return None
        if self.held_out > 100:
            return f"full[:{self.held_out}]"
        return f"train[{100 - self.held_out}%:]"

    def all_images(self):
        """Fields of a recipe that trains on all images."""
        return {
            "dataset": self.name,
            "test_split": self.test_split,
            "examples": self.examples,
            "num_classes": self.num_classes,
        }

    def without_held_out(self):
        """Fields of a recipe that trains on what is not held out."""
        kept = 100 - self.held_out
        split, examples = f"train[:{kept}%]", round(self.examples * kept / 100)
        if self.held_out > 100:
            split, examples = f"full[{self.held_out}:]", self.examples - self.held_out
        return {
            **self.all_images(),
            "train_split": split,
            "validation_split": self.validation_split,
            "examples": examples,
        }


# Sizes from TensorFlow Datasets; of JFT-300M, which is not public, from section 4.1 ("303M images",
# "18k classes", 18,291 in Sun et al., 2017). Held-out shares: appendix B.1.1.
_ALL = (
    DatasetFacts("jft300m", 303_000_000, 18_291, 0, "", aliases=("jft",)),
    DatasetFacts("imagenet21k", 14_197_122, 21_843, 51_200, "", aliases=("i21k",)),
    DatasetFacts("imagenet2012", 1_281_167, 1000, 1, "validation", ("imagenet", "i1k")),
    DatasetFacts("cifar10", 50_000, 10, 2),
    DatasetFacts("cifar100", 50_000, 100, 2),
    DatasetFacts("oxford_iiit_pet", 3680, 37, 10, aliases=("pets", "pet", "oxford_pets")),
    DatasetFacts("oxford_flowers102", 1020, 102, 10, aliases=("flowers", "flowers102")),
)
DATASETS = {facts.name: facts for facts in _ALL}
ALIASES = {alias: facts.name for facts in _ALL for alias in facts.aliases}

# Group -> task -> the name in the tables of the papers, in their order.
VTAB_GROUPS = {
    "natural": {
        "caltech101": "Caltech101",
        "cifar100": "CIFAR-100",
        "dtd": "DTD",
        "oxford_flowers102": "Flowers102",
        "oxford_iiit_pet": "Pets",
        "sun397": "Sun397",
        "svhn": "SVHN",
    },
    "specialized": {
        "patch_camelyon": "Camelyon",
        "eurosat": "EuroSAT",
        "resisc45": "Resisc45",
        "diabetic_retinopathy": "Retinopathy",
    },
    "structured": {
        "clevr_count": "Clevr-Count",
        "clevr_distance": "Clevr-Dist",
        "dmlab": "DMLab",
        "dsprites_location": "dSpr-Loc",
        "dsprites_orientation": "dSpr-Ori",
        "kitti_distance": "KITTI-Dist",
        "smallnorb_azimuth": "sNORB-Azim",
        "smallnorb_elevation": "sNORB-Elev",
    },
}


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
