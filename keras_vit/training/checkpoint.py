"""The state of a training run, and the files that keep it."""

import contextlib
import json
import os
import pathlib
import shutil
import time
import zipfile

import filelock
import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.distribution import to_numpy


class CheckpointError(OSError):
    """A checkpoint could not be written, or none that is left can be read."""


class TrainingState:
    """All variables that the next update depends on.

    These are the weights, the state of the optimizer, the seed generators of layers (which are
    variables of the model), and the metrics of the present epoch.

    Args:
        model: a compiled model.
        batch: one of its batches. The optimizer and the metrics are built by it, as `fit` would
            do at its first batch, which is too late to restore a checkpoint.
    """

    def __init__(self, model, batch):
        self.model = model
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        specs = keras.tree.map_structure(
            lambda v: keras.KerasTensor(v.shape, keras.backend.standardize_dtype(v.dtype)), x
        )
        if not model.built:
            model.build(keras.tree.map_structure(lambda v: v.shape, specs))
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        outputs = model.compute_output_spec(specs)
        outputs = keras.tree.map_structure(lambda v: keras.ops.zeros(v.shape, v.dtype), outputs)
        with keras.StatelessScope():  # what they count is not kept
            model.compute_loss(x, y, outputs, weights)
            model.compute_metrics(x, y, outputs, weights)

    @property
    def variables(self):
        """Name in a checkpoint -> variable."""
        groups = {
            "model": self.model.variables,
            "optimizer": self.model.optimizer.variables,
            "metrics": self.model.metrics_variables,
        }
        return {f"{group}/{i:04d}": v for group, vs in groups.items() for i, v in enumerate(vs)}

    def save(self):
        """Pairs of a name and an array, made one at a time: no second copy of all is in memory.

        Reading a variable that lies on several processes needs all of them.
        """
        sync(self.model)
        for name, variable in self.variables.items():
            yield name, value_of(variable)

    def restore(self, arrays):
        """Assigns the arrays of a checkpoint, a dict from name to array.

        Raises:
            ValueError: the model is another one: a variable is missing or has another shape.
        """
        variables = self.variables
        there = {name: tuple(array.shape) for name, array in arrays.items()}
        here = {name: tuple(variable.shape) for name, variable in variables.items()}
        if there != here:
            name = next(n for n in {**there, **here} if there.get(n) != here.get(n))
            path = f" ({variables[name].path})" if name in variables else ""
            raise ValueError(
                f"The checkpoint is of another model or optimizer: {name}{path} has shape "
                f"{there.get(name)} there. Received: {here.get(name)}. Build what was trained, or "
                "choose another output folder."
            )
        self.assign(arrays)

    def assign(self, arrays):
        """Assigns some of the arrays of a checkpoint that was restored."""
        variables = self.variables
        for name, array in arrays.items():
            variables[name].assign(array)

    def first_not_finite(self):
        """The path of the first weight that holds NaN or infinity, or None."""
        sync(self.model)
        for variable in self.model.variables:
            value = value_of(variable)
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                return variable.path
        return None


def sync(model):
    """Gives the variables their present values: on JAX `fit` keeps them to itself in an epoch."""
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def value_of(variable):
    """The value as an array of a type that NumPy has; bfloat16 and float8 fit in float32."""
    dtype = keras.backend.standardize_dtype(variable.dtype)
    value = variable.value
    if hasattr(value, "read_value"):  # of TensorFlow, where it may be one for each device
        value = value.read_value()
    if dtype == "bfloat16" or dtype.startswith("float8"):
        value = keras.ops.cast(value, "float32")
    return to_numpy(value)


class Checkpoints:
    """A folder of files `step-<number>.npz`, of which the last ones are kept.

    A file is written beside its place and moved there when the disk has it; the one before stays
    until then. So the process may be killed, or the disk fill up, at any moment. Each array has a
    checksum (CRC-32, by the zip format), by which a damaged file is recognised.

    Args:
        folder: where the files are; it is created.
        keep: how many of the newest stay.
        writes: whether this process does; of several that train one model, one writes.
    """

    def __init__(self, folder, keep=2, writes=True):
        self.folder, self.keep, self.writes = pathlib.Path(folder), keep, writes
        self._damaged = set()
        if writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            for partial in self.folder.glob("*.partial"):
                partial.unlink()  # of a run that was killed while it wrote

    def paths(self):
        """The files, oldest first."""
        return sorted(self.folder.glob("step-*.npz"))

    def save(self, step, arrays, meta):
        """Writes the checkpoint of a step, and removes those that are no longer kept.

        Args:
            step: batches done so far.
            arrays: pairs of a name and an array.
            meta: what JSON can hold.

        Returns:
            The path.

        Raises:
            CheckpointError: the disk is full or fails. The earlier checkpoints are untouched.
        """
        path = self.folder / f"step-{step:010d}.npz"
        if not self.writes:
            for _ in arrays:  # reading a value may need all processes
                pass
            return path
        partial = path.with_suffix(".partial")
        try:
            with open(partial, "wb") as file:
                _write(file, arrays, meta)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            left = self.paths()
            kept = f"{left[-1]} is untouched" if left else "there is none before it"
            free = shutil.disk_usage(self.folder).free
            raise CheckpointError(
                error.errno,
                f"The checkpoint {path} could not be written: {error}. {free} bytes are free; "
                f"{kept}. Make room and run the same command again: it continues from there.",
            ) from error
        self._damaged.discard(path)
        later = [old for old in self.paths() if old > path]  # damaged, or they would have been read
        good = [old for old in self.paths() if old not in self._damaged and old not in later]
        for old in {*self._damaged, *later, *good[: -self.keep]}:
            old.unlink(missing_ok=True)
        return path

    def latest(self):
        """The newest checkpoint that is whole: (path, meta, arrays), or None if there is none yet.

        Raises:
            CheckpointError: there are files, and all are damaged.
        """
        for path in reversed(self.paths()):
            try:
                return path, *_read(path)
            except Exception as error:  # a damaged archive may raise nearly anything
                self._damaged.add(path)
                print(f"The checkpoint {path} is damaged: {error}. Looking at the one before.")
        if self._damaged:
            raise CheckpointError(
                f"Every checkpoint in {self.folder} is damaged: "
                f"{', '.join(sorted(path.name for path in self._damaged))}. Delete the folder to "
                "begin the run anew."
            )
        return None


class SaveInterval:
    """When the next checkpoint is due.

    Args:
        every: updates between two checkpoints, or seconds as text such as "600s".

    Raises:
        ValueError: neither of them.
    """

    def __init__(self, every):
        self.steps = self.seconds = None
        with contextlib.suppress(ValueError):
            if isinstance(every, str) and every.endswith("s"):
                self.seconds = float(every[:-1])
            else:
                self.steps = positive_int(every, "save_every")
        if not (self.steps or (self.seconds and self.seconds > 0)):
            raise ValueError(
                "save_every must be a number of updates such as 500, or of seconds such as "
                f'"600s". Received: {every!r}'
            )
        self.saved(0)

    def saved(self, step):
        """Takes note of a checkpoint."""
        self._step, self._time = step, time.monotonic()

    def due(self, step):
        """Whether it is time for one."""
        if self.steps:
            return step // self.steps > self._step // self.steps
        return time.monotonic() - self._time >= self.seconds


def _write(file, arrays, meta):
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        archive.writestr("run.json", json.dumps(meta))


def _read(path):
    """The description and a dict from name to array; zipfile compares the checksums."""
    with np.load(path, allow_pickle=False) as file:
        names = [name for name in file.files if name != "run.json"]
        return json.loads(file["run.json"]), {name: file[name] for name in names}


@contextlib.contextmanager
def only_run_in(folder):
    """While it is entered, no other process can enter it for the same folder.

    The lock is the operating system's and ends with the process, however that ends.

    Raises:
        ValueError: another run has the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=1)
    except filelock.Timeout:
        raise ValueError(
            f"Another run is writing to this folder. Received: output={str(folder)!r}; wait for "
            "its end, stop it, or choose another folder."
        ) from None
    try:
        yield
    finally:
        lock.release()


def inner_optimizer(model):
    """The optimizer, or the one inside that which scales the loss under mixed_float16."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)
