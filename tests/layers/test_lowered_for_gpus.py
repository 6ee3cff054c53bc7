"""What JAX would run on a GPU, read from its program as it is lowered for CUDA on this machine."""

import collections
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import kernels
from tests.support import BACKEND, assert_close

pytestmark = pytest.mark.skipif(BACKEND != "jax", reason="JAX lowers for GPUs that are not there")
RNG = np.random.default_rng(0)
BATCH, DEPTH, WIDTH, TOKENS = 8, 2, 128, 17
FORWARD, BACKWARD = "__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"


@pytest.fixture
def on_gpu(monkeypatch):
    """As if there were a GPU of Ampere's generation with cuDNN 9.10."""
    cudnn = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91000)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    monkeypatch.setattr(cudnn, "is_cuda_compute_capability_equal", lambda capability: False)
    monkeypatch.setattr(kernels.OWN, "applies", lambda name: name == "attention_on_gpu")


def update_of(dtype="mixed_bfloat16", **architecture):
    """The program of an update of a ViT, lowered for CUDA, and the model."""
    import jax

    model = keras_vit.VisionTransformer(
        image_size=64, patch_size=16, width=WIDTH, depth=DEPTH, num_heads=2, num_classes=10,
        dtype=dtype, **architecture,
    )  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras_vit.training.AdamW(1e-3), loss)
    model.optimizer.build(model.trainable_variables)

    def update(trained, rest, slots, x, y):
        def loss_of(trained):
            logits, _ = model.stateless_call(trained, rest, x, training=True)
            return model.compute_loss(x, y, logits)

        gradients = jax.grad(loss_of)(trained)
        return model.optimizer.stateless_apply(slots, gradients, trained)

    groups = model.trainable_variables, model.non_trainable_variables, model.optimizer.variables
    state = ([variable.value for variable in group] for group in groups)
    x, y = np.zeros((BATCH, 64, 64, 3), "float32"), np.zeros(BATCH, "int32")
    return jax.jit(update).trace(*state, x, y).lower(lowering_platforms=("cuda",)), model


def calls(program):
    return collections.Counter(re.findall(r"custom_call @([\w$]+)", program.as_text()))


def types(program, operation):
    """The types of the operands and of the result of every such operation."""
    lines = re.findall(rf"stablehlo\.{operation}.* : \((.*)\) -> (.*)", program.as_text())
    return [(re.findall(r"tensor<(.*?)>", operands), result) for operands, result in lines]


def test_every_block_takes_cudnns_attention_in_training(on_gpu, caplog):
    program, _ = update_of()  # 17 tokens, for which JAX itself refuses
    assert calls(program) == {FORWARD: DEPTH, BACKWARD: DEPTH}
    assert not caplog.records


def test_an_even_number_of_tokens_takes_it_by_keras(on_gpu):
    program, _ = update_of(class_token=False, pool="mean")
    assert calls(program) == {FORWARD: DEPTH, BACKWARD: DEPTH}
    assert "pad" not in program.as_text()


def test_attention_with_a_bias_is_xlas_without_a_complaint(on_gpu, caplog):
    assert not calls(update_of(position="relative")[0])
    assert not caplog.records


def test_attention_in_float32_is_xlas(on_gpu, caplog):
    assert not calls(update_of("float32")[0])
    assert not caplog.records


def test_products_are_in_bfloat16_but_the_heads(on_gpu):
    found = collections.Counter()
    for operands, _ in types(update_of()[0], "dot_general"):
        found[", ".join(sorted({shape.rpartition("x")[2] for shape in operands}))] += 1
    # Six products in a block and one of patches, three times; that of patches has no gradient of x.
    assert found == {"bf16": 3 * (6 * DEPTH + 1) - 1, "f32": 3}


def test_every_kernel_is_cast_once(on_gpu):
    program, model = update_of()
    casts = collections.Counter(
        operands[0] for operands, result in types(program, "convert") if "bf16" in result
    )
    kernels_of = [v.shape for v in model.trainable_variables if v.path.endswith("kernel")]
    shapes = collections.Counter("x".join(map(str, shape)) + "xf32" for shape in kernels_of)
    del shapes[f"{WIDTH}x10xf32"]  # of the head, which is float32
    assert {shape: casts[shape] for shape in shapes} == shapes


def test_operations_are_those_counted_by_hand(on_gpu):
    program, _ = update_of()
    tokens, width, mlp = TOKENS * BATCH, WIDTH, 4 * WIDTH
    block = tokens * (4 * width * width + 2 * width * mlp)
    patches = (TOKENS - 1) * BATCH * 768 * width
    by_hand = 2 * (3 * DEPTH * block + 2 * patches + 3 * BATCH * width * 10)  # of the products
    products = 0
    for operands, result in types(program, "dot_general"):
        sizes = [np.prod([int(n) for n in shape.split("x")[:-1]]) for shape in operands]
        out = np.prod([int(n) for n in re.findall(r"(\d+)x", result)])
        products += 2 * round(np.sqrt(float(sizes[0]) * float(sizes[1]) * float(out)))
    assert products == by_hand
    assert by_hand < program.cost_analysis()["flops"] < 1.5 * by_hand  # with norms, GELU, AdamW


@pytest.mark.parametrize("tokens, others", [(5, 5), (5, 4), (4, 7)])
def test_the_token_that_goes_along_changes_nothing(on_gpu, monkeypatch, tokens, others):
    import jax

    xla = jax.nn.dot_product_attention
    taken = []

    def instead(*args, implementation, **kwargs):
        taken.append(implementation)
        return xla(*args, implementation="xla", **kwargs)

    arrays = [RNG.normal(size=(2, n, 3, 8)).astype("float32") for n in (tokens, others, others)]
    weights = RNG.normal(size=arrays[0].shape)

    def value_and_gradients(q, k, v):
        return jax.value_and_grad(
            lambda *x: (kernels.attention(*x) * weights).sum(), argnums=(0, 1, 2)
        )(q, k, v)

    monkeypatch.setattr(jax.nn, "dot_product_attention", instead)
    padded = value_and_gradients(*arrays)
    assert taken == ["cudnn"]
    monkeypatch.setattr(kernels.OWN, "applies", lambda name: False)
    plain = value_and_gradients(*arrays)
    for one, other in zip(jax.tree.leaves(padded), jax.tree.leaves(plain)):
        assert_close(one, other, 1e-5)
