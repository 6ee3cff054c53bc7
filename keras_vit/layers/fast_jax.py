"""Functions of `kernels` that are faster like this with JAX, on a CPU unless they say otherwise.

XLA takes the memory of what a gradient keeps from the operating system at every step, and gives it
back, which costs time. The tangents here are written so that their transposes, the gradients, keep
little. On accelerators XLA fuses the functions of `kernels` itself.
"""

import functools
import math

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import initializers

from keras_vit.layers import cpu

BLOCK = 2**14  # random numbers
MANY_SCORES = 2**17  # of a head; 363 tokens have as many


# The functions of `keras.ops` go down to float32.
cos, sin = jnp.cos, jnp.sin


def applies(name):
    return jax.default_backend() == ("gpu" if name == "attention_on_gpu" else "cpu")


def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`, whose gradient keeps x̂ and 1 / deviation.

    Its rows are those of the products beside it, (batch * tokens, width): where XLA finds both
    shapes in the sum of a residual, it computes that sum again in each block from all blocks after.
    """
    return _layer_norm(x.reshape(-1, x.shape[-1]), gamma, beta, epsilon).reshape(x.shape)


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _layer_norm(x, gamma, beta, epsilon):
    return (_normalised(x, gamma, epsilon)[0] * gamma + beta).astype(x.dtype)


@_layer_norm.defjvp
def _layer_norm_tangent(epsilon, primals, tangents):
    (x, gamma, beta), (dx, dgamma, dbeta) = primals, tangents
    x_hat, r = _normalised(x, gamma, epsilon)
    dx = dx.astype(gamma.dtype)
    dx_hat = (dx - dx.mean(-1, keepdims=True) - x_hat * (dx * x_hat).mean(-1, keepdims=True)) * r
    y, dy = x_hat * gamma + beta, dx_hat * gamma + x_hat * dgamma + dbeta
    return y.astype(x.dtype), dy.astype(x.dtype)


def _normalised(x, gamma, epsilon):
    """x̂ = (x - mean) r with r = 1 / deviation, and r."""
    x = x.astype(gamma.dtype)
    x = x - x.mean(-1, keepdims=True)
    r = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon)
    return x * r, r


def matmul(x, kernel):
    """The product of two matrices, whose sums are of float32 and rounded once.

    Asked for bfloat16, XLA multiplies float32 on a CPU; it has a product from bfloat16 to float32.
    """
    return jnp.matmul(x, kernel, preferred_element_type=_sums(x.dtype)).astype(x.dtype)


def _sums(dtype):
    """The type of the sums of a product, or None for the type of what is multiplied."""
    return "float32" if dtype.name in cpu.MULTIPLIED else None


def attention(query, key, value, bias):
    """The attention of `kernels.attention` without a bias; `None` with one."""
    if bias is not None:
        return None
    query = query * query.shape[-1] ** -0.5
    if _are_many(query.shape[1], key.shape[1]):
        # The scores of all heads would lie in no cache; a gradient computes each head's again.
        heads = [jnp.moveaxis(x, 2, 0) for x in (query, key, value)]
        y = jax.lax.map(jax.checkpoint(lambda head: _attention(*head)), heads)
        return jnp.moveaxis(y, 0, 2)
    # With heads before tokens each head is one matrix.
    return _attention(*(x.swapaxes(1, 2) for x in (query, key, value))).swapaxes(1, 2)


def _are_many(*tokens):
    """Whether a head has many scores; not where a number is open, as in an export."""
    return all(isinstance(number, int) for number in tokens) and math.prod(tokens) >= MANY_SCORES


@jax.custom_jvp
def _attention(q, k, v):
    return _attend(q, k, v)[0]


def _attend(q, k, v):
    """o = e v / ℓ with e = exp(q kᵀ - max) and ℓ = Σe; also e and ℓ."""
    sums = _sums(q.dtype)
    s = jnp.einsum("...td,...sd->...ts", q, k, preferred_element_type=sums)
    s = s.astype(jnp.promote_types(s.dtype, jnp.float32))
    e = jnp.exp(s - jax.lax.stop_gradient(s.max(-1, keepdims=True)))
    total = e.sum(-1, keepdims=True)
    e = e.astype(v.dtype)
    y = jnp.einsum("...ts,...sd->...td", e, v, preferred_element_type=sums) / total
    return y.astype(v.dtype), e, total


@_attention.defjvp
def _attention_tangent(primals, tangents):
    """do = ((e ds) v + e dv) / ℓ - o Σ(e ds) / ℓ, where ds is the tangent of q kᵀ."""
    (q, k, v), (dq, dk, dv) = primals, tangents
    o, e, total = _attend(q, k, v)
    ds = jnp.einsum("...td,...sd->...ts", dq, k) + jnp.einsum("...td,...sd->...ts", q, dk)
    ds = e * ds
    do = jnp.einsum("...ts,...sd->...td", ds, v) + jnp.einsum("...ts,...sd->...td", e, dv)
    do = do - o * ds.sum(-1, keepdims=True)
    return o, (do / total).astype(o.dtype)


def attention_on_gpu(query, key, value, bias):
    """The attention of `kernels.attention` for odd numbers of tokens; `None` where Keras's serves.

    JAX (0.10) refuses to differentiate cuDNN's attention for odd numbers, which is meant for those
    with a bias only, and a class token makes most numbers odd. So a token of zeros goes along,
    which no token attends to. With a bias the attention is XLA's.
    """
    counts = query.shape[1], key.shape[1]
    if not any(count % 2 for count in counts):
        return None
    if bias is not None:
        return jax.nn.dot_product_attention(query, key, value, bias, implementation="xla")
    lengths = [jnp.full(len(query), count, "int32") for count in counts]
    even = [jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0))) for x in (query, key, value)]
    try:
        y = jax.nn.dot_product_attention(
            *even,
            query_seq_lengths=lengths[0],
            key_value_seq_lengths=lengths[1],
            implementation="cudnn",
        )
    except (NotImplementedError, RuntimeError):  # float32, another GPU, no cuDNN
        return None
    return y[:, : counts[0]]


def remat(function):
    """The rematerialisation of `kernels.remat`, in a form that XLA does not undo.

    On a CPU XLA removes the barriers of `jax.checkpoint`, sees two runs of the same values, and
    keeps those of the first. Here the second run stands in a branch, which XLA does not merge with
    what is outside of it.
    """

    def rematerialized(*inputs):
        closed, variables = jax.closure_convert(function, *inputs)
        return _computed_again(closed, inputs, variables)

    return rematerialized


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _computed_again(function, inputs, variables):
    return function(*inputs, *variables)


def _computed_again_forward(function, inputs, variables):
    return function(*inputs, *variables), (inputs, variables)


def _computed_again_backward(function, kept, dy):
    def gradients():
        return of_floats(jax.vjp(lambda x, v: function(*x, *v), *kept)[1](dy))

    def of_floats(values):  # seeds have no gradient
        is_float = jax.tree.map(lambda x: jnp.issubdtype(x.dtype, jnp.floating), kept)
        return jax.tree.map(lambda floats, value: value if floats else None, is_float, values)

    never = dy[(0,) * dy.ndim] > jnp.inf  # false, which XLA does not know
    return jax.lax.cond(never, lambda: of_floats(kept), gradients)


_computed_again.defvjp(_computed_again_forward, _computed_again_backward)


CUT_DEVIATION = 0.87962566103423978  # of a standard normal variable between -2 and 2


def initial(initializer):
    """An initializer of Keras as calls of few programs, where JAX compiles one for each shape.

    Compiling them takes half of the time in which a ViT-B/16 is built on a CPU. Here one program
    draws a block of numbers, and a variable takes as many as it needs. Under `jax.jit`, which is
    how Keras makes a variable that is cut over devices, the values are the same.
    """
    initializer = None if initializer is None else initializers.get(initializer)
    kinds = (initializers.RandomNormal, initializers.VarianceScaling)
    if not any(type(initializer).__call__ is kind.__call__ for kind in kinds):
        return initializer

    def by_blocks(shape, dtype=None):
        dtype, seed = keras.backend.standardize_dtype(dtype), initializer.seed
        is_generator = isinstance(seed, keras.random.SeedGenerator)
        key = seed.next() if is_generator else np.array([seed % 2**32, 0], "uint32")
        drawn_as = "float64" if dtype == "float64" else "float32"
        kind, shift, factor = _distribution(initializer, shape)
        size = math.prod(shape)
        numbers = np.arange(max(-(-size // BLOCK), 1), dtype="uint32")
        block = functools.partial(_block, kind, drawn_as, key, shift, factor)
        if isinstance(block(numbers[0]), jax.core.Tracer):
            values = jax.vmap(block)(numbers).reshape(-1)
        else:
            values = np.concatenate([np.asarray(block(number)) for number in numbers])
        return keras.ops.convert_to_tensor(values[:size].reshape(shape), dtype=dtype)

    return by_blocks


def _distribution(initializer, shape):
    """A name of `jax.random`, a shift and a factor: the values are factor * number + shift."""
    if isinstance(initializer, initializers.RandomNormal):
        return "normal", initializer.mean, initializer.stddev
    if initializer.input_axes is None:  # axes before the last two are those of a convolution
        fan_in, fan_out = (math.prod(shape[:-2]) * side for side in (shape[-2:][0], shape[-1]))
    else:  # EinsumDense sets them by its equation
        axes = (initializer.input_axes, initializer.output_axes)
        fan_in, fan_out = (math.prod(shape[axis] for axis in each) for each in axes)
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    deviation = math.sqrt(initializer.scale / max(1.0, fans[initializer.mode]))
    if initializer.distribution == "uniform":
        limit = math.sqrt(3) * deviation
        return "uniform", -limit, 2 * limit
    if initializer.distribution == "untruncated_normal":
        return "normal", 0.0, deviation
    return "truncated_normal", 0.0, deviation / CUT_DEVIATION


@functools.partial(jax.jit, static_argnums=(0, 1))
def _block(kind, dtype, key, shift, factor, number):
    limits = (-2.0, 2.0) if kind == "truncated_normal" else ()
    key = jax.random.fold_in(key, number)
    return getattr(jax.random, kind)(key, *limits, (BLOCK,), dtype) * factor + shift
