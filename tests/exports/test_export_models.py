"""Models of many kinds, exported and run in the format's own runtime."""

import numpy as np
import pytest

import keras_vit
from keras_vit.exports import FORMATS, ExportError
from tests.support import BACKEND, randomize, slow_unless_torch

SMALL = {"width": 16, "depth": 1, "num_heads": 2, "patch_size": 8, "image_size": 32}
NATIVE = {"torch": "onnx", "tensorflow": "litert", "jax": "stablehlo"}[BACKEND]
slow = pytest.mark.slow
KINDS = [
    pytest.param({"position": "relative_2d"}, marks=slow, id="relative_2d"),
    pytest.param({"dtype": "mixed_bfloat16", "block": "parallel"}, marks=slow, id="parallel"),
    pytest.param({"pool": "map", "block": "post_norm"}, marks=slow, id="post_norm"),
    pytest.param({"distillation": True, "registers": 2}, marks=slow, id="distillation"),
    pytest.param({"mlp": "swiglu", "rotary": "dinov3", "qk_norm": "layer_norm"}, marks=slow),
    pytest.param({"variable_size": True, "rotary": "eva02"}, marks=slow, id="variable size"),
]


def vit(**kind):
    return randomize(keras_vit.VisionTransformer(**SMALL, num_classes=3, **kind))


@pytest.mark.parametrize("kind", KINDS)
def test_file_computes_what_the_model_computes(kind, tmp_path):
    """In batches of 1, 3 and 7, and of open sides in another size."""
    pytest.importorskip(FORMATS[NATIVE].runtime)
    path = tmp_path / f"model{FORMATS[NATIVE].suffix}"
    assert keras_vit.export(vit(**kind), path, check=True).difference < 1e-5


@pytest.mark.skipif(BACKEND != "tensorflow", reason="LiteRT is written by TensorFlow")
@pytest.mark.slow
def test_quantized_model_that_a_format_cannot_hold(tmp_path):
    pytest.importorskip("ai_edge_litert")
    model = vit()
    model.quantize("int8")
    with pytest.raises(ExportError, match=r"quantized, to int8.*Export it as it was before"):
        keras_vit.export(model, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


@slow_unless_torch
def test_lora_is_merged(tmp_path):
    """The file has no products of its own, and the model keeps them."""
    from keras_vit.exports.exporter import prepared

    model = vit()
    keras_vit.training.enable_lora(model, 2)
    randomize(model)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    merged = prepared(model)
    assert not any("lora" in weight.path for weight in merged.weights)
    np.testing.assert_allclose(merged.predict(images), model.predict(images), atol=1e-4)
