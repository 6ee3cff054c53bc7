"""Many devices with JAX: a mesh of devices, and how weights and batches lie on it.

`make_mesh` arranges the devices, a `Sharding` says how each array is split over them, and
`JaxDevices` puts it in force: from then on Keras places all that it makes by it.
"""

import contextlib

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils

from keras_vit.distribution import evaluating, jax_processes, layout
from keras_vit.distribution.devices import Devices, check_count
from keras_vit.distribution.processes import seed_alike
from keras_vit.workarounds import is_compiling


def make(mode, devices, model_devices, rules, timeout):
    """`JaxDevices`, or `Devices` for one; the arguments are those of `setup`."""
    jax_processes.join(timeout)
    names, processes = keras.distribution.list_devices(), jax.process_count()
    if mode == "auto":
        mode = "data_parallel" if len(names) > 1 else "single"
    if mode == "single":
        return Devices()
    flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
    check_count(devices, names, processes, f"On a CPU, {flag} makes as many.")
    names = names[:devices]
    model_devices = (model_devices or len(names)) if mode == "model_parallel" else 1
    return JaxDevices(mode, make_mesh(names, model_devices, processes), rules or {})


def make_mesh(names, model_devices, processes):
    """The mesh (batch, model) of the devices `names`: each row of them shares a model."""
    local = len(names) // processes
    if len(names) % model_devices or (local % model_devices and model_devices % local):
        raise ValueError(
            "model_devices must divide the devices, and those that share a model must be some "
            f"of one process or all of several. Received: model_devices={model_devices}, "
            f"{len(names)} devices, {processes} processes of {local}."
        )
    shape = (len(names) // model_devices, model_devices)
    return keras.distribution.DeviceMesh(shape, [layout.BATCH, layout.MODEL], names)


class Sharding(keras.distribution.ModelParallel):
    """A distribution of Keras: which axis of each array is split over which axis of a mesh.

    `mode` is one of `setup`, `rules` are like `LAYOUT_RULES`, for `"model_parallel"`, and with
    `shards_batches=False` each device has all rows of a batch.
    """

    def __init__(self, mode, mesh, rules, shards_batches=True):
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),  # empty: `get_variable_layout` decides
            batch_dim_name=layout.BATCH,
            auto_shard_dataset=False,  # each process reads its part
        )
        self._mode, self._rules = mode, rules
        self._batch_axis = layout.BATCH if shards_batches else None

    def get_data_layout(self, data_shape):
        return self._layout([self._batch_axis] + [None] * (len(data_shape) - 1))

    def get_variable_layout(self, variable):
        of_keras = super().get_variable_layout(variable)
        if any(of_keras.axes):  # of an optimizer's slot, which is split as its weight is
            return of_keras
        path, shape = variable.path, variable.shape
        replicas, model_devices = self.device_mesh.shape
        axes = (None,) * len(shape)  # of a metric, say, which no rule covers
        if self._mode == "fully_sharded":
            axes = layout.shard_longest_axis(shape, replicas)
        elif self._mode == "model_parallel" and layout.find_rule(self._rules, path):
            axes = layout.split_axes(self._rules, path, shape, model_devices)
        return self._layout(axes)

    def get_tensor_layout(self, path):
        # Only in a compiled step can Keras split a batch that the devices do not divide.
        if layout.has_replicated_output(path, self._mode) and is_compiling():
            return self._layout([layout.BATCH])
        return None

    def _layout(self, axes):
        return keras.distribution.TensorLayout(axes, self.device_mesh)


class JaxDevices(Devices):
    """The devices of a mesh, over which a `Sharding` splits all that Keras makes."""

    def __init__(self, mode, mesh, user_rules):
        self.mode = mode
        self.process, self.processes = jax.process_index(), jax.process_count()
        self.replicas, self.model_devices = mesh.shape
        # The first rule that matches decides: those of the user come before those of the library,
        # and one with the same pattern replaces that of the library.
        library = {p: axes for p, axes in layout.LAYOUT_RULES.items() if p not in user_rules}
        self.user_rules, self.rules = user_rules, user_rules | library
        self.distribution = Sharding(mode, mesh, self.rules)
        keras.distribution.set_distribution(self.distribution)
        # For rows of an evaluation that the devices do not divide.
        self.whole_batches = Sharding(mode, mesh, self.rules, shards_batches=False)
        seed_alike(self)

    def check_model(self, model):
        is_one_device = self.replicas * self.model_devices == 1  # which has no `NamedSharding`
        for v in model.variables:
            if not (is_one_device or isinstance(v.value.sharding, jax.sharding.NamedSharding)):
                raise ValueError(
                    "The model must be made after distribution.setup, which spreads its variables. "
                    f"Received: {model.name} with {v.path} on {v.value.sharding}."
                )
        if self.mode == "model_parallel":
            layout.check_rules(self.user_rules, [v.path for v in model.variables])
            rules = self.rules | layout.rules_of_heads(model)
            for v in model.variables:  # each must have a rule that fits its shape
                layout.split_axes(rules, v.path, v.shape, self.model_devices)
        if self.mode == "fully_sharded" and all(
            v.value.sharding.is_fully_replicated for v in model.trainable_variables
        ):
            raise ValueError(
                "fully_sharded found no variable whose longest axis the devices divide. Received: "
                f"{self.replicas} devices; use another number, or data_parallel."
            )

    @property
    def data_shard(self):
        # Processes that share a model read the same rows: of 4 with 2 replicas, shards 0, 0, 1, 1.
        count = min(self.processes, self.replicas)
        return self.process * count // self.processes, count

    def evaluate(self, model, data, batch_size=None, **options):
        """Each process feeds its shard of the rows of every batch that the devices divide.

        The remaining rows are evaluated at the end, whole on every device. Metrics of Keras are
        sums, so those of both evaluations are added; Keras cannot go on where the first one ended.
        """
        remainders = []  # which the first evaluation fills
        batches = evaluating.batches_of(data, batch_size)
        even = evaluating.even_shards(batches, self.replicas, self.data_shard, remainders)
        sums = [evaluating.evaluate_batches(model, even, **options)]
        with self.whole_batches.scope():
            uneven = evaluating.joined(remainders)
            sums.append(evaluating.evaluate_batches(model, uneven, **options))
        for variable, *values in zip(model.metrics_variables, *filter(None, sums)):
            variable.assign(sum(values))
        return evaluating.results_of(model)

    @contextlib.contextmanager
    def one_device(self):
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self.distribution)

    def gather(self, array):
        return np.asarray(multihost_utils.process_allgather(array)).reshape(-1, *array.shape)

    def close(self):
        keras.distribution.set_distribution(None)
        super().close()
