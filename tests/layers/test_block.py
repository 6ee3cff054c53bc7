"""The encoder block: Eq. 2 and 3, stochastic depth, and rematerialisation."""

import random

import keras
import numpy as np
import pytest

from keras_vit.layers import AxialBlock, ExtendedBlock, RematExtendedBlock
from tests.arrays import assert_close, images, largest, to_numpy, values
from tests.support import BACKEND, forward, gradients, randomize, tiny_vit

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")


def block(cls=ExtendedBlock, **options):
    layer = cls(2, 12, name="block", **options)
    layer.build((None, 5, 8))
    return randomize(layer)


@pytest.mark.parametrize("options", [{}, {"cls": AxialBlock, "grid": (5, 1)}], ids=str)
def test_stochastic_depth_leaves_out_either_branch_of_an_example(options):
    """Not of single rows of an axial block, although attention sees them as so many sequences."""
    layer, plain, x = block(stochastic_depth=0.5, **options), block(**options), X[:1]
    attend, think = (
        lambda x: 2 * to_numpy(plain.attention(plain.norm_1(x))),
        lambda x: 2 * to_numpy(plain.mlp(plain.norm_2(x))),
    )
    possible = [x, x + attend(x), x + think(x), x + attend(x) + think(x + attend(x))]
    outputs = to_numpy(forward(layer, np.repeat(x, 64, axis=0), training=True))
    distance = np.abs(outputs[:, None] - np.stack(possible, axis=1)).max(axis=(2, 3))
    assert (distance.min(axis=1) < 1e-5).all()
    assert set(distance.argmin(axis=1)) == {0, 1, 2, 3}
    assert_close(layer(X), plain(X), 0)


@pytest.mark.parametrize("option", ["dropout", "attention_dropout", "stochastic_depth"])
def test_each_rate_acts_in_training_only(option):
    layer = block(**{option: 0.5})
    assert_close(layer(X), block()(X), 0)
    assert np.abs(to_numpy(layer(X, training=True)) - to_numpy(layer(X))).max() > 1e-3


DROPOUTS = {"dropout": 0.2, "attention_dropout": 0.3, "stochastic_depth": 0.4}


def same_seeds():
    """Masks repeat after this: where a layer has no seed, they come from these two."""
    random.seed(3)
    if BACKEND == "torch":
        import torch

        torch.manual_seed(3)


def test_remat_gives_the_same_gradients():
    """The second run of the block must drop what the first one dropped, by every dropout."""
    rng = np.random.default_rng(5)
    direction = rng.normal(size=X.shape).astype("float32")
    table = rng.normal(size=(9, 4)).astype("float32")

    def run(remat):
        same_seeds()
        return gradients(
            block(RematExtendedBlock if remat else ExtendedBlock, **DROPOUTS),
            lambda y: keras.ops.sum(y * keras.ops.convert_to_tensor(direction)),
            X,
            distances=keras.ops.convert_to_tensor(table),
            training=True,
        )

    (value, plain), (remat_value, remat) = run(False), run(True)
    assert remat_value == pytest.approx(value, rel=1e-6)
    assert plain.keys() == remat.keys()
    for path in plain:
        assert_close(remat[path], plain[path], 1e-5 * max(largest(plain[path]), 1))


def training_losses(remat, jit_compile):
    """Losses and weights after some steps, from the same weights, batches and seeds."""
    same_seeds()
    options = {"position": "relative", "position_at": "shared", "depth": 1}
    model = randomize(tiny_vit(remat=remat, **options, **DROPOUTS))
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    x, y = images((8, 16, 16, 3)), np.arange(8) % 3
    history = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return history.history["loss"], values(model)


@pytest.mark.parametrize("jit_compile", [False, True] if BACKEND == "tensorflow" else ["auto"])
def test_remat_changes_no_loss_of_a_training(jit_compile):
    """With every kind of dropout. Other masks would change the second digit of the losses."""
    losses, weights = training_losses(False, jit_compile)
    remat_losses, remat_weights = training_losses(True, jit_compile)
    np.testing.assert_allclose(remat_losses, losses, rtol=1e-6)
    for path, value in weights.items():
        assert_close(remat_weights[path], value, 1e-5)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow's tape does not show what it keeps")
def test_remat_keeps_less_for_the_backward_pass():
    assert kept_bytes(block(RematExtendedBlock)) < kept_bytes(block()) / 2


@pytest.mark.skipif(BACKEND != "jax", reason="XLA's account")
def test_xla_keeps_less_for_the_backward_pass():
    """On a CPU it makes one run of two that it knows to be the same."""
    needed = {remat: compiled_bytes(tiny_vit(depth=4, remat=remat)) for remat in (False, True)}
    assert needed[True] < needed[False] / 3


def compiled_bytes(model):
    """Bytes beside arguments and results of the gradient of a loss."""
    import jax

    x, rest = images((64, 16, 16, 3)), [v.value for v in model.non_trainable_variables]

    def loss(trainable):
        return model.stateless_call(trainable, rest, x, training=True)[0].var()

    trainable = [v.value for v in model.trainable_variables]
    compiled = jax.jit(jax.grad(loss)).lower(trainable).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def kept_bytes(layer):
    """Bytes of the weights and the intermediate values that wait for the backward pass."""
    sizes = {}
    if BACKEND == "jax":
        import jax

        def run(trainable):
            return layer.stateless_call(trainable, [], X, training=True)[0]

        _, backward = jax.vjp(run, [v.value for v in layer.trainable_variables])
        sizes = {id(leaf): leaf.nbytes for leaf in jax.tree.leaves(backward)}
    else:
        import torch

        def keep(tensor):
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            layer(X, training=True)
    return sum(sizes.values())
