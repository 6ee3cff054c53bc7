"""Many devices with JAX: `keras.distribution`, in one process or several."""

import os

import keras

from keras_vit.distribution import layout
from keras_vit.distribution.devices import Devices, copied


class JaxDevices(Devices):
    """Devices of JAX, under a `keras.distribution` that is set for the whole process.

    Args:
        mode: `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        names: the devices, as `keras.distribution.list_devices` has them.
        model_devices: how many of them share one model, where the mode is `"model_parallel"`.
        rules: layout rules of the caller's, before `LAYOUT_RULES`.

    Raises:
        ValueError: the numbers do not fit.
    """

    def __init__(self, mode, names, model_devices=None, rules=None):
        self.mode, self._own_rules = mode, dict(rules or {})
        self._rules = {**self._own_rules, **layout.LAYOUT_RULES}
        self._restore_placing = lambda: None
        self.model_devices = model_devices if mode == "model_parallel" else 1
        if len(names) % self.model_devices:
            raise ValueError(
                "model_devices must divide the number of devices. Received: "
                f"model_devices={self.model_devices}, {len(names)} devices."
            )
        self.replicas = len(names) // self.model_devices
        self.processes, self.process = _processes()
        self.distribution = _distribution(self, names)

    def prepare(self, model):
        """See `Devices.prepare`."""
        _check_is_spread(model, self.distribution)
        if self.mode == "model_parallel":
            layout.check_rules(self._own_rules, [variable.path for variable in model.variables])
            for variable in model.variables:
                layout.split_axes(self._rules, variable.path, variable.shape, self.model_devices)
        if self.mode == "fully_sharded" and not any(
            axis is not None for v in model.trainable_variables for axis in _spec(v)
        ):
            raise ValueError(
                "fully_sharded found no variable whose longest axis the devices divide. Received: "
                f"{self.replicas} devices; use another number, or data_parallel."
            )

    def local_copy(self, model):
        """See `Devices.local_copy`."""
        keras.distribution.set_distribution(None)
        try:
            return copied(model)
        finally:
            keras.distribution.set_distribution(self.distribution)

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
        """See `Devices.close`."""
        keras.distribution.set_distribution(None)
        self._restore_placing()
        super().close()

    def _place(self, batch, given, batch_dim_name):
        """A batch of this process as an array of all; the rest of a split that the devices do not
        divide lies whole on each of them, as Keras's own function cannot have it."""
        if len(batch) % self.replicas == 0:
            return self._place_cut(batch, given, batch_dim_name)
        whole = keras.distribution.TensorLayout([None] * batch.ndim, self.distribution.device_mesh)
        return self._place_cut(batch, whole, batch_dim_name)

    def in_force(self):
        """Makes Keras train on these devices."""
        keras.distribution.set_distribution(self.distribution)
        # Keras asks for the layout of the first batch only. Its function that places each batch is
        # no public name; without it (another Keras) an uneven batch stays an error of JAX.
        library = keras.distribution.list_devices.__globals__.get("distribution_lib")
        self._place_cut = getattr(library, "distribute_data_input", None)
        if self._place_cut is not None:
            library.distribute_data_input = self._place
            self._restore_placing = lambda: setattr(
                library, "distribute_data_input", self._place_cut
            )
        return self


def make(mode, devices=None, model_devices=None, rules=None, timeout=300):
    """`JaxDevices`, or `Devices` for one; the arguments are those of `setup`."""
    if int(os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES", 1)) > 1 or _processes()[0] > 1:
        raise ValueError(
            "With JAX all devices must be of one process. Received: "
            f"KERAS_DISTRIBUTION_NUM_PROCESSES={os.environ.get('KERAS_DISTRIBUTION_NUM_PROCESSES')}"
            f", {_processes()[0]} processes; use the devices of one host."
        )
    names = keras.distribution.list_devices()
    if mode == "auto":
        mode = "data_parallel" if len(names) > 1 else "single"
    if mode == "single":
        return Devices()
    if devices is not None:
        if devices > len(names):
            raise ValueError(
                f"There are not so many devices. Received: devices={devices}; JAX has "
                f"{len(names)}: {names}. On a CPU, XLA_FLAGS="
                f"--xla_force_host_platform_device_count={devices} makes as many."
            )
        names = names[:devices]
    return JaxDevices(mode, names, model_devices or len(names), rules).in_force()


def _processes():
    import jax

    return jax.process_count(), jax.process_index()


def _distribution(devices, names):
    """The distribution of Keras that cuts variables as `devices` says."""
    replicas = devices.replicas
    if devices.mode == "data_parallel":
        return keras.distribution.DataParallel(devices=names, auto_shard_dataset=False)

    class ByAxes(keras.distribution.ModelParallel):
        def get_variable_layout(self, variable):
            if getattr(variable, "_layout", None) is not None:  # slots lie as their variable
                return variable._layout
            return keras.distribution.TensorLayout(devices.axes(variable), self.device_mesh)

        def get_tensor_layout(self, path):
            return None

    if devices.mode == "fully_sharded":
        mesh = keras.distribution.DeviceMesh((replicas,), [layout.BATCH], names)
    else:
        shape = (replicas, devices.model_devices)
        mesh = keras.distribution.DeviceMesh(shape, [layout.BATCH, layout.MODEL], names)
    return ByAxes(
        layout_map=keras.distribution.LayoutMap(mesh),
        batch_dim_name=layout.BATCH,
        auto_shard_dataset=False,
    )


def _spec(variable):
    return tuple(variable.value.sharding.spec)


def _check_is_spread(model, distribution):
    """Raises a ValueError for a model that was made before `setup`."""
    import jax

    for variable in model.variables:
        if not isinstance(variable.value.sharding, jax.sharding.NamedSharding):
            raise ValueError(
                "The model must be made after distribution.setup, which spreads its variables. "
                f"Received: {model.name}, whose {variable.path} lies on "
                f"{variable.value.sharding} alone; call setup first."
            )
