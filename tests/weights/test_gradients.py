"""The gradient of the loss with respect to every variable, against the authors' code."""

import json

import keras
import numpy as np
import pytest

from tests.support import (
    ORACLES,
    OracleCase,
    assert_close,
    canonical_arrays,
    gradients,
    largest,
    precision,
    read_arrays,
)

CASE = OracleCase(ORACLES / "flax_vit" / "token_p8")
FACTS = json.loads((ORACLES / "training" / "grads_token_p8.json").read_text())


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-5), ("float64", 1e-7)])
def test_gradients_equal_the_authors(dtype, tolerance):
    """Softmax cross-entropy, mean over three images, no dropout.

    The gradients are stored as float32, the loss and the norm of all gradients as float64.
    """
    file = read_arrays(ORACLES / "training" / "grads_token_p8.npz")
    expected = canonical_arrays(file)
    labels = np.array(FACTS["labels"])

    def cross_entropy(logits):
        log_p = keras.ops.log_softmax(logits, axis=-1)
        return -keras.ops.sum(log_p * keras.ops.one_hot(labels, 10, dtype=dtype)) / 3

    with precision(dtype):
        model = CASE.load(dtype)
        loss, grads = gradients(model, cross_entropy, CASE.io["input"].astype(dtype))
    exact = 1e-12 if dtype == "float64" else 1e-6
    assert loss == pytest.approx(FACTS["loss_f64"], rel=exact)
    assert set(grads) == set(expected)
    biggest = max(largest(grad) for grad in expected.values())
    for path, grad in expected.items():
        assert grads[path].dtype == dtype
        # The gradient of a key's bias is zero but for rounding: judge it by the others.
        assert_close(grads[path], grad, tolerance * max(largest(grad), 1e-2 * biggest))
    norm = np.sqrt(sum(np.sum(grad.astype("float64") ** 2) for grad in grads.values()))
    assert norm == pytest.approx(FACTS["global_grad_norm_f64"], rel=exact)
