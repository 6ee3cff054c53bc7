"""The paper's own runs: Table 3, pre-training; Table 4, fine-tuning; VTAB-1k; few-shot."""

import dataclasses

from keras_vit.data.transform import Transform
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.preprocessing import Preprocessing
from keras_vit.recipes.datasets import VTAB_GROUPS, find_dataset, vit_jax
from keras_vit.recipes.recipe import Recipe
from keras_vit.text import unknown
from keras_vit.training.losses import sigmoid_head_bias
from keras_vit.variants import VARIANTS

PAPER = "Dosovitskiy et al., 2021"

# Table 3: epochs (the shorter run first) and learning rate. All: batch 4096, warm-up 10,000.
TABLE_3 = {
    "jft300m": {
        "B/16": ((7,), 8e-4),
        "B/32": ((7,), 8e-4),
        "L/32": ((7,), 6e-4),
        "L/16": ((7, 14), 4e-4),
        "H/14": ((14,), 3e-4),
        "R50x1": ((7,), 1e-3),
        "R50x2": ((7,), 1e-3),
        "R101x1": ((7,), 8e-4),
        "R152x1": ((7,), 6e-4),
        "R152x2": ((7,), 6e-4),
        "R50+B/16": ((7,), 8e-4),
        "R50+B/32": ((7,), 8e-4),
        "R50+L/32": ((7,), 2e-4),
        "R50+L/16": ((7, 14), 4e-4),
    },
    "imagenet21k": {
        "B/16": ((90,), 1e-3),
        "B/32": ((90,), 1e-3),
        "L/16": ((30, 90), 1e-3),
        "L/32": ((30, 90), 1e-3),
    },
    "imagenet2012": dict.fromkeys(("B/16", "B/32", "L/16", "L/32", "H/14"), ((300,), 3e-3)),
}
_OF_A_DATASET = {
    "jft300m": {"schedule": "linear", "end_learning_rate": 1e-5, "weight_decay": 0.1},
    "imagenet21k": {
        "schedule": "linear",
        "end_learning_rate": 1e-5,
        "weight_decay": 0.03,
        "dropout": 0.1,
    },
    "imagenet2012": {"schedule": "cosine", "weight_decay": 0.3, "dropout": 0.1, "clip_norm": 1.0},
}


def pretrain(variant="B/16", dataset="imagenet21k", epochs=None):
    """Pre-training as in Table 3: Adam, batch 4096, 224 pixels, a warm-up of 10,000 updates.

    Args:
        variant: a model of the table, such as `"B/16"`, `"R50+L/16"` or `"R50x1"` (JFT-300M).
        dataset: `"jft300m"`, `"imagenet21k"` or `"imagenet2012"`, or another name of these.
        epochs: one of the lengths in the table; `None` for the longest.

    Raises:
        ValueError: the table has no such row; the message lists the nearest.
    """
    facts = find_dataset(dataset, TABLE_3)
    rows = TABLE_3[facts.name]
    if str(variant) not in rows:
        raise unknown(f"variant of Table 3 on {facts.name}", variant, rows, "variant")
    lengths, rate = rows[variant]
    epochs = lengths[-1] if epochs is None else epochs
    if epochs not in lengths or not isinstance(epochs, int):
        raise ValueError(
            f"Table 3 trains {variant} on {facts.name} for {' or '.join(map(str, lengths))} "
            f"epochs. Received: epochs={epochs!r}; use .scale(epochs=...) for another length."
        )
    return Recipe(
        name=f"pretrain-{facts.name}-{variant}-{epochs}ep",
        source=f"{PAPER}, Table 3; issue 2 of google-research/vision_transformer (head)",
        notes=_notes(facts.name, variant),
        **facts.all_images(),
        variant=variant,
        batch_size=4096,
        steps=round(epochs * facts.examples / 4096),
        **vit_jax(224),
        loss="sigmoid",
        head_bias=round(sigmoid_head_bias(facts.num_classes), 1),
        representation_size=VARIANTS[variant].width if variant in VARIANTS else None,
        learning_rate=rate,
        warmup_steps=10_000,
        **_OF_A_DATASET[facts.name],
    )


def _notes(dataset, variant):
    notes = ["The augmentation is not in the table; it is that of the authors' code."]
    answer = "the authors' answer in issue 2, for B/16 on ImageNet-21k"
    if dataset == "imagenet21k" and variant != "B/16":
        notes.append(
            "On ImageNet-21k, loss, head bias and the last learning rate of models but B/16 are "
            f"assumed to be as in {answer}."
        )
    if dataset == "jft300m":
        notes.append("JFT-300M is not public; its size is the paper's, 303 million.")
        notes.append(
            "Loss, head bias (-log K) and the last learning rate on JFT-300M are not published; "
            f"they are assumed to be as in {answer}. K is that of Sun et al., 2017."
        )
    if dataset == "imagenet2012":
        notes.append(
            "Loss and head bias (-log K) on ImageNet are not published; they are assumed to be as "
            f"in {answer}, which big_vision's later configs/vit_i1k.py does as well."
        )
    if variant not in VARIANTS:
        notes.append("A BiT ResNet under Adam, as section 4.1 and appendix D.1 compare it.")
    return tuple(notes)


FINE_TUNING = {"optimizer": "sgdm", "batch_size": 512, "schedule": "cosine", "clip_norm": 1.0}
LOW, HIGH = (0.001, 0.003, 0.01, 0.03), (0.003, 0.01, 0.03, 0.06)
# Table 4: updates, learning rates of the sweep, the one to begin with, warm-up.
TABLE_4 = {
    "imagenet2012": (20_000, HIGH, 0.03, 500),
    "cifar10": (10_000, LOW, 0.01, 500),
    "cifar100": (10_000, LOW, 0.03, 500),
    "oxford_iiit_pet": (500, LOW, 0.003, 100),
    "oxford_flowers102": (500, LOW, 0.003, 100),
}


def finetune_paper(dataset, variant=None):
    """Fine-tuning as in Table 4; see `keras_vit.recipes.finetune`."""
    facts = find_dataset(dataset, TABLE_4)
    steps, rates, rate, warmup = TABLE_4[facts.name]
    size, ema, extra = 384, None, ()
    if facts.name == "imagenet2012" and variant in ("L/16", "H/14"):
        size, ema = {"L/16": 512, "H/14": 518}[variant], 0.9999
        extra = ("Resolution and averaging are those of Table 2 (appendix B.1.1).",)
    elif variant == "H/14":
        size = 378
        extra = (
            "Of 384 pixels, patches of 14 cover 378; the authors' code leaves the others out.",
        )
    return Recipe(
        name=f"finetune-{facts.name}" + (f"-{variant}" if variant else ""),
        source=f"{PAPER}, Table 4 and appendix B.1.1",
        notes=(
            f"Table 4 chooses among the learning rates on {facts.held_out} % held-out training "
            "images and then trains on all; warm-up and augmentation are those of the authors' "
            "code.",
            *extra,
        ),
        **facts.all_images(),
        validation_split=facts.validation_split,
        variant=variant,
        steps=steps,
        **vit_jax(size),
        **FINE_TUNING,
        learning_rate=rate,
        learning_rates=rates,
        warmup_steps=warmup,
        ema=ema,
    )


def vtab(task, variant=None):
    """Fine-tuning on one task of VTAB-1k: 2,500 updates, learning rate 0.01, 384 pixels.

    Args:
        task: such as `"dtd"`, `"eurosat"` or `"clevr_count"`.
        variant: the model, or `None`.

    Returns:
        A `Recipe`; its data set is `"vtab/<task>"`: 800 + 200 images for training, and the whole
        test set.

    Raises:
        ValueError: no such task; the message lists the nearest.
    """
    name = str(task).strip().lower().replace("-", "_").removeprefix("vtab/")
    if name not in VTAB_TASKS:
        raise unknown("VTAB task", task, VTAB_TASKS)
    structured = name in VTAB_GROUPS["structured"]
    size = 378 if variant == "H/14" else 384
    squashed = Transform(size, "squash")
    random = Transform(size, "squash_random", resize_small=round(size * 512 / 480), flip=True)
    return Recipe(
        name=f"vtab-{name}" + (f"-{variant}" if variant else ""),
        source="Dosovitskiy et al., 2021, Table 4 and appendix B.1.1; Zhai et al., 2020 (VTAB)",
        notes=(
            "Not mirrored and not cropped, because the label may depend on the place."
            if structured
            else "Crop and mirroring are BiT's; 410 in front of 384 keeps its 512 to 480.",
        ),
        dataset=f"vtab/{name}",
        train_split="train800val200",
        variant=variant,
        examples=1000,
        num_classes=VTAB_TASKS[name].num_classes,
        steps=2500,
        train=squashed if structured else random,
        eval=squashed,
        **FINE_TUNING,
        learning_rate=0.01,
        learning_rates=(0.01,),
        warmup_steps=500,
    )


@dataclasses.dataclass(frozen=True)
class FewShotProtocol:
    """Linear regression on frozen features, from a few images per class (section 4.1).

    Attributes:
        source: where it is written.
        datasets: TFDS names that the authors' code evaluates.
        shots: images per class.
        seeds: of the draws of these images; results are averaged over them.
        l2: λ of (XᵀX + λI)⁻¹Xᵀy, the same for every data set.
        features: the layer that gives X, `"pre_logits"`: what the linear head sees.
        constant: value of the feature that stands for the bias, so large that λ leaves it alone.
        epsilon: added to the standard deviations that the features are divided by.
        image_size: (height, width) of the images in pixels.
        preprocessing: of the images, for `keras_vit.data.preprocess` or a model's `preprocessing`.
    """

    source: str
    datasets: tuple[str, ...]
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


def fewshot():
    """The `FewShotProtocol` with the authors' numbers.

        protocol = keras_vit.recipes.fewshot()
        model.preprocessing = protocol.preprocessing  # how `evaluation` reads images
        keras_vit.evaluation.fewshot(model, train, test, shots=protocol.shots)

    Their `resize(256)|central_crop(224)` squashes an image to 256 x 256, whatever its aspect ratio,
    makes whole grey levels of it, and takes the middle.
    """
    return FewShotProtocol(
        source=f"{PAPER}, section 4.1; google-research/big_vision, evaluators/fewshot_lsr.py and "
        "configs/common_fewshot.py",
        datasets=tuple("caltech101 cars196:2.1.0 cifar100 dtd oxford_iiit_pet uc_merced".split()),
    )
