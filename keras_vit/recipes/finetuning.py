"""Fine-tuning: the paper's Table 4, the authors' configs, VTAB, BiT's rule, and few images."""

import dataclasses

from keras_vit.checks import positive_int
from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.preprocessing import Preprocessing
from keras_vit.recipes.datasets import VTAB_GROUPS, big_vision, find_dataset, vit_jax
from keras_vit.recipes.fields import check_known
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown

PAPER = "Dosovitskiy et al., 2021"
VIT_JAX = "google-research/vision_transformer, vit_jax/configs"
SHARED = {"optimizer": "sgdm", "batch_size": 512, "clip_norm": 1.0}
LOW, HIGH = (0.001, 0.003, 0.01, 0.03), (0.003, 0.01, 0.03, 0.06)
# Table 4: updates, learning rates of the sweep, the one to begin with, warm-up.
# Then big_vision's best for ViT-B/32: crop, learning rate.
TABLE_4 = {
    "imagenet2012": (20_000, HIGH, 0.03, 500, "inception_crop", 0.03),
    "cifar10": (10_000, LOW, 0.01, 500, "resmall_crop", 0.003),
    "cifar100": (10_000, LOW, 0.03, 500, "resmall_crop", 0.01),
    "oxford_iiit_pet": (500, LOW, 0.003, 100, "inception_crop", 0.003),
    "oxford_flowers102": (500, LOW, 0.003, 100, "inception_crop", 0.003),
}
SOURCES = ("paper", "vit_jax", "augreg", "big_vision")


def finetune(dataset: str, variant: str | None = None, source: str = "paper") -> Recipe:
    """Fine-tuning of a pre-trained model: SGD with momentum, batch 512, cosine, clipping at 1.

    Args:
        dataset: `"imagenet2012"`, `"cifar10"`, `"cifar100"`, `"oxford_iiit_pet"`,
            `"oxford_flowers102"`, another name of these such as `"pets"`, or a task of VTAB-1k
            such as `"vtab/dtd"` (see `vtab`).
        variant: the model, such as `"B/16"`. It changes the resolution of the largest models
            (paper, vit_jax), and dropout and learning rate (vit_jax).
        source: whose settings: `"paper"`, Table 4; `"vit_jax"`, configs/vit.py of
            google-research/vision_transformer (no pets, flowers); `"augreg"`, its configs/augreg.py
            (a short run); `"big_vision"`, configs/transfer.py of google-research/big_vision.

    Raises:
        ValueError: no such data set or source; the message lists the nearest.
    """
    check_known("source", source, SOURCES)
    family, _, task = str(dataset).lower().partition("/")
    if family == "vtab":
        if source != "paper":
            raise ValueError(f"VTAB has the settings of the paper only. Received: {source=}.")
        return vtab(task, variant)
    of_vit_jax = ("imagenet2012", "cifar10", "cifar100")
    record = find_dataset(dataset, of_vit_jax if source == "vit_jax" else TABLE_4)
    steps, rates, rate, warmup, crop, best = TABLE_4[record.name]
    in_parts = "The authors compute a batch in 8 parts; replace(accumulate=8) does so."
    settings = {"steps": steps, "warmup_steps": warmup, "learning_rates": LOW, **SHARED}
    if source == "paper":
        settings |= {**_paper(record, variant), "learning_rate": rate, "learning_rates": rates}
    elif source == "vit_jax":
        dropout = variant in ("L/16", "H/14", "R50+B/16", "R50+L/32")  # configs/models.py
        settings |= {
            "source": f"{VIT_JAX}/common.py, vit.py and models.py",
            "notes": (in_parts,),
            **record.without_held_out(),
            **vit_jax(378 if variant == "H/14" else 384),
            "warmup_steps": 500,
            "learning_rate": 0.01 if (record.name, variant) == ("cifar10", "B/16") else 0.03,
            "dropout": 0.1 if dropout else 0.0,
        }
    elif source == "augreg":
        published = "The published runs took the best of 500, 2500, 10000 and 20000 updates."
        settings |= {"source": f"{VIT_JAX}/augreg.py", "notes": (published, in_parts)}
        settings |= {**record.all_images(), **vit_jax(384)}
        settings |= {"steps": 500, "warmup_steps": 100, "learning_rate": 0.03}
    else:
        chosen = "Crop and learning rate are the best for ViT-B/32 of augreg."
        source_of = "google-research/big_vision, configs/transfer.py"
        settings |= {"source": source_of, "notes": (chosen,), "learning_rate": best}
        settings |= {**record.without_held_out(), **big_vision(384, crop)}
    name = f"finetune-{record.name}" + (f"-{source}" if source != "paper" else "")
    return Recipe(name=named(name, variant), variant=variant, **settings)


def named(name, variant):
    return name + (f"-{variant}" if variant else "")


def _paper(record, variant):
    """What Table 4 does not say of all data sets alike."""
    size, ema, notes = 384, None, []
    if record.name == "imagenet2012" and variant in ("L/16", "H/14"):
        size, ema = {"L/16": 512, "H/14": 518}[variant], 0.9999
        notes = ["Resolution and averaging are those of Table 2 (appendix B.1.1)."]
    elif variant == "H/14":
        size = 378
        notes = ["Of 384 pixels, patches of 14 cover 378; the authors' code leaves the others out."]
    chosen = (
        f"Table 4 chooses among the learning rates on {record.held_out} % held-out training images "
        "and then trains on all; warm-up and augmentation are those of the authors' code."
    )
    fields = {"source": f"{PAPER}, Table 4 and appendix B.1.1", "notes": (chosen, *notes)}
    fields |= {"validation_split": record.validation_split, "ema": ema}
    return {**fields, **record.all_images(), **vit_jax(size)}


def vtab(task: str, variant: str | None = None) -> Recipe:
    """Fine-tuning on one task of VTAB-1k: 2,500 updates, learning rate 0.01, 384 pixels.

    The data set is `"vtab/<task>"`: 800 + 200 images for training, and the whole test set.

    Args:
        task: such as `"dtd"`, `"eurosat"` or `"clevr_count"`.
        variant: the model, or `None`.

    Raises:
        ValueError: no such task; the message lists the nearest.
    """
    name = str(task).strip().lower().replace("-", "_").removeprefix("vtab/")
    if name not in VTAB_TASKS:
        raise unknown("VTAB task", task, VTAB_TASKS)
    size = 378 if variant == "H/14" else 384
    train = Transform(size, "squash_random", resize_small=round(size * 512 / 480), flip=True)
    note = "Crop and mirroring are BiT's; 410 in front of 384 keeps its 512 to 480."
    if name in VTAB_GROUPS["structured"]:
        train = Transform(size, "squash")
        note = "Not mirrored and not cropped, because the label may depend on the place."
    return Recipe(
        name=named(f"vtab-{name}", variant),
        source=f"{PAPER}, Table 4 and appendix B.1.1; Zhai et al., 2020 (VTAB)",
        notes=(note,),
        dataset=f"vtab/{name}",
        train_split="train800val200",
        variant=variant,
        examples=1000,
        num_classes=VTAB_TASKS[name].num_classes,
        steps=2500,
        train=train,
        eval=Transform(size, "squash"),
        **SHARED,
        learning_rate=0.01,
        learning_rates=(0.01,),
        warmup_steps=500,
    )


def length_for(num_examples):
    """Warm-up, boundaries and end of the BiT-HyperRule for so many images."""
    if num_examples < 20_000:
        return 100, 200, 300, 400, 500
    if num_examples < 500_000:
        return 500, 3000, 6000, 9000, 10_000
    return 500, 6000, 12_000, 18_000, 20_000


def bit_hyperrule(
    num_examples: int, area: int, variant: str | None = None, num_classes: int | None = None
) -> Recipe:
    """Fine-tuning by the BiT-HyperRule: all follows from how many images there are, and how large.

    Args:
        num_examples: training images.
        area: height times width of an image, in pixels.
        variant, num_classes: the model, such as `"R50x1"`, and K; or `None`.

    Raises:
        ValueError: a number is not positive, or no such variant.
    """
    positive_int(num_examples, "num_examples")
    small = positive_int(area, "area") < 96 * 96
    resize, crop = (160, 128) if small else (512, 480)
    warmup, *boundaries, steps = length_for(num_examples)
    return Recipe(
        name=f"bit_hyperrule-{num_examples}-{'small' if small else 'large'}",
        source="Kolesnikov et al., 2020, section 3.3; google-research/big_transfer, "
        "bit_hyperrule.py",
        notes=(
            "Half of the images are mirrored, as the paper says; the authors' TF2 and JAX pipeline "
            "mirrors every one.",
        ),
        dataset="any",
        variant=variant,
        examples=num_examples,
        num_classes=num_classes,
        batch_size=512,
        steps=steps,
        train=Transform(crop, "squash_random", resize_small=resize, flip=True),
        eval=Transform(crop, "squash"),
        mixup=0.1 if num_examples >= 20_000 else 0.0,
        optimizer="sgdm",
        learning_rate=0.003,
        schedule="stairs",
        warmup_steps=warmup,
        boundaries=tuple(boundaries),
    )


@dataclasses.dataclass(frozen=True)
class FewShotProtocol:
    """Linear regression on frozen features, from a few images per class (section 4.1).

    Attributes:
        source, datasets: where it is written, and the TFDS names that the authors' code evaluates.
        shots, seeds: images per class, and of the draws of these; results are averaged over seeds.
        l2: λ of (XᵀX + λI)⁻¹Xᵀy, the same for every data set.
        features: the layer that gives X, `"pre_logits"`: what the linear head sees.
        constant: value of the feature that stands for the bias, so large that λ leaves it alone.
        epsilon: added to the standard deviations that the features are divided by.
        image_size: (height, width) of the images in pixels.
        preprocessing: of the images: squashed to 256 x 256, in whole grey levels, the middle.
    """

    source: str = (
        f"{PAPER}, section 4.1; google-research/big_vision, evaluators/fewshot_lsr.py and "
        "configs/common_fewshot.py"
    )
    datasets: tuple[str, ...] = tuple(
        "caltech101 cars196:2.1.0 cifar100 dtd oxford_iiit_pet uc_merced".split()
    )
    shots: tuple[int, ...] = (1, 5, 10, 25)
    seeds: tuple[int, ...] = (0, 1, 2)
    l2: float = 1024.0
    features: str = "pre_logits"
    constant: float = 100.0
    epsilon: float = 1e-5
    image_size: tuple[int, int] = (224, 224)
    preprocessing: Preprocessing = Preprocessing(  # noqa: RUF009
        crop_fraction=224 / 256, library="tensorflow_uint8"
    )


def fewshot() -> FewShotProtocol:
    """The `FewShotProtocol` with the authors' numbers; docs/evaluation.md shows its use."""
    return FewShotProtocol()
