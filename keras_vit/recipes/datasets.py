"""What recipes know of their data: the sets with the authors' splits, and their image pipelines."""

import dataclasses

from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.text import unknown


@dataclasses.dataclass(frozen=True)
class DatasetRecord:
    """A data set as the recipes count it.

    Attributes:
        name, aliases: as in TensorFlow Datasets and `keras_vit.data`, and other names.
        examples, num_classes: images for training, all of them, and K.
        held_out: training images that the authors set aside to choose settings on: a share in
            percent of the end, or a number from the beginning (ImageNet-21k).
        test_split: TFDS split on which results are reported.
    """

    name: str
    examples: int
    num_classes: int
    held_out: int = 0
    test_split: str = "test"
    aliases: tuple[str, ...] = ()

    @property
    def validation_split(self):
        """TFDS split of the images that are held out, or `None`."""
        if self.held_out > 100:
            return f"full[:{self.held_out}]"
        return f"train[{100 - self.held_out}%:]" if self.held_out else None

    def all_images(self):
        """Fields of a recipe that trains on all images."""
        fields = {"dataset": self.name, "test_split": self.test_split}
        return {**fields, "examples": self.examples, "num_classes": self.num_classes}

    def without_held_out(self):
        """Fields of a recipe that trains on the images that are not held out."""
        kept = 100 - self.held_out
        split, examples = f"train[:{kept}%]", round(self.examples * kept / 100)
        if self.held_out > 100:
            split, examples = f"full[{self.held_out}:]", self.examples - self.held_out
        splits = {"train_split": split, "validation_split": self.validation_split}
        return {**self.all_images(), **splits, "examples": examples}


# Sizes from TensorFlow Datasets; of JFT-300M, which is not public, from section 4.1 ("303M images",
# "18k classes", 18,291 in Sun et al., 2017). Held-out shares: appendix B.1.1.
_ALL = (
    DatasetRecord("jft300m", 303_000_000, 18_291, 0, "", aliases=("jft",)),
    DatasetRecord("imagenet21k", 14_197_122, 21_843, 51_200, "", aliases=("i21k",)),
    DatasetRecord("imagenet2012", 1_281_167, 1000, 1, "validation", ("imagenet", "i1k")),
    DatasetRecord("cifar10", 50_000, 10, 2),
    DatasetRecord("cifar100", 50_000, 100, 2),
    DatasetRecord("oxford_iiit_pet", 3680, 37, 10, aliases=("pets", "pet", "oxford_pets")),
    DatasetRecord("oxford_flowers102", 1020, 102, 10, aliases=("flowers", "flowers102")),
)

_NAMES = {  # of the tasks in the tables of the papers
    "natural": "Caltech101 CIFAR-100 DTD Flowers102 Pets Sun397 SVHN",
    "specialized": "Camelyon EuroSAT Resisc45 Retinopathy",
    "structured": "Clevr-Count Clevr-Dist DMLab dSpr-Loc dSpr-Ori KITTI-Dist sNORB-Azim sNORB-Elev",
}
_tasks = iter(VTAB_TASKS)  # which have the order of these tables
VTAB_GROUPS = {group: {next(_tasks): n for n in names.split()} for group, names in _NAMES.items()}
"""Group of VTAB -> task -> the name in the tables of the papers, in their order."""


def find_dataset(name, among):
    """The record of one of the data sets `among`, by a name such as `"CIFAR-100"` or `"pets"`.

    Raises:
        ValueError: none of these; the message lists the nearest.
    """

    def plain(text):
        return "".join(filter(str.isalnum, str(text).lower()))

    for record in _ALL:
        if record.name in among and plain(name) in map(plain, (record.name, *record.aliases)):
            return record
    raise unknown("dataset", name, list(among))


def passes(images, epochs, batch_size, lengths=None):
    """Fields of a recipe that goes through images, other fields, so often.

    Raises:
        ValueError: `epochs` is none of the lengths that the authors trained for.
    """
    if lengths and (epochs not in lengths or not isinstance(epochs, int)):
        raise ValueError(
            f"The authors trained for {' or '.join(map(str, lengths))} epochs. Received: "
            f"epochs={epochs!r}; use .scale(epochs=...) for another length."
        )
    steps = round(epochs * images["examples"] / batch_size)
    return {**images, "batch_size": batch_size, "steps": steps}


def vit_jax(image_size):
    """The transforms of google-research/vision_transformer, input_pipeline.py.

    A random box of 5 to 100 % of the image, mirrored half of the time; and the whole image,
    resized without regard to its aspect ratio.
    """
    train = Transform(image_size, "inception", flip=True)
    return {"train": train, "eval": Transform(image_size, "squash")}


# How torchvision and timm read ImageNet: its mean and deviation, and Pillow's bicubic resize.
TORCHVISION = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
TORCHVISION |= {"interpolation": "bicubic", "library": "pillow"}
# What big_vision's recipes of pre-training share.
BIG_VISION = {"learning_rate": 1e-3, "warmup_steps": 10_000, "weight_decay": 0.1, "clip_norm": 1.0}


def big_vision(image_size, crop="inception_crop", randaugment=None):
    """The transforms of google-research/big_vision, configs/transfer.py.

    `"resmall_crop"`, the other `crop`, and the evaluation cut windows from larger images.
    """
    rounded = {"image_size": image_size, "library": "tensorflow_uint8"}
    small = {224: 256, 240: 272, 384: 448}[image_size]  # 240: configs/proj/flexivit
    window = {"resize_small": small, "interpolation": "area", **rounded}
    if crop == "inception_crop":
        train = Transform(crop="inception", flip=True, randaugment=randaugment, **rounded)
    else:
        train = Transform(crop="resize_small_random", flip=True, **window)
    return {"train": train, "eval": Transform(crop="resize_small_center", **window)}
