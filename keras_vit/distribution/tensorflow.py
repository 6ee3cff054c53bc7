"""Many devices with TensorFlow: `tf.distribute`, in one process or several."""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_vit.distribution import evaluating, feeding
from keras_vit.distribution.devices import Devices, check_count
from keras_vit.workarounds import different_noise_on_replicas, make_workers_strategy

_strategy = None  # of several processes: TensorFlow joins them once in a process's life


def make(mode, devices, model_devices, rules, timeout):
    """`TensorFlowDevices`, or `Devices` for one; the arguments are those of `setup`."""
    process, addresses = _read_config()
    if len(addresses) > 1:
        strategy = _join(process, addresses, timeout)
        check_count(devices, range(strategy.num_replicas_in_sync), len(addresses))
        return TensorFlowDevices(strategy, process, len(addresses))
    if os.environ.get("TPU_NAME"):
        return TensorFlowDevices(_tpu(os.environ["TPU_NAME"]))
    names = [each.name for each in tf.config.list_logical_devices("GPU")]
    names = names or [each.name for each in tf.config.list_logical_devices("CPU")]
    if mode == "auto" and devices is None and len(names) == 1:
        return Devices()
    advice = "tf.config.set_logical_device_configuration makes several of a CPU at the start."
    check_count(devices, names, advice=advice)
    return TensorFlowDevices(tf.distribute.MirroredStrategy(names[:devices]))


def _read_config():
    """The number of this process and the addresses of all, as TF_CONFIG has them."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        config = json.loads(text)
        cluster = config.get("cluster", {})
        addresses = [*cluster.get("chief", []), *cluster.get("worker", [])]
        if len(addresses) < 2:
            return 0, addresses
        task = config["task"]
        return addresses.index(cluster[task["type"]][task["index"]]), addresses
    except (ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["node0:29500", "node1:29500"]},'
            ' "task": {"type": "worker", "index": 0}}, with the index of this process among the '
            f"workers. Received: {text!r}."
        ) from error


def _join(process, addresses, timeout):
    """The strategy of several processes, which TensorFlow joins."""
    global _strategy
    if _strategy is None:
        # TensorFlow waits for them without a limit; this tells what it waits for.
        text = f"Process {process} of {len(addresses)} waits for the others at"
        print(f"{text} {', '.join(addresses)}.", file=sys.stderr)
        try:
            _strategy = make_workers_strategy(timeout)
        except RuntimeError as error:
            if "program startup" not in str(error):
                raise
            raise ValueError(
                "Processes must join before TensorFlow computes anything. Received: a TensorFlow "
                "whose devices are in use; call distribution.setup first."
            ) from error
    return _strategy


def _tpu(name):
    """A `TPUStrategy`, by the calls of TensorFlow's guide; nobody has run this on a TPU yet."""
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


class TensorFlowDevices(Devices):
    """Devices of TensorFlow, under a strategy of `tf.distribute`."""

    mode = "data_parallel"

    def __init__(self, strategy, process=0, processes=1):
        self.strategy, self.process, self.processes = strategy, process, processes
        self.replicas = strategy.num_replicas_in_sync
        self.local_replicas = self.replicas // processes  # those of this process

    def scope(self):
        return self.strategy.scope()

    def check_model(self, model):
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

    def callbacks(self):
        return [_NoiseOfReplicas()]

    def evaluate(self, model, data, batch_size=None, **options):
        """Each process feeds its shard of every batch, which may be empty for the last one."""
        if self.processes == 1:
            return super().evaluate(model, data, batch_size=batch_size, **options)

        def read():
            return evaluating.evaluation_shards(data, self.process, self.processes, batch_size)

        is_array = isinstance(data, (tuple, list))
        steps = sum(1 for _ in read()) if is_array else len(data)
        dataset = dataset_of(read, example=next(iter(read())), devices=self)
        return model.evaluate(dataset, steps=steps, return_dict=True, **options)

    def gather(self, array):
        value = tf.constant(array[None])
        values = self.strategy.experimental_distribute_values_from_function(lambda context: value)
        return self.strategy.gather(values, axis=0).numpy()[:: self.local_replicas]


class _NoiseOfReplicas(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        different_noise_on_replicas(self.model)


def dataset_of(read, example, devices):
    """The batches that `read()` iterates over, such as `example`, as a dataset for `model.fit`.

    In several processes they are shards, which are cut further, for each replica of the process.
    """
    count = 1 if devices.processes == 1 else devices.local_replicas

    def shards():
        return (feeding.shard(batch, i, count) for batch in read() for i in range(count))

    def spec(x):
        x = np.asarray(x)
        return tf.TensorSpec((None, *x.shape[1:]), x.dtype)

    signature = keras.tree.map_structure(spec, example)
    dataset = tf.data.Dataset.from_generator(shards, output_signature=signature).prefetch(2 * count)
    if devices.processes == 1:
        return dataset
    # Where TensorFlow cuts the batches itself, every process reads all of them.
    return devices.strategy.distribute_datasets_from_function(lambda context: dataset)
