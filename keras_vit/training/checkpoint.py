"""The state of a training run, and the files that keep it."""

import itertools
import json
import math
import re
import shutil
import time
import zipfile

import keras
import numpy as np

from keras_vit.checks import require
from keras_vit.distribution import to_numpy
from keras_vit.text import abridged, visible
from keras_vit.writing import output_place, replacing

NAME = r"step-\d+\.npz"
RECORD = "run.json"  # in a checkpoint, and all that an ended run keeps of its last one


class CheckpointError(OSError):
    """A checkpoint could not be written, or none that is left can be read."""


# ---- the state of a compiled model


def build_state(model, batch):
    """Builds optimizer and metrics by a batch, before `fit` does: a checkpoint needs them."""
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


def state_variables(model):
    """Name in a checkpoint -> variable, of all (seeds included) that the next update depends on."""
    groups = {
        "model": changing(model, model.variables),
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }
    return {f"{group}/{i:04d}": v for group, vs in groups.items() for i, v in enumerate(vs)}


def changing(model, variables):
    """Variables of a model without its `constant_variables`, which training leaves as they are."""
    constant = {id(v) for v in getattr(model, "constant_variables", ())}
    return [v for v in variables if id(v) not in constant]


def read_state(model):
    """Pairs of a name and an array, one at a time: no second copy of all is in memory.

    All processes must call it. Raises a FloatingPointError where a weight is not finite.
    """
    sync(model)
    for name, variable in state_variables(model).items():
        value = value_of(variable)
        weight = name.startswith("model/") and value.dtype.kind == "f"
        if weight and not np.isfinite(value).all():
            raise FloatingPointError(f"the weight {variable.path} is not finite")
        yield name, value


def assign_state(model, arrays):
    """Assigns the arrays of a checkpoint, a dict from name to array, if they are the model's."""
    variables = state_variables(model)
    saved = {name: tuple(array.shape) for name, array in arrays.items()}
    wanted = {name: tuple(variable.shape) for name, variable in variables.items()}
    if saved != wanted:
        name = next(n for n in saved | wanted if saved.get(n) != wanted.get(n))
        path = f" ({variables[name].path})" if name in variables else ""
        raise ValueError(
            f"The checkpoint is of another model or optimizer: {name}{path} has shape "
            f"{saved.get(name)} there. Received: {wanted.get(name)}; choose another output folder."
        )
    for name, array in arrays.items():
        variables[name].assign(array)


def sync(model):
    """Gives the variables their present values, which `fit` on JAX withholds within an epoch."""
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


def inner_optimizer(model):
    """The optimizer, or the one inside that which scales the loss under mixed_float16."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


# ---- files


class SaveEvery:
    """When a checkpoint is due: after updates, an int, or after seconds, text such as "600s"."""

    def __init__(self, interval):
        match = re.fullmatch(r"0*[1-9]\d*|(\d+(?:\.\d+)?)s", str(interval))
        rule = 'save_every must be a number of updates such as 500, or seconds as text, as "600s"'
        require(match, rule, received=interval)
        self._seconds = math.inf if match[1] is None else float(match[1])
        self._updates = math.inf if match[1] else int(interval)
        self.saved(0)

    def saved(self, updates):
        """Begins to count anew, as a checkpoint after so many updates was written or read."""
        self._last_update, self._last_time = updates, time.monotonic()

    def due_by_updates(self, updates):
        """Whether the updates ask for a checkpoint after so many of them."""
        return updates // self._updates > self._last_update // self._updates

    def due_by_clock(self):
        return time.monotonic() - self._last_time >= self._seconds


class Checkpoints:
    """A folder of files `step-<number>.npz`, of which the `keep` newest stay.

    A file is written beside its place and moved there when the disk has it; the one before stays
    until then. So the process may be killed, or the disk fill up, at any moment. Each array has a
    checksum (CRC-32, by the zip format), by which a damaged file is recognised. Of several
    processes that train one model, one `writes`.
    """

    def __init__(self, folder, keep=2, writes=True):
        self.folder, self.keep, self.writes = folder, keep, writes
        self._damaged = set()
        output_place(folder, folder=True)
        if writes:  # what runs have left that were killed while they wrote
            for drafts in folder.glob(".step-*.npz.????????"):
                shutil.rmtree(drafts)
        for path in self.paths():
            output_place(path)  # reading a pipe would never end; a folder cannot be replaced

    def paths(self):
        return [p for p in sorted(self.folder.glob("step-*.npz")) if re.fullmatch(NAME, p.name)]

    def save(self, step, arrays, meta):
        """Writes a checkpoint, removes those that are no longer kept, and returns its path.

        `step` counts batches, `arrays` are pairs of a name and an array, and `meta` is what JSON
        can hold, and NumPy arrays.
        """
        path = self.folder / f"step-{step:010d}.npz"
        if not self.writes:
            for _ in arrays:  # reading a value may need all processes
                pass
            return path
        arrays_of_meta = {}

        def name_of(array):
            if not isinstance(array, np.ndarray):
                raise TypeError(f"JSON cannot hold a {type(array).__name__}. Received: {array!r}.")
            name = f"meta/{len(arrays_of_meta):04d}"
            arrays_of_meta[name] = array
            return {"array": name}

        text = json.dumps(meta, default=name_of)
        try:
            with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
                for name, array in itertools.chain(arrays, arrays_of_meta.items()):
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
                archive.writestr(RECORD, text)
        except OSError as error:
            state, then = "There is none before it", "begins anew"
            if before := self.paths():
                state, then = f"{before[-1]} is untouched", "continues from there"
            reason = f"The checkpoint {path} could not be written: {error.strerror or error}. "
            reason += f"{state}; run the same command again: it {then}."
            raise CheckpointError(error.errno, reason) from error
        paths = self.paths()
        good = [old for old in paths if old == path or old not in self._damaged]
        for old in set(paths).difference(good[-self.keep :]):
            old.unlink()
        self._damaged.clear()
        return path

    def latest(self):
        """(path, meta, arrays) of the newest checkpoint that is whole, or None without any."""
        for path in reversed(self.paths()):
            stream = open(path, "rb")  # an error of the disk or of rights is none of the content
            try:
                with stream, np.load(stream, allow_pickle=False) as file:  # it compares checksums
                    arrays = {name: file[name] for name in file.files}
                return path, _meta_of(arrays.pop(RECORD), arrays), arrays
            except Exception as error:  # a damaged archive may raise nearly anything
                self._damaged.add(path)
                text = f"The checkpoint {path} is damaged: {error}. Looking at the one before."
                print(abridged(visible(text)))
        if self._damaged:
            raise CheckpointError(
                f"Every checkpoint in {self.folder} is damaged. Delete the folder to begin anew."
            )
        return None


def _meta_of(text, arrays):
    """What JSON holds, with the arrays that it names in their places; they leave `arrays`."""

    def placed(value):
        is_name = value.keys() == {"array"} and value["array"] in arrays
        return arrays.pop(value["array"]) if is_name else value

    return json.loads(text, object_hook=placed)
