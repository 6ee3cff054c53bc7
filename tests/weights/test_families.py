"""Checkpoints of every family: the model computes what its own library computes.

The expected values are outputs of big_vision (Flax), timm and Hugging Face transformers (PyTorch)
in float64.
"""

import pytest

import keras_vit
from tests.support import ORACLES, assert_close, forward, largest, precision, read_arrays

FAMILIES = {
    "big_vision_vit": "google-research/big_vision",
    "timm": "timm",
    "hf_transformers4": "Hugging Face transformers",
    "hf_transformers5": "Hugging Face transformers",
}
CASES = sorted(path.parent for family in FAMILIES for path in (ORACLES / family).glob("*/io.npz"))
every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.parent.name}-{c.name}")

# transformers 5 takes its softmax in float32, whatever the model's precision is.
NOISE_OF_FLOAT64 = {"hf_transformers5": 1e-6}


def checkpoint_of(case):
    if case.parent.name.startswith("hf"):
        return case
    return case / ("model.safetensors" if case.parent.name == "timm" else "checkpoint.npz")


def expected_output(case):
    io = read_arrays(case / "io.npz")
    name = "pooler_output_f64" if "pooler_output_f64" in io else "output_f64"
    return io["input"], io[name], largest(io["output_f32"] - io["output_f64"])


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs(case, dtype):
    inputs, expected, noise = expected_output(case)
    with precision(dtype):
        model = keras_vit.from_checkpoint(checkpoint_of(case), dtype=dtype)
        outputs = forward(model, inputs.astype(dtype))
    exact = NOISE_OF_FLOAT64.get(case.parent.name, 1e-12)
    assert_close(outputs, expected, exact if dtype == "float64" else 8 * noise)
    assert model.load_report.family == FAMILIES[case.parent.name]
    assert model.load_report.differs == model.load_report.initial == ()
    assert len(model.load_report.loaded) == len(model.weights)


def test_every_family_has_cases():
    assert {case.parent.name for case in CASES} == set(FAMILIES)


def test_the_tokens_of_a_model_with_a_pooler():
    """`pool=None` gives `last_hidden_state`; the pooler, which reads one token, is left out."""
    case = ORACLES / "hf_transformers5" / "vit_model_pooler_p8"
    io = read_arrays(case / "io.npz")
    model = keras_vit.from_checkpoint(case, pool=None)
    assert_close(forward(model, io["input"]), io["output_f64"], 2e-5)
    assert model.load_report.ignored == ("pooler.dense.weight", "pooler.dense.bias")


def test_what_the_family_decides():
    for family, gelu, epsilon, interpolation in (
        ("big_vision_vit/tok_learn_p8", "tanh", 1e-6, "align_corners"),
        ("timm/vit_token_p8", "erf", 1e-6, "bicubic"),
        ("hf_transformers5/vit_cls_p8", "erf", 1e-12, "bicubic_no_antialias"),
        ("hf_transformers5/vit_cls_p16_eps6", "erf", 1e-6, "bicubic_no_antialias"),
    ):
        v = keras_vit.from_checkpoint(checkpoint_of(ORACLES / family)).variant
        assert (v.gelu, v.epsilon, v.interpolation) == (gelu, epsilon, interpolation)
