"""How fast a backend multiplies the matrices of a ViT here: the ceiling of every model.

Each way that the backend has is tried, because they are not equally fast: PyTorch's own products
and those of oneDNN, TensorFlow's graph and XLA.
"""

import math
import time

import numpy as np

SECONDS = 0.05  # each product is repeated for about this long


def make_products(s):
    """A function that gives GFLOP/s by wall clock and by CPU time, of each way and shape."""
    ways = {"torch": _torch, "tensorflow": _tensorflow, "jax": _jax}[s.backend]()
    cases = {}
    rng = np.random.default_rng(0)
    for rows, inner, columns in dict.fromkeys(s.architecture.products(s.batch)):
        left = rng.standard_normal((rows, inner), dtype="float32")
        right = rng.standard_normal((inner, columns), dtype="float32")
        for name, make in ways.items():
            run = make(left, right, s.dtype)
            try:
                seconds = min(_seconds(run, 1)[0] for _ in range(3))
            except RuntimeError:  # oneDNN multiplies bfloat16 on some CPUs only
                continue
            repeats = max(1, math.ceil(SECONDS / max(seconds, 1e-6)))
            operations = 2e-9 * rows * inner * columns * repeats
            cases[f"{name} {rows}x{inner}x{columns}"] = run, repeats, operations

    def turn():
        wall, cpu = {}, {}
        for name, (run, repeats, operations) in cases.items():
            by_wall, by_cpu = _seconds(run, repeats)
            wall[name], cpu[name] = operations / by_wall, operations / max(by_cpu, 1e-9)
        return {"wall": wall, "cpu": cpu}

    return turn


def _seconds(run, repeats):
    cpu, wall = time.process_time(), time.perf_counter()
    run(repeats)
    return time.perf_counter() - wall, time.process_time() - cpu


def _torch():
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def way(product):
        def make(left, right, dtype):
            x, w = (torch.from_numpy(m).to(device, getattr(torch, dtype)) for m in (left, right))
            transposed = w.t().contiguous()

            @torch.inference_mode()
            def run(repeats):
                for _ in range(repeats):
                    product(x, w, transposed)
                if device == "cuda":
                    torch.cuda.synchronize()

            return run

        return make

    ways = {
        "matmul": way(lambda x, w, transposed: x @ w),
        "linear": way(lambda x, w, transposed: torch.nn.functional.linear(x, transposed)),
    }
    if device == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        linear = torch.ops.mkldnn._linear_pointwise
        ways["onednn"] = way(lambda x, w, transposed: linear(x, transposed, None, "none", [], ""))
    return ways


def _tensorflow():
    import tensorflow as tf

    def way(compiled):
        def make(left, right, dtype):
            x, w = (tf.cast(tf.constant(m), dtype) for m in (left, right))
            product = tf.function(tf.matmul, jit_compile=compiled)

            def run(repeats):
                for _ in range(repeats):
                    product(x, w)
                tf.test.experimental.sync_devices()

            return run

        return make

    return {"graph": way(False), "xla": way(True)}


def _jax():
    import jax

    def make(left, right, dtype):
        x, w = (jax.numpy.asarray(m, dtype) for m in (left, right))
        product = jax.jit(lambda x, w: x @ w)

        def run(repeats):
            for _ in range(repeats):
                last = product(x, w)
            last.block_until_ready()

        return run

    return {"jit": make}
