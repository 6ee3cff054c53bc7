"""A run that is stopped, at every update and in every way, ends where an undisturbed one does."""

import contextlib
import os
import signal

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.checkpoint import changing, sync
from tests.data.pipeline_cases import recipe
from tests.support import assert_same, refuses, values
from tests.training import resume_case as case
from tests.training.resume_case import StopsAt

UPDATES = 13  # two epochs of five and a part of the third


def interrupted_run(output, *callbacks, **options):
    """A run that a callback stops."""
    with pytest.raises(RuntimeError, match="the user's own mistake"):
        case.run(output, callbacks=callbacks, **options)


def check_stopped_run(model, output):
    """Trains a compiled model undisturbed, and stopped and continued, to the same weights.

    Returns the weights before and after, both by path, the history, and a function that begins the
    run again.
    """
    model.optimizer.build(model.trainable_variables)
    variables = changing(model, model.variables) + model.optimizer.variables
    beginning = list(zip(variables, case.values(model, variables)))

    def run(folder, *callbacks):
        sync(model)  # where the run before was stopped
        case.seed(0)
        for variable, value in beginning:
            variable.assign(value)
        options = {"steps": 5, "save_every": 1, "curves": False, "callbacks": callbacks}
        history = training.fit(model, case.Images(), output / folder, **options)
        return history, weights()

    def weights():
        return {path: value.copy() for path, value in values(model).items()}

    before = weights()
    history, undisturbed = run("one")
    refuses("own mistake", run, "two", StopsAt("on_train_batch_end", 3), error=RuntimeError)
    assert_same(run("two")[1], undisturbed)
    return before, undisturbed, history, run


def assert_equal_runs(one, other):
    history, values = one
    for name, column in history.items():
        if name != "images_per_second":
            assert column == other[0][name], name
    assert len(values) == len(other[1])
    assert_same(values, other[1])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Of each kind of run, once: output, history and final values."""
    runs = {}

    def get(**options):
        key = repr(options)
        if key not in runs:
            output = tmp_path_factory.mktemp("undisturbed")
            runs[key] = output, *case.run(output, case.fresh(**options))
        return runs[key]

    return get


def test_a_run_stopped_again_and_again_equals_one_that_was_not(tmp_path, undisturbed):
    """After each update the process begins anew: 13 starts, in the middle of epochs and between."""
    output, *expected = undisturbed()
    model = case.fresh()
    for start in range(UPDATES):
        for variable in (model.variables + model.optimizer.variables) * bool(start):
            variable.assign(np.ones(variable.shape))  # as if nothing were left of the process
        with contextlib.suppress(RuntimeError):
            # It crashes at the second update, of which it saved the first.
            result = case.run(tmp_path, model, callbacks=[StopsAt("on_train_batch_end", 2)])
    assert_equal_runs(result, expected)
    for kind in ("step", "epoch"):
        assert case.read_log(tmp_path, kind) == case.read_log(output, kind)


@pytest.mark.parametrize("options", [{"accumulate": 2}, {"seeded": False}])
def test_accumulated_gradients_and_unseeded_dropout_go_on(tmp_path, undisturbed, options):
    _, *expected = undisturbed(**options)
    interrupted_run(tmp_path, StopsAt("on_train_batch_end", 8), model=case.fresh(**options))
    model = case.fresh(**options)
    case.seed(1)  # another process has other random numbers
    assert_equal_runs(case.run(tmp_path, model), expected)


@pytest.mark.parametrize(
    ("hook", "count"), [("on_epoch_end", 1), ("on_test_batch_end", 2), ("on_train_end", 1)]
)
def test_a_crash_between_the_updates_changes_nothing(tmp_path, undisturbed, hook, count):
    output, *expected = undisturbed()
    interrupted_run(tmp_path, StopsAt(hook, count))
    assert_equal_runs(case.run(tmp_path), expected)
    assert case.read_log(tmp_path, "epoch") == case.read_log(output, "epoch")


def test_a_pipeline_may_end_with_each_epoch(tmp_path, undisturbed):
    _, *expected = undisturbed()
    pipeline = case.Pipeline(endless=False)
    interrupted_run(tmp_path, StopsAt("on_train_batch_end", 4), pipeline=pipeline)
    assert_equal_runs(case.run(tmp_path, pipeline=case.Pipeline(endless=False)), expected)


def test_a_finished_run_is_not_trained_again(tmp_path, undisturbed):
    output, *expected = undisturbed()
    pipeline = case.Pipeline()
    before = {path.name: path.stat().st_mtime_ns for path in output.glob("checkpoints/*")}
    assert_equal_runs(case.run(output, pipeline=pipeline), expected)
    assert len(pipeline.asked) == 1  # a batch to build the model by
    assert before == {path.name: path.stat().st_mtime_ns for path in output.glob("checkpoints/*")}


def test_the_weights_at_the_end_are_the_average(tmp_path):
    model = case.fresh()
    interrupted_run(tmp_path, StopsAt("on_train_batch_end", 4))
    case.run(tmp_path, model, callbacks=[training.EvaluateAverages()])
    averages = model.optimizer.ema_weights
    assert_same(model.trainable_variables, averages)


def test_callbacks_see_one_training(tmp_path):
    hooks = ("on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_train_end")
    seen = {hook: [] for hook in hooks}
    listening = keras.callbacks.Callback()
    for hook, calls in seen.items():
        setattr(listening, hook, lambda *args, calls=calls, logs=None: calls.append(args[:1]))
    interrupted_run(tmp_path, StopsAt("on_train_batch_end", 4))
    case.run(tmp_path, callbacks=[listening])
    assert seen["on_train_batch_end"] == [(i,) for i in (3, 4, 0, 1, 2, 3, 4, 0, 1, 2)]
    assert seen["on_epoch_begin"] == [(0,), (1,), (2,)]
    assert len(seen["on_train_begin"]) == len(seen["on_train_end"]) == 1


class Enough(keras.callbacks.Callback):
    """Ends the run after three batches."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 2


def test_a_callback_may_end_the_run(tmp_path):
    history, values = case.run(tmp_path, callbacks=[Enough()])
    assert history["step"] == [3]
    again, same = case.run(tmp_path, pipeline=case.Pipeline())
    assert again["step"] == [3]
    assert_same(values, same)


def test_a_run_that_a_callback_ended_stays_so_when_it_is_stopped_in_its_last_validation(tmp_path):
    stop = keras.callbacks.LambdaCallback()
    stop.on_test_batch_end = lambda batch, logs=None: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(training.Interrupted):
        case.run(tmp_path, callbacks=[Enough(), stop])
    refuses("has not ended", training.remove_checkpoints, tmp_path)
    history, _ = case.run(tmp_path)
    assert history["step"] == [3] and history["val_loss"][0] > 0


def test_a_pipeline_of_keras_vit(tmp_path):
    from keras_vit.data import Transform, pipeline

    def batches():
        images = np.random.default_rng(0).uniform(size=(11, 8, 8, 3)).astype("float32")
        train = Transform(8, "pad_random", padding=1, flip=True)
        layers = [keras.layers.RandomFlip()]
        made = recipe(4, train, seed=3, mixup=0.2, augment_layers=layers)
        return pipeline((images, np.arange(11) % 3), made, training=True)

    def options():
        model = case.fresh(loss="CategoricalCrossentropy")
        return dict(model=model, pipeline=batches(), steps=None, epochs=3, validation=None)

    expected = case.run(tmp_path / "a", **options())
    interrupted_run(tmp_path / "b", StopsAt("on_train_batch_end", 4), **options())
    assert_equal_runs(case.run(tmp_path / "b", **options()), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None}, "Give epochs or steps"),
        ({"epochs": 1}, "Give epochs or steps"),
        ({"steps": 0}, "steps must be a positive integer"),
        ({"log_every": 1.5}, "log_every must be"),
        ({"save_every": "often"}, "save_every must be a number of updates such as 500.*often"),
        ({"keep": 0}, "keep must be"),
    ],
)
def test_arguments_out_of_range_are_refused(tmp_path, options, message):
    refuses(message, case.run, tmp_path, **options)


def test_an_epoch_need_not_be_whole_executions(tmp_path):
    """Keras counts as many batches as an execution may have, though an epoch ends before."""
    if keras.backend.backend() == "torch":
        pytest.skip("Keras has one step per execution on PyTorch")
    model, seen = case.build(), []
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(model.optimizer, loss, steps_per_execution=2)
    each = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    history, _ = case.run(tmp_path, model, callbacks=[each])
    assert int(model.optimizer.iterations) == UPDATES and history["step"] == [5, 10, UPDATES]
    assert seen == [1, 3, 4, 1, 3, 4, 1, 2]


def test_models_and_data_of_other_kinds_are_refused(tmp_path):
    refuses("must be compiled", case.run, tmp_path, keras.Sequential([keras.Input((8, 8, 3))]))
    with pytest.raises(TypeError, match=r"from_step.*Received: ndarray"):
        case.run(tmp_path, pipeline=np.ones((2, 2)))


class Counts(keras.callbacks.Callback):
    """Counts updates and epochs, from nothing as training begins."""

    def on_train_begin(self, logs=None):
        self.batches = self.epochs = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1

    def get_state(self):
        return {"batches": self.batches, "epochs": self.epochs}

    def set_state(self, state):
        self.batches, self.epochs = state["batches"], state["epochs"]


@pytest.mark.parametrize("count", [1, 5, 7, 11])
def test_a_callback_that_tells_its_state_goes_on_with_it(tmp_path, count):
    interrupted_run(tmp_path, Counts(), StopsAt("on_train_batch_end", count))
    counts = Counts()
    case.run(tmp_path, callbacks=[counts])
    assert counts.get_state() == {"batches": UPDATES, "epochs": 3}


def test_a_run_goes_on_with_the_callbacks_that_it_had(tmp_path):
    """The best weights of later epochs alone would be called those of all."""
    interrupted_run(tmp_path, StopsAt("on_train_batch_end", 7))
    best = training.BestWeights("val_loss")
    refuses("other callbacks.*Received: 1, where it has 0", case.run, tmp_path, callbacks=[best])
    case.run(tmp_path)
    case.run(tmp_path, callbacks=[best])  # it has ended


def test_callbacks_of_keras_that_forget_or_restore_are_told_of(tmp_path):
    interrupted_run(tmp_path, StopsAt("on_train_batch_end", 7))
    patience = keras.callbacks.EarlyStopping("loss", patience=9)
    with pytest.warns(UserWarning, match=r"\['EarlyStopping'\] of Keras count their epochs anew"):
        case.run(tmp_path, callbacks=[patience])
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    refuses("BackupAndRestore in callbacks", case.run, tmp_path / "other", callbacks=[backup])
