"""The layout rules: every variable of every family has one, and every rule has a variable."""

import re

import pytest

import keras_vit
from keras_vit.distribution import LAYOUT_RULES, layout
from keras_vit.heads import heads_of
from tests.support import refuses, tiny_vit
from tests.test_heads import three_heads

pytestmark = pytest.mark.any_backend

LATER = {"mlp": "swiglu", "rotary": "mixed", "layer_scale": 0.1, "registers": 1}
LATER |= {"distillation": True, "norm": "rms_norm"}
LATER |= {f"{place}_norm": "layer_norm" for place in ("qk", "mlp", "attention", "patch", "pre")}
MODELS = {
    "dropout": {"dropout": 0.1, "attention_dropout": 0.1, "stochastic_depth": 0.1},
    "pre_logits": {"representation_size": 6, "registers": 2},
    "map": {"pool": "map"},
    "learned_2d": {"position": "learned_2d"},
    "learned_2d_shared": {"position": "learned_2d", "position_at": "shared"},
    "every_layer": {"position_at": "every_layer"},
    "shared": {"position_at": "shared"},
    "relative": {"position": "relative", "position_at": "every_layer"},
    "relative_shared": {"position": "relative", "position_at": "shared"},
    "later": {**LATER, "depth": 1},
    "relative_2d": {"position": "relative_2d", "projection": 4, "pool": "token_mean"},
    "relative_2d_shared": {"position": "relative_2d", "position_at": "shared"},
    "hybrid": {"image_size": 32, "patch_size": 1, "stem": (1, 1), "stem_width": 0.5},
    "bit": None,
}


@pytest.fixture(scope="module")
def variables():
    models = {name: tiny_vit(**options) for name, options in MODELS.items() if options}
    models["bit"] = keras_vit.BiT("R50x1", image_size=32, num_classes=4)
    return {name: [(v.path, v.shape) for v in model.variables] for name, model in models.items()}


@pytest.mark.parametrize("name", MODELS)
def test_every_variable_is_laid_out(name, variables):
    split = 0
    for path, shape in variables[name]:
        axes = layout.split_axes(LAYOUT_RULES, path, shape, 2)
        assert len(axes) == len(shape)
        assert layout.MODEL in axes or not path.endswith("kernel"), path
        split += layout.MODEL in axes
    assert split


def test_every_rule_decides_for_a_variable(variables):
    paths = [path for of_model in variables.values() for path, _ in of_model]
    assert {layout.find_rule(LAYOUT_RULES, path) for path in paths} == set(LAYOUT_RULES)


@pytest.mark.parametrize(
    "name, path, axes",
    [
        ("later", "block_0/mlp/gate/kernel", (None, "model")),
        ("later", "block_0/mlp/gate/bias", ("model",)),
        ("later", "block_0/mlp/norm/gamma", ("model",)),
        ("later", "block_0/attention/norm/beta", ("model",)),
        ("later", "block_0/attention/query_norm/gamma", (None,)),
        ("later", "block_0/norm_2/gamma", (None,)),
        ("later", "rotary_0/frequencies", (None, "model", None)),
        ("later", "patch_encoder/distillation_token", (None, None, "model")),
        ("later", "head_distillation/kernel", ("model", None)),
        ("later", "block_0/attention/query/bias", ("model", None)),
        ("later", "block_0/attention/out/bias", (None,)),
        ("later", "block_0/mlp/dense_2/bias", (None,)),
        ("map", "pool/attention/query/kernel", (None, "model", None)),
        ("relative_shared", "position/embedding", (None, None)),
        ("hybrid", "root/conv/kernel", (None, None, None, "model")),
        ("hybrid", "patch_encoder/position/embedding", (None, None, "model")),
        ("relative_2d", "projection/kernel", ("model", None)),
        ("relative_2d", "position_1/table", (None, "model")),
        ("relative_2d_shared", "position/table", (None, "model")),
    ],
)
def test_where_the_variables_of_later_families_are_cut(name, path, axes, variables):
    shape = dict(variables[name])[path]
    assert layout.split_axes(LAYOUT_RULES, path, shape, 2) == axes


@pytest.mark.parametrize(
    "rules, path, shape, devices, message",
    [
        ({}, "dense/kernel", (4, 4), 2, "Received: 'dense/kernel' of shape (4, 4), which none"),
        (LAYOUT_RULES, "breed/kernel", (8, 3), 2, "rules=, such as {'breed/kernel': ()} to leave"),
        ({"a/b": ("model",)}, "a/b", (4, 4), 2, "rule 'a/b' with ('model',) for 'a/b'"),
        ({"a/b": ("model", None)}, "a/b", (6, 4), 4, "4 devices for 'a/b' of shape (6, 4)"),
        (LAYOUT_RULES, "block_0/attention/query/kernel", (8, 3, 4), 2, "which has 3 heads"),
        (LAYOUT_RULES, "block_0/attention/norm/gamma", (9,), 2, "which has an axis of 9"),
    ],
)
def test_what_a_rule_cannot_do_is_told(rules, path, shape, devices, message):
    refuses(re.escape(message), layout.split_axes, rules, path, shape, devices)


def test_several_heads_stay_whole():
    model = three_heads(as_list=True)
    layout.check_shapes(LAYOUT_RULES, model, 2)
    of_mode = "model_parallel", LAYOUT_RULES, (2, 2)
    axes = {v.path: layout.variable_axes(v.path, v.shape, *of_mode) for v in model.variables}
    assert not any("model" in axes[f"{head}/kernel"] for head in heads_of(model))
    assert "model" in axes["block_0/mlp/dense_1/kernel"]
    refuses("'tags/kernel' of shape", layout.split_axes, LAYOUT_RULES, "tags/kernel", (8, 3), 2)


def test_a_rule_without_a_variable_is_told():
    with pytest.raises(ValueError, match=r"'head/kernal', which matches none of 2, such as"):
        layout.check_rules(["head/kernal"], ["head/kernel", "head/bias"])


@pytest.mark.parametrize(
    "shape, axis", [((3, 8, 4), 1), ((8, 8), 0), ((3, 5), None), ((), None), ((2,), None)]
)
def test_fully_sharded_splits_the_longest_axis_that_can_be(shape, axis):
    axes = layout.shard_longest_axis(shape, 2)
    assert axes == tuple("batch" if i == axis else None for i in range(len(shape)))
