"""Many devices with JAX: the mesh of the devices, sharded weights and sharded batches.

`JaxDevices` sets a `Sharding`, by which Keras places the arrays that it makes on the mesh.
"""

import contextlib

import keras
import numpy as np

from keras_vit.distribution import evaluating, jax_processes, layout
from keras_vit.distribution.devices import Devices, check_count
from keras_vit.workarounds import is_compiling


def make(mode, devices, model_devices, rules, timeout):
    """`JaxDevices`, or `Devices` for one; the arguments are those of `setup`."""
    import jax

    jax_processes.join(timeout)
    names, processes = keras.distribution.list_devices(), jax.process_count()
    if mode == "auto":
        mode = "data_parallel" if len(names) > 1 else "single"
    if mode == "single":
        return Devices()
    flag = f"XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
    check_count(devices, names, processes, f"On a CPU, {flag} makes as many.")
    names = names[:devices]
    if mode != "model_parallel":
        model_devices = 1
    return JaxDevices(mode, make_mesh(names, model_devices or len(names), processes), rules)


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
            layout_map=keras.distribution.LayoutMap(mesh),
            batch_dim_name=layout.BATCH,
            auto_shard_dataset=False,  # each process reads its part
        )
        self._mode, self._rules = mode, rules
        self._batch_axis = layout.BATCH if shards_batches else None

    def get_data_layout(self, data_shape):
        return self._layout([self._batch_axis] + [None] * (len(data_shape) - 1))

    def get_variable_layout(self, variable):
        inherited = super().get_variable_layout(variable)  # a slot of an optimizer has its weight's
        if any(inherited.axes):
            return inherited
        path, shape = variable.path, variable.shape
        replicas, model_devices = self.device_mesh.shape
        axes = (None,) * len(shape)  # of a metric, say, which no rule covers
        if self._mode == "fully_sharded":
            axes = layout.shard_longest_axis(shape, replicas)
        elif self._mode == "model_parallel" and layout.find_rule(self._rules, path):
            axes = layout.split_axes(self._rules, path, shape, model_devices)
        return self._layout(axes)

    def get_tensor_layout(self, path):
        # Outside of a compiled step a batch that the devices do not divide cannot be split.
        if layout.has_replicated_output(path, self._mode) and is_compiling():
            return self._layout([layout.BATCH])
        return None

    def _layout(self, axes):
        return keras.distribution.TensorLayout(axes, self.device_mesh)


class JaxDevices(Devices):
    """Devices of JAX, under a `Sharding` for the whole process; `rules` are those of the user."""

    def __init__(self, mode, mesh, rules=None):
        import jax

        self.mode = mode
        self.processes, self.process = jax.process_count(), jax.process_index()
        self.replicas, self.model_devices = mesh.shape
        self._user_rules = rules or {}
        # The first rule that fits a path counts: those of the user stand in front, and win.
        self._rules = {**self._user_rules, **layout.LAYOUT_RULES, **self._user_rules}
        self.distribution = Sharding(mode, mesh, self._rules)
        # For rows of an evaluation that the devices do not divide: each device has all of them.
        self.whole_batches = Sharding(mode, mesh, self._rules, shards_batches=False)
        keras.distribution.set_distribution(self.distribution)
        if self.processes > 1:
            self.seed_alike()

    def check_model(self, model):
        import jax

        for v in model.variables if self.replicas * self.model_devices > 1 else ():
            if not isinstance(v.value.sharding, jax.sharding.NamedSharding):
                raise ValueError(
                    "The model must be made after distribution.setup, which spreads its variables. "
                    f"Received: {model.name} with {v.path} on {v.value.sharding}."
                )
        if self.mode == "model_parallel":
            rules = {**self._rules, **layout.rules_of_heads(model)}
            layout.check_rules(self._user_rules, [v.path for v in model.variables])
            for v in model.variables:
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
        with self.distribution.scope():
            sums = evaluating.evaluate_batches(model, even, **options)
        uneven = evaluating.joined(remainders)
        with self.whole_batches.scope():
            more_sums = evaluating.evaluate_batches(model, uneven, **options)
        for variable, *values in zip(model.metrics_variables, *filter(None, (sums, more_sums))):
            variable.assign(sum(values))
        return evaluating.results_of(model)

    def error_to_raise(self, error):
        error = super().error_to_raise(error)
        jax_processes.do_not_wait(error)
        return error

    @contextlib.contextmanager
    def one_device(self):
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self.distribution)

    def stack(self, array):
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(array)).reshape(-1, *array.shape)

    def close(self):
        keras.distribution.set_distribution(None)
        super().close()
