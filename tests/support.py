"""Tools that many tests need: arrays, gradients, precision, fresh processes, the authors' files."""

import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.weights.formats import google
from tests.arrays import (  # noqa: F401 - for those that import all from here
    ORACLES,
    assert_close,
    assert_same,
    dtype_of,
    images,
    largest,
    read_arrays,
    to_numpy,
    values,
)

ROOT = pathlib.Path(__file__).parent.parent
BACKEND = keras.backend.backend()
BACKENDS = [name for name in ("jax", "tensorflow", "torch") if importlib.util.find_spec(name)]
# For tests that PyTorch runs in milliseconds and the others compile for seconds.
runs = pytest.mark.skipif(False, reason="none")
slow_unless_torch = runs if BACKEND == "torch" else pytest.mark.slow
every_backend = pytest.mark.any_backend(False)  # for a test of a file that is `any_backend`


def randomize(layer, seed=0):
    """Gives every weight a random value, so that no fresh zero or one hides a path.

    The values come from NumPy and are therefore the same on every backend. Kernels keep the size
    that lets a signal pass.
    """
    rng = np.random.default_rng(seed)
    for v in layer.weights:
        fan_in = np.prod(v.shape) ** 0.5 if len(v.shape) > 1 else 4.0
        v.assign(rng.normal(size=v.shape) / fan_in**0.5 + ("gamma" in v.path))
    return layer


@contextlib.contextmanager
def precision(dtype):
    """Lets the backend compute in `dtype`.

    JAX has float64 only in its 64-bit mode. Switching that on for the whole run would test all
    else in a mode that nobody uses by default, so it is on for the float64 tests alone.
    """
    if BACKEND != "jax" or dtype != "float64":
        yield
        return
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def forward(model, *inputs, **named):
    """`model(*inputs)`; on JAX as one program, because compiling each operation is slow."""
    if BACKEND != "jax":
        return model(*inputs, **named)
    import jax

    @jax.jit
    def run(states, inputs):
        with keras.StatelessScope(state_mapping=list(zip(model.variables, states))):
            return model(*inputs, **named)

    return run([v.value for v in model.variables], inputs)


def gradients(model, loss, *inputs, **kwargs):
    """The value and the gradients of `loss(model(*inputs, **kwargs))`.

    Returns:
        A number, and a dict from the path of each trainable variable to an array, or to None
        where the backend says that there is no gradient.
    """
    variables = model.trainable_variables
    inputs = [keras.ops.convert_to_tensor(x) for x in inputs]
    if BACKEND == "jax":
        import jax

        others = [v.value for v in model.non_trainable_variables]

        def compute(trainable):
            return loss(model.stateless_call(trainable, others, *inputs, **kwargs)[0])

        value, grads = jax.jit(jax.value_and_grad(compute))([v.value for v in variables])
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss(model(*inputs, **kwargs))
        grads = tape.gradient(value, [v.value for v in variables])
    else:
        model.zero_grad()
        value = loss(model(*inputs, **kwargs))
        if value.requires_grad:
            value.backward()
        grads = [v.value.grad for v in variables]
    arrays = [None if grad is None else to_numpy(grad) for grad in grads]
    return float(to_numpy(value)), dict(zip([v.path for v in variables], arrays))


def refuses(message, function, *arguments, error=ValueError, **options):
    """Checks that a call raises an error whose text matches `message`."""
    with pytest.raises(error, match=message):
        function(*arguments, **options)


def run_in_fresh_process(code, backend=BACKEND, check=True, **environment):
    """Runs Python code from the root of the repository and returns what it prints.

    With `check=False`, returns the text of its errors instead.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **clean,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": str(ROOT),
            **environment,
        },
    )
    if not check:
        return result.stderr
    assert result.returncode == 0, result.stderr
    return result.stdout


class Killed(BaseException):
    """The end of a process that nothing tidies up after."""


@contextlib.contextmanager
def killed_after(monkeypatch, calls):
    """A process that ends at so many changes of names on the disk, and changes nothing after it."""
    done = itertools.count()

    def counted(change):
        def function(*args, **options):
            if next(done) >= calls:
                raise Killed
            return change(*args, **options)

        return function

    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "unlink", "rmdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        with contextlib.suppress(Killed):
            yield
            calls = None
    killed_after.reached_the_end = calls is None


def tiny_vit(**options):
    """A small model: 2 x 2 patches of 8 x 8 pixels, width 8, two blocks, three classes."""
    return keras_vit.VisionTransformer(
        **{
            "image_size": 16,
            "patch_size": 8,
            "width": 8,
            "depth": 2,
            "num_heads": 2,
            "num_classes": 3,
            **options,
        }
    )


def tiny_bit(**options):
    """A small model: two units with 128 and 256 channels, three classes."""
    return keras_vit.BiT(
        **{"blocks": (1, 1), "width": 0.5, "num_classes": 3, "image_size": 16, **options}
    )


@dataclasses.dataclass(frozen=True)
class OracleCase:
    """A checkpoint, and what the authors' code computes with it."""

    folder: pathlib.Path

    def __str__(self):
        return self.folder.name

    @property
    def checkpoint(self):
        return self.folder / "checkpoint.npz"

    @functools.cached_property
    def config(self):
        return json.loads((self.folder / "config.json").read_text())

    @functools.cached_property
    def io(self):
        return read_arrays(self.folder / "io.npz")

    def load(self, dtype="float32"):
        """The model; its file does not say that the image is not square or tokens not pooled."""
        pool = {"pool": None} if self.config["classifier"] == "token_unpooled" else {}
        return keras_vit.from_checkpoint(
            self.checkpoint, image_size=self.config["image"], dtype=dtype, **pool
        )

    def tolerance(self, dtype="float32"):
        """For outputs: what float32 costs the authors' own code, eight times."""
        if dtype == "float64":
            return 1e-12
        exact = self.io["output_f64"]
        noise = largest(self.io["output_f32"] - exact)
        return 8 * max(noise, np.finfo("float32").eps * largest(exact))


@contextlib.contextmanager
def without_values():
    """Models that are built here have shapes alone: one of a billion parameters costs nothing."""
    has_meta = keras.backend.backend() == "torch"
    with keras.device("meta") if has_meta else keras.StatelessScope(initialize_variables=False):
        yield
    # Keras would give the variables their values at the next occasion if it were not told to
    # forget them.
    keras.utils.clear_session(free_memory=False)


def oracle_cases(family):
    folders = sorted(path.parent for path in (ORACLES / family).glob("*/io.npz"))
    assert folders, f"no oracle in {family}"
    return [OracleCase(folder) for folder in folders]


def canonical_arrays(file):
    """The arrays under the authors' names, by the path of the variable that they are for."""
    arrays = google.FAMILY.arrays_of(file).arrays
    kernel = arrays["patch_encoder/projection/kernel"]
    return {**arrays, "patch_encoder/projection/kernel": kernel.reshape(-1, kernel.shape[-1])}
