"""What makes two runs the same run, and what two versions of one may call otherwise."""

import keras
import pytest

from keras_vit import training
from keras_vit.training import same_run
from tests.support import refuses, tiny_vit
from tests.training import resume_case as case

pytestmark = pytest.mark.any_backend


def test_another_run_is_refused_and_what_differs_is_named(tmp_path):
    case.run(tmp_path, steps=13, settings={"recipe": {"seed": 1}})
    with pytest.raises(ValueError, match=r"settings.recipe.seed: 1 there, 2 here") as error:
        case.run(tmp_path, case.fresh(beta_1=0.8), settings={"recipe": {"seed": 2}}, steps=14)
    assert "optimizer.beta_1: 0.9 there, 0.8 here" in str(error.value)
    assert "steps: 13 there, 14 here" in str(error.value)
    assert str(error.value).count(" there, ") == 3


def test_of_many_other_settings_the_chosen_ones_are_told_and_the_number_of_all():
    there = {f"layers.{number}.lora_rank": 4 for number in range(100)} | {"settings.lora": 4}
    with pytest.raises(ValueError, match=r"settings\.lora: 4 there, 8 here") as error:
        same_run.check_same_run("run", there, dict.fromkeys(there, 8))
    assert str(error.value).count("there, 8 here") == 10 and "and 91 more" in str(error.value)


def test_what_another_version_names_otherwise_makes_no_other_run():
    """Attributes and fields come, go and get other names; one that is on makes a difference."""
    here = {
        "layers.0.depth": 1,
        "optimizer.new": 2,
        "settings.recipe.new": None,
        "settings.recipe.train.library": "tensorflow_uint8",
        "settings.lora": 4,
        "data.class_names": '["cat"]',
        "data.labels": "sha256 1",
        "validation.labels": "sha256 1",
    }
    renamed = {"train.round_to_uint8": True, "eval.round_to_uint8": False}
    renamed = {f"settings.recipe.{name}": value for name, value in renamed.items()}
    there = {"layers.0.depth": 1, "model.0.depth": 2, "settings.recipe.eval.library": "tensorflow"}
    same_run.check_same_run("run", there | renamed, here)
    for there in (
        {**renamed, "settings.recipe.train.round_to_uint8": False},
        {"settings.old": 0.5},
        {"layers.0.depth": 2},
        {"settings.lora": 2},
        {"data.labels": ""},
        {"validation.labels": ""},
        {"validation.other": 1},
    ):
        refuses("there", same_run.check_same_run, "run", there, here)


def several_outputs(rate=0.5, smoothing=0.1, weights=None):
    """A model with a part that does not say what it is made of, and a loss for each output."""

    class Own(keras.layers.Layer):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def call(self, x):
            return self.function(x)

    inputs = keras.Input((4,))
    x = Own(keras.ops.relu)(keras.layers.Dropout(rate)(inputs))
    x = keras.layers.Lambda(lambda x: x)(x)
    outputs = {name: keras.layers.Dense(2, name=name)(x) for name in ("a", "b")}
    model = keras.Model(inputs, outputs)
    losses = {"a": keras.losses.CategoricalCrossentropy(label_smoothing=smoothing), "b": "mse"}
    model.compile("sgd", losses, loss_weights=weights)
    return model


def test_models_that_are_made_alike_are_described_alike():
    def check(**options):
        here = same_run.describe(several_outputs(**options))
        same_run.check_same_run("run", same_run.describe(several_outputs()), here)

    check()
    refuses(r"layers\.1\.rate: 0\.5 there, 0\.25 here", check, rate=0.25)
    refuses(r"loss\.a\.label_smoothing: 0\.1 there, 0\.2 here", check, smoothing=0.2)
    there, here = ({"loss_weights": f'{{"a": {weight}}}'} for weight in (1.0, 2.0))
    assert there.items() <= same_run.describe(several_outputs(weights={"a": 1.0})).items()
    refuses("loss_weights", same_run.check_same_run, "run", there, here)


def test_how_a_model_inside_is_read_makes_no_other_run():
    """It is known of a teacher that was compiled, and was not known to earlier versions."""
    inner = tiny_vit()
    model = keras.Sequential([keras.Input((16, 16, 3)), inner])
    model.compile("sgd", "mse")
    before = same_run.describe(model)
    inner.reading = "softmax"
    assert same_run.describe(model) == before


def test_a_learning_rate_that_is_set_later_is_that_of_the_run():
    schedule = keras.optimizers.schedules.CosineDecay

    def described(rate, later=None):
        model, optimizer = tiny_vit(), training.AdamW(rate)
        if later is not None:
            optimizer.learning_rate = later
        model.compile(optimizer, "mse")
        return same_run.describe(model)

    there = described(schedule(0.1, 9))
    same_run.check_same_run("run", there, described(0.5, later=schedule(0.1, 9)))
    with pytest.raises(ValueError, match=r"initial_learning_rate: 0\.1 there, 0\.3 here"):
        same_run.check_same_run("run", there, described(schedule(0.1, 9), later=schedule(0.3, 9)))
    here = described(0.1)  # in float32, which an earlier version did not round to
    same_run.check_same_run("run", here | {"learning_rate": 0.1}, here)
