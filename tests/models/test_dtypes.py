"""Models of images of any type, and under a map of dtype policies."""

import json

import keras
import numpy as np
import pytest

from keras_vit import NaFlexVisionTransformer, VisionTransformer
from tests.arrays import assert_close, dtype_of, images, largest, to_numpy
from tests.models.test_serialization import assert_unchanged, facts_of
from tests.support import forward, randomize, slow_unless_torch, tiny_bit, tiny_vit

HYBRID = {"stem": (1,), "stem_width": 0.5, "patch_size": 2, "pool": "mean"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: tiny_vit(depth=1),
        pytest.param(lambda: tiny_vit(depth=1, **HYBRID), marks=slow_unless_torch),
        pytest.param(tiny_bit, marks=slow_unless_torch),
    ],
    ids=["ViT", "hybrid", "BiT"],
)
def test_integers_are_images_too(make):
    """As inputs of the model, of another model around it, and of its clone."""
    model = randomize(make())
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype("uint8")
    expected = to_numpy(forward(model, pixels.astype("float32")))
    inputs = keras.Input((16, 16, 3), dtype="uint8")
    around = keras.Model(inputs, model(inputs))
    clone = keras.models.clone_model(model, input_tensors=keras.Input((16, 16, 3), dtype="uint8"))
    clone.set_weights(model.get_weights())
    for each in (model, around, clone):
        outputs = forward(each, pixels)
        assert dtype_of(outputs) == each.output.dtype == "float32"
        assert_close(outputs, expected, 1e-6 * largest(expected))


int8, half = (keras.dtype_policies.get(name) for name in ("int8_from_float32", "mixed_bfloat16"))
POLICY_MAPS = {  # a default, the policies of some layers, and the compute dtype of the head
    "quantised": ("float32", {"block_.*/(query|dense_1)": int8, "head": int8}, "float32"),
    "half precision": ("mixed_bfloat16", {}, "float32"),
    "a head of half precision": ("float32", {"head": half, "block_0.*": half}, "bfloat16"),
    "the global policy": (None, {"block_0/mlp/dense_2": int8}, "float32"),
}


@pytest.mark.parametrize("name", POLICY_MAPS)
def test_a_model_under_a_map_of_policies(name, reopened):
    """It describes itself, is saved, opened and cloned, and leaves the map of the user alone."""
    default, some, of_head = POLICY_MAPS[name]
    policies = keras.dtype_policies.DTypePolicyMap(default, dict(some))
    model = randomize(tiny_vit(depth=1, dtype=policies))
    expected = to_numpy(forward(model, images()))
    head = model.get_layer("head")
    assert (model.output.dtype, head.compute_dtype) == (of_head, of_head)
    layers = [layer for layer in model._flatten_layers() if layer.path]
    quantised = {layer.path for layer in layers if layer.quantization_mode}
    assert quantised == {layer.path for layer in layers if policies[layer.path] is int8}
    assert bool(quantised) == (int8 in some.values())
    model.summary(print_fn=len)

    copy = VisionTransformer.from_config(json.loads(json.dumps(model.get_config())))
    for twin in (copy, keras.models.clone_model(model)):
        twin.set_weights(model.get_weights())
        np.testing.assert_array_equal(to_numpy(forward(twin, images())), expected)
        assert facts_of(twin) == facts_of(model)
    assert_unchanged(reopened(model), model)
    assert {path: policies[path].name for path in policies} == {
        path: policy.name for path, policy in some.items()
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_model_under_a_map_of_policies_is_quantised(reopened):
    model = randomize(tiny_vit(depth=1, dtype=keras.dtype_policies.DTypePolicyMap("float32")))
    model.quantize("int8", filters="query|head")
    assert model.get_config()["changed_layers"].keys() == {"block_0/attention/query", "head"}
    assert_unchanged(reopened(model), model)


@slow_unless_torch
def test_a_naflex_model_under_a_map_of_policies():
    policies = keras.dtype_policies.DTypePolicyMap("mixed_bfloat16", {"head": half})
    sizes = {"patch_size": 4, "width": 8, "depth": 1, "num_heads": 2, "num_classes": 3}
    model = NaFlexVisionTransformer(grid=2, **sizes, dtype=policies)
    assert model.output.dtype == "bfloat16"
    copy = NaFlexVisionTransformer.from_config(json.loads(json.dumps(model.get_config())))
    assert facts_of(copy) == facts_of(model)
    assert copy.get_config() == model.get_config()
