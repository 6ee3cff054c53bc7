"""A saved model opens anywhere: in a fresh process, on another backend, without custom objects."""

import json

import keras
import numpy as np
import pytest

from keras_vit import BiT, VisionTransformer, training
from keras_vit.layers import TransformerBlock
from tests.arrays import assert_close, assert_same, dtype_of, images, largest, read_arrays, to_numpy
from tests.support import (
    BACKEND,
    BACKENDS,
    forward,
    precision,
    randomize,
    run_in_fresh_process,
    slow_unless_torch,
    tiny_bit,
    tiny_vit,
)

EVERYTHING = {"pool": "map", "class_token": True, "representation_size": 6, "gelu": "erf"}
EVERYTHING |= {"position": "relative", "position_at": "shared", "qkv_bias": False, "epsilon": 1e-5}
EVERYTHING |= {"dropout": 0.1, "attention_dropout": 0.2, "stochastic_depth": 0.3}
EVERYTHING |= {"head_bias": -2.0, "remat": True, "dtype": "mixed_bfloat16"}
# and how far the outputs of two backends may lie apart, relative to the largest
MODELS = {"plain": ({}, 2e-6), "everything": (EVERYTHING, 0.02), "BiT": ({}, 1e-5)}


def make(name):
    return randomize(tiny_bit() if name == "BiT" else tiny_vit(**MODELS[name][0]), seed=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The models, their weights alone, and what they compute."""
    folder, outputs = tmp_path_factory.mktemp("models"), {"images": images()}
    for name in MODELS:
        model = make(name)
        model.save(folder / f"{name}.keras")
        model.save_weights(folder / f"{name}.weights.h5")
        outputs[name] = to_numpy(forward(model, images()))
    np.savez(folder / "expected.npz", **outputs)
    return folder


OPEN = """
import tests.bare
import sys, keras, numpy as np
import keras_vit
images, outputs = np.load("{folder}/expected.npz")["images"], {{}}
for name in {names}:
    model = keras.saving.load_model(f"{folder}/{{name}}.keras")
    compute = model.predict_on_batch if keras.backend.backend() == "jax" else model
    outputs[name] = keras.ops.convert_to_numpy(compute(images))
    kind = keras_vit.BiT if name == "BiT" else keras_vit.VisionTransformer
    twin = kind.from_config(model.get_config())
    twin.load_weights(f"{folder}/{{name}}.weights.h5")
    for a, b in zip(model.weights, twin.weights):
        assert (keras.ops.convert_to_numpy(a) == keras.ops.convert_to_numpy(b)).all(), a.path
np.savez("{folder}/{backend}.npz", **outputs)
"""


@pytest.mark.skipif(len(BACKENDS) == 1, reason="no other backend is installed")
def test_a_saved_model_opens_on_another_backend(folder):
    """On the next one, so that all together write and read on each."""
    backend = BACKENDS[BACKENDS.index(BACKEND) - 1]
    names = list(MODELS)
    run_in_fresh_process(OPEN.format(folder=folder, names=names, backend=backend), backend)
    expected, outputs = read_arrays(folder / "expected.npz"), read_arrays(folder / f"{backend}.npz")
    for name, (_, tolerance) in MODELS.items():
        assert largest(outputs[name] - expected[name]) <= tolerance * largest(expected[name]), name


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_opens_here(folder, name):
    model = keras.saving.load_model(folder / f"{name}.keras")
    expected = read_arrays(folder / "expected.npz")[name]
    np.testing.assert_array_equal(to_numpy(forward(model, images())), expected)
    for option, value in MODELS[name][0].items():
        stored = model.dtype_policy.name if option == "dtype" else model.get_config()[option]
        assert stored == value, option


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16", "float64"])
def test_a_saved_model_keeps_its_precision(reopened, dtype):
    with precision(dtype):
        model = randomize(tiny_vit(dtype=dtype))
        loaded = reopened(model)
        before, after = forward(model, images()), forward(loaded, images())
        assert dtype_of(after) == dtype_of(before)
        for name in ("patches", "patch_encoder", "block_0", "norm"):
            assert loaded.get_layer(name).dtype_policy.name == dtype
        assert_close(after, before, 0)


def test_a_saved_model_keeps_what_is_frozen(reopened):
    """Otherwise a resumed fine-tuning trains the trunk, with an optimizer that lost its state."""
    model = tiny_vit()
    for layer in model.layers:
        layer.trainable = layer.name == "head"
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(images(), np.arange(4) % 3, verbose=0)
    loaded = reopened(model)
    assert [v.path for v in loaded.trainable_variables] == ["head/kernel", "head/bias"]
    assert_same(loaded.optimizer.variables, model.optimizer.variables)


@pytest.mark.skipif(BACKEND == "jax", reason="float16 products need an accelerator on JAX")
def test_float16_gets_a_scaled_loss():
    """Keras decides so by the policy of the model; unscaled, small gradients become zero."""
    model = tiny_vit(depth=1, dtype="mixed_float16")
    model.compile("adam", "mse")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"


def quantized(mode=None, dtype=None, lora=False, frozen=(), **options):
    model = randomize(tiny_vit(dtype=dtype, pool="map", representation_size=6))
    if mode or options:
        model.quantize(mode, **options)
    if lora:
        training.enable_lora(model, 2, alpha=3.0)
        for variable in model.trainable_variables:
            if variable.path.endswith("lora_kernel_b"):
                variable.assign(np.random.default_rng(0).normal(size=variable.shape) / 5)
    if frozen:
        training.freeze(model, frozen)
    return model


def with_a_layer_of_bfloat16():
    model = randomize(tiny_vit())
    model.get_layer("block_1").mlp.dense_1.dtype_policy = "mixed_bfloat16"
    return model


def with_patches_of_bfloat16():
    model = randomize(tiny_vit())
    model.get_layer("patches").dtype_policy = "mixed_bfloat16"
    return model


def with_an_int8_head():
    model = randomize(BiT(blocks=(1,), width=1, version="v2", image_size=16, num_classes=3))
    model.quantize("int8", filters="head")
    return model


int4_config = keras.quantizers.Int4QuantizationConfig
int8_config = keras.quantizers.Int8QuantizationConfig
CHANGES = {
    "int8": lambda: quantized("int8"),
    "int4": lambda: quantized("int4"),
    "float8": lambda: quantized("float8"),
    "int4, one scale a channel": lambda: quantized(config=int4_config(block_size=-1)),
    "int8, weights alone": lambda: quantized(config=int8_config(activation_quantizer=None)),
    "int8, some layers": lambda: quantized("int8", filters="query|dense_1|head"),
    "int8, mixed precision": lambda: quantized("int8", dtype="mixed_bfloat16"),
    "LoRA": lambda: quantized(lora=True),
    "LoRA, mixed precision": lambda: quantized(lora=True, dtype="mixed_bfloat16"),
    "LoRA, int8": lambda: quantized("int8", lora=True),
    "LoRA, int4": lambda: quantized("int4", lora=True),
    "frozen, int8": lambda: quantized("int8", frozen=["block_0", "patch_encoder", "head"]),
    "a layer of bfloat16": with_a_layer_of_bfloat16,
    "patches of bfloat16": with_patches_of_bfloat16,
    "BiT": with_an_int8_head,
}
FAST_CHANGES = ("LoRA", "a layer of bfloat16", "patches of bfloat16")


def assert_unchanged(loaded, model):
    assert type(loaded) is type(model)
    assert_close(forward(loaded, images()), forward(model, images()), 0)
    assert facts_of(loaded) == facts_of(model)
    assert loaded.get_config() == model.get_config()


def facts_of(model):
    return {v.path: (str(v.dtype), tuple(v.shape), v.trainable) for v in model.weights}


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(name, marks=() if name in FAST_CHANGES else pytest.mark.slow)
        for name in CHANGES
    ],
)
def test_a_changed_model_opens_as_it_was(reopened, change):
    model = CHANGES[change]()
    assert model.get_config()["changed_layers"]
    assert_unchanged(reopened(model), model)
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    copy.set_weights(model.get_weights())
    assert_unchanged(copy, model)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_model_as_it_was_made_has_no_changed_layers(dtype):
    options = {"position": "relative", "position_at": "shared", "pool": "map"}
    hybrid = {"stem": (1,), "stem_width": 0.5, "patch_size": 2}
    for each in (options, hybrid, {"distillation": True}):
        assert tiny_vit(dtype=dtype, **each).get_config()["changed_layers"] == {}


def in_a_graph(model):
    """A graph of Keras's class, as users put a head on a network; it knows the layers alone."""
    return keras.Model(model.input, keras.layers.Dense(2, name="logits")(model.output))


PARTS = {
    "LoRA": CHANGES["LoRA"],
    "a layer of bfloat16": with_a_layer_of_bfloat16,
    "frozen": lambda: quantized(frozen=["block_0", "block_1/mlp", "block_*/norm_1/gamma", "head"]),
    "frozen, int8": CHANGES["frozen, int8"],
    "LoRA, int4": CHANGES["LoRA, int4"],
}


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize(
    "change", [x if x == "frozen" else pytest.param(x, marks=slow_unless_torch) for x in PARTS]
)
def test_a_changed_network_in_a_graph_of_keras_opens_and_is_cloned_as_it_was(reopened, change):
    """Its layers alone are there to tell; a clone of the network itself is such a graph, too."""
    network = PARTS[change]()
    model = in_a_graph(network)
    clone, of_network = map(keras.models.clone_model, (model, network))
    clone.set_weights(model.get_weights())
    of_network.set_weights(network.get_weights())
    copies = [(each, model) for each in (reopened(model), clone, reopened(clone))]
    copies.append((of_network, network))
    for copy, original in copies:
        assert facts_of(copy) == facts_of(original)
        assert_close(forward(copy, images()), forward(original, images()), 0)
    for each in (model, *(copy for copy, _ in copies)):
        each.get_layer("block_1").mlp.trainable = True  # TensorFlow leaves out what is True
        each.get_layer("block_0").trainable = True
    for copy, original in copies:
        assert facts_of(copy) == facts_of(original)


@keras.saving.register_keras_serializable("tests")
class Scaled(TransformerBlock):
    def __init__(self, scale=2.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale

    def get_config(self):
        return super().get_config() | {"scale": self.scale}


def test_a_block_of_a_user_is_cloned_and_opens_as_it_was(reopened):
    block, inputs = Scaled(num_heads=2, mlp_dim=16, scale=3.0), keras.Input((5, 8))
    model = keras.Model(inputs, block(inputs))
    block.mlp.trainable = False
    for copy in (keras.models.clone_model(model), reopened(model)):
        assert copy.layers[1].scale == 3.0 and not copy.layers[1].mlp.trainable
        assert len(copy.trainable_variables) == len(model.trainable_variables)


def test_layers_that_a_new_model_lacks_stay_unchanged():
    model = tiny_vit()
    model.get_layer("head").quantize("int8")
    config = {**model.get_config(), "num_classes": 0}
    assert VisionTransformer.from_config(config).get_config()["changed_layers"] == {}


OPEN_CHANGED = """
import tests.bare
import keras, numpy as np
import keras_vit
images = np.load("{folder}/images.npy")
model = keras.saving.load_model("{folder}/model.keras")
np.save("{folder}/{backend}.npy", keras.ops.convert_to_numpy(model(images)))
"""


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.parametrize("backend", [backend for backend in BACKENDS if backend != BACKEND])
@pytest.mark.slow
@pytest.mark.parametrize("change", ["int8", "LoRA, int4"])
def test_a_changed_model_opens_on_another_backend(tmp_path, change, backend):
    model = CHANGES[change]()
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "images.npy", images())
    run_in_fresh_process(OPEN_CHANGED.format(folder=tmp_path, backend=backend), backend)
    expected = to_numpy(forward(model, images()))
    # A value that lies between two integers may be rounded to either.
    tolerance = 0.02 if change == "int8" else 1e-5
    found = np.load(tmp_path / f"{backend}.npy")
    assert largest(found - expected) <= tolerance * largest(expected)
