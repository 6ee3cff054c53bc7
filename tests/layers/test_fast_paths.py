"""What a backend computes in its own words equals its twin in `keras.ops`, gradients too."""

import re
from unittest import mock

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import kernels
from tests.layers.cpus import CPUS, become
from tests.support import BACKEND, assert_close, largest, precision, to_numpy

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


FAST = kernels.OWN


def attention_of_many_tokens(q, k, v):
    """As if these were so many that JAX computes one head after the other."""
    with mock.patch.object(FAST, "MANY_SCORES", 1, create=True):
        return kernels.attention(q, k, v)


CASES = {
    "linear": (lambda x, w, b: kernels.linear(x, w, b), normal(6, 5), normal(5, 7), normal(7)),
    "linear_without_bias": (lambda x, w: kernels.linear(x, w), normal(6, 5), normal(5, 7)),
    **{
        f"linear_{name}": (
            lambda x, w, b, gelu=gelu: kernels.linear(x, w, b, gelu),
            normal(6, 5),
            normal(5, 7),
            normal(7),
        )
        for name, gelu in (("gelu_tanh", kernels.gelu_tanh), ("gelu_erf", kernels.gelu_erf))
    },
    "gelu_tanh": (lambda x: kernels.gelu(3 * x, True), normal(6, 5)),
    "gelu_erf": (lambda x: kernels.gelu(3 * x, False), normal(6, 5)),
    "layer_norm": (
        lambda x, g, b: kernels.layer_norm(x, g, b, 1e-6),
        3 + normal(2, 5, 8),
        normal(8),
        normal(8),
    ),
    "attention": (
        lambda q, k, v: kernels.attention(q, k, v),
        3 * normal(2, 5, 3, 4),
        normal(2, 6, 3, 4),
        normal(2, 6, 3, 4),
    ),
    "attention_of_many_tokens": (
        attention_of_many_tokens,
        3 * normal(2, 3, 2, 4),
        normal(2, 4, 2, 4),
        normal(2, 4, 2, 4),
    ),
    "remat": (
        lambda x, y: kernels.remat(lambda x, y: x * keras.ops.sin(y))(x, y),
        normal(6),
        normal(6),
    ),
    "group_norm": (
        lambda x, g, b: kernels.group_norm(x, 4, g, b, 1e-6),
        3 + normal(2, 5, 3, 8),
        normal(8),
        normal(8),
    ),
    "max_pool_same": (lambda x: kernels.max_pool(x, 3, 2, True), normal(2, 8, 7, 3)),
    "max_pool_valid": (lambda x: kernels.max_pool(x, 3, 2, False), normal(2, 9, 8, 3)),
    **{
        f"conv_{size}_{strides}_{explicit}": (
            lambda x, k, s=strides, e=explicit: kernels.conv(x, k, s, e),
            normal(2, 8, 7, 3),
            normal(size, size, 3, 4),
        )
        for size, strides, explicit in (
            *((1, 1, False), (1, 2, True), (3, 1, False), (3, 2, False), (3, 2, True)),
            (7, 2, True),
        )
    },
}


@pytest.fixture(params=CPUS)
def any_cpu(request, monkeypatch):
    """What multiplies short types depends on the CPU: here it is each of the three."""
    become(request.param, monkeypatch)


@pytest.fixture(params=CPUS if BACKEND == "torch" else [None])
def either_library(request, monkeypatch):
    """On PyTorch, what multiplies float32 depends on the CPU too: here it is each of the three."""
    if request.param is not None:
        become(request.param, monkeypatch)
    return request.param


WITH_TWINS = [
    name
    for name in CASES
    if any(name.startswith(own) for own in vars(kernels.OWN) if hasattr(kernels, own))
]


def outputs_and_gradients(function, arrays, dtype):
    """The value, and the gradients of a weighted sum of it with respect to every argument."""
    variables = [keras.Variable(array, dtype=dtype) for array in arrays]

    def loss():
        outputs = function(*map(keras.ops.convert_to_tensor, variables))
        weights = np.cos(np.arange(np.prod(outputs.shape))).reshape(outputs.shape)
        return outputs, keras.ops.sum(outputs * keras.ops.convert_to_tensor(weights.astype(dtype)))

    if BACKEND == "torch":
        outputs, value = loss()
        value.backward()
        gradients = [v.value.grad for v in variables]
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            outputs, value = loss()
        gradients = tape.gradient(value, [v.value for v in variables])
    else:
        import jax

        def of(values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values))):
                return loss()[::-1]

        # Compiled at once, which is much faster than each operation by itself.
        gradients, outputs = jax.jit(jax.grad(of, has_aux=True))([v.value for v in variables])
    return [to_numpy(x) for x in (outputs, *gradients)]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("name", WITH_TWINS)
def test_equals_its_twin(name, dtype, tolerance, either_library, monkeypatch):
    function, *arrays = CASES[name]
    with precision(dtype):
        mine = outputs_and_gradients(function, arrays, dtype)
        monkeypatch.setattr(kernels, "OWN", None)
        twins = outputs_and_gradients(function, arrays, dtype)
    for a, b in zip(mine, twins, strict=True):
        assert a.dtype == b.dtype == dtype
        assert_close(a, b, tolerance * max(largest(b), 1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["linear", "linear_gelu_tanh", "attention"])
def test_keeps_a_short_type(name, dtype, any_cpu):
    function, *arrays = CASES[name]
    short = [keras.ops.cast(array, dtype) for array in arrays]
    outputs = function(*short)
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    exact = function(*(keras.ops.cast(array, "float32") for array in short))
    assert_close(to_numpy(keras.ops.cast(outputs, "float32")), to_numpy(exact), 0.05)
    gradients = outputs_and_gradients(function, arrays, dtype)[1:]
    exact = outputs_and_gradients(
        function, [to_numpy(x).astype("float32") for x in short], "float32"
    )
    for a, b in zip(gradients, exact[1:], strict=True):
        assert_close(a, b, 0.05 * max(largest(b), 1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_layer_norm_computes_short_types_in_float32(dtype):
    function, *arrays = CASES["layer_norm"]

    def of_short(x, gamma, beta):
        outputs = function(keras.ops.cast(x, dtype), gamma, beta)
        return keras.ops.cast(outputs, "float32")

    short = outputs_and_gradients(of_short, arrays, "float32")
    exact = outputs_and_gradients(function, arrays, "float32")
    for a, b in zip(short, exact, strict=True):
        assert_close(a, b, 0.03 * largest(b))


@pytest.mark.parametrize("approximate", [True, False])
def test_the_gradient_of_gelu_ends_in_a_step(approximate):
    function = lambda x: kernels.gelu(x, approximate)  # noqa: E731
    x = np.array([-1e4, -30.0, 30.0, 1e4])
    _, gradient = outputs_and_gradients(function, [x], "float32")
    assert_close(gradient, np.cos(np.arange(4)) * (x > 0), 1e-6)


def test_attention_takes_scores_that_overflow_an_exponential():
    q, k, v = (normal(1, 4, 1, 2) for _ in range(3))
    found = outputs_and_gradients(kernels.attention, [1e4 * q, k, v], "float32")
    assert all(np.isfinite(x).all() for x in found)


SMOOTH = ["linear", "linear_without_bias", "gelu_tanh", "gelu_erf", "layer_norm", "attention"]
# With a form of the backend's own. PyTorch's attention, the twin's too, has no second derivatives.
OWN = {
    "jax": ["layer_norm", "attention", "attention_of_many_tokens"],
    "tensorflow": ["layer_norm"],
    "torch": ["linear", "linear_without_bias"],
}[BACKEND]


def second_derivatives(function, arrays):
    """Those of a sum of squares: the gradient of the squared length of its gradient."""
    if BACKEND == "jax":
        import jax

        def length(*tensors):
            gradients = jax.grad(lambda *x: (function(*x) ** 2).sum(), range(len(tensors)))
            return sum((g**2).sum() for g in gradients(*tensors))

        tensors = [jax.numpy.asarray(a, "float32") for a in arrays]
        gradient = jax.jit(jax.grad(length, range(len(tensors))))
        return [to_numpy(g) for g in gradient(*tensors)]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        tensors = [tf.Variable(a, dtype="float32") for a in arrays]
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                value = tf.reduce_sum(function(*map(tf.convert_to_tensor, tensors)) ** 2)
            length = sum(tf.reduce_sum(g**2) for g in inner.gradient(value, tensors))
        return [to_numpy(g) for g in tape.gradient(length, tensors)]
    import torch

    tensors = [torch.tensor(a, dtype=torch.float32, requires_grad=True) for a in arrays]
    value = function(*tensors).square().sum()
    length = sum(g.square().sum() for g in torch.autograd.grad(value, tensors, create_graph=True))
    return [to_numpy(g) for g in torch.autograd.grad(length, tensors)]


@pytest.mark.parametrize("name", OWN)
def test_second_derivatives_are_those_of_the_twin(name, either_library, monkeypatch):
    function, *arrays = CASES[name]
    mine = second_derivatives(function, arrays)
    monkeypatch.setattr(kernels, "OWN", None)
    twins = second_derivatives(function, arrays)
    for a, b in zip(mine, twins, strict=True):
        assert_close(a, b, 1e-4 * max(largest(b), 1))


@pytest.mark.parametrize("name", [name for name in SMOOTH if name in WITH_TWINS])
def test_an_empty_batch(name, either_library):
    function, x, *others = CASES[name]
    if name == "attention":
        others = [other[:0] for other in others]
    outputs, *gradients = outputs_and_gradients(function, [x[:0], *others], "float32")
    whole, *_ = outputs_and_gradients(function, CASES[name][1:], "float32")
    assert outputs.shape == (0, *whole.shape[1:])
    assert all(np.isfinite(g).all() for g in gradients)


@pytest.mark.skipif(BACKEND != "jax", reason="what XLA makes of a step is JAX's")
@pytest.mark.parametrize("later", ({}, {"block": "parallel"}, {"layer_scale": 0.1}))
def test_a_compiled_step_computes_the_sum_of_each_block_once(later):
    """Else one fusion would read the branches of all later blocks, in time that grows as depth²."""
    import jax

    model = keras_vit.VisionTransformer(
        image_size=16, patch_size=8, width=32, depth=8, num_heads=2, num_classes=3, **later
    )
    x = np.zeros((2, 16, 16, 3), "float32")
    model(x)
    trained, rest = (
        [v.value for v in group]
        for group in (model.trainable_variables, model.non_trainable_variables)
    )
    step = jax.jit(jax.grad(lambda t, x: model.stateless_call(t, rest, x, training=True)[0].sum()))
    program = step.lower(trained, x).compile().as_text()
    operands = [read.count("%") for read in re.findall(r" fusion\((.*?)\), kind=kLoop", program)]
    assert max(operands) < 2 * 8
