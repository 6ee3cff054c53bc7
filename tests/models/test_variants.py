"""The table of published models: their numbers, and the parameters that the real models have."""

import dataclasses
import json
import re

import numpy as np
import pytest

import keras_vit
from keras_vit import VARIANTS, Rotary, Variant, VisionTransformer, builders, get_variant
from keras_vit.checks import marked
from keras_vit.extensions import ACTIVATIONS, BLOCKS, MLPS, NORMS, Extensions
from keras_vit.families import FAMILIES
from keras_vit.layers import kernels
from keras_vit.layers.extensions import blocks, mlp, norm, remat
from tests.support import ORACLES, canonical_arrays, refuses

pytestmark = pytest.mark.any_backend

REFERENCE = json.loads((ORACLES / "parameter_counts.json").read_text())
COUNTS, SHAPES = REFERENCE["counts"], REFERENCE["shapes"]
LATER = json.loads((ORACLES / "later_counts.json").read_text())
NAMES = {line.name.format(size): line for line in FAMILIES for size in line.sizes}
PAPER = [name for name in VARIANTS if name not in NAMES]


def parameters(model):
    return sum(int(np.prod(v.shape)) for v in model.weights)


def options_of(case):
    """res384_classes21843_prelogits -> arguments of a model."""
    match = re.fullmatch(r"res(\d+)_(?:classes(\d+)|nohead)(_prelogits)?", case)
    return int(match[1]), int(match[2] or 0), bool(match[3])


@pytest.mark.parametrize("name", COUNTS)
def test_published_parameter_counts(name, no_memory):
    """Those of the authors' code, for every head and image size that was published.

    All blocks are alike: what the second one adds, each of the others adds too.
    """
    found, others = {}, None
    for case in COUNTS[name]:
        image_size, num_classes, prelogits = options_of(case)
        options = {"image_size": image_size, "num_classes": num_classes}
        options["representation_size"] = VARIANTS[name].width if prelogits else None
        one_block = parameters(VisionTransformer(name, depth=1, **options))
        if others is None:
            two_blocks = parameters(VisionTransformer(name, depth=2, **options))
            others = (VARIANTS[name].depth - 1) * (two_blocks - one_block)
        found[case] = one_block + others
    assert found == COUNTS[name]


@pytest.mark.parametrize(
    "name, count", [("S/16", 22049896), ("S/32", 22878184), ("B/16", 86566120), ("B/32", 88222696)]
)
def test_parameter_counts_without_class_token(name, count, no_memory):
    assert parameters(VisionTransformer(name, pool="mean")) == count


@pytest.mark.parametrize(
    "name, millions", [("So400m/14", 413.60), ("g/14", 1012.61), ("G/14", 1844.44)]
)
def test_parameter_counts_of_the_giants(name, millions, no_memory):
    assert round(parameters(VisionTransformer(name)) / 1e6, 2) == millions


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_that_of_the_published_file(name, no_memory):
    """Under the names of the file, brought to canonical names."""
    arrays = {}
    for path, shape in SHAPES[name].items():
        for i in range(VARIANTS[name].depth if "{i}" in path else 1):
            arrays[path.replace("{i}", str(i))] = np.broadcast_to(np.float32(0), shape)
    expected = {path: array.shape for path, array in canonical_arrays(arrays).items()}
    assert {v.path: tuple(v.shape) for v in VisionTransformer(name).weights} == expected


def whole(name, **options):
    """The parameters of a variant without a head, from a model of one block."""
    model = VisionTransformer(name, depth=1, num_classes=0, **options)
    sizes = {v.path: int(np.prod(v.shape)) for v in model.weights}
    of_block = sum(size for path, size in sizes.items() if re.match(r"\w+_0/", path))
    return sum(sizes.values()) + (VARIANTS[name].depth - 1) * of_block


def of_later(name):
    """The first size of each line of the table runs always; all take half a minute."""
    is_first = name == NAMES[name].name.format(next(iter(NAMES[name].sizes)))
    return pytest.param(name, marks=() if is_first else pytest.mark.slow)


@pytest.mark.parametrize("name", map(of_later, LATER["timm"]))
def test_parameters_of_later_families(name, no_memory):
    """What timm counts, which keeps a projection into a joint space as a head."""
    assert whole(name, projection=None) == int(LATER["timm"][name].split()[0])


def test_heads_and_epsilon_of_later_families():
    found = {name: (VARIANTS[name].num_heads, VARIANTS[name].epsilon) for name in LATER["timm"]}
    timm = {name: text.split()[1:] for name, text in LATER["timm"].items()}
    assert found == {name: (int(heads), float(eps)) for name, (heads, eps) in timm.items()}
    without = {"MetaCLIP2-S/16", "MetaCLIP2-M/16", "MetaCLIP2-B/32", "MetaCLIP2-B/16"}
    assert set(NAMES) - set(found) == {*without, "MetaCLIP2-L/14"}, "those that timm has not"


@pytest.mark.parametrize("name, parameters", LATER["with_projection"].items())
def test_parameters_with_a_projection(name, parameters, no_memory):
    assert whole(name) == parameters


def test_the_matrices_of_the_largest_are_as_many_as_its_paper_counts():
    v = VARIANTS["22B/14"]
    assert v.depth * v.width * (4 * v.width + 2 * v.mlp_dim) // 10**6 == 21743


@pytest.mark.parametrize("name", PAPER)
def test_every_variant_has_a_builder(name, no_memory):
    stem, plus, size = name.rpartition("+")
    prefix = f"{stem}_ViT_" if plus else "ViT_"
    build = getattr(keras_vit, prefix + size.replace("/", "").replace("-", "_"))
    options = {"image_size": 2 * VARIANTS[name].stride[0], "depth": 1}
    model = build(num_classes=5, pool="mean", dropout=0.1, **options)
    assert model.variant == VARIANTS[name].replace(depth=1, pool="mean")
    assert model.output_shape == (None, 5)
    assert model.get_config()["dropout"] == 0.1
    assert model.name == build.__name__.lower()
    headless = build(include_top=False, name="mine", **options)
    width = VARIANTS[name].representation_size or VARIANTS[name].width
    assert headless.output_shape == (None, width)
    assert headless.name == "mine"


BUILDERS = {"DINOv3_Splus16": "DINOv3-S+/16", "PE_Core_Ti16": "PE-Core-Ti/16"}
BUILDERS |= {"BEiT_B16": "BEiT-B/16", "DeiT_Ti16_distilled": "DeiT-Ti/16-distilled"}
BUILDERS |= {"SBB_so150m2_16_reg1": "SBB-so150m2/16-reg1"}


@pytest.mark.parametrize("name", BUILDERS)
def test_builders_of_later_families(name, no_memory):
    model = getattr(keras_vit, name)(num_classes=5, image_size=32, depth=1)
    assert model.variant == VARIANTS[BUILDERS[name]].replace(depth=1)
    assert (model.name, model.output_shape) == (name.lower(), (None, 5))


def test_every_variant_of_a_later_family_has_a_builder():
    """Under its own name, public, and with the title of its family."""
    assert len(builders.LATER) == len(NAMES) == len(VARIANTS) - len(PAPER)
    for (name, build), (variant, line) in zip(builders.LATER.items(), NAMES.items()):
        letters = re.sub(r"\W", "", variant.replace("+", "plus"))
        assert name.replace("_", "") == letters
        assert name in keras_vit.__all__ and getattr(keras_vit, name) is build
        v = VARIANTS[variant]
        assert build.__doc__.startswith(f"{line.title}: {v.depth} blocks, width {v.width}, ")
        assert f"{v.patch_size[0]} must divide it" in build.__doc__


def test_names_of_the_table():
    assert set(PAPER) == {
        *("Ti/16", "S/32", "S/16", "B/32", "B/16", "B/8", "L/32", "L/16", "H/14"),
        *("g/14", "G/14", "So400m/14", "22B/14", "S/16-plain"),
        *("R50+B/16", "R50+L/16", "R50+B/32", "R50+L/32"),
        *("R26+S/32", "R26+B/32", "R+Ti/16"),
    }


def test_the_stride_of_a_hybrid():
    """Root only and 8 x 8 patches is called /16 by its authors, and makes 7 x 7 of 224 pixels."""
    for name, stride in (("R50+B/16", 16), ("R50+L/32", 32), ("R26+S/32", 32), ("R+Ti/16", 32)):
        v = VARIANTS[name]
        assert v.stride == (stride, stride)
        assert v.grid(224) == (224 // stride,) * 2
    assert VARIANTS["R50+B/16"].grid((45, 17)) == (3, 2)


def test_what_fills_no_patch_of_a_feature_map_is_dropped():
    v = Variant(stem=(1, 1), patch_size=2)  # of a map that is an eighth of the image, rounded up
    assert [v.grid(side)[0] for side in (48, 49, 56, 57)] == [3, 3, 3, 4]
    refuses(r"at least \(9, 9\).*Received: image_size=\(8, 64\)", v.grid, (8, 64))
    refuses("multiple of patch_size", VARIANTS["B/16"].grid, 53)


def test_the_paper_s_table_1():
    """Layers, hidden size, MLP size and heads of Base, Large and Huge."""
    rows = {"B/16": (12, 768, 3072, 12), "L/16": (24, 1024, 4096, 16), "H/14": (32, 1280, 5120, 16)}
    for name, row in rows.items():
        v = VARIANTS[name]
        assert (v.depth, v.width, v.mlp_dim, v.num_heads) == row
        assert (v.pool, v.position, v.gelu, v.epsilon) == ("token", "learned_1d", "tanh", 1e-6)


def test_a_variant_gives_the_numbers_and_arguments_change_them(no_memory):
    assert Variant() == get_variant() == VARIANTS["B/16"]
    model = VisionTransformer("Ti/16", image_size=32, num_classes=0, depth=1, pool="mean")
    v = model.variant
    assert (v.width, v.num_heads, v.mlp_dim, v.depth, v.pool) == (192, 3, 768, 1, "mean")
    assert model.grid == (2, 2) and not v.class_token


def test_a_size_with_another_patch_size():
    assert get_variant("B/24") == VARIANTS["B/16"].replace(patch_size=24)
    assert get_variant("L/7", depth=2) == VARIANTS["L/16"].replace(patch_size=7, depth=2)
    assert get_variant("H/14", patch_size=(7, 14)).patch_size == (7, 14)
    assert get_variant("DINOv2-S/7") == VARIANTS["DINOv2-S/14"].replace(patch_size=7)
    for name in ("DINOv2-S/14-reg", "SBB-medium/8", "DINOv2/14", "B/0"):
        refuses("Unknown variant", get_variant, name)


def test_a_variant_is_a_value():
    assert get_variant(VARIANTS["S/16"]) == VARIANTS["S/16"]
    assert get_variant(VARIANTS["S/16"], depth=3).depth == 3
    assert VARIANTS["S/16"].depth == 12
    assert hash(VARIANTS["S/16"]) == hash(get_variant("S/16"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        VARIANTS["S/16"].depth = 3
    refuses(r"argument='heads'; use num_heads\.", VARIANTS["S/16"].replace, heads=3)


def test_fields_that_follow_others():
    v = Variant(width=8, num_heads=2, mlp_dim=5, class_token=True, pool="mean")
    assert v.replace(width=16).mlp_dim == 64
    assert v.replace(width=16, mlp_dim=7).mlp_dim == 7
    assert v.replace(depth=2).mlp_dim == 5
    assert v.replace(depth=2).class_token
    assert not v.replace(pool="map").class_token
    assert v.replace(pool="token").class_token
    relative = v.replace(position="relative")
    assert relative.position_at == "every_layer"
    assert relative.replace(position="learned_1d").position_at == "input"
    assert v.replace(position=None).position == "none"


def test_fields_of_later_families():
    v = VARIANTS["B/16"].replace(norm="rms_norm", width=24, num_heads=2)
    assert v.extensions == Extensions(norm="rms_norm") and v.mlp_dim == 96
    assert v.replace(layer_scale=0.1).extensions == Extensions(norm="rms_norm", layer_scale=0.1)
    assert Variant(rotary="eva02").rotary == Rotary(reference=(16, 16))
    assert Variant(**json.loads(json.dumps(dataclasses.asdict(v)))) == v


@pytest.mark.parametrize(
    "name",
    ["norm", "block", "mlp", "activation", "qk_norm", "mlp_norm", "pre_norm", "biases", "rotary"],
)
def test_each_choice_of_later_families_is_a_name_of_a_table(name):
    refuses(rf"{name}.*'none_such'", Variant().replace, **{name: "none_such"})


def test_the_tables_of_layers_have_the_names_of_the_variants():
    assert {None, *NORMS} == set(norm.NORMS)
    assert set(MLPS) == set(mlp.MLPS)
    assert set(ACTIVATIONS) == set(kernels.ACTIVATIONS)
    assert set(BLOCKS) == set(blocks.BLOCKS) == set(remat.REMAT_BLOCKS)


def test_a_variant_lists_each_field_once():
    """The fields that a builder takes from a checkpoint, and those that a report compares."""
    assert set(marked(Variant, "compared")) <= set(marked(Variant, "inherited"))
    assert {"gelu", "epsilon", "pool", "rotary", "activation"} <= set(marked(Variant, "compared"))
    assert not {"width", "depth", "patch_size"} & set(marked(Variant, "inherited"))
