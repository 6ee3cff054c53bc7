"""What JAX does faster on a CPU with gradients of our own; `kernels` has the twin of each function.

XLA asks the operating system for the values that a gradient keeps, and gives them back, at every
step: on a CPU they are time. These gradients keep little and compute the rest again. Accelerators
keep XLA's own, whose kernels are fused there.
"""

import functools
import math

import jax
import jax.numpy as jnp
import keras
import numpy as np

_GATE = math.sqrt(8 / math.pi)  # (1 + tanh(y)) / 2 is sigmoid(2 y)
_CUBIC = 0.044715
BLOCK = 2**14  # random numbers
AT_ONCE = 2**22  # bytes of attention scores, which then lie in a cache
SMALL = 2**19  # bytes of a head's scores: with smaller ones, parts lose more than they gain


def applies():
    return jax.default_backend() == "cpu"


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def gelu(x, approximate):
    """GELU, whose gradient keeps its argument alone; XLA's erf takes half the time of its erfc."""
    if approximate:
        return jax.nn.gelu(x, approximate=True)
    wide = _wide(x)
    return (0.5 * wide * (1 + jax.lax.erf(wide * math.sqrt(0.5)))).astype(x.dtype)


def _wide(x):
    """In float32 at least: 1 + erf(x) takes one number near 1 from another."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _gelu_forward(x, approximate):
    return gelu(x, approximate), x


def _gelu_backward(approximate, x, dy):
    # In other words than the forward pass has, or XLA would keep what that computed.
    if approximate:
        gate = jax.nn.sigmoid(_GATE * x * (1 + _CUBIC * x * x))
        slope = gate + x * gate * (1 - gate) * _GATE * (1 + 3 * _CUBIC * x * x)
    else:
        x = _wide(x)
        density = jnp.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
        slope = 0.5 * (1 - jax.lax.erf(-x * math.sqrt(0.5))) + x * density
    return (dy * slope.astype(dy.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x, gamma, beta, epsilon):
    """The LayerNorm of `kernels.layer_norm`, whose gradient keeps x, its mean and 1 / deviation."""
    return _layer_norm_forward(x, gamma, beta, epsilon)[0]


def _layer_norm_forward(x, gamma, beta, epsilon):
    wide = x.astype(gamma.dtype)
    mean = wide.mean(-1, keepdims=True)
    centred = wide - mean
    r = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)
    return (centred * r * gamma + beta).astype(x.dtype), (x, gamma, mean, r)


def _layer_norm_backward(epsilon, kept, dy):
    x, gamma, mean, r = kept
    dy, x_hat = dy.astype(gamma.dtype), (x.astype(gamma.dtype) - mean) * r
    g = dy * gamma
    dx = (g - g.mean(-1, keepdims=True) - x_hat * (g * x_hat).mean(-1, keepdims=True)) * r
    others = tuple(range(x.ndim - 1))
    return dx.astype(x.dtype), (dy * x_hat).sum(others), dy.sum(others)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


def attention(query, key, value):
    """softmax(q kᵀ / √D_h) v for shapes (batch, tokens, heads, head width)."""
    query = query * query.shape[-1] ** -0.5
    parts = number_of_parts(query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    compute = _attention if parts == (1, 1) else functools.partial(_attention_in_parts, parts)
    return _swap(compute(*(_swap(x) for x in (query, key, value))))


def number_of_parts(batch, heads, tokens, memory):
    """Of the heads of all images, and of the queries of each.

    The scores of a part take up to 4 MiB; queries come in parts where those of one head are more.
    (1, 1) where those of a head are small (up to 362 tokens), where a size is open, as in an
    export, or the tensors are cut over devices.
    """
    sizes = (batch, heads, tokens, memory)
    if keras.distribution.distribution() or not all(isinstance(size, int) for size in sizes):
        return 1, 1
    matrices, matrix = batch * heads, tokens * memory * 4
    if matrix < SMALL:
        return 1, 1
    if matrix > AT_ONCE:
        return matrices, min(tokens, math.ceil(matrix / AT_ONCE))
    least = matrices * matrix / AT_ONCE
    return next(n for n in range(1, matrices + 1) if matrices % n == 0 and n >= least), 1


def _swap(x):
    """Heads and tokens change places: each head is one matrix then."""
    return x.swapaxes(1, 2)


@jax.custom_vjp
def _attention(q, k, v):
    return _attention_forward(q, k, v)[0]


def _attention_forward(q, k, v):
    s = jnp.einsum("bhtd,bhsd->bhts", q, k)
    s = _wide(s)
    e = jnp.exp(s - s.max(-1, keepdims=True))
    total = e.sum(-1, keepdims=True)
    e = e.astype(v.dtype)
    o = (jnp.einsum("bhts,bhsd->bhtd", e, v) / total).astype(v.dtype)
    return o, (q, k, v, e, total, o)


def _attention_backward(kept, do):
    """With e = exp(q kᵀ - max), ℓ = Σe, δ = Σ(do o) / ℓ and do' = do / ℓ: the scores' gradient is
    e (do' vᵀ - δ), and dv = eᵀ do'."""
    q, k, v, e, total, o = kept
    delta = (do.astype(total.dtype) * o).sum(-1, keepdims=True) / total
    do = (do / total).astype(v.dtype)
    dv = jnp.einsum("bhts,bhtd->bhsd", e, do)
    ds = e * (jnp.einsum("bhtd,bhsd->bhts", do, v) - delta).astype(e.dtype)
    return jnp.einsum("bhts,bhsd->bhtd", ds, k), jnp.einsum("bhts,bhtd->bhsd", ds, q), dv


_attention.defvjp(_attention_forward, _attention_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention_in_parts(parts, q, k, v):
    """Attention of some heads and queries after the others, whose gradient computes it again.

    All the scores of long sequences would lie in no cache, and take gigabytes.
    """
    of_heads, of_queries = parts

    def some_heads(q, k, v):
        def some_queries(q):
            return _attention_forward(q, k, v)[0]

        return _join(jax.lax.map(some_queries, _cut(of_queries, q)), q.shape)

    return _map(of_heads, some_heads, q, k, v)


def _in_parts_forward(parts, q, k, v):
    return _attention_in_parts(parts, q, k, v), (q, k, v)


def _in_parts_backward(parts, kept, do):
    of_heads, of_queries = parts

    def some_heads(q, k, v, do):
        def some_queries(sums, part):
            q, do = part
            dq, *others = _attention_backward(_attention_forward(q, k, v)[1], do)
            return [total + each for total, each in zip(sums, others)], dq

        nothing = [jnp.zeros_like(_wide(x)) for x in (k, v)]
        sums, dq = jax.lax.scan(some_queries, nothing, [_cut(of_queries, x) for x in (q, do)])
        return _join(dq, q.shape), *(x.astype(k.dtype) for x in sums)

    return _map(of_heads, some_heads, *kept, do)


_attention_in_parts.defvjp(_in_parts_forward, _in_parts_backward)


def _map(parts, function, *tensors):
    """A function of tensors (batch, heads, tokens, width), for a part of the heads at a time."""
    batch, heads = tensors[0].shape[:2]
    tensors = [x.reshape(parts, 1, batch * heads // parts, *x.shape[2:]) for x in tensors]
    outputs = jax.lax.map(lambda part: function(*part), tensors)
    return jax.tree.map(lambda y: y.reshape(batch, heads, *y.shape[3:]), outputs)


def _cut(parts, x):
    """Shapes: (1, heads, tokens, width) -> (parts, 1, heads, tokens of a part, width), 0 behind."""
    some = -(-x.shape[2] // parts)
    x = jnp.pad(x, ((0, 0), (0, 0), (0, parts * some - x.shape[2]), (0, 0)))
    return jnp.moveaxis(x.reshape(*x.shape[:2], parts, some, x.shape[3]), 2, 0)


def _join(parts, shape):
    """What `_cut` cut, without what it added."""
    x = jnp.moveaxis(parts, 0, 2)
    return x.reshape(*x.shape[:2], -1, x.shape[-1])[:, :, : shape[2]]


def remat(function):
    """The rematerialisation of `kernels.remat`, of which XLA drops nothing.

    On a CPU XLA removes the barriers of `jax.checkpoint`, sees two runs of the same values, and
    keeps those of the first. Here the second begins with other ones, as far as XLA can tell.
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
    nothing = 0 * dy[(0,) * dy.ndim]  # of a number that there is in the backward pass alone

    def after_the_gradient(x):
        return x + nothing.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    # Variables too: else a bias, repeated for each token, would be kept from the first run.
    inputs, variables = jax.tree.map(after_the_gradient, kept)
    return jax.vjp(lambda x, v: function(*x, *v), inputs, variables)[1](dy)


_computed_again.defvjp(_computed_again_forward, _computed_again_backward)


def draw(kind, key, shape, dtype, shift, factor):
    """Random values of a shape, a block at a time, so that one program draws all shapes.

    Args:
        kind: `"uniform"` between 0 and 1, `"normal"`, or `"truncated_normal"`, cut at -2 and 2.
        key: a raw key of JAX.
        shift, factor: the values are factor * number + shift.

    Returns:
        A NumPy array; while JAX traces, its tensor, with the same values.
    """
    size = math.prod(shape)
    numbers = np.arange(max(-(-size // BLOCK), 1), dtype="uint32")
    block = functools.partial(_block, kind, dtype, key, shift, factor)
    if isinstance(block(numbers[0]), jax.core.Tracer):
        values = jax.vmap(block)(numbers).reshape(-1)
    else:
        blocks = [block(number) for number in numbers]
        values = np.concatenate([np.asarray(each) for each in blocks])
    return values[:size].reshape(shape)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _block(kind, dtype, key, shift, factor, number):
    limits = (-2.0, 2.0) if kind == "truncated_normal" else ()
    key = jax.random.fold_in(key, number)
    return getattr(jax.random, kind)(key, *limits, (BLOCK,), dtype) * factor + shift
