"""The catalogue: complete, consistent with itself, and found by the names people have at hand."""

import collections
import dataclasses
import re

import pytest

import keras_vit
from keras_vit import preprocessing
from keras_vit.data.vtab import VTAB_TASKS
from keras_vit.families import FAMILIES
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import augreg, catalog
from keras_vit.weights.catalog import checkpoints, find

pytestmark = pytest.mark.any_backend

ALL = checkpoints()
COUNTS = {
    "google": 69,  # 9 + 8 + 5 of the original buckets, 47 of augreg
    "big_vision": 41 + 6,  # its 48 short names without 7 for files of augreg; FlexiViT
    "timm": 64 + 332,  # those of later families are made from timm's own list
    "huggingface": 13 + 127,
    "meta": 46,
    "torchvision": 10,
    "bit": 18 + 4 + 5 * 3 * 19,
    "keras_hub": 11,
    "keras_vit": 1,
}
# Published, and no entry of the table of plain Vision Transformers.
OTHER_VARIANTS = {
    *("R50+B/16", "R50+L/32", "R26+B/32", "R26+S/32", "R+Ti/16"),
    *("BiT-R50x1", "BiT-R50x3", "BiT-R101x1", "BiT-R101x3", "BiT-R152x2", "BiT-R152x4"),
    *("FlexiViT-S/32", "FlexiViT-B/32", "FlexiViT-L/32"),  # as stored
    "mini/4",  # of the recipe "digits"
}
URLS = {
    "google": r"gs://vit_models/(imagenet21k|imagenet21k\+imagenet2012|sam|augreg)/[\w.+-]+\.npz",
    "big_vision": r"gs://big_vision/([\w/]+/)?[\w-]+\.npz(:img)?",
    "meta": r"https://dl\.fbaipublicfiles\.com/(deit|dino|dinov2|mae|ijepa)/[\w./-]+\.pth(\.tar)?",
    "torchvision": r"https://download\.pytorch\.org/models/vit_[a-z]_\d+_?[a-z_]*-[0-9a-f]{8}\.pth",
    "timm": r"hf://timm/[\w.]+|https://storage\.googleapis\.com/vit_models/\w+/[\w.-]+\.npz",
    "huggingface": r"hf://(google|facebook|openai|laion|microsoft|apple)/[\w.-]+",
    "bit": r"https://storage\.googleapis\.com/bit_models/((vtab|distill)/)?[\w-]+\.npz",
    "keras_hub": r"kaggle://keras/vit/keras/\w+/\d+",
    "keras_vit": r"package://\w+/model\.safetensors",
}
LICENCES = ("Apache-2.0", "MIT", "CC-BY-NC-4.0", "Apple-ASCL", "Apple-AMLR", "DINOv3", "unstated")
LATER = {line.name.format(size) for line in FAMILIES for size in line.sizes}
TI_16 = "augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"


def of(family):
    return checkpoints(family=family)


def numbers(checkpoint):
    """Parameters of a plain Vision Transformer of the authors' by a formula of its own."""
    variant = keras_vit.VARIANTS[checkpoint.variant]
    width, mlp, patch = variant.width, variant.mlp_dim, variant.patch_size[0]
    tokens = (checkpoint.image_size // patch) ** 2 + 1
    block = 4 * width * (width + 1) + 2 * width * mlp + mlp + width + 4 * width
    stem = patch * patch * 3 * width + width + width + tokens * width
    pre_logits = width * (width + 1) if checkpoint.name.startswith("imagenet21k/") else 0
    head = (width + 1) * checkpoint.num_classes
    return stem + variant.depth * block + 2 * width + pre_logits + head


def test_counts():
    assert collections.Counter(c.family for c in ALL) == COUNTS
    assert tuple(COUNTS) == catalog.FAMILIES


def test_names_are_unique_and_no_alias_hides_one():
    names = [c.name for c in ALL]
    assert len(set(names)) == len(names)
    others = catalog.read_tables()[1]
    assert not set(others) & set(names)
    assert set(others.values()) <= set(names)


@pytest.mark.parametrize("family", catalog.FAMILIES)
def test_urls(family):
    for c in of(family):
        assert re.fullmatch(URLS[family], c.url), c
    # A file stands under one name per family.
    assert len({c.url for c in of(family)}) == len(of(family))


def test_records_are_of_the_declared_kinds():
    for c in ALL:
        assert c.variant in keras_vit.VARIANTS or c.variant in OTHER_VARIANTS, c
        is_later = c.variant in LATER or c.variant in OTHER_VARIANTS
        from_file = is_later and c.family == "huggingface"  # whose folders say it themselves
        assert isinstance(c.preprocessing, Preprocessing) or (from_file and not c.preprocessing), c
        # timm keeps the projection of a CLIP as a head, which has outputs and no labels.
        projects = "CLIP" in c.variant or "PE-Core" in c.variant
        assert c.num_classes >= 0 and (bool(c.label_set) == bool(c.num_classes) or projects), c
        assert c.licence in LICENCES, c
        assert c.size is None or c.size > 0
        assert all(0 < value < 100 for _, value in c.accuracy), c
        assert hash(c) is not None


def test_overrides_are_fields_of_an_architecture():
    fields = {field.name for field in dataclasses.fields(keras_vit.Variant)}
    for c in ALL:
        assert {name for name, _ in c.overrides} <= fields
        if c.variant in keras_vit.VARIANTS:
            keras_vit.get_variant(c.variant, **dict(c.overrides))


def test_classes_follow_their_labels():
    classes = {"imagenet-1k": 1000, "imagenet-21k": 21843, None: 0}
    classes |= {"imagenet-12k": 11821, "imagenet-22k": 21841, "digits": 10}
    for c in ALL:
        if c.num_classes and not c.label_set:  # the length of a joint space
            assert c.num_classes == keras_vit.VARIANTS[c.variant].projection, c
            continue
        task = str(c.label_set).removeprefix("vtab-1k/").replace("-", "_")
        task = VTAB_TASKS.get(task.replace("xpos", "location"))
        assert c.num_classes == (task.num_classes if task else classes[c.label_set]), c


def test_published_sizes_agree_with_the_number_of_parameters():
    sized = [c for c in ALL if c.approximate_mib]
    assert len(sized) == 22 + 9
    for c in sized:
        if c.name == "sam/ViT-S_16":  # three times the weights: it holds more than them
            assert c.approximate_mib == 252.57
            continue
        # Sizes from 1 GiB on were printed with two digits after the point of GiB.
        rounding = 6 if c.approximate_mib > 1024 else 0.6
        assert abs(c.parameters * 4 / 2**20 - c.approximate_mib) < rounding, c


@pytest.mark.parametrize("family", ["google", "timm", "torchvision"])
def test_parameters_of_plain_models(family):
    variants = {n: v for n, v in keras_vit.VARIANTS.items() if v.stem is None and n not in LATER}
    plain = [c for c in of(family) if c.variant in variants]
    assert len(plain) > (9 if family == "torchvision" else 30)
    for c in plain:
        assert c.parameters == numbers(c), c


def test_known_facts():
    original = find("imagenet21k/ViT-B_16")
    assert (original.image_size, original.num_classes) == (224, 21843)
    assert original.approximate_mib == 393.69
    assert dict(original.accuracy)["imagenet top-1, fine-tuned, dropout 0.1"] == 84.12
    assert find("imagenet21k+imagenet2012/ViT-B_16").image_size == 384
    assert find("imagenet21k+imagenet2012/ViT-B_16-224").image_size == 224
    siglip = find("SigLIP2 g-opt/16 384")
    assert (siglip.variant, siglip.image_size, siglip.num_classes) == ("SigLIP2-g-opt/16", 384, 0)
    assert siglip.overrides == (("pool", "map"),)
    naflex = find("SigLIP2 B/16 NaFlex")
    assert naflex.image_size is None
    assert naflex.overrides == (("pool", "map"), ("interpolation", "bilinear_antialias"))
    flexi = [c for c in ALL if c.variant.startswith("FlexiViT") and c.family == "big_vision"]
    assert {c.overrides for c in flexi} == {(("interpolation", "bilinear_antialias"),)}
    assert keras_vit.VARIANTS["FlexiViT-B/16"].interpolation == "bilinear_antialias"
    bit_50 = find("google/bit-50")
    facts = bit_50.image_size, bit_50.pretrained_on, bit_50.finetuned_on
    assert facts == (448, "imagenet-21k", "imagenet-1k")
    assert dict(find("google/vit-base-patch16-224").overrides) == {"gelu": "erf", "epsilon": 1e-12}
    assert find("BiT-M-R50x1").parameters == 68256659
    assert find("vtab/BiT-M-R50x1-run2-svhn").parameters == 23500352 + 2049 * 10


def test_preprocessing_of_the_families():
    expected = {
        "imagenet21k/ViT-B_16": preprocessing.GOOGLE,
        "i1k-s16-90ep": preprocessing.BIG_VISION,
        "SigLIP B/16 224": preprocessing.SIGLIP,
        "vit_base_patch16_224.augreg_in21k": preprocessing.TIMM,
        "google/vit-base-patch16-224": preprocessing.HUGGING_FACE,
        "BiT-M-R50x1": preprocessing.BIT,
    }
    for name, value in expected.items():
        assert find(name).preprocessing == value, name
    of_google = [c for c in ALL if c.family in ("google", "big_vision", "bit", "keras_hub")]
    for c in of_google:  # the DeiT III files too: their first layer was converted to [-1, 1]
        assert c.preprocessing.mean == c.preprocessing.std == (0.5, 0.5, 0.5)
    deit = find("deit3_B_384_21k").preprocessing
    assert (deit.interpolation, deit.crop_fraction, deit.library) == ("bicubic", 1.0, "pillow")


def test_augreg_records_say_what_their_names_say():
    found = [c for c in ALL if c.name.startswith("augreg/")]
    assert len(found) == 47
    for c in found:
        assert augreg.augreg_url(c.name) == augreg.augreg_url(c.url) == c.url
        name, data, *_ = c.name.removeprefix("augreg/").split("-")
        is_tuned = "--imagenet2012" in c.name
        assert re.sub(r"[/+]", "_", c.variant) == name
        assert c.image_size == int(c.name.partition("-res_")[2] or 224)
        assert c.num_classes == (1000 if is_tuned or data == "i1k" else 21843)
        assert c.finetuned_on == ("imagenet-1k" if is_tuned else None)
        assert c.pretrained_on == {"i1k": "imagenet-1k", "i21k": "imagenet-21k"}[data]


@pytest.mark.parametrize(
    "alias, name",
    [
        ("imagenet21k/ViT-B_16.npz", "imagenet21k/ViT-B_16"),
        ("https://storage.googleapis.com/vit_models/sam/ViT-B_16.npz", "sam/ViT-B_16"),
        ("ViT-H_14.npz", "imagenet21k/ViT-H_14"),
        ("ViT-B_16-224", "imagenet21k+imagenet2012/ViT-B_16-224"),
        (TI_16.split("/")[1], TI_16),
        ("howto-i21k-Ti/16", TI_16),
        ("gs://big_vision/siglip2/siglip2_b16_224.npz", "SigLIP2 B/16 224"),
        ("gs://big_vision/siglip2/siglip2_b16_224.npz:img", "SigLIP2 B/16 224"),
        ("siglip2_b16_224", "SigLIP2 B/16 224"),
        ("timm/vit_base_patch16_224.augreg_in21k", "vit_base_patch16_224.augreg_in21k"),
        ("hf://timm/vit_base_patch16_224.augreg_in21k", "vit_base_patch16_224.augreg_in21k"),
        ("https://storage.googleapis.com/bit_models/BiT-M-R50x1.npz", "BiT-M-R50x1"),
        ("BiT-M-R101x3-run1-clevr-count.npz", "vtab/BiT-M-R101x3-run1-clevr-count"),
        ("R50x1_160", "distill/R50x1_160"),
        ("kaggle://keras/vit/keras/vit_base_patch16_224_imagenet", "vit_base_patch16_224_imagenet"),
        (
            "https://github.com/rwightman/pytorch-image-models/releases/download/v0.1-vitjx/"
            "jx_vit_base_p16_224-80ecf9dd.pth",
            "vit_base_patch16_224.orig_in21k_ft_in1k",
        ),
    ],
)
def test_aliases(alias, name):
    assert find(alias).name == name


def test_every_name_and_url_leads_back():
    for c in ALL:
        assert find(c.name) is c
        found = find(c.url)
        assert found is c or (c.family, found.family) == ("timm", "google")


@pytest.mark.parametrize(
    "name, message",
    [
        ("google/vit-base-patch16-242", "'google/vit-base-patch16-224'"),
        ("imagenet21k/vit-b_16", "'imagenet21k/ViT-B_16'"),
        (TI_16.replace("300ep", "30ep"), repr(TI_16)),
        ("nothing like it", "list_weights() prints all"),
        ("ViT-B/16", "list_weights(variant='B/16')"),
    ],
)
def test_an_unknown_name(name, message):
    with pytest.raises(ValueError, match="Unknown checkpoint") as error:
        find(name)
    assert f"Received: name={name!r}" in str(error.value)
    assert message in str(error.value)


def test_a_file_name_in_several_folders():
    with pytest.raises(ValueError, match="Several checkpoints") as error:
        find("ViT-B_16.npz")
    for name in ("imagenet21k/ViT-B_16", "imagenet21k+imagenet2012/ViT-B_16", "sam/ViT-B_16"):
        assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    "written, variant",
    [
        *((text, "B/16") for text in ("B/16", "B16", "ViT-B/16", "ViT_B16", "vit_b16", "ViT-B_16")),
        ("vit_s16_plain", "S/16-plain"),
        ("R50+ViT-B_16", "R50+B/16"),
        ("siglip-so400m14", "SigLIP-So400m/14"),
        ("SigLIP2-G-opt/16", "SigLIP2-g-opt/16"),
        ("DINOv3_Splus16", "DINOv3-S+/16"),
        ("dinov3-s16", "DINOv3-S/16"),
        ("DINOv3-H+/16", "DINOv3-H+/16"),
        ("DINOv2_S14_reg4", "DINOv2-S/14-reg4"),
        ("R50x1", "BiT-R50x1"),
    ],
)
def test_spellings_of_a_variant(written, variant):
    found = checkpoints(written)
    assert found and {c.variant for c in found} == {variant}
