"""Times inference of hybrids and BiT, with and without folded kernels, beside timm's same model.

    python benchmarks/fold.py [--batch 4] [--repeats 7]

Models and, on PyTorch, timm's (where it is installed) take turns in one process per backend; what
counts are the ratios. Nothing else should keep the machine busy.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODELS = {"R50_ViT_B16": "vit_base_r50_s16_224", "BiT_R50x1": "resnetv2_50x1_bit"}


def calls(name, batch):
    """What is timed -> a function that computes logits of `batch` images of 224 pixels."""
    import keras
    import numpy as np

    import keras_vit

    images = np.random.default_rng(0).uniform(-1, 1, (batch, 224, 224, 3)).astype("float32")
    model = getattr(keras_vit, name)()
    timed = {"as trained": _call(model, images), "folded": _call(keras_vit.fold(model), images)}
    if keras.backend.backend() == "torch" and importlib.util.find_spec("timm"):
        timed["timm"] = _timm_call(MODELS[name], images)
    return timed


def _call(model, images):
    """One compiled call on JAX and TensorFlow; an eager one without gradients on PyTorch."""
    import keras

    backend = keras.backend.backend()
    x = keras.ops.convert_to_tensor(images)
    if backend == "jax":
        import jax

        states = [v.value for v in model.trainable_variables + model.non_trainable_variables]
        trained = len(model.trainable_variables)
        run = jax.jit(lambda s, x: model.stateless_call(s[:trained], s[trained:], x)[0])
        return lambda: run(states, x).block_until_ready()
    if backend == "tensorflow":
        import tensorflow as tf

        run = tf.function(lambda x: model(x, training=False))
        return lambda: run(x).numpy()
    import torch

    def run():
        with torch.inference_mode():
            return model(x, training=False)

    return run


def _timm_call(architecture, images):
    import timm
    import torch

    model = timm.create_model(architecture).eval()
    x = torch.tensor(images.transpose(0, 3, 1, 2)).contiguous()

    def run():
        with torch.inference_mode():
            return model(x)

    return run


def measure(batch, repeats):
    """Model -> what was timed -> seconds of each repetition, the timed ones in turn."""
    found = {}
    for name in MODELS:
        timed = calls(name, batch)
        for call in timed.values():  # compilation and caches
            call()
        seconds = {what: [] for what in timed}
        for _ in range(repeats):
            for what, call in timed.items():
                start = time.perf_counter()
                call()
                seconds[what].append(time.perf_counter() - start)
        found[name] = seconds
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batch", type=int, default=4, help="images per call (default 4)")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls (default 7)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.batch, options.repeats)))
        return
    print("| backend | model | what | ms (median, range) | times as fast as trained | as timm |")
    print("|---|---|---|---|---|---|")
    for backend in filter(importlib.util.find_spec, ("jax", "tensorflow", "torch")):
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        command = [sys.executable, __file__, *sys.argv[1:], "--here"]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
        for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
            middle = {what: statistics.median(times) for what, times in seconds.items()}
            for what, times in seconds.items():
                ratios = [
                    f"{middle[other] / middle[what]:.2f}" if other in middle else ""
                    for other in ("as trained", "timm")
                ]
                spread = f"{1e3 * min(times):.0f} to {1e3 * max(times):.0f}"
                row = (backend, name, what, f"{1e3 * middle[what]:.0f} ({spread})", *ratios)
                print("|", " | ".join(row), "|", flush=True)
    print(
        f"\nbatch {options.batch}, float32, {os.cpu_count()} cores; {datetime.date.today():%B %Y}"
    )


if __name__ == "__main__":
    main()
