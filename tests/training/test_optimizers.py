"""Every update of the optimizers, against the authors' formulas written out in NumPy."""

import keras
import numpy as np
import pytest

from keras_vit.training import SGDM, AdamW, WarmupCosine
from tests.support import (
    BACKEND,
    assert_close,
    precision,
    refuses,
    tiny_vit,
    to_numpy,
    values,
)

NEEDS_FUSED = pytest.mark.skipif(BACKEND != "torch", reason="the other backends have none")
STEPS = 12
SHAPES = {"head/kernel": (5, 3), "head/bias": (3,), "norm/gamma": (5,)}


def adam_direction(g, state, t, b1=0.9, b2=0.999, eps=1e-8):
    """optax's `scale_by_adam`."""
    state["m"] = b1 * state.get("m", 0.0) + (1 - b1) * g
    state["v"] = b2 * state.get("v", 0.0) + (1 - b2) * g**2
    return state["m"] / (1 - b1**t) / (np.sqrt(state["v"] / (1 - b2**t)) + eps)


def trace_direction(g, state, t, decay=0.9):
    """optax's `trace`."""
    state["t"] = g + decay * state.get("t", 0.0)
    return state["t"]


def closed_form(weights, gradients, direction, rates, decay=0.0, clip=None):
    """The weights after each update: clip, direction, learning rate, decay of the kernels."""
    weights, states = dict(weights), {path: {} for path in weights}
    for t, (grads, rate) in enumerate(zip(gradients, rates), start=1):
        if clip:
            norm = np.sqrt(sum(np.sum(g.astype("float64") ** 2) for g in grads.values()))
            grads = {path: g * min(1.0, clip / norm) for path, g in grads.items()}
        for path, w in weights.items():
            update = direction(grads[path], states[path], t)
            update = update + decay * w * path.endswith("/kernel")
            weights[path] = w - rate * update
        yield dict(weights)


def random_run(dtype, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda: {path: rng.normal(size=shape).astype(dtype) for path, shape in SHAPES.items()}  # noqa: E731
    weights = draw()
    return weights, [{p: g * 10.0 ** (t % 3 - 1) for p, g in draw().items()} for t in range(STEPS)]


class Variables:
    """Variables with the paths of a model, outside of one."""

    def __init__(self, weights, dtype):
        self.variables = []
        for path, value in weights.items():
            layer, name = path.split("/")
            with keras.name_scope(layer):
                self.variables.append(keras.Variable(value, dtype=dtype, name=name))

    def step(self, optimizer, grads):
        grads = [keras.ops.convert_to_tensor(grads[v.path]) for v in self.variables]
        optimizer.apply(grads, self.variables)
        return {v.path: to_numpy(v) for v in self.variables}


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("rule", ["adam", "sgdm"])
def test_every_update_equals_the_authors(rule, clip, dtype, tolerance):
    schedule = WarmupCosine(0.05, STEPS, 3)
    make, direction = {"adam": (AdamW, adam_direction), "sgdm": (SGDM, trace_direction)}[rule]
    weights, gradients = random_run(dtype)
    with precision(dtype):
        rates = [float(to_numpy(schedule(step))) for step in range(STEPS)]
        expected = closed_form(weights, gradients, direction, rates, 0.1, clip)
        optimizer = make(schedule, weight_decay=0.1, global_clipnorm=clip)
        variables = Variables(weights, dtype)
        for grads, after in zip(gradients, expected):
            found = variables.step(optimizer, grads)
            for path in after:
                assert found[path].dtype == dtype
                assert_close(found[path], after[path], tolerance)


def test_kerass_own_momentum_is_another_one():
    """The trap that `SGDM` is there for: under a schedule the two differ."""
    weights, gradients = random_run("float32")
    schedule = WarmupCosine(0.05, STEPS, 3)
    runs = []
    for optimizer in (SGDM(schedule), keras.optimizers.SGD(schedule, momentum=0.9)):
        variables = Variables(weights, "float32")
        runs.append([variables.step(optimizer, grads)["head/bias"] for grads in gradients][-1])
    assert np.max(np.abs(runs[0] - runs[1])) > 1e-2


def test_each_layer_has_its_own_learning_rate():
    """The factor meets the update, not the gradient, to which Adam would be blind."""
    model = tiny_vit(depth=2)
    optimizer = AdamW(1e-2, layer_decay=0.5)
    before = {v.path: to_numpy(v).copy() for v in model.trainable_variables}
    ones = [keras.ops.ones(v.shape) for v in model.trainable_variables]
    optimizer.apply(ones, model.trainable_variables)
    expected = {"patch_encoder": 1 / 8, "block_0": 1 / 4, "block_1": 1 / 2, "norm": 1, "head": 1}
    for v in model.trainable_variables:
        layer = next(name for name in v.path.split("/") if name in expected)
        assert_close(before[v.path] - to_numpy(v), np.full(v.shape, 1e-2 * expected[layer]), 1e-6)


def test_an_optimizer_that_is_loaded_decays_what_it_did(tmp_path):
    """Keras forgets `exclude_from_weight_decay`; a path is remembered.

    What later families learn beside kernels (factors, gains, tokens, frequencies) decays no more
    than the biases of the paper.
    """
    model = tiny_vit(depth=1, layer_scale=0.1, rotary="mixed", distillation=True, registers=1)
    model.compile(AdamW(0.1, weight_decay=0.5, layer_decay=0.9), "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    optimizer = model.optimizer.get_config()
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == optimizer
    for variable in again.trainable_variables:
        variable.assign(np.ones(variable.shape))
    zeros = [keras.ops.zeros(v.shape) for v in again.trainable_variables]
    again.optimizer.apply(zeros, again.trainable_variables)
    moved = {path for path, value in values(again).items() if np.any(value != 1.0)}
    assert moved and moved == {path for path in values(again) if path.endswith("/kernel")}


@NEEDS_FUSED
@pytest.mark.parametrize("make", [AdamW, SGDM])
def test_the_fused_form_equals_the_rule(make, monkeypatch):
    weights, gradients = random_run("float32")
    runs = []
    for is_fused in (True, False):
        if not is_fused:
            monkeypatch.setattr(make, "fused_form", None)
        variables = Variables(weights, "float32")
        optimizer = make(
            WarmupCosine(0.05, STEPS, 3), weight_decay=0.1, global_clipnorm=1.0, use_ema=True
        )
        runs.append([variables.step(optimizer, grads) for grads in gradients][-1])
        assert (optimizer.fused_update is not None) == is_fused
        runs[-1] |= {f"average/{i}": to_numpy(a) for i, a in enumerate(optimizer.ema_weights)}
    for path in runs[0]:
        assert_close(runs[0][path], runs[1][path], 2e-6)


def one_update(optimizer):
    """How far an update with the gradient 2 moves a weight of 1."""
    variable = keras.Variable(np.ones(3, "float32"))
    optimizer.apply([keras.ops.full((3,), 2.0)], [variable])
    return 1 - to_numpy(variable)[0]


@pytest.mark.parametrize("make", [AdamW, SGDM])
def test_an_edit_of_the_rule_is_what_runs(make, monkeypatch):
    """On every backend: no fused form goes on with what the rule was before."""
    assert one_update(make(0.1)) == pytest.approx({AdamW: 0.1, SGDM: 0.2}[make], rel=1e-5)
    rule = make.direction

    def edited(self, gradient, slots, step):
        update, slots = rule(self, gradient, slots, step)
        return 3 * update, slots

    monkeypatch.setattr(make, "direction", edited)
    assert one_update(make(0.1)) == pytest.approx({AdamW: 0.3, SGDM: 0.6}[make], rel=1e-5)
    monkeypatch.undo()
    monkeypatch.setattr(
        "keras_vit.training.optimizers.DecoupledOptimizer.descend",
        lambda self, weight, gradient, slots, step, rate, decay: (weight - rate, slots),
    )
    assert one_update(make(0.1)) == pytest.approx(0.1, rel=1e-5)
    assert one_update(make(0.5)) == pytest.approx(0.5, rel=1e-5)


class Plain(AdamW):
    """Descent along the gradient, in the clothes of Adam."""

    def direction(self, gradient, slots, step):
        return gradient, slots


class Still(SGDM):
    def update_step(self, gradient, variable, learning_rate):
        """Moves nothing."""


class Tripled:
    """What a user mixes into an optimizer of the library."""

    def direction(self, gradient, slots, step):
        return 3 * gradient, slots


class Mixed(Tripled, AdamW):
    """Adam, whose rule comes from another class."""


class Renamed(AdamW):
    """Adam as it is."""


@NEEDS_FUSED
def test_a_rule_that_pytorch_does_not_compute_runs_as_written():
    """Without momentum PyTorch keeps none, while the rule remembers the gradient."""
    optimizers = [make(0.1) for make in (AdamW, SGDM, Renamed, Plain, Still)]
    optimizers.append(SGDM(0.1, momentum=0.0))
    for optimizer in optimizers:
        one_update(optimizer)
    is_fused = [optimizer.fused_update is not None for optimizer in optimizers]
    assert is_fused == [True, True, True, False, False, False]


@pytest.mark.parametrize("make, moved", [(Plain, 0.2), (Still, 0.0), (Mixed, 0.6), (Renamed, 0.1)])
def test_a_subclass_is_updated_by_its_own_rule(make, moved):
    assert one_update(make(0.1)) == pytest.approx(moved, abs=1e-6)


def test_what_an_optimizer_does_not_take():
    """Keras would forget exclusions when a model is saved."""
    refuses("weight_decay must not be negative", AdamW, 0.1, weight_decay=-1.0)
    refuses(r"momentum must be a number in \[0, 1\)", SGDM, 0.1, momentum=1.0)
    refuses(r"beta_2 must be a number in \[0, 1\)", AdamW, 0.1, beta_2=1.0)
    assert AdamW(0.1, decayed="bias").decayed == ("bias",)
    refuses("give `decayed`", AdamW(0.1).exclude_from_weight_decay, var_names=["bias"])


@pytest.mark.parametrize("accumulate", [None, 2])
def test_the_norm_is_the_one_of_the_gradients(accumulate):
    """Of a linear model with a closed form: d/dw of mean (wx - y)² is 2 · mean x(wx - y)."""
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    model = keras.Sequential([keras.layers.Input((2,)), dense])
    optimizer = SGDM(0.25, global_clipnorm=1e-3, gradient_accumulation_steps=accumulate)
    model.compile(optimizer, "mse")
    x, y = np.array([[1, 2], [3, -1]], "float32"), np.array([[0], [1]], "float32")
    for _ in range(accumulate or 1):
        model.train_on_batch(x, y)
    gradient = 2 * np.mean(x * (x.sum(1, keepdims=True) - y), 0)
    assert float(to_numpy(optimizer.gradient_norm)) == pytest.approx(np.linalg.norm(gradient))
