"""A small run with everything in it that more devices must repeat; as a script, for processes.

python tests/distribution/case.py OUTPUT [OPTIONS AS JSON]
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import keras
import numpy as np

import keras_vit
from keras_vit import distribution, recipes, training
from keras_vit.training import set_random_seed

TRAIN, TEST, CLASSES = 44, 19, 3  # of the test images 3 are left over by batches of 8


def arrays(count, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 16, 16, 3), np.uint8)
    labels = (np.arange(count) % CLASSES).astype("int32")
    images[..., 0] //= (1 + labels[:, None, None]).astype("uint8")  # something to learn
    return images, labels


def recipe(**changes):
    """The recipe of the digits with clipping, an average, and no step without a gradient."""
    chosen = recipes.get("digits").replace(image_size=16).scale(batch_size=8, steps=8)
    usual = dict(
        examples=TRAIN,
        num_classes=CLASSES,
        learning_rate=0.02,
        warmup_steps=2,
        epsilon=1e-2,  # where a gradient is 0 but for rounding, a small one would magnify that
        clip_norm=0.5,
        ema=0.5,
        precision="float32",
    )
    return chosen.replace(**{**usual, **changes})


def build(chosen, dropout=0.0, compile=None, clipped_by_keras=False, **options):
    set_random_seed(1)
    usual = dict(image_size=16, patch_size=8, width=8, depth=1, num_heads=4, num_classes=CLASSES)
    model = keras_vit.VisionTransformer(**{**usual, "dropout": dropout, **options})
    rng = np.random.default_rng(2)  # the same on every backend
    for v in model.trainable_variables:
        v.assign(rng.normal(size=v.shape) * 0.3 + ("gamma" in v.path))
    if clipped_by_keras:
        compile = {**(compile or {}), "optimizer": keras.optimizers.SGD(clipnorm=1.0)}
    return chosen.compile(model, **(compile or {}))


def load(chosen):
    source = (arrays(TRAIN, 0), arrays(TEST, 1))
    return [
        keras_vit.data.pipeline(source, chosen, part, training=part == "train")
        for part in ("train", "test")
    ]


class Report(keras.callbacks.Callback):
    """Says where the run is, for those who kill by it; may take its time, stop it, or fail."""

    def __init__(self, seconds, stop_after=0, stop_by="signal"):
        super().__init__()
        self.seconds, self.left, self.stop_by = seconds, stop_after, stop_by

    def on_train_batch_end(self, batch, logs=None):
        print("batch", batch, flush=True)
        time.sleep(self.seconds)
        self.left -= 1
        if self.left == 0 and self.stop_by == "error":
            raise MemoryError("no memory in one process")
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)


def run(
    output,
    devices,
    dropout=0.0,
    seconds=0.0,
    save_every=100,
    stop_after=0,
    stop_process=0,
    stop_by="signal",
    outside=False,
    stochastic=0.0,
    compile=None,
    clipped_by_keras=False,
    model=None,
    report_shards=False,
    evaluate=False,
    save=False,
    **changes,
):
    """Trains, and returns all that another number of devices must repeat."""
    chosen = recipe(**changes)
    train, test = load(chosen)
    options = {"stochastic_depth": stochastic, **(model or {})}
    with contextlib.nullcontext() if outside else devices.scope():
        model = build(chosen, dropout, compile, clipped_by_keras, **options)
    stop_after *= devices.process == stop_process
    history = training.fit(
        model,
        train,
        output,
        steps=chosen.steps,
        validation=test,
        log_every=1,
        save_every=save_every,
        callbacks=[*chosen.callbacks(), Report(seconds, stop_after, stop_by)],
        curves=False,
    )
    images = np.concatenate([images for images, _ in test])
    predicted = devices.predict(model, images, batch_size=len(images), verbose=0)
    timed = ("images_per_second",)
    results = {f"history/{k}": v for k, v in history.items() if k not in timed}
    copy = devices.local_copy(model)
    results |= {f"weight/{v.path}": w for v, w in zip(copy.weights, copy.get_weights())}
    if evaluate:
        metrics = devices.evaluate(model, test, verbose=0)
        results |= {f"evaluate/{k}": v for k, v in metrics.items()}
    if save:
        devices.save(model, output / "model.keras")
    if report_shards:  # of each variable, the share that lies on the first device
        for v in model.variables + model.optimizer.variables:
            share = v.value.addressable_shards[0].data.size / v.value.size
            results[f"share/{v.path}"] = share
    return {k: np.asarray(v) for k, v in results.items()} | {"predicted": np.asarray(predicted)}


def main(output, options="{}"):
    """One run, or several in a row if the options are a list; one may be expected to fail."""
    options = json.loads(options)
    many = options if isinstance(options, list) else [options]
    for i, each in enumerate(many):
        folder = pathlib.Path(output) / str(i) if many is options else pathlib.Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            train_once(folder, **each)
        except ValueError as error:
            if many is not options:
                raise
            print(f"run {i}: ValueError: {error}", flush=True)


def train_once(folder, setup=None, **options):
    keras.utils.clear_session()  # names are counted from the beginning again
    with distribution.setup(**(setup or {})) as devices:
        results = run(folder / "run", devices, **options)
        np.savez(folder / f"process_{devices.process}.npz", **results)


if __name__ == "__main__":
    if keras.backend.backend() == "tensorflow" and "CPUS" in os.environ:
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * int(os.environ["CPUS"])
        tf.config.set_logical_device_configuration(cpu, parts)
    main(*sys.argv[1:])
