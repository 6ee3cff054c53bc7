"""`Devices`: one device, and the interface of many; `setup` chooses them."""

import contextlib
import importlib

import keras

from keras_vit.checks import check_choice, positive_int
from keras_vit.distribution import ending
from keras_vit.distribution.gathering import Gathering, copied
from keras_vit.writing import save_whole

MODES = ("auto", "single", "data_parallel", "model_parallel", "fully_sharded")
_ENGINES = ("jax", "tensorflow", "torch")


class Devices(Gathering):
    """What this process trains on. It is made by `setup`, and in force until `close`.

    This class is one process on one device; the subclass of each backend overrides what more
    devices need.

    Attributes:
        mode: `"single"`, `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        replicas: parts that a batch is cut into.
        processes, process: the number of processes, and which of them this is, from 0.
        writes: whether this process writes files: the first one does.
    """

    mode, replicas, processes, process = "single", 1, 1, 0
    writes = property(lambda self: self.process == 0)

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
    def part(self):
        """Which part of a batch this process reads, and of how many."""
        return self.process, self.processes

    def share(self, data):
        """The part of the training batches that this process reads.

        Several processes need data whose `shard(process, processes)` has a part of every batch.
        """
        size = getattr(data, "batch_size", None)
        if size is not None and size % self.replicas:
            nearest = max(size - size % self.replicas, self.replicas)
            raise ValueError(
                f"The devices must divide the batch. Received: a batch of {size} images, "
                f"{self.replicas} devices; {nearest} and {nearest + self.replicas} fit."
            )
        part, parts = self.part
        if parts == 1:
            return data
        if not hasattr(data, "shard"):
            raise TypeError(
                "Several processes need data with shard(process, processes), as a pipeline of "
                f"keras_vit.data has it. Received: {type(data).__name__}."
            )
        return data.shard(part, parts)

    def feed(self, data):
        """What `model.fit` is given for the batches of `share`."""
        return data

    def explain(self, error):
        """The error to raise for an error of training: another one if a process was lost."""
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
        return self.local_copy(model).predict(x, **options)

    def save(self, model, path):
        """Saves the model from one process, for any backend and any devices; all must call it."""
        copy = self.local_copy(model)
        if self.writes:
            save_whole(copy, path)

    def local_copy(self, model):
        """A trained model on one device of this process, uncompiled; all must call it."""
        return model if self.mode == "single" else copied(model)

    # ---- the end

    def close(self):
        """Ends what `setup` began: from now on there is one device."""
        _CURRENT.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_CURRENT = []


def current() -> Devices:
    """The `Devices` in force: those of the last `setup`, or a single device."""
    return _CURRENT[-1] if _CURRENT else Devices()


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
            of each batch. `"model_parallel"`: groups of devices share a model, cut by
            `LAYOUT_RULES`, and a batch is cut over the groups. `"fully_sharded"`: a batch is cut
            over all devices, and so is each variable with its optimizer's state. `"auto"`:
            `"data_parallel"` if there is more than one device, else `"single"`.
        devices: how many devices to use; all by default.
        model_devices: with `"model_parallel"`, how many devices share a model; all by default.
        rules: with `"model_parallel"`, dict from the pattern of a variable's whole path to the
            mesh axis (`"model"` or `None`) of each of its axes, or `()` for not cut. They come
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
    check_choice("mode", mode, MODES)
    backend = keras.backend.backend()
    modes = MODES if backend == "jax" else MODES[:3] if backend in _ENGINES else MODES[:2]
    if mode not in modes:
        raise ValueError(
            f"The {backend} backend has no mode {mode!r}. Received: mode={mode!r}; take one of "
            f"{modes}, or JAX, which has {MODES}."
        )
    devices = None if devices is None else positive_int(devices, "devices")
    if mode != "model_parallel" and (model_devices is not None or rules is not None):
        raise ValueError(
            "model_devices and rules are for mode='model_parallel'. Received: "
            f"mode={mode!r}, model_devices={model_devices!r}, rules={rules!r}."
        )
    model_devices = model_devices and positive_int(model_devices, "model_devices")
    current().close()
    if mode == "single" or backend not in _ENGINES:
        chosen = Devices()
    else:
        engine = importlib.import_module(f"keras_vit.distribution.{backend}")
        chosen = engine.make(mode, devices, model_devices, rules, positive_int(timeout, "timeout"))
    _CURRENT[:] = [chosen]
    return chosen


def check_count(devices, names, processes=1, advice=""):
    """Raises a ValueError if there are not `devices` of the devices `names` of all processes."""
    if devices is None:
        return
    if devices > len(names) or (devices < len(names) and processes > 1):
        raise ValueError(
            "devices must be at most the number that exists, and in several processes all of them. "
            f"Received: devices={devices}; there are {len(names)}: {names}. {advice}"
        )
