"""The best weights on validation: a run ends with them, however often it was stopped."""

import contextlib
import json
import math

import keras
import numpy as np
import pytest

from keras_vit import training
from tests.support import assert_same, killed_after, refuses
from tests.training import resume_case as case
from tests.training.resume_case import StopsAt
from tests.training.test_resume import assert_equal_runs


class Remembers(keras.callbacks.Callback):
    """The weights and the averages at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.own, self.averages = [], []

    def on_epoch_end(self, epoch, logs=None):
        self.own.append(case.values(self.model, self.model.weights))
        self.averages.append(case.values(self.model, self.model.optimizer.ema_weights))


def callbacks(patience=None, ema=True):
    return [training.EvaluateAverages()] * ema + [training.BestWeights("val_accuracy", patience)]


class Figures(keras.callbacks.Callback):
    """Replaces the figures of the validation, so that a test knows which epoch is the best."""

    def __init__(self, accuracies, losses=None):
        super().__init__()
        self.figures = accuracies, losses or [0.0] * len(accuracies)

    def on_epoch_end(self, epoch, logs=None):
        for name, values in zip(("val_accuracy", "val_loss"), self.figures):
            logs[name] = values[epoch]


@pytest.mark.parametrize("ema", [False, True])
def test_a_run_ends_with_the_weights_of_its_best_epoch(tmp_path, capsys, ema):
    seen, model = Remembers(), case.fresh()
    known = [seen, Figures([0.5, 0.75, 0.25])]
    history, _ = case.run(tmp_path, model, callbacks=[*callbacks(ema=ema), *known])
    expected = seen.averages[1] if ema else seen.own[1]
    variables = model.trainable_variables if ema else model.weights
    assert_same(variables, expected)
    assert training.best_epoch(history, "val_accuracy") == 1
    printed = capsys.readouterr().out
    assert "The weights are those of epoch 2 of 3" in printed and "val_accuracy 0.75" in printed
    assert case.read_log(tmp_path, "best") == [
        {"kind": "best", "epoch": 1, "val_accuracy": 0.75, "val_loss": 0.0}
    ]
    # The same command again has the same weights, and trains nothing.
    again = case.fresh()
    pipeline = case.Pipeline()
    case.run(tmp_path, again, pipeline, callbacks=callbacks(ema=ema))
    assert len(pipeline.asked) == 1
    assert_same(again.weights, model.weights)


@pytest.mark.parametrize("patience", [None, 1])
def test_a_run_stopped_after_each_update_has_the_same_best_weights(tmp_path, patience):
    """Early stopping too: with patience 1 the second epoch, which is no better, is the last."""

    def run(output, model, *others):
        figures = Figures([0.5, 0.25, 0.75])
        return case.run(output, model, callbacks=[*others, figures, *callbacks(patience)])

    expected = run(tmp_path / "a", case.fresh())
    assert len(expected[0]["epoch"]) == (2 if patience else 3)
    model = case.fresh()
    for begun in range(13):
        for variable in (model.variables + model.optimizer.variables) * bool(begun):
            variable.assign(np.ones(variable.shape))  # as if nothing were left of the process
        result = None
        with contextlib.suppress(RuntimeError):
            result = run(tmp_path / "b", model, StopsAt("on_train_batch_end", 2))
        if result:
            break
    assert_equal_runs(result, expected)
    # A crash between the end of training and its last checkpoint.
    with pytest.raises(RuntimeError):
        run(tmp_path / "c", case.fresh(), StopsAt("on_train_end", 1))
    assert_equal_runs(run(tmp_path / "c", case.fresh()), expected)


def test_of_equal_figures_the_lower_loss_is_better_and_nan_never(tmp_path):
    seen, model = Remembers(), case.fresh()
    figures = Figures([0.5, 0.5, math.nan], [0.9, 0.1, 0.0])
    history, _ = case.run(tmp_path, model, callbacks=[seen, figures, *callbacks(ema=False)])
    assert training.best_epoch(history, "val_accuracy") == 1
    assert_same(model.weights, seen.own[1])


def test_in_a_plain_fit(tmp_path):
    model, (images, labels), seen = case.fresh(), case.validation(), Remembers()
    known = [seen, Figures([0.9, 0.1, 0.2, 0.3])]
    options = {"validation_data": (images, labels), "epochs": 4, "verbose": 0}
    history = model.fit(images, labels, callbacks=[*known, *callbacks(2, ema=False)], **options)
    assert len(history.epoch) == 3
    assert_same(model.weights, seen.own[0])


def test_a_plain_fit_without_validation_has_no_best_epoch():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    ones, best = np.ones((4, 2)), training.BestWeights("val_loss")
    with pytest.warns(UserWarning, match="No epoch has a val_loss"):
        model.fit(ones, ones, verbose=0, callbacks=[best])


def test_what_it_cannot_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"validation=None; give validation"):
        case.run(tmp_path, callbacks=callbacks(), validation=None)
    with pytest.raises(ValueError, match=r"no figure 'val_precision'.*val_accuracy, val_loss"):
        case.run(tmp_path, callbacks=[training.BestWeights("val_precision")])
    refuses("patience must be a positive integer", training.BestWeights, patience=0)
    refuses(r"must tell whether.*Received: monitor='val_speed'", training.BestWeights, "val_speed")
    assert training.BestWeights("val_speed", mode="max").mode == "max"
    modes = {"val_loss": "min", "val_mean_absolute_error": "min", "val_top_5_accuracy": "max"}
    modes |= {"val_mean_average_precision": "max"}
    assert {name: training.BestWeights(name).mode for name in modes} == modes


def test_of_an_ended_run_no_checkpoint_is_needed(tmp_path, monkeypatch):
    """Killed at any moment of the cleaning up, the run is known as one that has ended."""
    with pytest.raises(RuntimeError):
        case.run(tmp_path, callbacks=[StopsAt("on_train_batch_end", 3)])
    refuses(r"has not ended.*step-0000000002\.npz; continue", training.remove_checkpoints, tmp_path)
    history, values = case.run(tmp_path, keep=3)
    known = False
    for calls in range(9):
        with killed_after(monkeypatch, calls):
            training.remove_checkpoints(tmp_path)
        pipeline = case.Pipeline()
        if list(tmp_path.glob("checkpoints/step-0000000013.npz")):
            assert_equal_runs(case.run(tmp_path, pipeline=pipeline), (history, values))
        else:
            with pytest.raises(training.RunEnded, match="nothing is left to train") as error:
                case.run(tmp_path, pipeline=pipeline)
            assert error.value.history["val_loss"] == history["val_loss"]
            known = True
        assert len(pipeline.asked) == 1  # a batch to build the model by
        if killed_after.reached_the_end:
            break
    assert known and not (tmp_path / "checkpoints").exists()
    training.remove_checkpoints(tmp_path)  # once more is no error
    assert json.loads((tmp_path / "run.json").read_text())["finished"]
    refuses("steps: 13 there, 14 here", case.run, tmp_path, steps=14)


def test_a_run_that_reaches_its_last_epoch_was_not_stopped_early():
    best = training.BestWeights("val_loss", patience=2)
    best.epoch, best.figures, best.wait = 3, {"val_loss": 0.5}, 2
    assert best.summary(5, 20).startswith("Stopped early, after 2 epochs")
    assert best.summary(5, 6).startswith("The weights are those of epoch 4 of 6")
