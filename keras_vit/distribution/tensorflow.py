"""Many devices with TensorFlow: `tf.distribute`, in one process or several."""

import json
import os
import sys

import keras
import numpy as np

from keras_vit.distribution.setup import Devices, batches_of, check_count, rows
from keras_vit.workarounds import different_noise_on_replicas, make_workers_strategy

_WORKERS = []  # the strategy of several processes: TensorFlow joins them once in a process's life


class TensorFlowDevices(Devices):
    """Devices of TensorFlow, under a strategy of `tf.distribute`."""

    mode = "data_parallel"

    def __init__(self, strategy, process=0, processes=1):
        self.strategy, self.process, self.processes = strategy, process, processes
        self.replicas = strategy.num_replicas_in_sync

    def scope(self):
        return self.strategy.scope()

    def prepare(self, model):
        import tensorflow as tf

        if model.distribute_strategy is not self.strategy:
            raise ValueError(
                "With TensorFlow the model must be made and compiled within devices.scope(). "
                f"Received: {model.name}, which was made outside."
            )
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        accumulated, steps = optimizer.gradient_accumulation_steps, model.steps_per_execution
        clips = optimizer.clipnorm or optimizer.clipvalue or optimizer.global_clipnorm
        clips = clips and not getattr(optimizer, "clips_sum", False)
        xla = model.jit_compile and not isinstance(self.strategy, tf.distribute.TPUStrategy)
        clipping = f"{type(optimizer).__name__} with clipping, which Keras does on each replica"
        for is_refused, received in (
            # Keras updates within a condition, where replicas cannot meet.
            (accumulated, f"gradient_accumulation_steps={accumulated}; use smaller batches"),
            (clips, f"{clipping}; take an optimizer of keras_vit.training, which clips the sum"),
            (steps != 1, f"steps_per_execution={steps}; compile with 1"),
            (xla, "jit_compile=True; compile with jit_compile=False"),
        ):
            if is_refused:
                raise ValueError(f"tf.distribute cannot train this model. Received: {received}.")
        different_noise_on_replicas(model)

    def feed(self, data):
        if self.processes == 1:
            return data
        own = self.replicas // self.processes
        if own > 1:
            data = data.map(lambda *batch: _parts(batch, own)).unbatch()
        return self._distribute(data)

    def _distribute(self, dataset):
        # Batches of one replica each; TensorFlow's own sharding reads all images everywhere.
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def evaluate(self, model, data, **options):
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

    def stack(self, array):
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
        check_count(devices, range(strategy.num_replicas_in_sync), len(addresses), "")
        return TensorFlowDevices(strategy, process, len(addresses))
    if os.environ.get("TPU_NAME"):
        return TensorFlowDevices(_tpu(os.environ["TPU_NAME"]))
    names = [each.name for each in tf.config.list_logical_devices("GPU")]
    names = names or [each.name for each in tf.config.list_logical_devices("CPU")]
    if mode == "single" or (mode == "auto" and devices is None and len(names) == 1):
        return Devices()
    advice = "tf.config.set_logical_device_configuration makes several of a CPU at the start."
    check_count(devices, names, 1, advice)
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
