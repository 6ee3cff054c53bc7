"""Many devices with JAX: `keras.distribution`, in one process or several."""

import contextlib
import os
import sys

import keras
import numpy as np

from keras_vit.distribution import layout
from keras_vit.distribution.setup import (
    Devices,
    batches_of,
    check_count,
    evaluate_batches,
    results_of,
    to_numpy,
)

_VARIABLES = tuple(
    f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")
)


class JaxDevices(Devices):
    """Devices of JAX, under a `keras.distribution` that is set for the whole process.

    The arguments are those of `setup`; `names` are the devices as `keras.distribution.list_devices`
    has them.
    """

    def __init__(self, mode, names, model_devices=1, rules=None):
        import jax

        self.mode, self._own_rules = mode, dict(rules or {})
        self._rules = {**self._own_rules, **layout.LAYOUT_RULES}
        self.processes, self.process = jax.process_count(), jax.process_index()
        self.model_devices = model_devices if mode == "model_parallel" else 1
        shared, own = self.model_devices, len(names) // self.processes
        if len(names) % shared or (own % shared and shared % own):
            raise ValueError(
                "model_devices must divide the devices, and those that share a model must be some "
                f"of one process or all of several. Received: model_devices={shared}, {len(names)} "
                f"devices, {self.processes} processes of {own}."
            )
        self.replicas = len(names) // self.model_devices
        if mode == "data_parallel":
            self.distribution = _DataParallel(devices=names, auto_shard_dataset=False)
        else:
            shape, axes = (self.replicas, self.model_devices), [layout.BATCH, layout.MODEL]
            self.distribution = _ByAxes(self, keras.distribution.DeviceMesh(shape, axes, names))
        keras.distribution.set_distribution(self.distribution)
        if self.processes > 1:
            self.seed_alike()

    def prepare(self, model):
        import jax

        several = self.replicas * self.model_devices > 1
        for variable in model.variables if several else ():
            if not isinstance(variable.value.sharding, jax.sharding.NamedSharding):
                raise ValueError(
                    "The model must be made after distribution.setup, which spreads its variables. "
                    f"Received: {model.name} with {variable.path} on {variable.value.sharding}."
                )
        rules = {**self._rules, **layout.rules_of_heads(model)}
        if self.mode == "model_parallel":
            layout.check_rules(self._own_rules, [variable.path for variable in model.variables])
            for variable in model.variables:
                layout.split_axes(rules, variable.path, variable.shape, self.model_devices)
        if self.mode == "fully_sharded" and all(
            v.value.sharding.is_fully_replicated for v in model.trainable_variables
        ):
            raise ValueError(
                "fully_sharded found no variable whose longest axis the devices divide. Received: "
                f"{self.replicas} devices; use another number, or data_parallel."
            )

    @property
    def part(self):
        # The processes that share a model read the same part.
        parts = min(self.processes, self.replicas)
        return self.process * parts // self.processes, parts

    def evaluate(self, model, data, **options):
        # Of each batch, the rows that the devices do not divide are left over. They are evaluated
        # at the end, whole on every device, and the sums of both evaluations are added.
        sums, left = [], []
        if evaluate_batches(model, self._even_rows(data, left), **options):
            sums.append([to_numpy(v) for v in model.metrics_variables])
        if left:
            rest = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *left)
            with self.distribution.whole_batches():
                evaluate_batches(model, iter([rest]), **options)
            sums.append([to_numpy(v) for v in model.metrics_variables])
        for variable, *parts in zip(model.metrics_variables, *sums):
            variable.assign(sum(parts))
        return results_of(model)

    def _even_rows(self, data, left):
        """This process's part of what the devices divide of each batch; `left` gets the rest."""
        part, parts = self.part
        for batch in batches_of(data):
            batch = keras.tree.map_structure(np.asarray, tuple(batch))
            count = len(keras.tree.flatten(batch)[0])
            even = count - count % self.replicas
            own = slice(even * part // parts, even * (part + 1) // parts)
            if even:
                yield keras.tree.map_structure(lambda x: x[own], batch)  # noqa: B023
            if even < count:
                left.append(keras.tree.map_structure(lambda x: x[even:], batch))  # noqa: B023

    def local_copy(self, model):
        with self._alone():
            return super().local_copy(model)

    def predict(self, model, x, **options):
        copy = self.local_copy(model)
        with self._alone():
            return copy.predict(x, **options)

    @contextlib.contextmanager
    def _alone(self):
        """Within it Keras knows one device, of this process."""
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self.distribution)

    def stack(self, array):
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(array)).reshape(-1, *array.shape)

    def axes(self, variable):
        """The mesh axis of each axis of a variable."""
        shape = tuple(variable.shape)
        if self.mode == "fully_sharded":
            axis = layout.largest_axis(shape, self.replicas)
            return tuple(layout.BATCH if i == axis else None for i in range(len(shape)))
        if layout.find_rule(self._rules, variable.path) is None:  # `prepare` asks for one
            return (None,) * len(shape)
        return layout.split_axes(self._rules, variable.path, shape, self.model_devices)

    def close(self):
        keras.distribution.set_distribution(None)
        super().close()


class _WholeBatches:
    """A distribution of Keras that can also put a whole batch on every device."""

    _whole = False

    @contextlib.contextmanager
    def whole_batches(self):
        self._whole = True
        try:
            yield
        finally:
            self._whole = False

    def get_data_layout(self, data_shape):
        if not self._whole:
            return super().get_data_layout(data_shape)
        return keras.distribution.TensorLayout([None] * len(data_shape), self.device_mesh)


class _DataParallel(_WholeBatches, keras.distribution.DataParallel):
    pass


class _ByAxes(_WholeBatches, keras.distribution.ModelParallel):
    """Cuts variables as `devices.axes` says, and what layers return as `layout` says."""

    def __init__(self, devices, mesh):
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),
            batch_dim_name=layout.BATCH,
            auto_shard_dataset=False,
        )
        self._devices = devices

    def get_variable_layout(self, variable):
        given = super().get_variable_layout(variable)  # an optimizer's slot has its variable's
        if any(given.axes):
            return given
        return keras.distribution.TensorLayout(self._devices.axes(variable), self.device_mesh)

    def get_tensor_layout(self, path):
        import jax

        # Outside of a compiled step a batch that the devices do not divide cannot be cut.
        is_compiling = isinstance(jax.numpy.ones(1), jax.core.Tracer)
        if not is_compiling or not layout.has_whole_features(path, self._devices.mode):
            return None
        return keras.distribution.TensorLayout([layout.BATCH], self.device_mesh)


def make(mode, devices, model_devices, rules, timeout):
    """`JaxDevices`, or `Devices` for one; the arguments are those of `setup`."""
    import jax

    _join(timeout)
    names, processes = keras.distribution.list_devices(), jax.process_count()
    if mode == "auto":
        mode = "data_parallel" if len(names) > 1 else "single"
    if mode == "single":
        return Devices()
    flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
    check_count(devices, names, processes, f"On a CPU, {flag} makes as many.")
    names = names[:devices]
    return JaxDevices(mode, names, model_devices or len(names), rules)


def _join(timeout):
    """Lets JAX join the other processes that the variables name or that JAX itself detects."""
    import jax

    if jax.distributed.is_initialized():
        return
    given = {name: os.environ[name] for name in _VARIABLES if os.environ.get(name)}
    missing = [name for name in _VARIABLES if name not in given]
    if given and missing:
        raise ValueError(
            f"Several processes need the environment variables {_VARIABLES}. Received: no "
            f"{missing}; set them in every process, or none of them."
        )
    if not given and os.environ.get("SLURM_NTASKS") == "1":
        return  # JAX would give this one process one device of the node
    options = {}
    if given:
        addresses, *numbers = given.values()
        if not all(number.isdigit() for number in numbers) or int(numbers[1]) >= int(numbers[0]):
            raise ValueError(
                f"Processes are numbered from 0 to {_VARIABLES[1]} - 1. Received: {given}."
            )
        options = {
            "coordinator_address": addresses.split(",")[0],
            "num_processes": int(numbers[0]),
            "process_id": int(numbers[1]),
            "cluster_detection_method": "deactivate",
        }
        # JAX ends a process that finds no other; this line tells where it looked.
        print(f"JAX joins {options}, within {timeout} s.", file=sys.stderr)
    # This service would take SIGTERM, which `training.fit` obeys, for itself.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            **options,
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=timeout,
            # The first process may evaluate for hours when the others are done.
            shutdown_timeout_seconds=7 * 24 * 3600,
        )
    except ValueError:  # JAX detects no cluster
        if given:
            raise
    except RuntimeError as error:
        late = "must be called before" in str(error)  # JAX has computed something
        if late and not given:
            return  # a single process, as far as anybody can tell
        advice = "call distribution.setup first" if late else "choose a port that all of them reach"
        raise (ValueError if late else ConnectionError)(
            f"JAX's processes cannot join. Received: {options or 'what JAX detected'}, "
            f"{str(error).splitlines()[0]}; {advice}."
        ) from error
