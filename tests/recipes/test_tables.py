"""The numbers of the recipes: the paper's tables and the authors' configs, row by row."""

import numpy as np
import pytest

from keras_vit import data, recipes
from keras_vit.data import Transform
from keras_vit.data.transform import apply
from tests.support import refuses

pytestmark = pytest.mark.any_backend

# Table 3 of the paper: data, models, epochs, learning rate, schedule, weight decay, dropout.
TABLE_3 = """
jft300m      B/16 B/32          7     8e-4  linear  0.1   0.0
jft300m      L/32               7     6e-4  linear  0.1   0.0
jft300m      L/16               7,14  4e-4  linear  0.1   0.0
jft300m      H/14               14    3e-4  linear  0.1   0.0
jft300m      R50x1 R50x2        7     1e-3  linear  0.1   0.0
jft300m      R101x1             7     8e-4  linear  0.1   0.0
jft300m      R152x1 R152x2      7     6e-4  linear  0.1   0.0
jft300m      R50+B/16 R50+B/32  7     8e-4  linear  0.1   0.0
jft300m      R50+L/32           7     2e-4  linear  0.1   0.0
jft300m      R50+L/16           7,14  4e-4  linear  0.1   0.0
imagenet21k  B/16 B/32          90    1e-3  linear  0.03  0.1
imagenet21k  L/16 L/32          30,90 1e-3  linear  0.03  0.1
imagenet     B/16 B/32 L/16 L/32 H/14 300 3e-3 cosine 0.3 0.1
"""


def rows_of_table_3():
    for line in TABLE_3.strip().splitlines():
        dataset, *variants, epochs, rate, schedule, decay, dropout = line.split()
        for variant in variants:
            for length in epochs.split(","):
                row = int(length), float(rate), schedule, float(decay), float(dropout)
                yield dataset, variant, *row


def test_pre_training_is_table_3():
    for dataset, variant, epochs, *row in rows_of_table_3():
        recipe = recipes.pretrain(variant, dataset, epochs)
        assert (recipe.variant, recipe.epochs) == (variant, epochs)
        found = recipe.learning_rate, recipe.schedule, recipe.weight_decay, recipe.dropout
        assert found == tuple(row), recipe.name
        assert (recipe.optimizer, recipe.beta1, recipe.beta2) == ("adam", 0.9, 0.999)
        assert (recipe.batch_size, recipe.warmup_steps) == (4096, 10_000)
        assert recipe.image_size == (224, 224)
        assert recipe.clip_norm == (1.0 if dataset == "imagenet" else None)
        assert recipe.loss == "sigmoid" and recipe.decayed == ("kernel",)
    # On ImageNet-21k by issue 2 of google-research/vision_transformer.
    recipe = recipes.pretrain("B/16", "imagenet21k")
    assert recipe.end_learning_rate == 1e-5
    assert recipe.head_bias == -10 and recipe.representation_size == 768
    assert recipe.num_classes == 21_843


@pytest.mark.parametrize(
    "dataset, steps, rates, num_classes",
    [
        ("imagenet2012", 20_000, (0.003, 0.01, 0.03, 0.06), 1000),
        ("cifar10", 10_000, (0.001, 0.003, 0.01, 0.03), 10),
        ("cifar100", 10_000, (0.001, 0.003, 0.01, 0.03), 100),
        ("oxford_iiit_pet", 500, (0.001, 0.003, 0.01, 0.03), 37),
        ("oxford_flowers102", 500, (0.001, 0.003, 0.01, 0.03), 102),
    ],
)
def test_fine_tuning_is_table_4(dataset, steps, rates, num_classes):
    recipe = recipes.finetune(dataset)
    assert (recipe.dataset, recipe.steps, recipe.learning_rates) == (dataset, steps, rates)
    assert recipe.num_classes == num_classes and recipe.learning_rate in rates
    assert (recipe.optimizer, recipe.momentum, recipe.batch_size) == ("sgdm", 0.9, 512)
    assert (recipe.schedule, recipe.clip_norm, recipe.weight_decay) == ("cosine", 1.0, 0.0)
    assert recipe.image_size == (384, 384) and recipe.representation_size is None
    assert recipe.ema is None and recipe.dropout == 0.0


def test_the_headline_models_have_their_resolution_and_average():
    large, huge = (recipes.finetune("imagenet", variant) for variant in ("L/16", "H/14"))
    assert (large.image_size, huge.image_size) == ((512, 512), (518, 518))
    assert large.ema == huge.ema == 0.9999
    assert recipes.finetune("cifar10", "H/14").image_size == (378, 378)  # a multiple of 14


def test_fine_tuning_of_the_first_codebase_and_of_augreg():
    recipe = recipes.finetune("pets", source="augreg")
    assert (recipe.learning_rate, recipe.steps, recipe.warmup_steps) == (0.03, 500, 100)
    recipe = recipes.finetune("cifar10", "B/16", source="vit_jax")
    assert (recipe.learning_rate, recipe.steps, recipe.warmup_steps) == (0.01, 10_000, 500)
    assert recipe.train_split == "train[:98%]" and recipe.examples == 49_000
    assert recipes.finetune("cifar10", "L/16", source="vit_jax").learning_rate == 0.03
    dropout = {v: recipes.finetune("imagenet", v, "vit_jax").dropout for v in ("B/16", "L/16")}
    assert dropout == {"B/16": 0.0, "L/16": 0.1}
    assert recipe.train.crop == "inception" and recipe.train.area == (0.05, 1.0)
    assert recipe.train.library == "tensorflow"
    assert recipe.train.flip and recipe.eval.crop == "squash"


@pytest.mark.parametrize(
    "dataset, crop, rate, steps, warmup, split",
    [
        ("imagenet2012", "inception", 0.03, 20_000, 500, "train[:99%]"),
        ("cifar10", "resize_small_random", 0.003, 10_000, 500, "train[:98%]"),
        ("cifar100", "resize_small_random", 0.01, 10_000, 500, "train[:98%]"),
        ("oxford_iiit_pet", "inception", 0.003, 500, 100, "train[:90%]"),
        ("oxford_flowers102", "inception", 0.003, 500, 100, "train[:90%]"),
    ],
)
def test_fine_tuning_of_big_vision(dataset, crop, rate, steps, warmup, split):
    recipe = recipes.finetune(dataset, source="big_vision")
    assert (recipe.train.crop, recipe.learning_rate, recipe.train_split) == (crop, rate, split)
    assert (recipe.steps, recipe.warmup_steps) == (steps, warmup)
    assert (recipe.eval.crop, recipe.eval.resize_small) == ("resize_small_center", 448)
    assert recipe.train.library == "tensorflow_uint8" and recipe.eval.interpolation == "area"


def test_augreg_takes_the_chosen_level():
    of_1k = "Ti/16 light1 S/32 medium1 S/16 medium2 L/16 medium2".split()
    of_21k = "Ti/16 none S/32 none S/16 light1 B/32 light2 B/16 light2 L/16 medium2".split()
    for dataset, row in (("imagenet2012", of_1k), ("imagenet21k", of_21k)):
        for variant, level in zip(row[::2], row[1::2]):
            assert f"-{level}-" in recipes.augreg(variant, dataset).name


def test_the_augreg_grid_is_the_authors():
    grid = recipes.augreg_grid("B/16", "imagenet2012")
    assert len({recipe.name for recipe in grid}) == len(grid) == 28
    levels = {r.name.split("-")[4]: (r.mixup, r.train.randaugment) for r in grid}
    expected = {"none": (0.0, None), "light1": (0.0, (2, 0)), "light2": (0.2, (2, 10))}
    expected |= {"medium1": (0.2, (2, 15)), "medium2": (0.5, (2, 15))}
    expected |= {"strong1": (0.5, (2, 20)), "strong2": (0.8, (2, 20))}
    assert levels == expected
    assert {(r.weight_decay, r.dropout, r.stochastic_depth) for r in grid} == {
        (decay, p, p) for decay in (0.1, 0.03) for p in (0.0, 0.1)
    }
    recipe = recipes.augreg("B/16", "imagenet2012")
    assert (recipe.loss, recipe.head_bias, recipe.representation_size) == ("sigmoid", -6.9, 768)
    assert (recipe.learning_rate, recipe.schedule, recipe.clip_norm) == (1e-3, "cosine", 1.0)
    assert (recipe.batch_size, recipe.warmup_steps, recipe.epochs) == (4096, 10_000, 300)
    of_21k = recipes.augreg("B/16")
    assert of_21k.head_bias == -10 and of_21k.train_split == "full[51200:]"


def test_the_better_plain_vit():
    recipe = recipes.better_plain()
    assert (recipe.batch_size, recipe.epochs, recipe.warmup_steps) == (1024, 90, 10_000)
    assert (recipe.learning_rate, recipe.weight_decay) == (1e-3, 0.1)  # 1e-4 decoupled
    assert (recipe.loss, recipe.mixup, recipe.train.randaugment) == ("softmax", 0.2, (2, 10))
    assert (recipe.pool, recipe.position, recipe.representation_size) == ("mean", "sincos_2d", 384)


def test_bit_is_big_visions():
    small, large = recipes.bit_pretrain("R50x1", "imagenet"), recipes.bit_pretrain("R101x1")
    assert (small.learning_rate, small.weight_decay * small.learning_rate) == (1.6, 1.6e-3)
    assert large.learning_rate == pytest.approx(0.48)
    assert large.weight_decay * large.learning_rate == pytest.approx(4.8e-4)
    assert (small.warmup_steps, large.warmup_steps) == (1000, 5000)
    assert (small.loss, large.loss, large.head_bias) == ("softmax", "sigmoid", -10)


@pytest.mark.parametrize(
    "examples, area, warmup, boundaries, steps, size, mixup",
    [
        (1000, 32 * 32, 100, (200, 300, 400), 500, 128, 0.0),
        (19_999, 224 * 224, 100, (200, 300, 400), 500, 480, 0.0),
        (20_000, 96 * 96, 500, (3000, 6000, 9000), 10_000, 480, 0.1),
        (500_000, 96 * 96 - 1, 500, (6000, 12_000, 18_000), 20_000, 128, 0.1),
    ],
)
def test_the_hyperrule_is_the_authors(examples, area, warmup, boundaries, steps, size, mixup):
    recipe = recipes.bit_hyperrule(examples, area)
    assert (recipe.warmup_steps, recipe.boundaries, recipe.steps) == (warmup, boundaries, steps)
    assert (recipe.image_size, recipe.mixup) == ((size, size), mixup)
    assert (recipe.learning_rate, recipe.schedule, recipe.batch_size) == (0.003, "stairs", 512)
    resize = {128: 160, 480: 512}[size]
    assert recipe.train == Transform(size, "squash_random", resize_small=resize, flip=True)
    assert recipe.eval == Transform(size, "squash")
    assert recipe.replace(image_size=2 * size).train.resize_small == 2 * resize


def test_vtab_and_few_shot():
    recipe = recipes.finetune("vtab/clevr_count")
    assert recipe == recipes.vtab("clevr_count")
    assert (recipe.steps, recipe.learning_rate, recipe.image_size) == (2500, 0.01, (384, 384))
    assert recipe.num_classes == 8 and recipe.dataset == "vtab/clevr_count"
    assert not recipe.train.is_random and recipes.finetune("vtab/dtd") == recipes.vtab("dtd")
    assert recipes.vtab("dtd").train == Transform(384, "squash_random", resize_small=410, flip=True)
    assert recipes.vtab("dtd", "H/14").image_size == (378, 378)
    # It is big_vision's.
    protocol = recipes.fewshot()
    assert (protocol.shots, protocol.seeds, protocol.l2) == ((1, 5, 10, 25), (0, 1, 2), 2.0**10)
    assert (protocol.constant, protocol.epsilon, protocol.features) == (100.0, 1e-5, "pre_logits")
    # resize(256)|central_crop(224): squashed, whole grey levels, the middle.
    wide = np.random.default_rng(0).integers(0, 256, (300, 600, 3), np.uint8)
    how = {"preprocessing": protocol.preprocessing, "image_size": protocol.image_size}
    (ours,) = data.preprocess([wide], **how)
    squashed = apply(Transform(256, library="tensorflow_uint8"), wide) / 127.5 - 1
    np.testing.assert_allclose(ours, squashed[16:240, 16:240], atol=1e-6)


def test_notes_tell_what_is_assumed_and_not_published():
    def notes(*row):
        return " ".join(recipes.pretrain(*row).notes)

    assert "assumed" not in notes("B/16", "imagenet21k")  # the authors' own answer
    assert "the last learning rate of models but B/16 are assumed" in notes("L/16", "imagenet21k")
    assert "Loss, head bias (-log K) and the last learning rate on JFT" in notes("H/14", "jft300m")
    assert "Loss and head bias (-log K) on ImageNet are not published" in notes("B/32", "imagenet")


def test_masked_autoencoders_are_the_authors():
    """PRETRAIN.md and FINETUNE.md of facebookresearch/mae."""
    recipe = recipes.mae_pretrain("L/16")
    assert (recipe.batch_size, recipe.beta1, recipe.beta2) == (4096, 0.9, 0.95)
    assert (recipe.epochs, recipe.learning_rate) == (800, pytest.approx(2.4e-3))
    assert recipe.warmup_steps == round(40 * recipe.steps / 800) and recipe.weight_decay == 0.05
    train = recipe.train
    assert (train.area, train.flip, train.randaugment) == ((0.2, 1), True, None)
    assert (recipe.loss, recipe.make_loss(), recipe.metrics()) == ("own", None, [])
    assert recipes.mae_pretrain("B/16", 1600).warmup_steps == recipe.warmup_steps
    tables = {"B/16": (100, 2e-3, 0.65, 0.1), "L/16": (50, 4e-3, 0.75, 0.2)}
    tables["H/14"] = (50, 4e-3, 0.75, 0.3)
    for variant, row in tables.items():
        tuned = recipes.mae_finetune(variant)
        found = tuned.epochs, tuned.learning_rate, tuned.layer_decay, tuned.stochastic_depth
        assert found == (row[0], pytest.approx(row[1]), *row[2:])
        assert (tuned.batch_size, tuned.mixup, tuned.cutmix) == (1024, 0.8, 1.0)
    refuses(r"Unknown variant of the masked autoencoders.*S/16", recipes.mae_pretrain, "S/16")
    refuses("warmup_steps must be below steps", recipes.mae_pretrain, epochs=30)


def test_crops_of_authors_who_use_torchvision_are_its():
    """`RandomResizedCrop` with its own aspect ratios, and with the areas of each main file."""
    made = [(recipes.deit_distilled("Ti/16"), 0.08), (recipes.mae_pretrain(), 0.2)]
    for recipe, smallest in [*made, (recipes.mae_finetune(), 0.08)]:
        train = recipe.train
        assert (train.crop, train.area) == ("random_resized", (smallest, 1.0)), recipe.name
        assert train.ratio == (3 / 4, 4 / 3) and train.flip
        for transform in (train, recipe.eval):
            images = transform.preprocessing
            assert (images.mean, images.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
            assert (images.interpolation, images.library) == ("bicubic", "pillow")
        assert recipe.eval.preprocessing.resize == "shortest"
        assert recipe.eval.preprocessing.crop_fraction == 224 / 256


def test_deit_with_a_teacher_is_the_authors():
    """Table 9 of Touvron et al., 2021, and main.py of facebookresearch/deit."""
    recipe = recipes.deit_distilled("S/16")
    assert (recipe.epochs, recipe.batch_size, recipe.variant) == (300, 1024, "DeiT-S/16-distilled")
    assert recipe.learning_rate == pytest.approx(1e-3) and recipe.weight_decay == 0.05
    assert recipe.warmup_steps == round(5 * recipe.steps / 300)
    assert (recipe.mixup, recipe.cutmix, recipe.label_smoothing) == (0.8, 1.0, 0.1)
    assert (recipe.stochastic_depth, recipe.dropout, recipe.clip_norm) == (0.1, 0.0, None)
    assert recipes.deit_distilled(epochs=1000).epochs == 1000
    refuses(r"Unknown variant of DeiT.*L/16", recipes.deit_distilled, "L/16")
    refuses(r"300 or 1000 epochs.*epochs=100; use .scale", recipes.deit_distilled, epochs=100)
