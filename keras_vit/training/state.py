"""All that the next update of a training depends on, as arrays."""

import random

import keras
import numpy as np

from keras_vit.distribution.reading import to_numpy
from keras_vit.training.settings import optimizer_of


def sync(model):
    """Gives the variables their present values: on JAX `fit` keeps them to itself in an epoch."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def variables(model):
    """Group -> its variables: weights and states of seed generators, optimizer, metrics."""
    return {
        "model": model.variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }


def capture(model, metrics=None, generators=None):
    """Pairs of a key and an array, made one at a time.

    Args:
        model: a compiled model whose variables have their present values, see `sync`.
        metrics: values of the metrics instead of the present ones.
        generators: what `capture_generators` returned, instead of the present state.
    """
    for group, members in variables(model).items():
        values = metrics if group == "metrics" and metrics is not None else map(value_of, members)
        for i, value in enumerate(values):
            yield f"{group}/{i:04d}", value
    for name, value in (generators or capture_generators()).items():
        yield f"generators/{name}", value


def describe(model):
    """Group -> [path, shape, dtype] of each variable, to tell two models apart."""
    return {
        group: [[v.path, list(v.shape), keras.backend.standardize_dtype(v.dtype)] for v in members]
        for group, members in variables(model).items()
    }


def check(model, saved):
    """Compares a model with what `describe` said of the one that was saved.

    Raises:
        ValueError: another number of variables, or one of another shape; the message names it.
    """
    for group, members in describe(model).items():
        before = saved[group]
        for old, new in zip(before, members):
            if old[1:] != new[1:]:
                raise ValueError(
                    f"The checkpoint is of another {group}: {old[0]} has shape {tuple(old[1])} and "
                    f"dtype {old[2]} there. Received: {new[0]}, {tuple(new[1])}, {new[2]}. Build "
                    "what was trained, or choose another output folder."
                )
        if len(before) != len(members):
            raise ValueError(
                f"The checkpoint is of another {group}: it has {len(before)} variables. Received: "
                f"{len(members)}. Build what was trained, or choose another output folder."
            )


def restore(model, arrays, groups=("model", "optimizer")):
    """Assigns the saved values of some groups."""
    for group in groups:
        for i, variable in enumerate(variables(model)[group]):
            variable.assign(arrays[f"{group}/{i:04d}"])


def value_of(variable):
    """The value as an array of a type that NumPy has; bfloat16 and float8 fit in float32."""
    dtype = keras.backend.standardize_dtype(variable.dtype)
    value = variable.value
    if hasattr(value, "read_value"):  # of TensorFlow, where it may be one for each device
        value = value.read_value()
    if dtype == "bfloat16" or dtype.startswith("float8"):
        value = keras.ops.cast(value, "float32")
    return to_numpy(value)


def metric_values(model):
    """Copies of the metrics' variables."""
    return [np.array(value_of(variable)) for variable in model.metrics_variables]


def capture_generators():
    """The states of the process's random generators: Python's, NumPy's and torch's.

    Keras draws from torch's where a layer was given no seed. The generators of Keras's layers are
    variables of the model and saved with it.
    """
    version, internal, gauss = random.getstate()
    _, keys, *rest = np.random.get_state()
    states = {
        "python": np.array([version, *internal], "uint64"),
        "python_gauss": np.array([] if gauss is None else [gauss]),
        "numpy": keys,
        "numpy_rest": np.array(rest, "float64"),
    }
    if keras.backend.backend() == "torch":
        import torch

        states["torch"] = torch.get_rng_state().numpy()
        if torch.cuda.is_available():
            for i, state in enumerate(torch.cuda.get_rng_state_all()):
                states[f"torch_cuda_{i}"] = state.numpy()
    return states


def restore_generators(states):
    """Sets the process's random generators to what `capture_generators` returned."""
    version, *internal = (int(value) for value in states["python"])
    gauss = states["python_gauss"]
    random.setstate((version, tuple(internal), float(gauss[0]) if gauss.size else None))
    position, has_gauss, cached = states["numpy_rest"]
    np.random.set_state(("MT19937", states["numpy"], int(position), int(has_gauss), float(cached)))
    if keras.backend.backend() == "torch":
        import torch

        torch.set_rng_state(torch.from_numpy(states["torch"].copy()))
        for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            if f"torch_cuda_{i}" in states:
                torch.cuda.set_rng_state(torch.from_numpy(states[f"torch_cuda_{i}"].copy()), i)


def saved_generators(arrays):
    """The part of a checkpoint's arrays that `restore_generators` takes."""
    prefix = "generators/"
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def first_not_finite(model):
    """The path of the first weight that holds NaN or infinity, or None."""
    for variable in model.variables:
        value = value_of(variable)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return variable.path
    return None


def learning_rate(model):
    """The learning rate of the last update, of an optimizer whose gradient norm is tracked."""
    return float(value_of(optimizer_of(model).applied_learning_rate))


def gradient_norm(model):
    """The norm of the gradients of the last update, before clipping."""
    return float(value_of(optimizer_of(model).gradient_norm))
