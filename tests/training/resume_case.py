"""A small run with everything in it that a resumed run must repeat; as a script, one to be killed.

python tests/training/resume_case.py OUTPUT [SECONDS_PER_UPDATE] [SAVE_EVERY]
"""

import functools
import json
import pathlib
import random
import signal
import sys
import time

import keras
import numpy as np

from keras_vit import training
from keras_vit.training.checkpoint import sync

STEPS_PER_EPOCH, BATCH, IMAGES = 5, 4, 22


class Pipeline:
    """Batches that are a function of the step: order by epoch, noise and flips by batch."""

    steps_per_epoch, batch_size = STEPS_PER_EPOCH, BATCH

    def __init__(self, endless=True, broken_step=None):
        rng = np.random.default_rng(0)
        self.images = rng.normal(size=(IMAGES, 8, 8, 3)).astype("float32")
        self.labels = (np.arange(IMAGES) % 3).astype("int32")
        self.endless, self.broken_step = endless, broken_step
        self.asked = []

    def rows(self, step):
        epoch, i = divmod(step, STEPS_PER_EPOCH)
        order = np.random.default_rng([1, epoch]).permutation(IMAGES)
        return order[i * BATCH : (i + 1) * BATCH]

    def batch(self, step):
        images = self.images[self.rows(step)]
        rng = np.random.default_rng([2, step])
        images = images[:, :, :: rng.choice([-1, 1])] + rng.normal(size=images.shape) / 10
        if step == self.broken_step:
            images *= np.inf
        return images.astype("float32"), self.labels[self.rows(step)]

    def from_step(self, step):
        while True:
            self.asked.append(step)
            yield self.batch(step)
            step += 1
            if not self.endless and step % STEPS_PER_EPOCH == 0:
                return


def seed(number):
    """Seeds what Keras draws from where it got no seed; its own function imports TensorFlow."""
    random.seed(number)
    np.random.seed(number)
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(number)


def fresh(**options):
    """A model as `build` makes it: always the same one, so that its steps are compiled once."""
    model, beginning = _built(**options)
    sync(model)  # where a run was stopped within its validation
    seed(0)
    for variable, value in beginning:
        variable.assign(value)
    return model


@functools.cache
def _built(**options):
    model = build(**options)
    return model, list(zip(model.variables + model.optimizer.variables, values(model)))


def build(accumulate=None, seeded=True, loss="SparseCategoricalCrossentropy", **options):
    """A model with dropout and batch statistics, an optimizer with momenta and an average."""
    seed(0)
    layers = [
        keras.layers.Input((8, 8, 3)),
        keras.layers.Flatten(),
        keras.layers.Dense(8, "relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3, seed=7 if seeded else None),
        keras.layers.Dense(3),
    ]
    model = keras.Sequential(layers)
    schedule = keras.optimizers.schedules.CosineDecay(0.05, 30)
    options |= {"weight_decay": 0.01, "global_clipnorm": 1.0, "use_ema": True, "ema_momentum": 0.9}
    optimizer = training.AdamW(schedule, gradient_accumulation_steps=accumulate, **options)
    model.compile(optimizer, getattr(keras.losses, loss)(from_logits=True), metrics=["accuracy"])
    optimizer.build(model.trainable_variables)
    return model


def validation():
    pipeline = Pipeline()
    return pipeline.images[:6], pipeline.labels[:6]


def run(output, model=None, pipeline=None, **options):
    """The history, and the final weights and optimizer state as one list of arrays."""
    model = fresh() if model is None else model
    pipeline = Pipeline() if pipeline is None else pipeline
    defaults = dict(steps=13, save_every=1, log_every=2, curves=False)
    options = {**defaults, "validation": validation(), **options}
    history = training.fit(model, pipeline, output, **options)
    return history, values(model)


def values(model, variables=None):
    variables = variables or model.variables + model.optimizer.variables
    return [np.array(keras.ops.convert_to_numpy(v)) for v in variables]


class Images:
    """Images of 16 x 16 pixels with labels, four batches in an epoch; a batch is its number's."""

    steps_per_epoch, batch_size = 4, 4

    def from_step(self, step):
        while True:
            images = np.random.default_rng(step).uniform(-1, 1, (4, 16, 16, 3))
            yield images.astype("float32"), np.array([0, 2, 1, 1])
            step += 1


class StopsAt(keras.callbacks.Callback):
    """Crashes in the n-th call of a hook."""

    def __init__(self, hook, count):
        super().__init__()
        self.left = count
        setattr(self, hook, self.crash)

    def crash(self, *_, **__):
        self.left -= 1
        if not self.left:
            raise RuntimeError("the user's own mistake")


def read_log(output, kind):
    """The records of a kind, without what differs from one run to the next: times."""
    lines = (pathlib.Path(output) / "log.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        for timed in ("time", "images_per_second"):
            record.pop(timed, None)
    return [record for record in records if record["kind"] == kind]


class Slow(keras.callbacks.Callback):
    """Takes its time, and says where it is, for those who kill by the clock."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        print("batch", batch, flush=True)
        time.sleep(self.seconds)


def main(output, seconds="0", save_every="1"):
    # A shell that runs the tests in the background makes its children deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    save_every = int(save_every) if save_every.isdigit() else save_every
    callbacks = [training.EvaluateAverages(), Slow(float(seconds))]
    _, arrays = run(output, save_every=save_every, callbacks=callbacks)
    np.savez(pathlib.Path(output) / "final.npz", *arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
