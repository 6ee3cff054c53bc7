"""Every array and every variable has its place, or nothing changes."""

import dataclasses
import re
import types
import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.assign import assign, plan_load
from keras_vit.weights.canonical import CanonicalCheckpoint, CanonicalWeights, Metadata, Source
from keras_vit.weights.load import fit_to_model, read
from keras_vit.weights.model_arguments import POSITION, Arguments
from tests.support import ORACLES, randomize, refuses, tiny_vit
from tests.weights.stored import refused
from tests.weights.test_save import FORMATS, SIZE, model_of

pytestmark = pytest.mark.any_backend

OFFICIAL = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"
SHAPES = {"norm/gamma": (8,), "head/kernel": (8, 3), "head/bias": (3,)}
PRE_LOGITS = {"pre_logits/kernel": (8, 8), "pre_logits/bias": (8,)}


@dataclasses.dataclass
class Variable:
    path: str
    shape: tuple
    dtype: str = "float32"
    value: np.ndarray | None = None

    def assign(self, value):
        self.value = value


def given(arrays, variables, **options):
    """The `LoadReport` for shapes by name, of a file and of a model; each is in one place of it."""
    arrays = {name: np.ones(shape) for name, shape in arrays.items()}
    stored = CanonicalWeights(arrays, {name: name for name in arrays}, ())
    about = Metadata(Preprocessing()), Source("family", "path")
    checkpoint = CanonicalCheckpoint("BiT", Arguments(), stored, *about)
    weights = [Variable(name, shape) for name, shape in variables.items()]
    facts = {"name": "model", "variant": keras_vit.BIT_VARIANTS["R50x1"]}
    facts |= dict.fromkeys(("preprocessing", "reading", "class_names", "label_set", "weights_from"))
    model = types.SimpleNamespace(weights=weights, channels=3, **facts)
    try:
        plan = plan_load(model, checkpoint, **options)
        assert not any(variable.value is not None for variable in weights)
        report = assign(model, plan)
    except keras_vit.CheckpointError:
        assert not any(variable.value is not None for variable in weights)
        raise
    assert {v.path for v in weights if v.value is not None} == {*report.loaded}
    assert {*report.loaded, *report.initial} == {*variables}
    assert {*report.loaded, *report.ignored} == {*arrays}
    return report


def test_everything_has_its_place():
    report = given(SHAPES, SHAPES)
    assert list(report.loaded) == list(SHAPES) and not report.head


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
    report = given(arrays, variables, **options)
    names = [f"{layer}/{part}" for layer in left_out.split() for part in ("kernel", "bias")]
    # A head's input was the output of its pre-logits: equal shapes would load one without meaning.
    assert report.head and ("belongs to its own" in report.head) == ("pre_logits" in left_out)
    assert report.initial == tuple(name for name in names if name in variables)
    assert report.ignored == tuple(name for name in names if name in arrays)


def test_what_does_not_fit_is_named_by_side():
    refuses(
        r"model only: \['b'\]\n.* file only: \['a'\]\n.*norm/gamma: \(9,\) .* \(8,\) in the model",
        given, {**SHAPES, "norm/gamma": (9,), "a": (1,)}, {**SHAPES, "b": (1,)},
    )  # fmt: skip
    half = {name: SHAPES[name] for name in ("norm/gamma", "head/kernel")}
    refuses(r"model only: \['head/bias'\]", given, half, SHAPES)  # half a head is damage


def test_one_checkpoint_fits_models_of_several_sizes():
    """What is changed for one model is gone before the next."""
    checkpoint = read(OFFICIAL, {})
    arrays = dict(checkpoint.weights.arrays)
    for size in (16, 64):
        options = {"width": 48, "depth": 3, "num_heads": 4, "mlp_dim": 96, "channels": 1}
        model = tiny_vit(image_size=size, num_classes=10, **options)
        plan = plan_load(model, fit_to_model(checkpoint, model))
        assert [name for name, *_ in plan.report.resized] == [POSITION, PROJECTION]
        assert len(plan.attributes["preprocessing"].mean) == 1 and assign(model, plan).loaded
    assert all(checkpoint.weights.arrays[name] is array for name, array in arrays.items())
    assert not checkpoint.weights.resized and len(checkpoint.metadata.preprocessing.mean) == 3


@pytest.mark.parametrize("dtype", ["int8", "bool"])
def test_whole_numbers_are_no_weights(arrays, save, dtype):
    """Quantised weights without their scales, which were taken for the weights themselves."""
    name = "Transformer/encoderblock_0/MlpBlock_3/Dense_0/kernel"
    arrays[name] = (20 * arrays[name]).astype(dtype)
    refused(r"whole numbers as weights.*Dense_0", save(arrays))


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


def test_layers_of_zeros_alone_are_told_of(tmp_path):
    """A download that takes its place on the disk first, and is interrupted, ends with them."""
    source = randomize(model_of({}))
    path = keras_vit.save_weights(source, tmp_path / FORMATS["timm"])
    model = model_of({})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The checkpoint")
        keras_vit.load_weights(model, path)
    for variable in source.weights:
        if variable.path.startswith(("block_0/mlp/dense_2/", "head/")):
            variable.assign(np.zeros(variable.shape))
    keras_vit.save_weights(source, path)
    rule = r"zeros alone in \['blocks\.0\.mlp\.fc2\.weight'\]"
    sizes = {"image_size": SIZE, "patch_size": 8, "width": 8, "depth": 2, "num_heads": 2}
    for load in (
        lambda: keras_vit.load_weights(model, path),
        lambda: keras_vit.from_checkpoint(path),
        lambda: keras_vit.ViT_Ti16(weights=path, mlp_dim=32, num_classes=3, **sizes),
    ):
        with pytest.warns(UserWarning, match=rule) as told:
            load()
        assert told[0].filename == __file__
    with pytest.warns(UserWarning, match=rule):  # code that is of no module
        exec("load(model, path)", {"load": keras_vit.load_weights, "model": model, "path": path})
