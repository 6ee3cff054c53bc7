"""Many devices with JAX: a mesh, how arrays lie on it, and what a process feeds to it."""

import itertools

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils

from keras_vit.distribution import evaluating, feeding, jax_processes, layout
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


class MeshDistribution(keras.distribution.ModelParallel):
    """A distribution of Keras, which asks it where each array lies; `layout` has the answers.

    `mode` is one of `setup`, `rules` are like `LAYOUT_RULES`, for `"model_parallel"`. The batches
    are split along `batch_axis`; with `None` each device has all rows.
    """

    def __init__(self, mode, mesh, rules, batch_axis=layout.BATCH):
        super().__init__(
            layout_map=keras.distribution.LayoutMap(mesh),  # empty: `get_variable_layout` decides
            batch_dim_name=layout.BATCH,
            auto_shard_dataset=False,  # each process reads its part
        )
        self._mode, self._rules, self._batch_axis = mode, rules, batch_axis

    def get_data_layout(self, data_shape):
        return self._layout([self._batch_axis] + [None] * (len(data_shape) - 1))

    def get_variable_layout(self, variable):
        of_keras = super().get_variable_layout(variable)
        if any(of_keras.axes):  # of an optimizer's slot, which is split as its weight is
            return of_keras
        of_variable = variable.path, variable.shape, self._mode, self._rules
        return self._layout(layout.variable_axes(*of_variable, self.device_mesh.shape))

    def get_tensor_layout(self, path):
        # Only in a compiled step can Keras split a batch that the devices do not divide.
        if layout.has_replicated_output(path, self._mode) and is_compiling():
            return self._layout([layout.BATCH])
        return None

    def _layout(self, axes):
        return keras.distribution.TensorLayout(axes, self.device_mesh)


class JaxDevices(Devices):
    """The devices of a mesh, on which Keras places all that it makes by a `MeshDistribution`."""

    def __init__(self, mode, mesh, user_rules):
        self.mode = mode
        self.process, self.processes = jax.process_index(), jax.process_count()
        self.replicas, self.model_devices = mesh.shape
        # The first rule that matches decides; a user's also replaces one with the same pattern.
        self.user_rules, self.rules = user_rules, user_rules | layout.LAYOUT_RULES | user_rules
        self.distribution = MeshDistribution(mode, mesh, self.rules)
        # For the last rows of an evaluation, which the devices do not divide.
        self._whole_batches = MeshDistribution(mode, mesh, self.rules, batch_axis=None)
        keras.distribution.set_distribution(self.distribution)
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
            layout.check_shapes(self.rules, model, self.model_devices)
        if self.mode == "fully_sharded" and all(
            v.value.sharding.is_fully_replicated for v in model.trainable_variables
        ):
            raise ValueError(
                "fully_sharded found no variable whose longest axis the devices divide. Received: "
                f"{self.replicas} devices; use another number, or data_parallel."
            )

    def evaluate(self, model, data, batch_size=None, **options):
        """Each process feeds its shard of every batch, but all of a last one that is not divided.

        Keras lays all batches of an evaluation alike, so that this one needs another evaluation.
        """
        batches = evaluating.evaluation_batches(data, batch_size)
        batches = evaluating.divisible(batches, self.replicas)
        sums = []
        for left, group in itertools.groupby(batches, lambda x: feeding.length(x) % self.replicas):
            index, count = (0, 1) if left else feeding.shard_of_process(self)
            shards = (feeding.shard(batch, index, count) for batch in group)
            with (self._whole_batches if left else self.distribution).scope():
                sums.append(evaluating.metric_sums(model, shards, **options))
            if model.stop_evaluating:  # a callback has asked for it
                break
        return evaluating.metrics_of(model, sums)

    def gather(self, array):
        return np.asarray(multihost_utils.process_allgather(array)).reshape(-1, *array.shape)

    def leave(self):
        keras.distribution.set_distribution(None)
