"""What is read is what runs: the `call` of each layer is the one way to its result.

Whoever changes the `call` of a layer changes every model that contains it: in a direct call, in
compiled prediction and in training, with rematerialisation, frozen parts and mixed precision. No
second version of a layer may stand beside it.
"""

import functools
import importlib
import inspect
import pkgutil
import random

import keras
import numpy as np
import pytest

from keras_vit import BiT, VisionTransformer, layers, models
from keras_vit.layers.adaptable import AdaptableDense
from keras_vit.layers.extensions.naflex import NaFlexPatchEncoder, NaFlexPosition
from keras_vit.layers.extensions.patches import ResizablePatches
from keras_vit.layers.extensions.token_merging import MergingBlock, MergingPostNormBlock
from keras_vit.layers.layer import Layer
from keras_vit.layers.resnet import Part, Strided
from keras_vit.models.bit import GlobalMean
from keras_vit.models.intermediate import BlockAttention, Tokens
from keras_vit.training import freeze
from tests.support import BACKEND, images, randomize, slow_unless_torch, to_numpy

SIZE = 16
VIT = {"image_size": SIZE, "patch_size": 8, "width": 32, "depth": 1, "num_heads": 2, "mlp_dim": 32}
DROPS = {"depth": 2, "dropout": 0.5, "attention_dropout": 0.5, "stochastic_depth": 0.5}
HYBRID = {"patch_size": 2, "stem_width": 0.5}
LATER = dict.fromkeys(("norm", "qk_norm", "pre_norm"), "rms_norm")
MODELS = {
    "token": VIT,
    "map": {**VIT, "pool": "map", "representation_size": 8},
    "relative": {**VIT, "depth": 2, "position": "relative", "pool": "mean"},
    "dropout": {**VIT, **DROPS},
    "later": {**VIT, **LATER, "mlp": "swiglu", "layer_scale": 0.5, "rotary": "dinov3"},
    "both": {**VIT, "pool": "token_mean", "layer_scale": 0.5},
    "remat_later": {**VIT, "remat": True, "layer_scale": 0.5},
    "post_norm": {**VIT, "block": "post_norm", "position": "relative_2d"},
    "parallel": {**VIT, "block": "parallel"},
    "add_norm": {**VIT, "block": "add_norm"},
    "axial": {**VIT, "block": "axial", "pool": "mean"},
    "patch_dropout": {**VIT, "patch_dropout": 0.5},
    "merging": {**VIT, "token_merging": 1},
    "merging_post_norm": {**VIT, "token_merging": 1, "block": "post_norm"},
    "remat": {**VIT, "remat": True},
    "remat_post_norm": {**VIT, "remat": True, "block": "post_norm"},
    "remat_parallel": {**VIT, "remat": True, "block": "parallel"},
    "remat_add_norm": {**VIT, "remat": True, "block": "add_norm"},
    "remat_axial": {**VIT, "remat": True, "block": "axial", "pool": "mean"},
    "remat_dropout": {**VIT, **DROPS, "remat": True},
    "bfloat16": {**VIT, "dtype": "mixed_bfloat16"},
    "frozen": {**VIT, "freeze": "block_*"},
    "any_size": {**VIT, "variable_size": True},
    "hybrid": {**VIT, **HYBRID, "stem": ()},
    "hybrid_unit": {**VIT, **HYBRID, "stem": (1,)},
    "bit": {"blocks": (1,), "width": 0.5, "image_size": SIZE},
}
INNER = (layers.MLP, layers.MultiHeadSelfAttention, layers.LayerNorm, layers.Linear)
# Each class in a model that contains it, and the parts of blocks in models that treat them
# otherwise.
CASES = [
    *((cls, "token") for cls in (*INNER, layers.TransformerBlock, layers.PatchEncoder)),
    (layers.RematTransformerBlock, "remat"),
]
FURTHER_CASES = [  # each of the other models is compiled a second time for them
    *((cls, "token") for cls in (layers.Patches, layers.PositionEmbedding, layers.TokenPool)),
    (layers.AttentionPool, "map"),
    *((cls, "relative") for cls in (layers.RelativePosition, layers.RelativeAttention)),
    *((cls, "dropout") for cls in (layers.Dropout, layers.StochasticDepth)),
    *((cls, "later") for cls in (layers.RMSNorm, layers.SwiGLU, layers.ExtendedBlock)),
    *((cls, "both") for cls in (layers.ExtendedTokenPool, layers.ExtendedMLP)),
    (layers.ExtendedPatchEncoder, "both"),
    *((cls, "later") for cls in (layers.LayerScale, layers.RotaryPosition)),
    *((cls, "post_norm") for cls in (layers.PostNormBlock, layers.RelativePosition2D)),
    (layers.ParallelBlock, "parallel"),
    (layers.AddNormBlock, "add_norm"),
    *((cls, "axial") for cls in (layers.AxialBlock, layers.AxialAttention)),
    (layers.PatchDropout, "patch_dropout"),
    (ResizablePatches, "any_size"),
    (MergingBlock, "merging"),
    (MergingPostNormBlock, "merging_post_norm"),
    *((cls, "remat_later") for cls in (layers.RematExtendedBlock, layers.ExtendedAttention)),
    (layers.RematPostNormBlock, "remat_post_norm"),
    (layers.RematParallelBlock, "remat_parallel"),
    (layers.RematAddNormBlock, "remat_add_norm"),
    (layers.RematAxialBlock, "remat_axial"),
    *((cls, "remat") for cls in INNER),
    (layers.StochasticDepth, "remat_dropout"),
    *((cls, "bfloat16") for cls in (layers.MLP, layers.LayerNorm)),
    (layers.MLP, "frozen"),
    *((cls, "hybrid") for cls in (layers.RootV1, layers.StdConv2D, layers.GroupNorm)),
    (layers.BottleneckV1, "hybrid_unit"),
    *((cls, "bit") for cls in (layers.RootV2, layers.BottleneckV2, GlobalMean)),
]
ONLY_IN_TRAINING = (layers.Dropout, layers.StochasticDepth, layers.PatchDropout)
DIFFER_IN_TRAINING = ("dropout", "remat", "remat_dropout")  # from the first model
PLACES = ("map", "later", "relative", "remat_dropout", "bfloat16", "hybrid_unit", "bit")
INFERENCE = ("model(x)", "predict", "predict_on_batch")
TRAINING = ("model(x, training=True)", "loss", "weights after the step")
CHANGE = 1e-3  # what a change of a layer changes at least; rounding is a thousand times smaller


def edited(outputs):
    """Another result of the same shape; not one that a norm behind the layer would undo."""
    if isinstance(outputs, tuple):  # tokens, and how many patches each stands for
        return (edited(outputs[0]), *outputs[1:])
    return keras.ops.tanh(outputs) * 1.25 + 0.1


def edit(monkeypatch, cls, chosen=lambda layer: True):
    """Changes what `cls.call` returns, for the chosen layers."""
    original = cls.call

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        outputs = original(self, *args, **kwargs)
        return edited(outputs) if chosen(self) else outputs

    monkeypatch.setattr(cls, "call", call)


def in_block(layer):
    return "block_" in layer.path


def built(name):
    """A model of the table; the same random weights and the same masks in every call."""
    random.seed(0)  # where Keras takes the seeds that nobody gave
    np.random.seed(0)
    if BACKEND == "torch":
        import torch

        torch.manual_seed(0)
    options = {**MODELS[name], "num_classes": 3}
    frozen = options.pop("freeze", None)
    model = randomize((BiT if "blocks" in options else VisionTransformer)(**options))
    if frozen:
        freeze(model, frozen)
    return model


def batch():
    return images((4, SIZE, SIZE, 3)), np.array([0, 1, 2, 0])


def in_training(model):
    """`model(x, training=True)`, with the same masks of dropout in every call."""
    if BACKEND == "torch":
        import torch

        torch.manual_seed(0)
    states = [(v, to_numpy(v)) for v in model.variables if "seed_generator" in v.path]
    outputs = to_numpy(model(batch()[0], training=True))
    for variable, state in states:
        variable.assign(state)
    return outputs


def in_inference(model):
    return to_numpy(model(batch()[0]))


def outcomes(name):
    """What a fresh model gives in each way of running it."""
    model, (x, y) = built(name), batch()
    results = {"model(x)": in_inference(model), "model(x, training=True)": in_training(model)}
    if name == "token":  # the others would compile the same function a second time
        results["predict"] = model.predict(x, batch_size=len(x), verbose=0)
    if name not in DIFFER_IN_TRAINING:
        results["predict_on_batch"] = to_numpy(model.predict_on_batch(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss)
    results["loss"] = np.asarray(model.train_on_batch(x, y))
    weights = [to_numpy(v).ravel() for v in model.trainable_variables]
    results["weights after the step"] = np.concatenate(weights)
    return {way: np.asarray(result, "float64") for way, result in results.items()}


@functools.cache
def outcomes_unchanged(name):
    return outcomes(name)


def difference(a, b):
    return float(np.max(np.abs(np.asarray(a, "float64") - np.asarray(b, "float64"))))


BASES = (Layer, AdaptableDense, Strided, Part)  # of other layers, without a `call`


def layers_of_the_library():
    """Every layer class that the modules of layers and models define, models included."""
    classes = set()
    for package in (layers, models):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rsplit(".", 1)[1].startswith("fast_"):
                continue  # for one backend each, which need not be installed
            members = vars(importlib.import_module(module.name)).values()
            classes |= {
                cls
                for cls in members
                if inspect.isclass(cls)
                and issubclass(cls, keras.layers.Layer)
                and cls not in BASES
                and cls.__module__ == module.name
            }
    return sorted(classes, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("name", ["token", pytest.param("remat_dropout", marks=slow_unless_torch)])
def test_two_models_without_a_change_agree(name):
    """Otherwise the differences below would say nothing."""
    again = outcomes(name)
    for way, result in outcomes_unchanged(name).items():
        assert difference(result, again[way]) < CHANGE / 100, way


@pytest.mark.parametrize(
    "cls, name",
    [*CASES, *(pytest.param(*case, marks=slow_unless_torch) for case in FURTHER_CASES)],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_a_changed_call_changes_every_way_to_run(monkeypatch, cls, name):
    """The model is built and compiled under the change, as a user's edit of the source would be."""
    expected = outcomes_unchanged(name)
    edit(monkeypatch, cls, in_block if cls in INNER else lambda layer: True)
    actual = outcomes(name)
    ways = TRAINING if cls in ONLY_IN_TRAINING else INFERENCE + TRAINING
    ways = [way for way in ways if way in expected]
    unchanged = [way for way in ways if not difference(actual[way], expected[way]) > CHANGE]
    assert not unchanged, f"{cls.__name__}.call was changed, but not: {unchanged}"


@pytest.mark.parametrize("name", PLACES)
def test_a_changed_call_of_any_one_layer_changes_a_model_that_was_called_before(monkeypatch, name):
    """Each layer by itself, at every place in the model, after the first calls of the model."""
    model = built(name)
    found = [layer for layer in model._flatten_layers(include_self=False) if is_ours(layer)]
    drops = MODELS[name].get("dropout", 0) > 0
    for run, is_training in ((in_inference, False), (in_training, True)):
        expected, unchanged = run(model), []
        for layer in found:
            if isinstance(layer, ONLY_IN_TRAINING) and not (is_training and layer.rate):
                continue
            with monkeypatch.context() as patched:
                edit(patched, type(layer), lambda each, layer=layer: each is layer)
                if not difference(run(model), expected) > CHANGE:
                    unchanged.append(layer.path or layer.name)
        assert not unchanged, f"changed without effect, training={is_training}: {unchanged}"
        assert difference(run(model), expected) < CHANGE / 100
    dropping = [layer for layer in found if isinstance(layer, layers.StochasticDepth)]
    assert len(found) > 4 and (dropping or not drops)


def is_ours(layer):
    return type(layer).__module__.startswith("keras_vit.")


@pytest.mark.any_backend
def test_every_layer_class_has_a_case():
    known = {cls for cls in layers_of_the_library() if not issubclass(cls, keras.Model)}
    # These are of models with other inputs or outputs, which have but one way to run.
    known -= {NaFlexPatchEncoder, NaFlexPosition, BlockAttention, Tokens}
    assert known == {cls for cls, _ in (*CASES, *FURTHER_CASES)}
    assert not any("call" in vars(cls) for cls in BASES)


@pytest.mark.any_backend
@pytest.mark.parametrize("cls", layers_of_the_library(), ids=lambda cls: cls.__name__)
def test_no_layer_or_model_has_its_own_way_around_keras(cls):
    """`__call__` is Keras's: it would otherwise decide whether `call` runs."""
    assert "__call__" not in vars(cls)
