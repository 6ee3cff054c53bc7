"""Checkpoints of google-research/vision_transformer: the model computes what the authors' does.

The expected values were computed by the authors' code (Flax) in float64. Outputs are stored so;
features and attention weights are stored as float32, which bounds what can be said about them.
"""

import functools
import shutil

import keras
import pytest

import keras_vit
from tests.support import (
    ORACLES,
    OracleCase,
    assert_close,
    forward,
    largest,
    oracle_cases,
    precision,
    read_arrays,
    to_numpy,
)

CASES = oracle_cases("flax_vit")
every_case = pytest.mark.parametrize("case", CASES, ids=str)
TOKEN_P8 = OracleCase(ORACLES / "flax_vit" / "token_p8")


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


@every_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs(case, dtype):
    outputs = computed(case, dtype)
    tolerance = case.tolerance(dtype)
    assert tolerance < 1e-4 * largest(case.io["output_f64"])
    assert outputs["output"].dtype == dtype
    assert_close(outputs["output"], case.io["output_f64"], tolerance)
    assert_close(outputs["pre_logits"], case.io["pre_logits_f64"], tolerance)


@every_case
def test_features_and_attention_weights(case):
    expected = {name: x for name, x in case.io.items() if name.startswith(("feat_", "attn_"))}
    outputs = computed(case, "float64")
    assert set(expected) == set(outputs) - {"output", "pre_logits"}
    for name, x in expected.items():
        assert_close(outputs[name].reshape(x.shape), x, 1e-6 * largest(x))


@every_case
def test_the_report_of_a_whole_model(case):
    model = case.load()
    report = model.load_report
    assert sorted(report.loaded) == sorted(v.path for v in model.weights)
    assert len(report.loaded) == len(read_arrays(case.checkpoint))
    assert report.initial == report.ignored == ()
    assert f"loaded                 {len(report.loaded)} variables" in str(report).splitlines()
    assert (report.head, report.resized, report.differs) == ("", (), ())


def test_both_generations_of_names():
    """The same values under the names before and after Flax's renumbering."""
    old = keras_vit.from_checkpoint(TOKEN_P8.checkpoint)
    new = keras_vit.from_checkpoint(TOKEN_P8.folder / "checkpoint_linen.npz")
    names = set(read_arrays(TOKEN_P8.checkpoint))
    assert names != set(read_arrays(TOKEN_P8.folder / "checkpoint_linen.npz"))
    for a, b in zip(old.weights, new.weights, strict=True):
        assert a.path == b.path
        assert_close(a, b, 0)


def test_the_architecture_comes_from_the_file():
    v = keras_vit.from_checkpoint(TOKEN_P8.checkpoint).variant
    config = TOKEN_P8.config
    assert v.width == config["hidden_size"]
    assert v.depth == config["transformer"]["num_layers"]
    assert v.num_heads == config["transformer"]["num_heads"]
    assert v.mlp_dim == config["transformer"]["mlp_dim"]
    assert v.patch_size == tuple(config["patches"]["size"])
    assert (v.pool, v.position, v.gelu, v.epsilon) == ("token", "learned_1d", "tanh", 1e-6)


def test_an_image_that_is_not_square(tmp_path):
    case = OracleCase(ORACLES / "flax_vit" / "token_nonsquare")
    assert keras_vit.from_checkpoint(case.checkpoint).grid == (4, 6)  # its config.json says so
    alone = shutil.copy(case.checkpoint, tmp_path)
    model = keras_vit.from_checkpoint(alone, image_size=(32, 48))
    assert model.grid == (4, 6)
    assert len(model.load_report.loaded) == len(model.weights)
    for options in ({}, {"image_size": 32}):
        with pytest.raises(ValueError, match=r"no square.*file_image_size=\(height, width\)"):
            keras_vit.from_checkpoint(alone, **options)
    resized = keras_vit.from_checkpoint(alone, image_size=32, file_image_size=(32, 48))
    assert resized.load_report.resized[0][1:3] == ((4, 6), (4, 4))
