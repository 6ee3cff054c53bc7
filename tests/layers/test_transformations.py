"""`torch.func` and the transformations of JAX on each function that a backend has its own way."""

import keras
import numpy as np
import pytest

from keras_vit.layers import kernels
from tests.layers.test_fast_paths import CASES, OWN, either_library
from tests.support import BACKEND, assert_close, largest, to_numpy

__all__ = ["either_library"]  # a fixture


def transformations(function, *arrays, forward_over_forward):
    """What `torch.func` and JAX make of a function: name -> arrays."""
    rng = np.random.default_rng(1)
    tangents = [rng.normal(size=a.shape).astype("float32") for a in arrays]
    if BACKEND == "jax":
        import jax
        import jax.numpy as jnp

        grad, vmap, jacfwd, jacrev = jax.grad, jax.vmap, jax.jacfwd, jax.jacrev
        tensors, tangents = ([jnp.asarray(a, "float32") for a in x] for x in (arrays, tangents))

        def jvp(f, x, dx):
            return jax.jvp(f, tuple(x), tuple(dx))[1]
    else:
        import torch
        from torch.func import grad, jacfwd, jacrev, vmap

        tensors, tangents = ([torch.tensor(a).float() for a in x] for x in (arrays, tangents))

        def jvp(f, x, dx):
            return torch.func.jvp(f, tuple(x), tuple(dx))[1]

    def loss(*x):
        return (function(*x) ** 2).sum()

    def transform(tensors, tangents):
        stacked = [keras.ops.stack([x, 2 * x]) for x in tensors]
        rest, all_of_them = tensors[1:], tuple(range(len(tensors)))
        fixed = (0, *[None] * len(rest))  # the batch is the first argument's

        def of_one(i):
            return lambda x: function(*tensors[:i], x, *tensors[i + 1 :])

        found = {
            "jvp": jvp(function, tensors, tangents),
            "gradients of examples": vmap(grad(loss, all_of_them), fixed)(stacked[0], *rest),
            "forward over reverse": jacfwd(jacrev(loss))(*tensors),
            "reverse over reverse": jacrev(jacrev(loss))(*tensors),
        }
        if BACKEND == "jax":  # which has one rule for all that follows
            return found
        return found | {
            "jvp of each argument": [
                jvp(of_one(i), [tensors[i]], [dx]) for i, dx in enumerate(tangents)
            ],
            "grad": grad(loss, all_of_them)(*tensors),
            "vmap of the first": vmap(function, fixed)(stacked[0], *rest),
            "vmap of all": vmap(function)(*stacked),
            "vmap of others": vmap(function, (None, *[0] * len(rest)))(tensors[0], *stacked[1:]),
            "vmap of a jvp": vmap(lambda *x: jvp(function, x, tangents))(*stacked),
        }

    # One program is compiled sooner than each operation by itself.
    found = (jax.jit(transform) if BACKEND == "jax" else transform)(tensors, tangents)
    if forward_over_forward:  # as one program, JAX 0.10.2 gets it wrong on a CPU for any LayerNorm
        found["forward over forward"] = jacfwd(jacfwd(loss))(*tensors)
    return {
        name: [to_numpy(each) for each in (x if isinstance(x, (tuple, list)) else [x])]
        for name, x in found.items()
    }


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has tapes in place of these")
@pytest.mark.parametrize("name", OWN)
def test_transformed_functions_are_those_of_the_twin(name, either_library, monkeypatch):
    function, *arrays = CASES[name]
    # Keras's LayerNorm is wrong in it on JAX, and attention takes JAX seconds.
    both = BACKEND == "torch" or name == "layer_norm"
    mine = transformations(function, *arrays, forward_over_forward=both)
    monkeypatch.setattr(kernels, "OWN", None)
    twins = transformations(function, *arrays, forward_over_forward=False)
    if both:  # the same values by another way
        twins["forward over forward"] = twins["reverse over reverse"]
    for transformed, expected in twins.items():
        for a, b in zip(mine[transformed], expected, strict=True):
            assert_close(a, b, 1e-4 * max(largest(b), 1))
