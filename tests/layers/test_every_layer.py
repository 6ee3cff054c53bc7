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
    assert type(loaded) is case.layer
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
