"""Many devices with TensorFlow: `tf.distribute`, in one process or several."""

import json
import os
import sys

import keras
import numpy as np

from keras_vit.distribution.setup import Devices, batches_of, copied, rows
from keras_vit.workarounds import different_noise_on_replicas, make_workers_strategy

_WORKERS = []  # the strategy of several processes: TensorFlow joins them once in a process's life


class TensorFlowDevices(Devices):
    """Devices of TensorFlow, under a strategy of `tf.distribute`.

    Args:
        strategy: a `tf.distribute.Strategy`.
        process, processes: the number of this process, and how many there are.
    """

    mode = "data_parallel"

    def __init__(self, strategy, process=0, processes=1):
        self.strategy, self.process, self.processes = strategy, process, processes
        self.replicas = strategy.num_replicas_in_sync

    def scope(self):
        """See `Devices.scope`."""
        return self.strategy.scope()

    def prepare(self, model):
        """See `Devices.prepare`."""
        import tensorflow as tf

        if model.distribute_strategy is not self.strategy:
            raise ValueError(
                "With TensorFlow the model must be made and compiled within devices.scope(). "
                f"Received: {model.name}, which was made outside."
            )
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if optimizer.gradient_accumulation_steps:
            raise ValueError(
                "tf.distribute cannot accumulate gradients: Keras updates within a condition, "
                "where replicas cannot meet. Received: gradient_accumulation_steps="
                f"{optimizer.gradient_accumulation_steps} on {self.replicas} devices; use smaller "
                "batches, more devices, or JAX or PyTorch."
            )
        clips = optimizer.clipnorm or optimizer.clipvalue or optimizer.global_clipnorm
        if clips and not getattr(optimizer, "clips_sum", False):
            raise ValueError(
                "Keras's optimizers clip the gradient of each replica, before they are summed. "
                f"Received: {type(optimizer).__name__} with clipping; take one of "
                "keras_vit.training, which clip the sum."
            )
        if model.steps_per_execution != 1:
            raise ValueError(
                "Under tf.distribute Keras runs one update at a time. Received: "
                f"steps_per_execution={model.steps_per_execution}; compile with 1."
            )
        if model.jit_compile and not isinstance(self.strategy, tf.distribute.TPUStrategy):
            raise ValueError(
                "XLA cannot compile an update of several devices of a MirroredStrategy. Received: "
                "jit_compile=True; compile with jit_compile=False."
            )
        different_noise_on_replicas(model)

    def feed(self, data):
        """See `Devices.feed`. Each replica gets its part of what this process reads."""
        if self.processes == 1:
            return data
        own = self.replicas // self.processes
        if own > 1:
            data = data.map(lambda *batch: _parts(batch, own)).unbatch()
        return self._distribute(data)

    def _distribute(self, dataset):
        """Batches of one replica each; TensorFlow's own sharding reads all images everywhere."""
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def evaluate(self, model, data, **options):
        """See `Devices.evaluate`."""
        if self.processes == 1:
            return super().evaluate(model, data, **options)
        options.pop("batch_size", None)  # that of Keras's arrays
        import tensorflow as tf

        own = self.replicas // self.processes
        first = self.process * own

        def batches():
            parts = [rows(data, first + i, self.replicas) for i in range(own)]
            for step in zip(*parts):
                yield from map(tuple, step)

        def spec(x):
            return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

        example = keras.tree.map_structure(np.asarray, next(batches()))
        signature = keras.tree.map_structure(spec, example)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
        steps = sum(1 for _ in batches_of(data)) if isinstance(data, (tuple, list)) else len(data)
        return model.evaluate(self._distribute(dataset), steps=steps, return_dict=True, **options)

    def local_copy(self, model):
        """See `Devices.local_copy`."""
        return copied(model)

    def stack(self, array):
        """See `Devices.stack`."""
        import tensorflow as tf

        value = tf.constant(array[None])
        values = self.strategy.experimental_distribute_values_from_function(lambda context: value)
        own = self.replicas // self.processes
        return self.strategy.gather(values, axis=0).numpy()[::own]


def _parts(batch, count):
    """A batch as `count` equal parts, along a new first axis."""
    import tensorflow as tf

    def cut(x):
        return tf.reshape(x, tf.concat([[count, -1], tf.shape(x)[1:]], 0))

    return keras.tree.map_structure(cut, batch)


def make(mode, devices, model_devices, rules, timeout):
    """`TensorFlowDevices`, or `Devices` for one; the arguments are those of `setup`."""
    import tensorflow as tf

    process, addresses = _read(os.environ.get("TF_CONFIG"))
    if len(addresses) > 1:
        strategy = _join(process, addresses, timeout)
        if devices is not None and devices != strategy.num_replicas_in_sync:
            raise ValueError(
                "Several processes use all of their devices. Received: "
                f"devices={devices}, {strategy.num_replicas_in_sync} devices of {len(addresses)} "
                "processes; leave devices out, or start other processes."
            )
        return TensorFlowDevices(strategy, process, len(addresses))
    if os.environ.get("TPU_NAME"):
        return TensorFlowDevices(_tpu(os.environ["TPU_NAME"]))
    names = [each.name for each in tf.config.list_logical_devices("GPU")]
    names = names or [each.name for each in tf.config.list_logical_devices("CPU")]
    if mode == "single" or (mode == "auto" and devices is None and len(names) == 1):
        return Devices()
    if devices is not None and devices > len(names):
        raise ValueError(
            f"There are not so many devices. Received: devices={devices}; TensorFlow has "
            f"{len(names)}: {names}. tf.config.set_logical_device_configuration makes more of a "
            "CPU, before anything is computed."
        )
    return TensorFlowDevices(tf.distribute.MirroredStrategy(names[:devices]))


def _read(text):
    """The number of this process and the addresses of all, as TF_CONFIG has them."""
    try:
        found = json.loads(text or "{}")
        cluster, task = found.get("cluster", {}), found.get("task", {})
        chief, workers = cluster.get("chief", []), cluster.get("worker", [])
        if len(chief) + len(workers) < 2:
            return 0, [*chief, *workers]
        kind, index = task.get("type"), task.get("index")
        group = {"chief": chief, "worker": workers}[kind]
        group[index]
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["node0:29500", "node1:29500"]},'
            ' "task": {"type": "worker", "index": 0}}, with the index of this process among the '
            f"workers. Received: {text!r}."
        ) from error
    return index + (len(chief) if kind == "worker" else 0), [*chief, *workers]


def _join(process, addresses, timeout):
    """The strategy of several processes."""
    if _WORKERS:
        return _WORKERS[0]
    # TensorFlow waits without a limit for processes that never come; this tells what it waits for.
    print(
        f"Process {process} of {len(addresses)} waits for the others at {', '.join(addresses)}.",
        file=sys.stderr,
    )
    try:
        _WORKERS.append(make_workers_strategy(timeout))
    except RuntimeError as error:
        if "program startup" not in str(error):
            raise
        raise ValueError(
            "Processes must join before TensorFlow computes anything. Received: a TensorFlow "
            "whose devices are in use; call distribution.setup first."
        ) from error
    return _WORKERS[0]


def _tpu(name):
    """A `TPUStrategy`, by the calls of TensorFlow's guide; nobody has run this on a TPU yet."""
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise ConnectionError(
            f"No TPU answers. Received: TPU_NAME={name!r}, {str(error).splitlines()[0]}; on a TPU "
            "VM it is 'local'; unset it to train on this host's other devices."
        ) from error
    return tf.distribute.TPUStrategy(resolver)
