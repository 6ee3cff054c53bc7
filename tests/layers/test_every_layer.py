"""Every public layer builds, describes itself, is saved, trains and is right in every precision."""

import inspect
import json

import keras
import numpy as np
import pytest

from keras_vit import layers
from keras_vit.layers.extensions.naflex import NaFlexPatchEncoder, NaFlexPosition
from keras_vit.layers.extensions.token_merging import MergingBlock, MergingPostNormBlock
from keras_vit.models.bit import GlobalMean
from keras_vit.training.masked_decoder import MaskedDecoder
from tests import harness
from tests.arrays import assert_close, dtype_of, largest, to_numpy, values
from tests.harness import NO_GRADIENT, TOKENS, Case
from tests.layers import extension_cases, resnet_cases
from tests.support import BACKEND, forward, gradients, precision, randomize, slow_unless_torch

CASES = harness.CASES + resnet_cases.CASES + extension_cases.CASES
BLOCK = {"num_heads": 2, "mlp_dim": 12}
WITH_COUNTS = [  # layers with an input that counts or indexes, and those that are not public
    Case(name, layer, arguments, None, inputs=inputs)
    for name, layer, arguments, inputs in (
        *(
            (pool, layers.ExtendedTokenPool, {"pool": pool, "class_token": True}, {"size": (2, 5)})
            for pool in ("mean", "token_mean")
        ),
        ("map", layers.AttentionPool, BLOCK, {"size": (2, 5)}),
        ("merging", MergingBlock, {**BLOCK, "merged": 1}, {"size": (2, 5)}),
        ("merging_none", MergingPostNormBlock, BLOCK, {"size": (2, 5)}),
        ("naflex", NaFlexPatchEncoder, {"width": 8, "grid": (2, 2)}, {"shapes": (2, 2)}),
        ("naflex_position", NaFlexPosition, {"grid": (2, 2)}, {"shapes": (2, 2)}),
        (
            "decoder",
            MaskedDecoder,
            {**BLOCK, "grid": (2, 2), "learned_tokens": 1, "pixels": 12, "width": 8, "depth": 1},
            {"places": (2, 4)},
        ),
    )
    for inputs in [{"x": TOKENS, **inputs}]
]
WITH_COUNTS += [Case("pixels", GlobalMean, {}, None, inputs={"x": (2, 3, 2, 8)})]
INTEGERS = ("uint8", "int32", "int64", "bool")
POLICIES = ("float32", "bfloat16", "mixed_bfloat16") + tuple(
    pytest.param(policy, marks=slow_unless_torch)
    for policy in ("float64", "float16", "mixed_float16")
)
every_case = pytest.mark.parametrize("case", CASES, ids=str)
cases_with_variables = pytest.mark.parametrize(
    "case", [case for case in CASES if case.variables], ids=str
)


def test_no_layer_is_forgotten():
    public = {getattr(layers, name) for name in layers.__all__}
    assert {case.layer for case in CASES} == set(filter(inspect.isclass, public))


@every_case
@pytest.mark.parametrize("dtype, tolerance", [("float32", 3e-6), ("float64", 1e-12)])
def test_equals_its_definition(case, dtype, tolerance):
    """In float64 too: several Keras operations drop to float32 there without a word."""
    with precision(dtype):
        layer = case.built(dtype)
        outputs = case.outputs(layer, dtype)
        assert dtype_of(outputs) == dtype
        assert {dtype_of(v) for v in layer.weights} <= {dtype}
        expected = case.expected(values(layer))
        assert_close(outputs, expected, tolerance * max(largest(expected), 1))


@every_case
def test_describes_itself_and_is_saved(case, tmp_path):
    """Variables, symbolic shapes and the config, which the saved layer has too."""
    layer, symbols = case.built(), case.symbols()
    assert sorted(values(layer)) == sorted(case.variables)
    assert len(layer.trainable_variables) == len(case.variables)

    config = json.loads(json.dumps(layer.get_config()))
    assert json.loads(json.dumps(case.layer.from_config(config).get_config())) == config
    for name, value in case.arguments.items():
        assert layer.get_config()[name] == value or case.layer is layers.Linear, name

    model = keras.Model(symbols, case.call(layer, symbols))
    outputs = case.outputs(layer)
    assert len(model.output.shape) == len(outputs.shape)
    assert all(a in (b, None) for a, b in zip(model.output.shape, outputs.shape))
    first, *others = symbols
    spec = layer.compute_output_spec(first, **dict(zip(list(case.inputs)[1:], others)))
    assert (spec.shape, spec.dtype) == (model.output.shape, dtype_of(outputs))

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").get_layer("layer")
    assert type(loaded) is type(layer)
    assert json.loads(json.dumps(loaded.get_config())) == config
    np.testing.assert_array_equal(to_numpy(case.outputs(loaded)), to_numpy(outputs))


@cases_with_variables
def test_every_variable_has_a_gradient(case):
    layer = case.built()
    first, *others = case.tensors()
    rng = np.random.default_rng(2)
    _, grads = gradients(
        layer,
        lambda y: keras.ops.sum(
            y * keras.ops.convert_to_tensor(rng.normal(size=tuple(y.shape)).astype("float32"))
        ),
        first,
        **dict(zip(list(case.inputs)[1:], others)),
    )
    assert {path.removeprefix("layer/") for path in grads} == set(case.variables)
    for path, grad in grads.items():
        assert grad is not None, path
        assert np.isfinite(grad).all(), path
        if path.endswith(NO_GRADIENT):
            assert largest(grad) < 1e-5, path
        else:
            assert largest(grad) > 1e-4, path


@every_case
def test_mixed_bfloat16(case):
    layer = case.built("mixed_bfloat16")
    outputs = case.outputs(layer)
    assert dtype_of(outputs) == "bfloat16"
    assert {dtype_of(v) for v in layer.weights} <= {"float32"}
    expected = case.expected(values(layer))
    error = largest(to_numpy(outputs) - expected)
    assert error <= 0.03 * largest(expected), "bfloat16 keeps 8 bits"
    assert case.call(layer, case.symbols()).dtype == "bfloat16"


def numbers(case, dtype):
    """Whole numbers, so that every type holds them; counts and places where these are wanted."""
    rng = np.random.default_rng(0)
    arrays = []
    for name, shape in case.inputs.items():
        if name == "places":
            array = np.indices(shape)[1]
        elif name == "shapes":
            array = np.full(shape, 2)
        else:
            array = rng.integers(name == "size", 2 if dtype == "bool" else 7, shape)
        is_index = name == "places" and "float" in dtype
        arrays.append(keras.ops.cast(array, "int32" if is_index else dtype))
    return arrays


def described(layer, inputs, names):
    """Shapes and types of the outputs; JAX need not compile what computes them."""

    def call(first, *others):
        return layer(first, **dict(zip(names[1:], others)))

    if BACKEND == "jax":
        import jax

        outputs = jax.eval_shape(call, *inputs)
    else:
        outputs = call(*inputs)
    return [(tuple(y.shape), dtype_of(y)) for y in keras.tree.flatten(outputs)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", CASES + WITH_COUNTS, ids=str)
def test_returns_what_it_declares(case, policy):
    """For inputs of any type: by a call with symbols, by the spec, by shapes and with numbers."""
    with precision(policy):
        layer, names = case.make(policy), list(case.inputs)
        for dtype in ("float32", "float64", "float16", "bfloat16", *INTEGERS):
            inputs = numbers(case, dtype)
            symbols = [keras.KerasTensor(x.shape, dtype_of(x)) for x in inputs]
            outputs = keras.tree.flatten(case.call(layer, symbols))
            spec = layer.compute_output_spec(symbols[0], **dict(zip(names[1:], symbols[1:])))
            assert [(y.shape, y.dtype) for y in keras.tree.flatten(spec)] == [
                (y.shape, y.dtype) for y in outputs
            ]
            shapes = {f"{name}_shape": x.shape for name, x in zip(names, symbols)}
            shape = layer.compute_output_shape(shapes.pop(f"{names[0]}_shape"), **shapes)
            assert shape == keras.tree.map_structure(lambda y: y.shape, spec)
            for y, (shape, found) in zip(outputs, described(layer, inputs, names), strict=True):
                assert found == y.dtype, dtype
                assert len(shape) == len(y.shape)
                assert all(a in (b, None) for a, b in zip(y.shape, shape)), dtype


EASY = ("Patches", "PatchEncoder", "LayerNorm", "GroupNorm", "TokenPool_mean", "Linear", "merging")


@pytest.mark.parametrize(
    "case",
    [
        case
        if BACKEND != "jax" or case.name in EASY
        else pytest.param(case, marks=pytest.mark.slow)
        for case in CASES + WITH_COUNTS
    ],
    ids=str,
)
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_integers_are_the_numbers_that_they_are(case, policy):
    layer = case.make(policy)
    case.call(layer, case.symbols())
    randomize(layer)
    names = list(case.inputs)

    def outputs(dtype):
        first, *others = numbers(case, dtype)
        return forward(layer, first, **dict(zip(names[1:], others)))

    expected = keras.tree.map_structure(to_numpy, outputs("float32"))
    for dtype in INTEGERS[:1] if BACKEND == "jax" else INTEGERS[:3]:
        found = keras.tree.map_structure(to_numpy, outputs(dtype))
        keras.tree.map_structure(np.testing.assert_array_equal, found, expected)


def test_layers_within_layers_of_keras():
    """`TimeDistributed` and `Sequential` ask a layer for its shape, by shapes alone."""
    video = keras.Input((3, 5, 8))
    pool = keras.layers.TimeDistributed(layers.AttentionPool(2, 12))
    features = keras.layers.Flatten()(pool(video))
    assert features.shape == (None, 24)
    model = keras.Model(video, keras.layers.Dense(2)(features))
    assert tuple(forward(model, np.ones((1, 3, 5, 8), "float32")).shape) == (1, 2)
    pools = keras.Sequential([layers.LayerNorm(), layers.ExtendedTokenPool("token_mean", True)])
    assert pools.compute_output_shape((2, 5, 8)) == (2, 16)
    rotary = layers.RotaryPosition("dinov3", 2, 8, (2, 2), learned_tokens=1)
    assert rotary.compute_output_shape((2, 4, 12)) == (2, 5, 1, 8)
    kept = layers.PatchDropout(0.5).compute_output_shape([(2, 5, 8), (2, 5, 1, 8)])
    assert kept == [(2, None, 8), (2, 5, 1, 8)]


@pytest.mark.parametrize(
    "layer, message",
    [
        (layers.RelativePosition(2), r"number of tokens must be known.*\(None, None, 8\)"),
        (MergingBlock(2, 12, merged=1), "Tokens can be merged only where their number is known"),
    ],
    ids=["relative", "merging"],
)
def test_an_unknown_number_of_tokens(layer, message):
    for call in (layer, lambda x: layer.compute_output_shape(x.shape)):
        with pytest.raises(ValueError, match=message):
            call(keras.KerasTensor((None, None, 8)))


@pytest.mark.parametrize("policy", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm", "GroupNorm"])
def test_norms_of_float32_under_any_policy(name, policy):
    """Half precision rounds the output alone: 8 bits of it, or 11."""
    (case,) = (case for case in CASES if case.name == name)
    with precision(policy):
        layer = case.built(policy)
        outputs = to_numpy(case.outputs(layer))
        expected = case.definition(values(layer), *(x.astype("float64") for x in case.arrays()))
    digits = {"float64": 1e-12, "float16": 2**-11, "bfloat16": 2**-8}[policy]
    assert largest(outputs - expected) <= 1.01 * digits * largest(expected)
