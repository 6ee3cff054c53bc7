"""`setup` chooses the devices that this process trains on, and returns them as `Devices`.

For many devices the module of a backend has a subclass, and `make`, which joins the processes.
"""

import contextlib
import importlib

import keras
import numpy as np

from keras_vit.checks import check_choice, positive_int
from keras_vit.distribution import feeding
from keras_vit.writing import save_whole

MODES = {  # of each backend that has an engine for many devices
    "tensorflow": ("auto", "single", "data_parallel"),
    "torch": ("auto", "single", "data_parallel"),
    "jax": ("auto", "single", "data_parallel", "model_parallel", "fully_sharded"),
}


class Devices(contextlib.AbstractContextManager):
    """What this process trains on: one device, or several in a subclass for each backend.

    It is made by `setup`, and in force until `close`. Where there are several processes, all must
    call `evaluate`, `predict`, `save` and `local_copy`.

    Attributes:
        mode: `"single"`, `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        replicas: shards that a batch is split into.
        processes: number of processes.
        process: number of this one, from 0.
    """

    _in_force = None  # the `Devices` of the last `setup` in this process
    mode = "single"
    replicas = processes = 1
    process = 0

    @property
    def writes(self):
        """Whether this process writes files: the first one does."""
        return self.process == 0

    def scope(self):
        """A context within which models are made and compiled."""
        return contextlib.nullcontext()

    def check_model(self, model):
        """Raises a ValueError where these devices cannot train a compiled model."""

    def callbacks(self):
        """Callbacks that `model.fit` needs on these devices, before any other."""
        return []

    def local_shard(self, data):
        """The part of the training data that this process reads: some rows of every batch."""
        return feeding.training_shard(data, self)

    def evaluate(self, model, data, **options):
        """The metrics of `model.evaluate` as a dict, each image counted once.

        One device takes the data of `model.evaluate`, (images, labels) as one tuple; several take a
        `keras_vit.data` pipeline, a `keras.utils.PyDataset` or arrays.
        """
        if self.mode == "single" and hasattr(data, "skipped"):
            options["steps"] = len(data)
            data = feeding.without_empty(data)  # a batch whose files cannot be read has no rows
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        return model.evaluate(x, y, sample_weight=weights, return_dict=True, **options)

    def predict(self, model, x, **options):
        """`model.predict` for the images of this process alone, by a copy made for this call."""
        if self.mode == "single":
            return model.predict(x, **options)
        with one_device():
            return self.local_copy(model).predict(x, **options)

    def save(self, model, path):
        """Saves the model from one process, for any backend and any devices."""
        copy = self.local_copy(model)
        if self.writes:
            save_whole(copy, path)

    def local_copy(self, model):
        """The model if it has one device, else an uncompiled copy on one device of this process."""
        if self.mode == "single":
            return model
        with one_device():
            values = [to_numpy(variable) for variable in model.weights]
            copy = type(model).from_config(model.get_config())
            copy.set_weights(values)
        return copy

    def gather(self, array):
        """The int32 arrays of all processes, of one shape, along a new first axis."""
        return array[None]

    def close(self):
        """Ends what `setup` began and leaves one device, unless a later `setup` has done so."""
        if Devices._in_force is self:
            self.leave()
            Devices._in_force = None

    def leave(self):
        """Undoes what a backend's `make` has done."""

    def __exit__(self, *_):
        self.close()


def current() -> Devices:
    """The `Devices` in force: of the last `setup`, or a single device."""
    return Devices._in_force or Devices()


def setup(
    mode: str = "auto",
    *,
    devices: int | None = None,
    model_devices: int | None = None,
    rules: dict[str, tuple[str | None, ...]] | None = None,
    timeout: int = 300,
) -> Devices:
    """Chooses the devices that this process trains on, before the first model is made.

    Several processes are joined if the environment names them; docs/distribution.md says how.

    Args:
        mode: `"single"`: one device. `"data_parallel"`: each device has the whole model and a part
            of each batch. `"model_parallel"`: groups of devices share a model, split by
            `LAYOUT_RULES`, and a batch is split over the groups. `"fully_sharded"`: a batch is
            split over all devices, and so is each variable with its optimizer's state. `"auto"`:
            `"data_parallel"` if there is more than one device, else `"single"`.
        devices: how many devices to use; all by default.
        model_devices: with `"model_parallel"`, how many devices share a model; all by default.
        rules: with `"model_parallel"`, dict from the pattern of a variable's whole path to the
            mesh axis (`"model"` or `None`) of each of its axes, or `()` for not split. They come
            before `LAYOUT_RULES`, and each must match a variable.
        timeout: seconds to wait for processes that do not come (TensorFlow waits for ever) and,
            on TensorFlow and PyTorch, for one that does not answer (JAX: at most 40 seconds).

    Returns:
        A `Devices`, in force until it is closed or the `with` block ends.

    Raises:
        ValueError: the backend has no such mode, there are not so many devices, or the arguments
            contradict each other.
        ConnectionError: the processes do not find each other; the message names the address.
    """
    check_choice("mode", mode, MODES["jax"])
    backend = keras.backend.backend()
    modes = MODES.get(backend, ("auto", "single"))
    if mode not in modes:
        raise ValueError(
            f"The {backend} backend has no mode {mode!r}. Received: mode={mode!r}; take one of "
            f"{modes}, or JAX, which has {MODES['jax']}."
        )
    if mode != "model_parallel" and (model_devices is not None or rules is not None):
        raise ValueError(
            "model_devices and rules are for mode='model_parallel'. Received: "
            f"mode={mode!r}, model_devices={model_devices!r}, rules={rules!r}."
        )
    timeout = positive_int(timeout, "timeout")
    counts = {"devices": devices, "model_devices": model_devices}
    counts = {name: n if n is None else positive_int(n, name) for name, n in counts.items()}
    current().close()
    if mode == "single" or backend not in MODES:
        Devices._in_force = Devices()
    else:
        engine = importlib.import_module(f"keras_vit.distribution.{backend}")
        Devices._in_force = engine.make(mode, rules=rules, timeout=timeout, **counts)
    return Devices._in_force


def to_numpy(value: object) -> np.ndarray:
    """A variable or tensor as an array, whole; all processes must call it for what they share."""
    if isinstance(value, keras.Variable):
        value = value.value
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


@contextlib.contextmanager
def one_device():
    """A context within which Keras knows one device, of this process."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)


def check_count(devices, names, processes=1, advice=""):
    """Raises a ValueError if there are not `devices` of the devices `names` of all processes."""
    count = len(names)
    if devices is not None and (devices > count or (devices < count and processes > 1)):
        raise ValueError(
            "devices must be at most the number that exists, and in several processes all of them. "
            f"Received: devices={devices}; there are {count}: {names}. {advice}"
        )
