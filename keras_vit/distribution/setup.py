"""`setup` chooses the devices; `Devices` is what one device and many of them do differently."""

import contextlib
import importlib
import itertools
import json
import random

import keras
import numpy as np

from keras_vit.checks import check_choice, positive_int
from keras_vit.distribution import ending
from keras_vit.workarounds import set_random_seed
from keras_vit.writing import save_whole

MODES = ("auto", "single", "data_parallel", "model_parallel", "fully_sharded")
_ENGINES = ("jax", "tensorflow", "torch")


def setup(
    mode: str = "auto",
    *,
    devices: int | None = None,
    model_devices: int | None = None,
    rules: dict[str, tuple[str | None, ...]] | None = None,
    timeout: int = 300,
) -> "Devices":
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
        timeout: seconds after which the engine gives up a process that does not answer.

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


class Devices:
    """What this process trains on. It is made by `setup`, and in force until `close`.

    This class is one process on one device; the subclass of each backend overrides what more
    devices need.

    Attributes:
        mode: `"single"`, `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        replicas: parts that a batch is cut into.
        processes, process: how many there are, and the number of this one.
        writes: whether this process writes files: the first one does.
    """

    mode, replicas, processes, process = "single", 1, 1, 0
    writes = property(lambda self: self.process == 0)

    def scope(self):
        """A context within which models are made and compiled."""
        return contextlib.nullcontext()

    def prepare(self, model):
        """Prepares a compiled model for `training.fit`, or raises a ValueError if it cannot."""

    def callbacks(self):
        """Callbacks that `model.fit` needs on these devices, before any other."""
        return []

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

    @property
    def part(self):
        """Which part of a batch this process reads, and of how many."""
        return self.process, self.processes

    def feed(self, data):
        """What `model.fit` is given for the batches of `share`."""
        return data

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

    def gather(self, text):
        """One text of each process, in every process, as a list by number of the process."""
        data = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        lengths = self.stack(np.array([len(data)], np.int32))[:, 0]
        rows = self.stack(np.pad(data, (0, max(lengths) - len(data))))
        return [bytes(row[:n].astype(np.uint8)).decode() for row, n in zip(rows, lengths)]

    def stack(self, array):
        """An int32 array of each process, of the same shape in all, along a new first axis."""
        return array[None]

    def agree(self, what, facts):
        """Raises a ValueError where the facts, a dict for JSON, differ between the processes."""
        all_facts = [json.loads(text) for text in self.gather(json.dumps(facts))]
        names = dict.fromkeys(name for each in all_facts for name in each)
        told = [
            f"\n  {name} is {each.get(name)!r} in process {i}"
            for name in names
            for i, each in enumerate(all_facts)
            if any(each.get(name) != other.get(name) for other in all_facts)
        ]
        if told:
            raise ValueError(
                f"All processes must have the same {what}. Received:{''.join(told)}\n"
                "Start all with the same command, code, packages and output folder."
            )

    def any_of(self, *flags):
        """For each flag, whether it is true in any process."""
        return [bool(flag) for flag in self.stack(np.array(flags, np.int32)).any(0)]

    def seed_alike(self):
        """Gives all processes the random state of the first, so that they make the same model."""
        # Keras draws the seeds of layers from Python's generator.
        seeds = self.gather(str(random.Random(str(random.getstate())).randrange(2**31)))
        if len(set(seeds)) > 1:
            set_random_seed(int(seeds[0]))

    def explain(self, error):
        """The error to raise for an error of training: another one if a process was lost."""
        return ending.explain(error, self.process, self.processes)

    def close(self):
        """Ends what `setup` began: from now on there is one device."""
        _CURRENT.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


_CURRENT = []


def current() -> "Devices":
    """The `Devices` in force: those of the last `setup`, or a single device."""
    return _CURRENT[-1] if _CURRENT else Devices()


def check_count(devices, names, processes, advice):
    """Raises a ValueError if there are not `devices` of the devices `names` of all processes."""
    if devices is not None and devices > len(names):
        raise ValueError(
            f"There are not so many devices. Received: devices={devices}; there are {len(names)}: "
            f"{names}. {advice}"
        )
    if devices is not None and devices < len(names) and processes > 1:
        raise ValueError(
            "Several processes use all of their devices. Received: "
            f"devices={devices}, {len(names)} devices of {processes} processes; leave devices out."
        )


def to_numpy(value: object) -> np.ndarray:
    """A variable or tensor as an array; of one that processes share, all of them must call it."""
    if isinstance(value, keras.Variable):
        value = value.value
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def copied(model):
    """A model with the same architecture and weights, made where Keras makes models now."""
    values = [to_numpy(variable) for variable in model.weights]
    copy = type(model).from_config(model.get_config())
    copy.set_weights(values)
    return copy


def evaluate_batches(model, batches, batch_size=None, **options):
    """Evaluates the batches of an iterator; returns whether there were any."""
    first = next(batches, None)
    if first is not None:  # Keras takes a generator
        model.evaluate((batch for batch in itertools.chain([first], batches)), **options)
    return first is not None


def results_of(model):
    """The metrics of a model as a dict of floats."""
    return {name: float(value) for name, value in model.get_metrics_result().items()}


def batches_of(data):
    """The batches of an evaluation on several devices."""
    if isinstance(data, (tuple, list)):
        for start in range(0, len(data[0]), 32):  # Keras's default
            yield tuple(array[start : start + 32] for array in data)
    elif hasattr(data, "from_step"):
        yield from data
    elif isinstance(data, keras.utils.PyDataset):
        for i in range(len(data)):
            yield data[i]
    else:
        raise TypeError(
            "Several devices evaluate a keras_vit.data pipeline, a keras.utils.PyDataset or "
            f"arrays. Received: {type(data).__name__}."
        )


def rows(data, part, parts):
    """One part of every batch of an evaluation; a part of the last batch may be empty."""
    if hasattr(data, "shard") and data.batch_size % parts == 0:
        yield from data.shard(part, parts)
    else:
        for batch in batches_of(data):
            count = len(keras.tree.flatten(batch)[0])
            own = slice(count * part // parts, count * (part + 1) // parts)
            yield keras.tree.map_structure(lambda x: np.asarray(x)[own], batch)  # noqa: B023
