"""A plan says where each array goes, and changes nothing; a commit changes all or nothing."""

import re
import types
import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import assign
from tests.support import ORACLES, assert_same, randomize, tiny_vit, values
from tests.weights.test_save import FORMATS, model_of

pytestmark = pytest.mark.any_backend

CHECKPOINT = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"
SHAPES = {"norm/gamma": (8,), "head/kernel": (8, 3), "head/bias": (3,)}
PRE_LOGITS = {"pre_logits/kernel": (8, 8), "pre_logits/bias": (8,)}


def plan(arrays, variables, **options):
    """Of shapes by name, for there is nothing else to plan by."""
    arrays = {name: np.zeros(shape) for name, shape in arrays.items()}
    variables = {
        name: types.SimpleNamespace(shape=shape, dtype="float32")
        for name, shape in variables.items()
    }
    made = assign.make_plan(arrays, variables, **options)
    # Each name of either side is in one place.
    assert {*made.values, *made.initial, *made.missing} == {*variables}
    assert {*made.values, *made.dropped, *made.unused} == {*arrays}
    return made


def test_everything_has_its_place():
    made = plan(SHAPES, SHAPES)
    assert made.fits and list(made.values) == list(SHAPES) and not made.head
    assert {value.dtype for value in made.values.values()} == {np.dtype("float32")}


@pytest.mark.parametrize(
    "arrays, variables, options, left_out",
    [
        (SHAPES, {**SHAPES, "head/kernel": (8, 5), "head/bias": (5,)}, {}, "head"),
        (SHAPES, SHAPES, {"fresh_head": True}, "head"),
        (SHAPES, {"norm/gamma": (8,)}, {}, "head"),
        ({"norm/gamma": (8,)}, SHAPES, {}, "head"),
        (SHAPES | PRE_LOGITS, SHAPES, {}, "pre_logits head"),
        (SHAPES, SHAPES | PRE_LOGITS, {}, "pre_logits head"),
    ],
)
def test_last_layers_that_do_not_go_together_are_left_out(arrays, variables, options, left_out):
    made = plan(arrays, variables, **options)
    names = [f"{layer}/{part}" for layer in left_out.split() for part in ("kernel", "bias")]
    assert made.fits and made.head
    assert made.initial == tuple(name for name in names if name in variables)
    assert made.dropped == tuple(name for name in names if name in arrays)


def test_what_does_not_fit_is_named_by_side():
    made = plan({**SHAPES, "norm/gamma": (9,), "a": (1,)}, {**SHAPES, "b": (1,)})
    assert (made.missing, made.unused) == (("b",), ("a",))
    assert made.misshapen == {"norm/gamma": ((9,), (8,))} and not made.fits
    half = plan({name: SHAPES[name] for name in ("norm/gamma", "head/kernel")}, SHAPES)
    assert half.missing == ("head/bias",), "half a head is damage"


@pytest.mark.parametrize("dtype", ["int8", "bool"])
def test_whole_numbers_are_no_weights(tmp_path, dtype):
    """Quantised weights without their scales, which were taken for the weights themselves."""
    arrays = dict(np.load(CHECKPOINT))
    name = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"
    arrays[name] = (20 * arrays[name]).astype(dtype)
    np.savez(tmp_path / "quantised.npz", **arrays)
    with pytest.raises(keras_vit.CheckpointError, match=r"whole numbers as weights.*Dense_0"):
        keras_vit.from_checkpoint(tmp_path / "quantised.npz")


def test_a_commit_that_is_not_reached_changes_nothing(monkeypatch):
    model = randomize(tiny_vit(image_size=32, width=48, depth=3, num_heads=4, mlp_dim=96))
    before, preprocessing = values(model), model.preprocessing
    monkeypatch.setattr(np, "isfinite", lambda array: np.zeros(array.shape, bool))
    with pytest.raises(keras_vit.CheckpointError, match="NaN or infinite values"):
        keras_vit.load_weights(model, CHECKPOINT)
    assert_same(values(model), before)
    assert model.preprocessing is preprocessing and not hasattr(model, "load_report")


@pytest.mark.parametrize("format", ["google", "timm"])
def test_records_that_weights_replace_are_named(tmp_path, format):
    """What was set before the weights came was gone, or another, without a word."""
    source = model_of({})
    if format == "timm":
        source.reading, source.class_names = "softmax", ("bird", "cat", "dog")
    path = keras_vit.save_weights(source, tmp_path / FORMATS[format])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        keras_vit.load_weights(model_of({}), path)  # a new model, which says nothing
    assert "comes with the weights" not in " ".join(str(each.message) for each in told)
    model = model_of({})
    model.class_names, model.reading = ("oak", "elm", "fir"), "sigmoid"
    model.preprocessing = keras_vit.preprocessing.CLIP
    with pytest.warns(UserWarning, match="comes with the weights") as told:
        keras_vit.load_weights(model, path)
    named = {word for each in told for word in re.findall(r"^model\.(\w+)", str(each.message))}
    kept = {"reading"} if format == "google" else set()  # the file has none
    assert named == {"preprocessing", "class_names", "reading"} - kept
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # the head, and what belongs to it, is kept
        model = model_of({})
        model.class_names, model.reading = ("oak", "elm", "fir"), "sigmoid"
        keras_vit.load_weights(model, path, fresh_head=True)
