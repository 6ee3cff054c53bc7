"""Checkpoints of every family: the model computes what its own library computes.

The expected values are outputs of the authors' code and of big_vision (Flax), of timm and of
Hugging Face transformers (PyTorch) in float64. Features and attention weights are stored as
float32, which bounds what can be said about them.
"""

import functools
import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from tests.support import (
    ORACLES,
    OracleCase,
    assert_close,
    canonical_arrays,
    forward,
    gradients,
    images,
    largest,
    oracle_cases,
    precision,
    randomize,
    read_arrays,
    to_numpy,
    values,
)

FAMILIES = {
    "big_vision_vit": "google-research/big_vision",
    "timm": "timm",
    "hf_transformers4": "Hugging Face transformers",
    "hf_transformers5": "Hugging Face transformers",
}
CASES = sorted(path.parent for family in FAMILIES for path in (ORACLES / family).glob("*/io.npz"))
HYBRIDS = sorted(path.parent for path in (ORACLES / "hybrids").glob("*/io.npz"))
AUTHORS = oracle_cases("flax_vit")
TOKEN_P8 = OracleCase(ORACLES / "flax_vit" / "token_p8")
R22 = ORACLES / "hybrids" / "flax_vit-hybrid_r22_w05_odd45"
# transformers 5 takes its softmax in float32, whatever the model's precision is.
NOISE_OF_FLOAT64 = {"hf_transformers5": 1e-6}


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda c: f"{c.parent.name}-{c.name}")


def checkpoint_of(case):
    name = case.name if case.parent.name == "hybrids" else case.parent.name
    if name.startswith("hf"):
        return case
    return case / ("model.safetensors" if name.startswith("timm") else "checkpoint.npz")


def expected_output(case):
    io = read_arrays(case / "io.npz")
    name = "pooler_output_f64" if "pooler_output_f64" in io else "output_f64"
    return io["input"], io[name], largest(io["output_f32"] - io["output_f64"])


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


@each([next(c for c in CASES if c.parent.name == family) for family in FAMILIES] + HYBRIDS[:1])
def test_outputs_in_float32(case):
    """Eight times what float32 costs the family's own code."""
    inputs, expected, noise = expected_output(case)
    model = keras_vit.from_checkpoint(checkpoint_of(case))
    assert_close(forward(model, inputs), expected, 8 * noise)


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


# ---- hybrids: a ResNet stem before the Transformer


@each(HYBRIDS)
def test_hybrids(case):
    """Outputs and feature maps; the latter are stored as float32."""
    io = read_arrays(case / "io.npz")
    with precision("float64"):
        model = keras_vit.from_checkpoint(checkpoint_of(case), dtype="float64")
        last = model.layers[model.layers.index(model.get_layer("patches")) - 1]
        named = {"output_f64": model.output, "backbone_nhwc_f64": last.output}
        for i, units in enumerate(model.variant.stem, 1):
            named[f"feat_f64/block{i}"] = model.get_layer(f"stage_{i}_unit_{units}").output
        named = {name: output for name, output in named.items() if name in io}
        outputs = forward(keras.Model(model.input, named), io["input"].astype("float64"))
    for name, output in outputs.items():
        is_output = name == "output_f64"
        assert_close(output, io[name], 1e-11 if is_output else 1e-6 * largest(io[name]))
    assert len(model.load_report.loaded) == len(model.weights)
    assert model.load_report.differs == ()
    v, google = model.variant, case.name.startswith("flax")
    assert v.stem_numerics == ("google" if google else "timm")
    assert (v.stem_width, v.gelu) == (0.5, "tanh" if google else "erf")


@pytest.mark.any_backend
def test_an_odd_image_without_a_config(tmp_path):
    """45 pixels give a grid of 6 x 6, as 48 do: the file cannot tell, and either computes it."""
    path = shutil.copy(R22 / "checkpoint.npz", tmp_path)
    io = read_arrays(R22 / "io.npz")
    assert keras_vit.from_checkpoint(path).image_size == (48, 48)
    model = keras_vit.from_checkpoint(path, image_size=45)
    assert_close(forward(model, io["input"]), io["output_f64"], 4e-5)
    assert model.load_report.resized == ()


def test_a_resolution_of_a_hybrid_at_load_time_and_after():
    path, x = checkpoint_of(R22), images((1, 63, 33, 3))
    loaded = keras_vit.from_checkpoint(path, image_size=(63, 33), file_image_size=45)
    assert loaded.load_report.resized[0][1:3] == ((6, 6), (8, 5))
    any_size = keras_vit.resize(keras_vit.from_checkpoint(path), variable_size=True)
    assert_close(forward(any_size, x), forward(loaded, x), 2e-5)
    later = keras_vit.resize(any_size, image_size=(63, 33), variable_size=False)
    for a, b in zip(later.weights, loaded.weights, strict=True):
        assert_close(a, b, 1e-6)


@pytest.mark.any_backend
def test_a_fresh_stem_starts_as_the_authors():
    model = keras_vit.VisionTransformer("R26+S/32", image_size=64, depth=1, num_classes=2)
    weights = values(model)
    assert not weights["stage_4_unit_2/norm3/gamma"].any()
    assert weights["stage_4_unit_1/norm_proj/gamma"].all()
    kernel = weights["stage_2_unit_1/conv2/kernel"]
    assert abs(kernel.std() * np.prod(kernel.shape[:3]) ** 0.5 - 1) < 0.05  # lecun_normal


def small(**options):
    """A hybrid with two units of half the width."""
    sizes = {"depth": 1, "width": 8, "num_heads": 2, "stem": (1, 1), "stem_width": 0.5}
    return keras_vit.VisionTransformer("R+Ti/16", 64, 3, **{**sizes, **options})


def test_a_hybrid_is_saved_and_trained(tmp_path):
    model = small(patch_size=4)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = values(model)["stage_1_unit_1/conv1/kernel"].copy()
    model.fit(images((4, 64, 64, 3)), np.arange(4) % 3, epochs=3, verbose=0)
    assert (values(model)["stage_1_unit_1/conv1/kernel"] != before).any()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for a, b in zip(loaded.weights, model.weights, strict=True):
        assert_close(a, b, 0)
    assert loaded.variant == model.variant


@pytest.mark.parametrize(
    "options, text",
    [
        ({"stem": 3}, "such as (3, 4, 9)"),
        ({"stem": (0,)}, "each number of stem"),
        ({"stem": (1,), "stem_width": 0.3}, "must divide the channels"),
        ({"stem": (1,), "stem_width": -1}, "stem_width"),
        ({"stem": (1,), "stem_numerics": "keras"}, "'google', 'timm'"),
        ({"stem": (), "patch_size": 8, "image_size": 40}, "multiple of patch_size"),
    ],
    ids=str,
)
@pytest.mark.any_backend
def test_stems_that_cannot_be(options, text):
    with pytest.raises(ValueError) as error:
        keras_vit.VisionTransformer(
            **{"image_size": 64, "patch_size": 1, "width": 8, "depth": 1, "num_heads": 2, **options}
        )
    assert text in str(error.value)


def test_folded_kernels_compute_the_same(tmp_path):
    """Standardised once, in place of at every call; no checkpoint of the family any more."""
    model = randomize(small(patch_size=4))
    folded, x = keras_vit.fold(model), images((2, 64, 64, 3))
    expected = forward(model, x)
    assert_close(forward(folded, x), expected, 1e-5 * max(largest(expected), 1))
    assert folded.variant.stem_folded and not folded.trainable_variables
    kernel = values(folded)["stage_2_unit_1/conv2/kernel"]
    assert_close(kernel.mean(axis=(0, 1, 2)), 0 * kernel[0, 0, 0], 1e-6)
    assert_close(kernel.std(axis=(0, 1, 2)), 0 * kernel[0, 0, 0] + 1, 1e-3)
    folded.save(tmp_path / "folded.keras")
    loaded = keras.saving.load_model(tmp_path / "folded.keras")
    assert loaded.variant == folded.variant
    for a, b in zip(loaded.weights, folded.weights, strict=True):
        assert_close(a, b, 0)
    for call, words in (
        (lambda: keras_vit.save_weights(folded, tmp_path / "model.npz"), "standardised twice"),
        (lambda: keras_vit.fold(folded), "is folded"),
        (lambda: keras_vit.fold(small(stem=None)), "has no stem"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
