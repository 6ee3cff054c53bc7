"""`torch.compile` of models: one graph, without a return to Python."""

import keras
import numpy as np
import pytest

from tests.support import images, tiny_vit, to_numpy

if keras.backend.backend() != "torch":
    pytest.skip("PyTorch's compiler", allow_module_level=True)


@pytest.mark.parametrize("training, dtype", [(False, "float32"), (True, "mixed_bfloat16")])
def test_a_model_is_one_graph(training, dtype):
    import torch

    model = tiny_vit(depth=2, dtype=dtype)
    batch = torch.as_tensor(images((2, *model.input_shape[1:])))
    with torch.set_grad_enabled(training):
        expected = model(batch, training=training)  # settles what is faster on this machine
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        outputs = compiled(batch, training=training)
    np.testing.assert_allclose(to_numpy(outputs), to_numpy(expected), rtol=1e-2, atol=1e-3)
    if training:
        kernel = model.get_layer("block_0").mlp.dense_1.kernel.value
        of_both = [torch.autograd.grad(y.square().sum(), kernel)[0] for y in (expected, outputs)]
        np.testing.assert_allclose(*map(to_numpy, of_both), rtol=0.1, atol=1e-3)
