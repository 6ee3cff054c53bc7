"""Makes the runs of `tests/oracles/before/run`, stopped in the middle of an epoch.

Run at the commit 9a6265b ("What batches are made with has a name that says so") from its root, once
for each backend: `KERAS_BACKEND=torch PYTHONPATH=. python make_before_run.py FOLDER`. For each run
the folder then has its output, as that commit left it when a signal stopped the run, and a file of
the weights that the run reaches when nothing stops it. The file stays as it is: today's code must
continue the runs and reach these weights (`tests/training/test_before.py`).
"""

import os
import pathlib
import signal
import sys
import tempfile

import keras
import numpy as np

import keras_vit
from keras_vit import recipes, training
from keras_vit.job import Job, configure

VIT = {"image_size": 8, "patch_size": 4, "width": 16, "depth": 1, "num_heads": 2, "mlp_dim": 16}
ARCHITECTURE = [[name, value] for name, value in VIT.items() if name != "image_size"]


class Batches:
    """Noise in three classes; a batch is a function of its number."""

    steps_per_epoch, batch_size = 6, 4

    def from_step(self, step):
        while True:
            yield batch(step, self.batch_size)
            step += 1


def batch(number, count):
    rng = np.random.default_rng(number)
    labels = rng.integers(3, size=count)
    images = np.clip(rng.normal(labels[:, None, None, None] - 1, 0.5, (count, 8, 8, 1)), -1, 1)
    return images.astype("float32"), labels


def vit(**options):
    return keras_vit.VisionTransformer(**{**VIT, "num_classes": 3, "channels": 1, **options})


def fit(output, *callbacks):
    """Ten updates of two batches with all that a run remembers; 3 1/3 epochs."""
    training.set_random_seed(0)
    model = vit(dropout=0.1, stochastic_depth=0.1, position="learned_2d")
    optimizer = training.AdamW(
        training.WarmupCosine(0.01, 10, 2),
        weight_decay=0.1,
        layer_decay=0.8,
        global_clipnorm=1.0,
        use_ema=True,
        ema_momentum=0.5,
        gradient_accumulation_steps=2,
    )
    model.compile(optimizer, training.SoftmaxLoss(0.1), metrics=[training.Accuracy()])
    best = training.BestWeights("val_loss", patience=3)
    training.fit(
        model,
        Batches(),
        output,
        steps=10,
        validation=batch(1000, 8),
        save_every=100,
        curves=False,
        callbacks=[training.EvaluateAverages(), *callbacks, best],
        settings={"who": "somebody"},
    )
    return model


def job(output, *callbacks):
    """The digits, as `keras-vit train` runs them; five updates of three in an epoch."""

    class WithCallbacks(recipes.Recipe):
        def callbacks(self):
            return [*callbacks, *super().callbacks()]

    fields = recipes.get("digits").to_dict()
    fields |= {"architecture": ARCHITECTURE, "steps": 5, "batch_size": 480, "warmup_steps": 1}
    recipe = WithCallbacks.from_dict(fields)
    configure(recipe)
    Job(recipe, str(output), save_every=100).run()
    return keras.saving.load_model(output / "model.keras", compile=False)


def short(model, output, callbacks, loss=None):
    """Two epochs of a small model."""
    model.compile(training.SGDM(training.WarmupLinear(0.01, 12), weight_decay=0.1), loss)
    training.fit(model, Batches(), output, epochs=2, curves=False, callbacks=callbacks)
    return model


def distiller(output, *callbacks):
    training.set_random_seed(0)
    student, teacher = vit(width=8, dropout=0.1, distillation=True), vit(width=8, num_heads=1)
    return short(training.Distiller(student, teacher), output, callbacks).student


def masked(output, *callbacks):
    training.set_random_seed(0)
    decoder = {"decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}
    model = training.MaskedAutoencoder(vit(width=8, num_classes=0), masked=0.5, **decoder)
    return short(model, output, callbacks)


def lora(output, *callbacks):
    training.set_random_seed(0)
    model = vit(width=8, pool="mean", dropout=0.1)
    training.enable_lora(model, 2)
    return short(model, output, callbacks, training.SigmoidLoss())


RUNS = {  # and the batch in which each is stopped
    "fit": (fit, 9),
    "job": (job, 4),
    "distiller": (distiller, 8),
    "masked": (masked, 8),
    "lora": (lora, 8),
}


class Stop(keras.callbacks.Callback):
    """Sends a signal in a batch."""

    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_begin(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGTERM)


def main(folder):
    for name, (run, stop) in RUNS.items():
        if name != "fit" and keras.backend.backend() != "torch":
            continue  # what is remembered of a model is the same on each backend
        place = pathlib.Path(folder, keras.backend.backend(), name)
        try:
            run(place, Stop(stop))
        except training.Interrupted:
            (place / ".lock").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as output:
            model = run(pathlib.Path(output))
        weights = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
        np.savez_compressed(place.with_suffix(".npz"), **weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
