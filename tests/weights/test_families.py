"""Checkpoints of every family: the model computes what its own library computes.

The expected values are outputs of the authors' code and of big_vision (Flax), of big_transfer, of
KerasHub, of timm and of Hugging Face transformers (PyTorch) in float64. Features and attention
weights are stored as float32, which bounds what can be said about them.
"""

import functools
import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from tests.arrays import ORACLES, assert_close, largest, read_arrays, to_numpy
from tests.support import OracleCase, canonical_arrays, forward, gradients, oracle_cases, precision
from tests.weights.bit_cases import HUGGING, PAPER, TIMM, V1, every_case, load

FAMILIES = {
    "big_vision_vit": "google-research/big_vision",
    "keras_hub": "KerasHub",
    "timm": "timm",
    "hf_transformers4": "Hugging Face transformers",
    "hf_transformers5": "Hugging Face transformers",
}
CASES = sorted(path.parent for family in FAMILIES for path in (ORACLES / family).glob("*/io.npz"))
AUTHORS = oracle_cases("flax_vit")
TOKEN_P8 = OracleCase(ORACLES / "flax_vit" / "token_p8")
HYBRIDS = sorted(path.parent for path in (ORACLES / "hybrids").glob("*/io.npz"))
# transformers 5 takes its softmax in float32, whatever the model's precision is.
NOISE_OF_FLOAT64 = {"hf_transformers5": 1e-6}


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda c: f"{c.parent.name}-{c.name}")


def checkpoint_of(case):
    name = case.name if case.parent.name == "hybrids" else case.parent.name
    if name.startswith(("hf", "keras_hub")):
        return case
    return case / ("model.safetensors" if name.startswith("timm") else "checkpoint.npz")


def expected_output(case):
    io = read_arrays(case / "io.npz")
    name = "pooler_output_f64" if "pooler_output_f64" in io else "output_f64"
    return io["input"], io[name], largest(io["output_f32"] - io["output_f64"])


def assert_computes(model, case, tolerance=2e-5):
    """Checks that a model gives what the library of a case gives for its images."""
    inputs, expected, _ = expected_output(case)
    assert_close(forward(model, inputs), expected, tolerance)


@each(CASES)
def test_outputs_in_float64(case):
    inputs, expected, _ = expected_output(case)
    with precision("float64"):
        model = keras_vit.from_checkpoint(checkpoint_of(case), dtype="float64")
        outputs = forward(model, inputs.astype("float64"))
    assert_close(outputs, expected, NOISE_OF_FLOAT64.get(case.parent.name, 1e-12))
    assert model.load_report.family == FAMILIES[case.parent.name]
    assert model.load_report.differs == model.load_report.initial == ()
    assert len(model.load_report.loaded) == len(model.weights)


@each([*(next(c for c in CASES if c.parent.name == each) for each in FAMILIES), HYBRIDS[0]])
def test_outputs_in_float32(case):
    """Eight times what float32 costs the family's own code."""
    noise = expected_output(case)[2]
    assert_computes(keras_vit.from_checkpoint(checkpoint_of(case)), case, 8 * noise)


def test_every_family_has_cases():
    assert {case.parent.name for case in CASES} == set(FAMILIES)


@pytest.mark.any_backend
def test_the_tokens_of_a_model_with_a_pooler():
    """`pool=None` gives `last_hidden_state`; the pooler, which reads one token, is left out."""
    case = ORACLES / "hf_transformers5" / "vit_model_pooler_p8"
    io = read_arrays(case / "io.npz")
    model = keras_vit.from_checkpoint(case, pool=None)
    assert_close(forward(model, io["input"]), io["output_f64"], 2e-5)
    assert model.load_report.ignored == ("pooler.dense.weight", "pooler.dense.bias")


@pytest.mark.any_backend
def test_what_the_family_decides():
    for family, gelu, epsilon, interpolation in (
        ("big_vision_vit/tok_learn_p8", "tanh", 1e-6, "align_corners"),
        ("timm/vit_token_p8", "erf", 1e-6, "bicubic"),
        ("hf_transformers5/vit_cls_p8", "erf", 1e-12, "bicubic_no_antialias"),
        ("hf_transformers5/vit_cls_p16_eps6", "erf", 1e-6, "bicubic_no_antialias"),
    ):
        v = keras_vit.from_checkpoint(checkpoint_of(ORACLES / family)).variant
        assert (v.gelu, v.epsilon, v.interpolation) == (gelu, epsilon, interpolation)


def test_the_packaged_model_computes_what_was_trained():
    """Half precision moves the logits by a few units of its last place; 97.49 % is in the card."""
    model, digits = keras_vit.from_checkpoint("digits"), keras_vit.data.load("digits")
    logits = to_numpy(forward(model, keras_vit.preprocess(digits.test_images, model)))
    trained = np.load(ORACLES / "digits" / "logits.npz")["logits"]
    assert_close(logits[: len(trained)], trained, 2 * 2**-10 * largest(trained))
    assert np.mean(logits.argmax(-1) == digits.test_labels) > 0.97
    assert model.class_names == digits.class_names and model.weights_from == "digits"


# ---- google-research/vision_transformer, layer by layer


@functools.cache
def computed(case, dtype):
    """Name in the oracle's io file -> what the model computes for it."""
    with precision(dtype):
        model, depth = case.load(dtype), case.config["transformer"]["num_layers"]
        blocks = [model.get_layer(f"block_{i}") for i in range(depth)]
        patches, encoder = model.get_layer("patches"), model.get_layer("patch_encoder")
        before_head = model.layers[-2] if "head" in model.layers[-1].name else model.layers[-1]
        tensors = {
            "output": model.output,
            "pre_logits": before_head.output,
            "feat_f64/embedding": encoder.projection(patches.output),
            "feat_f64/Transformer/posembed_input": encoder.output,
            # For the class token alone the model normalises nothing else, the authors' code does.
            "feat_f64/Transformer/encoder_norm": model.get_layer("norm")(blocks[-1].output),
        }
        for i, block in enumerate(blocks):
            tensors[f"feat_f64/Transformer/encoderblock_{i}"] = block.output
        inner = keras.Model(model.input, list(tensors.values()))
        outputs = dict(zip(tensors, forward(inner, case.io["input"].astype(dtype))))
        entering = "feat_f64/Transformer/posembed_input"
        for i, block in enumerate(blocks if dtype == "float64" else ()):
            tokens = keras.Input(block.output.shape[1:], dtype=dtype)
            scores = keras.Model(tokens, block.attention_scores(tokens))
            outputs[f"attn_f64/{i}"] = forward(scores, outputs[entering])
            entering = f"feat_f64/Transformer/encoderblock_{i}"
        return {name: to_numpy(x) for name, x in outputs.items()}


@pytest.mark.parametrize(
    "case, dtype", [(TOKEN_P8, "float32"), *((case, "float64") for case in AUTHORS)], ids=str
)
def test_outputs_of_the_authors(case, dtype):
    outputs, tolerance = computed(case, dtype), case.tolerance(dtype)
    assert tolerance < 1e-4 * largest(case.io["output_f64"])
    assert outputs["output"].dtype == dtype
    assert_close(outputs["output"], case.io["output_f64"], tolerance)
    assert_close(outputs["pre_logits"], case.io["pre_logits_f64"], tolerance)


@pytest.mark.parametrize("case", AUTHORS, ids=str)
def test_features_and_attention_weights(case):
    expected = {name: x for name, x in case.io.items() if name.startswith(("feat_", "attn_"))}
    outputs = computed(case, "float64")
    assert set(expected) == set(outputs) - {"output", "pre_logits"}
    for name, x in expected.items():
        assert_close(outputs[name].reshape(x.shape), x, 1e-6 * largest(x))


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-5), ("float64", 1e-7)])
def test_gradients_equal_the_authors(dtype, tolerance):
    """Softmax cross-entropy, mean over three images, no dropout.

    The gradients are stored as float32, the loss and the norm of all gradients as float64.
    """
    facts = json.loads((ORACLES / "training" / "grads_token_p8.json").read_text())
    expected = canonical_arrays(read_arrays(ORACLES / "training" / "grads_token_p8.npz"))
    labels = np.array(facts["labels"])

    def cross_entropy(logits):
        log_p = keras.ops.log_softmax(logits, axis=-1)
        return -keras.ops.sum(log_p * keras.ops.one_hot(labels, 10, dtype=dtype)) / 3

    with precision(dtype):
        inputs = TOKEN_P8.io["input"].astype(dtype)
        loss, grads = gradients(TOKEN_P8.load(dtype), cross_entropy, inputs)
    exact = 1e-12 if dtype == "float64" else 1e-6
    assert loss == pytest.approx(facts["loss_f64"], rel=exact)
    assert set(grads) == set(expected)
    biggest = max(largest(grad) for grad in expected.values())
    for path, grad in expected.items():
        assert grads[path].dtype == dtype
        # The gradient of a key's bias is zero but for rounding: judge it by the others.
        assert_close(grads[path], grad, tolerance * max(largest(grad), 1e-2 * biggest))
    norm = np.sqrt(sum(np.sum(grad.astype("float64") ** 2) for grad in grads.values()))
    assert norm == pytest.approx(facts["global_grad_norm_f64"], rel=exact)


@pytest.mark.any_backend
def test_both_generations_of_names():
    """The same values under the names before and after Flax's renumbering."""
    linen = TOKEN_P8.folder / "checkpoint_linen.npz"
    assert set(read_arrays(TOKEN_P8.checkpoint)) != set(read_arrays(linen))
    old, new = (keras_vit.from_checkpoint(path) for path in (TOKEN_P8.checkpoint, linen))
    for a, b in zip(old.weights, new.weights, strict=True):
        assert a.path == b.path
        assert_close(a, b, 0)


@pytest.mark.any_backend
def test_an_image_that_is_not_square(tmp_path):
    case = OracleCase(ORACLES / "flax_vit" / "token_nonsquare")
    assert keras_vit.from_checkpoint(case.checkpoint).grid == (4, 6)  # its config.json says so
    alone = shutil.copy(case.checkpoint, tmp_path)
    assert keras_vit.from_checkpoint(alone, image_size=(32, 48)).grid == (4, 6)
    for options in ({}, {"image_size": 32}):
        with pytest.raises(ValueError, match=r"no square.*file_image_size=\(height, width\)"):
            keras_vit.from_checkpoint(alone, **options)
    resized = keras_vit.from_checkpoint(alone, image_size=32, file_image_size=(32, 48))
    assert resized.load_report.resized[0][1:3] == ((4, 6), (4, 4))


# ---- BiT


@every_case
def test_outputs_and_features_of_bit(case):
    with precision("float64"):
        model = load(case.contents, "float64")
        tensors = {name: model.get_layer(layer).output for layer, name in case.features.items()}
        inner = keras.Model(model.input, {"output_f64": model.output, **tensors})
        outputs = forward(inner, case.io["input"].astype("float64"))
    output, expected = outputs.pop("output_f64"), case.io["output_f64"]
    assert_close(output, expected, 1e-12 * largest(expected))
    for name, output in outputs.items():
        expected = case.feature(name)
        assert_close(output, expected, 1e-6 * largest(expected))


@pytest.mark.parametrize("case", [PAPER, V1, TIMM, HUGGING], ids=str)
def test_outputs_of_bit_in_float32(case):
    """Eight times what float32 costs the authors' own code."""
    exact = case.io["output_f64"]
    noise = max(largest(case.io["output_f32"] - exact), np.finfo("float32").eps * largest(exact))
    assert noise < 1e-5 * largest(exact)
    model = keras_vit.from_checkpoint(case.checkpoint)
    assert_close(forward(model, case.io["input"]), exact, 8 * noise)
    assert len(model.load_report.loaded) == len(model.weights)
