"""Pooling, pre-logits and the linear head (Eq. 4, section 3.1)."""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit.layers import TokenPool
from tests.support import (
    ORACLES,
    OracleCase,
    assert_close,
    forward,
    images,
    largest,
    precision,
    read_arrays,
    tiny_vit,
    to_numpy,
)

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
MAP = OracleCase(ORACLES / "big_vision_vit" / "map_sincos2d_p4")


def test_the_mean_leaves_the_class_token_out():
    other = X.copy()
    other[:, 0] = 100.0
    pool = TokenPool("mean", class_token=True)
    assert_close(pool(X), pool(other), 0)
    assert_close(pool(X), X[:, 1:].mean(axis=1), 1e-6)
    assert_close(TokenPool("mean", class_token=False)(X), X.mean(axis=1), 1e-6)
    assert_close(TokenPool("first", class_token=False)(X), X[:, 0], 0)


def test_the_mean_of_many_bfloat16_tokens():
    """A sum in bfloat16 would stop growing at 256."""
    x = np.ones((1, 2001, 8), "float32")
    assert_close(TokenPool("mean", True, dtype="mixed_bfloat16")(x), np.ones((1, 8)), 0)


@pytest.mark.parametrize("pool, class_token", [("max", True), (None, True), ("map", False)])
def test_pools_that_do_not_exist(pool, class_token):
    message = f"Received: pool={pool!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        TokenPool(pool, class_token)


@pytest.mark.parametrize(
    "pool, bias", [("token", 0.0), ("token", -6.9), ("map", -6.9), (None, -6.9)]
)
def test_fresh_logits_are_the_bias_of_the_head(pool, bias):
    model = tiny_vit(pool=pool, head_bias=bias, depth=1)
    logits = to_numpy(forward(model, images()))
    np.testing.assert_array_equal(logits, np.full_like(logits, bias))


def big_vision_names(path):
    """Name in a big_vision file of a variable of a model with attention pooling."""
    name = path.replace("gamma", "scale").replace("beta", "bias")
    name = re.sub(r"^norm/", "Transformer/encoder_norm/", name)
    name = re.sub(r"^block_", "Transformer/encoderblock_", name)
    name = re.sub(r"^pool/", "MAPHead_0/", name)
    name = name.replace("patch_encoder/projection", "embedding")
    name = name.replace("MAPHead_0/norm", "MAPHead_0/LayerNorm_0")
    name = name.replace("norm_1", "LayerNorm_0").replace("norm_2", "LayerNorm_1")
    name = name.replace("attention", "MultiHeadDotProductAttention_0")
    return name.replace("mlp/dense_1", "MlpBlock_0/Dense_0").replace(
        "mlp/dense_2", "MlpBlock_0/Dense_1"
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_pooling_equals_the_authors_code(dtype):
    """The whole model of big_vision: no class token, fixed sines and cosines, a MAP head."""
    config, io = MAP.config, MAP.io
    with precision(dtype):
        model = keras_vit.VisionTransformer(
            image_size=config["image"],
            patch_size=config["patch_size"],
            width=config["width"],
            depth=config["depth"],
            num_heads=config["num_heads"],
            mlp_dim=config["mlp_dim"],
            num_classes=config["num_classes"],
            pool="map",
            position="sincos_2d",
            dtype=dtype,
        )
        arrays = read_arrays(MAP.checkpoint)
        assert {big_vision_names(v.path) for v in model.weights} == set(arrays)
        for v in model.weights:
            v.assign(arrays[big_vision_names(v.path)].reshape(v.shape))
        logits = forward(model, io["input"].astype(dtype))
        tolerance = 1e-9 if dtype == "float64" else MAP.tolerance()
        assert tolerance < 1e-4 * largest(io["output_f64"])
        assert_close(logits, io["output_f64"], tolerance)


def test_the_mean_leaves_registers_out():
    pool = TokenPool("mean", class_token=True, registers=2)
    assert_close(pool(X), X[:, 3:].mean(axis=1), 1e-6)
    assert TokenPool.from_config(pool.get_config()).get_config()["registers"] == 2
