"""The LayerNorm of oneDNN, which TensorFlow keeps for itself: where it is taken, and its values."""

import keras
import numpy as np
import pytest

from keras_vit.layers import kernels
from tests.support import BACKEND, assert_close, images, largest, randomize, tiny_vit, to_numpy

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="an operation of TensorFlow")
PRIVATE = "_MklLayerNorm"


def operations(function, *arguments):
    """The kinds of operations that TensorFlow traces."""
    import tensorflow as tf

    graph = tf.function(function).get_concrete_function(*arguments).graph
    return {operation.type for operation in graph.get_operations()}


def norm(x, gamma, beta, stays):
    with kernels.staying_here(stays):
        return kernels.layer_norm(x, gamma, beta, 1e-6)


def random_inputs(shape, dtype="float32"):
    import tensorflow as tf

    rng = np.random.default_rng(0)
    arrays = 3 + rng.normal(size=shape), rng.normal(size=shape[-1]), rng.normal(size=shape[-1])
    return [tf.constant(array, dtype) for array in arrays]


@pytest.mark.parametrize("shape", [(4, 5, 24), (7, 384), (2, 1, 3)])
def test_equals_the_norm_in_single_steps(shape):
    import tensorflow as tf

    inputs = random_inputs(shape)
    compiled = tf.function(norm)
    assert PRIVATE in operations(lambda *a: norm(*a, True), *inputs)
    mine, other = compiled(*inputs, True), compiled(*inputs, False)
    assert mine.shape == other.shape
    assert_close(to_numpy(mine), to_numpy(other), 1e-6 * largest(to_numpy(other)))


@pytest.mark.parametrize("shape, dtype", [((2, 3, 4), "bfloat16"), ((2, 3, 3, 4), "float32")])
def test_other_inputs_take_single_steps(shape, dtype):
    x, gamma, beta = random_inputs(shape)
    x = keras.ops.cast(x, dtype)
    assert PRIVATE not in operations(lambda *a: norm(*a, True), x, gamma, beta)


def test_a_gradient_and_an_eager_call_take_single_steps():
    import tensorflow as tf

    x, gamma, beta = random_inputs((2, 3, 4))

    def gradient(x, gamma, beta):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.square(norm(x, gamma, beta, True))
        return tape.gradient(y, x)

    assert PRIVATE not in operations(gradient, x, gamma, beta)
    assert np.abs(to_numpy(gradient(x, gamma, beta))).sum() > 0
    assert norm(x, gamma, beta, True).shape == (2, 3, 4)


@pytest.mark.parametrize("jit", [True, False])
def test_predictions_with_and_without_xla(jit):
    model = randomize(tiny_vit())
    expected = to_numpy(model(images()))
    model.compile(jit_compile=jit)
    assert_close(model.predict(images(), verbose=0), expected, 1e-5 * largest(expected))
    assert_close(model.predict_on_batch(images()), expected, 1e-5 * largest(expected))
    step = lambda x: model.predict_step((x,))  # noqa: E731
    assert (PRIVATE in operations(step, keras.ops.convert_to_tensor(images()))) is not jit


def test_an_exported_model_has_public_operations_alone(tmp_path):
    import tensorflow as tf

    model = randomize(tiny_vit())
    expected = model.predict(images(), verbose=0)
    model.export(tmp_path / "model", verbose=False)
    served = tf.saved_model.load(tmp_path / "model").signatures["serving_default"]
    functions = served.graph.as_graph_def().library.function
    kinds = {operation.type for operation in served.graph.get_operations()}
    kinds |= {node.op for function in functions for node in function.node_def}
    assert "MatMul" in kinds and PRIVATE not in kinds
    (found,) = served(tf.constant(images())).values()
    assert_close(to_numpy(found), expected, 1e-5 * largest(expected))


def test_a_tensorflow_without_it_takes_single_steps(monkeypatch):
    from keras_vit.layers import fast_tensorflow

    def missing(*_):
        raise ValueError("no such operation")

    monkeypatch.setattr(fast_tensorflow, "_onednns_norm", missing)
    fast_tensorflow.has_onednns_norm.cache_clear()
    try:
        assert not fast_tensorflow.has_onednns_norm()
        assert PRIVATE not in operations(lambda *a: norm(*a, True), *random_inputs((2, 3, 4)))
    finally:
        fast_tensorflow.has_onednns_norm.cache_clear()
