"""Many devices with TensorFlow: `tf.distribute`, in one process or several."""

import os

import keras

from keras_vit.distribution import evaluating, joining
from keras_vit.distribution.devices import Devices, check_count
from keras_vit.workarounds import different_noise_on_replicas


class TensorFlowDevices(Devices):
    """Devices of TensorFlow, under a strategy of `tf.distribute`."""

    mode = "data_parallel"

    def __init__(self, strategy, process=0, processes=1):
        self.strategy, self.process, self.processes = strategy, process, processes
        self.replicas = strategy.num_replicas_in_sync
        self.local_replicas = self.replicas // processes  # those of this process

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
        import tensorflow as tf

        def cut(x):  # into equal parts along a new first axis, one for each replica
            return tf.reshape(x, tf.concat([[self.local_replicas, -1], tf.shape(x)[1:]], 0))

        if self.local_replicas > 1:
            data = data.map(lambda *batch: keras.tree.map_structure(cut, batch)).unbatch()
        return self.distribute(data)

    def distribute(self, dataset):
        """A dataset of batches for one replica each, for `model.fit` in several processes."""
        # What TensorFlow cuts itself, every process reads as a whole.
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def evaluate(self, model, data, **options):
        if self.processes == 1:
            return super().evaluate(model, data, **options)
        return evaluating.with_tensorflow(self, model, data, **options)

    def stack(self, array):
        import tensorflow as tf

        value = tf.constant(array[None])
        values = self.strategy.experimental_distribute_values_from_function(lambda context: value)
        return self.strategy.gather(values, axis=0).numpy()[:: self.local_replicas]


def make(mode, devices, model_devices, rules, timeout):
    """`TensorFlowDevices`, or `Devices` for one; the arguments are those of `setup`."""
    import tensorflow as tf

    process, addresses = joining.read_tf_config()
    if len(addresses) > 1:
        strategy = joining.join_tensorflow(process, addresses, timeout)
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
