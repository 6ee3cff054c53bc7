"""`Devices`: one device, and the interface of many; `setup` chooses them."""

import contextlib
import importlib

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.distribution import ending
from keras_vit.distribution.gathering import Gathering, to_numpy
from keras_vit.writing import save_whole

MODES = {
    "jax": ("auto", "single", "data_parallel", "model_parallel", "fully_sharded"),
    "tensorflow": ("auto", "single", "data_parallel"),
    "torch": ("auto", "single", "data_parallel"),
}
"""Backend with an engine for many devices -> its modes."""

_current = None  # the `Devices` of the last `setup`


class Devices(Gathering):
    """What this process trains on. It is made by `setup`, and in force until `close`.

    This class is one process on one device; the subclass of each backend overrides what more
    devices need.

    Attributes:
        mode: `"single"`, `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        replicas: shards that a batch is split into.
        processes: number of processes.
        process: number of this one, from 0.
    """

    mode = "single"
    replicas = 1
    processes = 1
    process = 0

    @property
    def writes(self):
        """Whether this process writes files: the first one does."""
        return self.process == 0

    # ---- training

    def scope(self):
        """A context within which models are made and compiled."""
        return contextlib.nullcontext()

    def prepare(self, model):
        """Prepares a compiled model for `training.fit`, or raises a ValueError if it cannot."""

    def callbacks(self):
        """Callbacks that `model.fit` needs on these devices, before any other."""
        return []

    @property
    def data_shard(self):
        """Which shard of each batch this process reads, and of how many: (index, count)."""
        return self.process, self.processes

    def share(self, data):
        """This process's shard of the training batches.

        Several processes need data whose `shard(process, processes)` has some rows of every batch.
        """
        size = getattr(data, "batch_size", None)
        if size is not None and size % self.replicas:
            nearest = max(size - size % self.replicas, self.replicas)
            raise ValueError(
                f"The devices must divide the batch. Received: a batch of {size} images, "
                f"{self.replicas} devices; {nearest} and {nearest + self.replicas} fit."
            )
        index, count = self.data_shard
        if count == 1:
            return data
        if not hasattr(data, "shard"):
            raise TypeError(
                "Several processes need data with shard(process, processes), as a pipeline of "
                f"keras_vit.data has it. Received: {type(data).__name__}."
            )
        return data.shard(index, count)

    def feed(self, data):
        """The batches of `share` in the form that `model.fit` takes on these devices."""
        return data

    def explain(self, error):
        """An error of training in the words of a user: a ConnectionError if a process was lost."""
        return ending.explain(error, self.process, self.processes)

    # ---- what all processes must call

    def evaluate(self, model, data, **options):
        """The metrics of `model.evaluate` as a dict, each image counted once; all must call it.

        The data are what `model.evaluate` takes, (images, labels) as one tuple; on several devices,
        a `keras_vit.data` pipeline, a `keras.utils.PyDataset` or arrays.
        """
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        return model.evaluate(x, y, sample_weight=weights, return_dict=True, **options)

    def predict(self, model, x, **options):
        """`model.predict` for the images of this process alone; all processes must call it."""
        copy = self.local_copy(model)
        with self.one_device():
            return copy.predict(x, **options)

    def save(self, model, path):
        """Saves the model from one process, for any backend and any devices; all must call it."""
        copy = self.local_copy(model)
        if self.writes:
            save_whole(copy, path)

    def local_copy(self, model):
        """A trained model on one device of this process, uncompiled; all must call it."""
        if self.mode == "single":
            return model
        with self.one_device():
            values = [to_numpy(variable) for variable in model.weights]
            copy = type(model).from_config(model.get_config())
            copy.set_weights(values)
        return copy

    def one_device(self):
        """A context within which Keras knows one device, of this process."""
        return contextlib.nullcontext()

    # ---- the end

    def close(self):
        """Ends what `setup` began: from now on there is one device."""
        global _current
        _current = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def current() -> Devices:
    """The `Devices` in force: those of the last `setup`, or a single device."""
    return _current or Devices()


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
        timeout: seconds to wait for processes that do not come; with TensorFlow and PyTorch also
            for one that does not answer, which JAX gives up after 40 seconds at most.

    Returns:
        A `Devices`, in force until it is closed or the `with` block ends.

    Raises:
        ValueError: the backend has no such mode, there are not so many devices, or the arguments
            contradict each other.
        ConnectionError: the processes do not find each other; the message names the address.
    """
    global _current
    check_choice("mode", mode, MODES["jax"])
    backend = keras.backend.backend()
    modes = MODES.get(backend, ("auto", "single"))
    if mode not in modes:
        raise ValueError(
            f"The {backend} backend has no mode {mode!r}. Received: mode={mode!r}; take one of "
            f"{modes}, or JAX, which has {MODES['jax']}."
        )
    devices = None if devices is None else positive_int(devices, "devices")
    if mode != "model_parallel" and (model_devices is not None or rules is not None):
        raise ValueError(
            "model_devices and rules are for mode='model_parallel'. Received: "
            f"mode={mode!r}, model_devices={model_devices!r}, rules={rules!r}."
        )
    model_devices = model_devices and positive_int(model_devices, "model_devices")
    timeout = positive_int(timeout, "timeout")
    current().close()
    if mode == "single" or backend not in MODES:
        _current = Devices()
    else:
        engine = importlib.import_module(f"keras_vit.distribution.{backend}")
        _current = engine.make(mode, devices, model_devices, rules, timeout)
    return _current


def check_count(devices, names, processes=1, advice=""):
    """Raises a ValueError if there are not `devices` of the devices `names` of all processes."""
    if devices is None:
        return
    if devices > len(names) or (devices < len(names) and processes > 1):
        raise ValueError(
            "devices must be at most the number that exists, and in several processes all of them. "
            f"Received: devices={devices}; there are {len(names)}: {names}. {advice}"
        )
