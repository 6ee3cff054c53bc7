"""Many devices with JAX: `keras.distribution`, in one process or several."""

import contextlib
import functools
import weakref

import keras
import numpy as np

from keras_vit.distribution import jax_processes, layout, shares
from keras_vit.distribution.devices import Devices, copied
from keras_vit.distribution.reading import to_numpy


class JaxDevices(Devices):
    """Devices of JAX, under a `keras.distribution` that is set for the whole process.

    Args:
        mode: `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        names: the devices, as `keras.distribution.list_devices` has them.
        model_devices: how many of them share one model, where the mode is `"model_parallel"`.
        rules: layout rules of the caller's, before `LAYOUT_RULES`.
        meeting: of the processes, a `Meeting`, where there are several.

    Raises:
        ValueError: the numbers do not fit.
    """

    def __init__(self, mode, names, model_devices=None, rules=None, meeting=None):
        self.mode, self._own_rules, self.meeting = mode, dict(rules or {}), meeting
        self._rules = {**self._own_rules, **layout.LAYOUT_RULES}
        self._restore_placing = lambda: None
        self.model_devices = model_devices if mode == "model_parallel" else 1
        if len(names) % self.model_devices:
            raise ValueError(
                "model_devices must divide the number of devices. Received: "
                f"model_devices={self.model_devices}, {len(names)} devices."
            )
        self.replicas = len(names) // self.model_devices
        if meeting is not None:
            self.processes, self.process = meeting.processes, meeting.process
            self._check_groups(len(names))
        self._copies = weakref.WeakKeyDictionary()
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
        if self.processes > 1:
            model.__dict__["get_weights"] = lambda: [to_numpy(v) for v in model.weights]
            for name in ("predict", "predict_on_batch"):
                model.__dict__[name] = functools.partial(self._predict, model, name)
            if self.mode != "data_parallel":
                model.__dict__["save"] = model.__dict__["save_weights"] = _cannot_save

    def share(self, pipeline):
        """See `Devices.share`."""
        super().share(pipeline)
        if self.processes == 1:
            return pipeline
        return shares.share_training(pipeline, *self._part)

    def share_evaluation(self, data):
        """See `Devices.share_evaluation`."""
        if self.processes == 1:
            return data
        return shares.share_evaluation(data, *self._part, self._cut)

    def local_copy(self, model):
        """See `Devices.local_copy`."""
        with self._alone():
            return copied(model)

    @contextlib.contextmanager
    def _alone(self):
        """Within it Keras knows one device, of this process."""
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(self.distribution)

    def _predict(self, model, name, *args, **kwargs):
        """`model.predict` for the images of this process alone.

        Keras's own returns an array of which each process has a part, and then cannot read it.
        """
        model.jax_state_sync()
        if model not in self._copies:
            self._copies[model] = self.local_copy(model)
        copy = self._copies[model]
        with self._alone():
            copy.set_weights(model.get_weights())
            return getattr(copy, name)(*args, **kwargs)

    @property
    def _part(self):
        """Which part of a batch this process feeds, of how many: those that share a model, the
        same."""
        parts = min(self.processes, self.replicas)
        return self.process * parts // self.processes, parts

    def _check_groups(self, count):
        """Raises a ValueError where a group of devices begins within one process and ends in
        another."""
        own = count // self.processes
        if own % self.model_devices and self.model_devices % own:
            raise ValueError(
                "The devices that share a model must be some of one process, or all of several. "
                f"Received: model_devices={self.model_devices}, {self.processes} processes of "
                f"{own} devices."
            )

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

    def _cut(self, batch, process, processes):
        """One process's part of a batch, or the whole of one that the devices do not divide."""
        if len(keras.tree.flatten(batch)[0]) % self.replicas == 0:
            return shares.cut(batch, process, processes)
        return keras.tree.map_structure(lambda x: np.asarray(x).view(_Whole), batch)

    def _place(self, batch, given, batch_dim_name):
        """A batch of this process as an array of all; the rest of a split that the devices do not
        divide lies whole on each of them, as Keras's own function cannot have it."""
        copies = self.replicas // self._part[1]  # of the model, of this process
        divides = len(batch) % copies == 0
        if divides and not isinstance(batch, _Whole):
            return self._place_cut(batch, given, batch_dim_name)
        if self.processes > 1 and not isinstance(batch, _Whole):
            raise ValueError(
                "The devices of a process must divide its part of a batch. Received: "
                f"{len(batch)} images, {copies} devices; to evaluate, "
                "give what devices.share_evaluation(data) returns."
            )
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


class _Whole(np.ndarray):
    """A batch that every process has, and every device gets."""


def make(mode, devices=None, model_devices=None, rules=None, timeout=300):
    """`JaxDevices`, or `Devices` for one; the arguments are those of `setup`."""
    meeting = jax_processes.join(timeout)
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
        if meeting is not None and devices < len(names):
            raise ValueError(
                "Several processes use all of their devices. Received: "
                f"devices={devices}, {len(names)} devices of {meeting.processes} processes; leave "
                "devices out, or start fewer processes."
            )
        names = names[:devices]
    return JaxDevices(mode, names, model_devices or len(names), rules, meeting).in_force()


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
            # Outside of a compiled step a batch that the devices do not divide cannot be cut.
            if not _is_compiling() or not layout.has_whole_features(path, devices.mode):
                return None
            return keras.distribution.TensorLayout([layout.BATCH], self.device_mesh)

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


def _is_compiling():
    import jax

    return isinstance(jax.numpy.ones(1), jax.core.Tracer)


def _cannot_save(*args, **kwargs):
    raise ValueError(
        "No process alone can save variables that are cut over several. Received: a call of save "
        "or save_weights; let every process make copy = devices.local_copy(model), and one of "
        "them copy.save(path)."
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
