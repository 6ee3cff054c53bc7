"""The optimizer with the authors' settings, and the callbacks."""

import contextlib
import math
import signal

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer, training
from tests.support import run_in_fresh_process


def tiny(**options):
    return VisionTransformer(
        image_size=8, patch_size=4, width=8, depth=1, num_heads=2, num_classes=3, **options
    )


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, 8, 8, 3)).astype("float32"), np.arange(6) % 3


def compiled(model, **options):
    optimizer = training.adamw(1e-2, steps=10, **options)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def test_the_schedule_warms_up_linearly_and_decays_as_a_cosine():
    schedule = training.adamw(0.3, steps=110, warmup_steps=10).get_config()["learning_rate"]
    schedule = keras.optimizers.schedules.deserialize(schedule)
    for step in (0, 1, 5, 10, 11, 60, 109):
        expected = 0.3 * step / 10
        if step >= 10:
            expected = 0.3 * 0.5 * (1 + math.cos(math.pi * (step - 10) / 100))
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-6)
    constant_start = training.adamw(0.3, steps=100).get_config()["learning_rate"]
    assert float(keras.optimizers.schedules.deserialize(constant_start)(0)) == pytest.approx(0.3)


@pytest.mark.parametrize("warmup_steps", [10, 11, -1])
def test_a_warm_up_that_does_not_fit_is_refused(warmup_steps):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup_steps}, steps=10; lower"):
        training.adamw(0.1, steps=10, warmup_steps=warmup_steps)


@pytest.mark.parametrize("position", ["learned_1d", "learned_2d", "relative"])
def test_only_kernels_decay(position):
    """With zero gradients AdamW moves nothing but what decays."""
    model = compiled(tiny(pool="map", class_token=True, position=position), weight_decay=0.5)
    before = {v.path: keras.ops.convert_to_numpy(v).copy() for v in model.trainable_variables}
    for variable in model.trainable_variables:  # decay of a zero would not show
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply(
        [keras.ops.zeros(v.shape) for v in model.trainable_variables], model.trainable_variables
    )
    moved = {
        v.path for v in model.trainable_variables if np.any(keras.ops.convert_to_numpy(v) != 1.0)
    }
    assert moved == {path for path in before if path.endswith("/kernel")}


def test_a_checkpoint_is_whole_or_not_at_all(tmp_path, monkeypatch):
    model, (images, labels) = compiled(tiny()), batch()
    path = tmp_path / "checkpoint.keras"
    model.fit(images, labels, epochs=1, verbose=0, callbacks=[training.Checkpoint(path)])
    good = path.read_bytes()

    def dies(partial):
        partial.write_bytes(good[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        model.fit(images, labels, epochs=1, verbose=0, callbacks=[training.Checkpoint(path)])
    assert path.read_bytes() == good
    assert int(keras.saving.load_model(path).optimizer.iterations) == 1


def test_a_diverged_epoch_does_not_replace_the_checkpoint(tmp_path):
    callback = training.Checkpoint(tmp_path / "checkpoint.keras")
    callback.set_model(tiny())
    callback.on_epoch_end(0, {"loss": float("nan")})
    assert not callback.path.exists()
    callback.on_epoch_end(1, {"loss": 0.5})
    assert callback.path.exists()


def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path):
    images, labels = batch()
    options = dict(batch_size=3, shuffle=False, verbose=0)
    keras.utils.set_random_seed(0)
    whole = compiled(tiny(), weight_decay=0.1, warmup_steps=2)
    whole.save_weights(tmp_path / "start.weights.h5")
    losses = whole.fit(images, labels, epochs=4, **options).history["loss"]

    model = compiled(tiny(), weight_decay=0.1, warmup_steps=2)
    model.load_weights(tmp_path / "start.weights.h5")
    callback = training.Checkpoint(tmp_path / "checkpoint.keras")
    model.fit(images, labels, epochs=2, callbacks=[callback], **options)
    resumed = keras.saving.load_model(callback.path)
    resumed.optimizer.exclude_from_weight_decay(var_names=list(training.NO_DECAY))
    history = resumed.fit(images, labels, initial_epoch=2, epochs=4, **options).history
    np.testing.assert_allclose(history["loss"], losses[2:], rtol=1e-6)
    for one, other in zip(whole.weights, resumed.weights):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other), atol=1e-6
        )


def test_the_history_goes_on_where_the_checkpoint_is(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,accuracy,loss\n0,0.1,9.0\n1,0.2,8.0\n2,0.3,7.0\n")
    images, labels = batch()
    history = training.HistoryCSV(path, first_epoch=2)
    compiled(tiny()).fit(images, labels, initial_epoch=2, epochs=4, verbose=0, callbacks=[history])
    columns = history.read()
    assert columns["epoch"] == [0, 1, 2, 3]
    assert columns["loss"][:2] == [9.0, 8.0] and columns["loss"][2] != 7.0
    assert training.HistoryCSV(path).read() == {}


def test_ctrl_c_ends_the_training_even_where_the_exception_is_swallowed():
    """The signal comes in a place that swallows exceptions, as a hook of a backend may."""

    class Swallowing(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(batch)
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    seen, before = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            compiled(tiny()).fit(
                *batch(),
                batch_size=2,
                verbose=0,
                callbacks=[Swallowing(), training.StopOnInterrupt()],
            )
        assert seen == [0]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        compiled(tiny()).fit(*batch(), verbose=0, callbacks=[training.StopOnInterrupt()])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="has TensorFlow anyway")
def test_a_run_saves_its_model_without_importing_tensorflow(tmp_path):
    code = f"""
import sys
import keras
from keras_vit.training.portable import save_portable
from keras_vit.training import set_random_seed
from tests.support import tiny_vit

set_random_seed(3)
model = tiny_vit()
model.compile("sgd", "mse")
save_portable(model, {str(tmp_path / "model.keras")!r})
assert "tensorflow" not in sys.modules
again = keras.saving.load_model({str(tmp_path / "model.keras")!r})
assert getattr(again, "optimizer", None) is None
for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
    assert (a == b).all()
"""
    run_in_fresh_process(code)
