"""Fresh weights follow the authors' code, not the defaults of Keras."""

import keras
import numpy as np
import pytest

from keras_vit.layers import AttentionPool
from tests.support import tiny_vit, values

WIDTH, HEADS, PATCH_VALUES = 64, 4, 8 * 8 * 3


@pytest.fixture(scope="module")
def model():
    return tiny_vit(width=WIDTH, num_heads=HEADS, depth=1, representation_size=48)


@pytest.fixture(scope="module")
def fresh(model):
    return values(model)


def assert_xavier_uniform(kernel, fan_in, fan_out):
    bound = np.sqrt(6 / (fan_in + fan_out))
    assert 0.98 * bound < np.abs(kernel).max() <= bound
    assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.03)


@pytest.mark.parametrize("name", ["query", "key", "value", "out"])
def test_attention_kernels_are_xavier_uniform_as_matrices(fresh, name):
    """The fans are those of the (width, width) matrix, not of a kernel with a head axis."""
    assert_xavier_uniform(fresh[f"block_0/attention/{name}/kernel"], WIDTH, WIDTH)
    np.testing.assert_array_equal(fresh[f"block_0/attention/{name}/bias"], 0)


def test_mlp(fresh):
    assert_xavier_uniform(fresh["block_0/mlp/dense_1/kernel"], WIDTH, 4 * WIDTH)
    assert_xavier_uniform(fresh["block_0/mlp/dense_2/kernel"], 4 * WIDTH, WIDTH)
    biases = [fresh[f"block_0/mlp/dense_{i}/bias"] for i in (1, 2)]
    assert np.concatenate(biases).std() == pytest.approx(1e-6, rel=0.15)


def test_patch_projection_is_lecun_normal(fresh):
    kernel = fresh["patch_encoder/projection/kernel"]
    assert kernel.shape == (PATCH_VALUES, WIDTH)
    assert kernel.std() == pytest.approx(1 / np.sqrt(PATCH_VALUES), rel=0.03)
    np.testing.assert_array_equal(fresh["patch_encoder/projection/bias"], 0)


def test_zeros(fresh):
    for name in ("patch_encoder/class_token", "head/kernel", "head/bias", "pre_logits/bias"):
        np.testing.assert_array_equal(fresh[name], 0)


def test_pre_logits(fresh):
    assert_xavier_uniform(fresh["pre_logits/kernel"], WIDTH, 48)


def test_norms(model, fresh):
    block = model.get_layer("block_0")
    norms = {"norm": model.get_layer("norm"), "block_0/norm_1": block.norm_1}
    norms["block_0/norm_2"] = block.norm_2
    for name, layer in norms.items():
        assert layer.epsilon == 1e-6
        np.testing.assert_array_equal(fresh[f"{name}/gamma"], 1)
        np.testing.assert_array_equal(fresh[f"{name}/beta"], 0)


def test_attention_pooling():
    pool = AttentionPool(HEADS, 4 * WIDTH, name="pool")
    pool.build((None, 5, WIDTH))
    fresh = values(pool)
    assert pool.norm.epsilon == 1e-6
    probe, bound = fresh["probe"], np.sqrt(6 / (1 + WIDTH))
    assert 0.8 * bound < np.abs(probe).max() <= bound
    assert probe.std() == pytest.approx(bound / np.sqrt(3), rel=0.25)
    assert_xavier_uniform(fresh["attention/query/kernel"], WIDTH, WIDTH)
    assert_xavier_uniform(fresh["attention/out/kernel"], WIDTH, WIDTH)


@pytest.mark.parametrize(
    "options",
    [
        {"position": "learned_2d"},
        {"position": "learned_1d", "position_at": "every_layer"},
        {"position": "relative"},
    ],
)
def test_no_two_random_variables_start_equal(options):
    """Rows and columns, or the positions of two blocks, must not begin as copies."""
    fresh = list(values(tiny_vit(**options)).items())
    random = [(path, value) for path, value in fresh if value.std() > 0]
    for i, (path, value) in enumerate(random):
        for other_path, other in random[:i]:
            same = value.shape == other.shape and (value == other).all()
            assert not same, f"{path} starts as a copy of {other_path}"


def test_the_seed_decides_every_fresh_weight():
    def fresh(seed):
        keras.utils.set_random_seed(seed)
        return values(tiny_vit(depth=1))

    first, again, other = fresh(1), fresh(1), fresh(2)
    for path, value in first.items():
        np.testing.assert_array_equal(value, again[path], err_msg=path)
        if value.std() > 0:
            assert (value != other[path]).any(), f"{path} does not depend on the seed"
