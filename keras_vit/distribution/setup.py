"""`setup` chooses the devices; `Devices` is what one device and many of them do differently."""

import contextlib
import importlib
import json
import random
import re

import keras
import numpy as np

from keras_vit.checks import check_choice, positive_int
from keras_vit.workarounds import set_random_seed

MODES = ("auto", "single", "data_parallel", "model_parallel", "fully_sharded")
_ENGINES = ("jax", "tensorflow", "torch")


def setup(mode="auto", *, devices=None, model_devices=None, rules=None, timeout=300):
    """Chooses the devices that this process trains on, before the first model is made.

        with keras_vit.distribution.setup("data_parallel") as devices:
            with devices.scope():
                model = recipe.compile(keras_vit.ViT_B16(**recipe.model_options()))
            keras_vit.training.fit(model, train, "output", steps=recipe.steps)

    Several processes are joined if the environment names them: docs/distribution.md says how.

    Args:
        mode: `"single"`: one device. `"data_parallel"`: each device has the whole model and a part
            of each batch. `"model_parallel"`: groups of devices share a model, cut by
            `LAYOUT_RULES`, and a batch is cut over the groups. `"fully_sharded"`: a batch is cut
            over all devices, and so is each variable with its optimizer's state. `"auto"`:
            `"data_parallel"` where there is more than one device, else `"single"`.
        devices: how many devices to use; all by default.
        model_devices: with `"model_parallel"`, how many devices share a model; all by default.
        rules: with `"model_parallel"`, dict from the pattern of a variable's whole path to the
            mesh axis (`"model"` or `None`) of each of its axes, or `()` for not cut. They come
            before `LAYOUT_RULES`; each must match a variable, and each variable one rule.
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
            f"The {backend} backend has no mode {mode!r}. Received: mode={mode!r}; it has {modes}, "
            f"and JAX has {MODES}."
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

    This class itself is one process on one device, where Keras does everything. The engines, each
    in its module, override what more devices need.

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
        """Readies a compiled model for training; `training.fit` calls it.

        Raises:
            ValueError: the model was made outside of `scope`, it was compiled with what these
                devices cannot do, or its variables do not fit the layout.
        """

    def callbacks(self):
        """Callbacks that `model.fit` needs on these devices, before any other."""
        return []

    def share(self, data):
        """The part of the training batches that this process reads.

        Args:
            data: what `training.fit` takes. Several processes need its method
                `shard(process, processes)`, which returns data with a part of every batch.

        Raises:
            ValueError: the devices do not divide the batch.
            TypeError: `data` has no `shard`, and there are several processes.
        """
        size = getattr(data, "batch_size", None)
        if size is not None and size % self.replicas:
            nearest = max(size - size % self.replicas, self.replicas)
            raise ValueError(
                "Every device must get the same number of images. Received: a batch of "
                f"{size} images, {self.replicas} devices; the nearest sizes that fit are "
                f"{nearest} and {nearest + self.replicas}."
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

        Args:
            model: a compiled model.
            data: what `model.evaluate` takes, (images, labels) as one tuple. On several devices, a
                `keras_vit.data` pipeline, a `keras.utils.PyDataset` or arrays.
            **options: of `model.evaluate`.
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
            copy.save(path)

    def local_copy(self, model):
        """A trained model on one device of this process, uncompiled; all must call it."""
        return model

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
        """Checks that all processes have the same facts, a dict that JSON can hold.

        Raises:
            ValueError: they have not; the message tells which process has what.
        """
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
                f"All processes must have the same {what}. Received:{''.join(told)}\nStart every "
                "process with the same command, code and packages, and an output folder that all "
                "see."
            )

    def any_of(self, *flags):
        """For each flag, whether it is true in any process."""
        return [bool(flag) for flag in self.stack(np.array(flags, np.int32)).any(0)]

    def seed_alike(self):
        """Gives all processes the random state of the first: they make one model together."""
        # Keras draws the seeds of layers from Python's generator.
        seeds = self.gather(str(random.Random(str(random.getstate())).randrange(2**31)))
        if len(set(seeds)) > 1:
            set_random_seed(int(seeds[0]))

    def explain(self, error):
        """The error to raise for one of training: another one if a process was lost."""
        words = "gloo|nccl|collective|connection|peer|unavailable|socket|aborted|cancelled|deadline"
        first = (str(error).splitlines() or [""])[0]
        if self.processes == 1 or not re.search(words, str(error), re.IGNORECASE):
            return error
        return ConnectionError(
            f"Process {self.process} of {self.processes} lost another one, which was killed, has "
            f"failed (see its output) or does not answer. Received: {first[:300]}. Start all again "
            "with the same command: training goes on from the last checkpoint."
        )

    def close(self):
        """Ends what `setup` began; what comes after is on one device again."""
        _CURRENT.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return (
            f"{type(self).__name__}({self.mode!r}, replicas={self.replicas}, "
            f"process={self.process} of {self.processes})"
        )


_CURRENT = []


def current():
    """The `Devices` in force: those of the last `setup`, or a single device."""
    return _CURRENT[-1] if _CURRENT else Devices()


def to_numpy(value):
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


def batches_of(data):
    """The batches of an evaluation, one after the other.

    Raises:
        TypeError: `data` is not what `Devices.evaluate` takes on several devices.
    """
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
            "Data for an evaluation on several devices must be a keras_vit.data pipeline, a "
            f"keras.utils.PyDataset or arrays. Received: {type(data).__name__}."
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
