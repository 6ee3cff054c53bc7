"""Every public layer builds, describes itself, is saved, trains and is right in every precision."""

import inspect
import json

import keras
import numpy as np
import pytest

from keras_vit import layers
from tests import harness
from tests.harness import NO_GRADIENT
from tests.layers import later_cases, resnet_cases
from tests.support import assert_close, dtype_of, gradients, largest, precision, to_numpy, values

CASES = harness.CASES + resnet_cases.CASES + later_cases.CASES
every_case = pytest.mark.parametrize("case", CASES, ids=str)
cases_with_variables = pytest.mark.parametrize(
    "case", [case for case in CASES if case.variables], ids=str
)


def test_no_layer_is_forgotten():
    public = {name for name in layers.__all__ if inspect.isclass(getattr(layers, name))}
    assert {case.layer.__name__ for case in CASES} == public


@every_case
@pytest.mark.parametrize("dtype, tolerance", [("float32", 3e-6), ("float64", 1e-12)])
def test_equals_its_definition(case, dtype, tolerance):
    """In float64 too: several Keras operations drop to float32 there without a word."""
    with precision(dtype):
        layer = case.built(dtype)
        outputs = case.call(layer, case.tensors(dtype))
        assert dtype_of(outputs) == dtype
        assert {dtype_of(v) for v in layer.weights} <= {dtype}
        expected = case.expected(values(layer))
        assert_close(outputs, expected, tolerance * max(largest(expected), 1))


@every_case
def test_variables(case):
    layer = case.built()
    assert sorted(values(layer)) == sorted(case.variables)
    assert len(layer.trainable_variables) == len(case.variables)


@every_case
def test_symbolic_shapes_are_those_of_the_call(case):
    outputs = case.call(case.make(), case.tensors())
    symbolic = case.call(case.make(), case.symbols())
    layer = case.built()
    first, *others = case.symbols()
    spec = layer.compute_output_spec(first, **dict(zip(list(case.inputs)[1:], others)))
    assert symbolic.shape == spec.shape
    assert symbolic.dtype == spec.dtype == dtype_of(outputs)
    assert len(spec.shape) == len(outputs.shape)
    assert all(a in (b, None) for a, b in zip(spec.shape, outputs.shape))


@every_case
def test_config_round_trip(case):
    layer = case.built()
    config = json.loads(json.dumps(layer.get_config()))
    twin = case.layer.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    case.call(twin, case.tensors())
    for mine, its in zip(twin.weights, layer.weights):
        mine.assign(its)
    np.testing.assert_array_equal(
        to_numpy(case.call(twin, case.tensors())), to_numpy(case.call(layer, case.tensors()))
    )
    for name, value in case.arguments.items():
        stored = layer.get_config()[name]
        assert stored == value or case.layer is layers.Linear, name


@every_case
def test_saving(case, tmp_path):
    layer, symbols = case.built(), case.symbols()
    model = keras.Model(symbols, case.call(layer, symbols))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.get_layer("layer")) is case.layer
    np.testing.assert_array_equal(to_numpy(loaded(case.tensors())), to_numpy(model(case.tensors())))


@cases_with_variables
def test_every_variable_has_a_gradient(case):
    layer = case.built()
    first, *others = case.tensors()
    outputs = case.call(layer, case.tensors())
    direction = np.random.default_rng(2).normal(size=tuple(outputs.shape)).astype("float32")
    direction = keras.ops.convert_to_tensor(direction)
    _, grads = gradients(
        layer,
        lambda y: keras.ops.sum(y * direction),
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
    exact, layer = case.built(), case.built("mixed_bfloat16")
    outputs = case.call(layer, case.tensors())
    assert dtype_of(outputs) == "bfloat16"
    assert {dtype_of(v) for v in layer.weights} <= {"float32"}
    expected = case.call(exact, case.tensors())
    error = largest(to_numpy(outputs) - to_numpy(expected))
    assert error <= 0.03 * largest(expected), "bfloat16 keeps 8 bits"
    symbolic = case.call(layer, case.symbols())
    assert symbolic.dtype == "bfloat16"
