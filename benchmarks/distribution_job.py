"""One run of `distribution_cost.py`: trains on some devices, tells how long, and what it sent.

Started by that script, not by hand: takes JSON, prints JSON.
"""

import contextlib
import importlib.metadata
import json
import math
import os
import sys
import time

import keras
import plan_traffic


def measure(mode, devices, model_devices, options, batch, steps, turns):
    """Milliseconds of a step in each turn, and what one device sends in an update."""
    from small_step import compile_with_jax, make_batch, make_model

    from keras_vit import distribution

    backend = keras.backend.backend()
    cuts_model = mode in ("model_parallel", "fully_sharded")
    least = least_of_cut(mode, devices, model_devices, options, batch) if cuts_model else None
    chosen = {"devices": devices} if mode != "single" else {}
    chosen |= {"model_devices": model_devices} if mode == "model_parallel" else {}
    with distribution.setup(mode, **chosen) as found:
        model = make_model(found, clip=1.0, **options)
        mine = batch // found.processes
        arrays = make_batch(model, mine * steps, seed=found.process)
        sent = []
        if mode != "single":
            with noted(backend, devices) as sent:
                if backend == "jax":
                    import collectives

                    sent += collectives.of_hlo(compile_with_jax(found, model, batch).as_text())
                else:
                    first = [array[:mine] for array in arrays]
                    model.fit(*first, batch_size=mine, verbose=0)
        clock = Clock(steps)
        model.fit(
            *arrays, batch_size=mine, epochs=turns + 1, verbose=0, shuffle=False, callbacks=[clock]
        )
        if least is None:
            gradients = sum(4 * math.prod(v.shape) for v in model.trainable_variables)
            least = plan_traffic.all_reduce(gradients, devices)
    return {
        "ms": clock.ms[1:],  # the first one compiles
        "sent": sum(each["sent"] for each in sent),
        "operations": len(sent),
        "kinds": _kinds(sent),
        "least": least,
        "process": found.process,
        "versions": {name: importlib.metadata.version(name) for name in _packages(backend)},
    }


def least_of_cut(mode, devices, model_devices, options, batch):
    """The fewest bytes that one device can send in an update of a model that is cut."""
    from plan_memory import Placing
    from plan_shapes import get_shapes
    from small_step import CLASSES

    shapes = get_shapes(None, num_classes=CLASSES, **options)
    placing = Placing(mode, devices, model_devices)
    of_tokens = plan_traffic.activations(shapes, placing, batch // placing.groups)
    return plan_traffic.gradients(shapes, placing) + of_tokens


def noted(backend, devices):
    """A context with the list of what is communicated within it."""
    import collectives

    if backend == "jax":
        return contextlib.nullcontext([])
    return {"tensorflow": collectives.of_tensorflow, "torch": collectives.of_torch}[backend](
        devices
    )


def _kinds(sent):
    kinds = {}
    for each in sent:
        kinds[each["kind"]] = kinds.get(each["kind"], 0) + each["sent"]
    return kinds


def _packages(backend):
    for name in ("keras", backend, "tensorflow-cpu" if backend == "tensorflow" else backend):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(name)
            yield name


class Clock(keras.callbacks.Callback):
    """Milliseconds of a step in each epoch, whose end waits for all of its steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.ms = steps, []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.ms.append((time.perf_counter() - self.start) * 1e3 / self.steps)


def main():
    settings = json.loads(sys.argv[1])
    if keras.backend.backend() == "tensorflow" and settings["devices"] > 1:
        import tensorflow as tf

        parts = [tf.config.LogicalDeviceConfiguration()] * settings["devices"]
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    print(json.dumps(measure(**settings)), flush=True)


if __name__ == "__main__":
    main()
