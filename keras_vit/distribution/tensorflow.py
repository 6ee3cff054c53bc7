"""Many devices with TensorFlow: `tf.distribute`, in one process or several."""

import json
import os

from keras_vit.distribution.devices import Devices, copied

_SEED_STRIDE = 1_000_003  # between the seeds of two replicas; Keras adds 1 for each draw


class TensorFlowDevices(Devices):
    """Devices of TensorFlow, under a strategy of `tf.distribute`.

    Args:
        strategy: a `tf.distribute.Strategy`.
    """

    mode = "data_parallel"

    def __init__(self, strategy):
        self.strategy = strategy
        self.replicas = strategy.num_replicas_in_sync

    def scope(self):
        """See `Devices.scope`."""
        return self.strategy.scope()

    def check_model(self, model):
        """See `Devices.check_model`."""
        if model.distribute_strategy is not self.strategy:
            raise ValueError(
                "With TensorFlow the model must be made and compiled within devices.scope(). "
                f"Received: {model.name}, which was made outside."
            )

    def prepare(self, model):
        """See `Devices.prepare`."""
        self.check_model(model)
        optimizer = model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if inner.gradient_accumulation_steps:
            raise ValueError(
                "tf.distribute cannot accumulate gradients: Keras updates within a condition, "
                "where replicas cannot meet. Received: gradient_accumulation_steps="
                f"{inner.gradient_accumulation_steps} on {self.replicas} devices; use smaller "
                "batches, more devices, or JAX or PyTorch."
            )
        if model.steps_per_execution != 1:
            raise ValueError(
                "Under tf.distribute Keras runs one update at a time. Received: "
                f"steps_per_execution={model.steps_per_execution}; compile with 1."
            )
        if model.jit_compile and not self._compiles():
            raise ValueError(
                "XLA cannot compile an update of several devices of a MirroredStrategy. Received: "
                "jit_compile=True; compile with jit_compile=False."
            )
        reduce_before_update(optimizer)
        for layer in model._flatten_layers():
            if getattr(layer, "seed_generator", None) is not None:
                draw_by_replica(layer.seed_generator)

    def local_copy(self, model):
        """See `Devices.local_copy`."""
        return copied(model)

    def _compiles(self):
        import tensorflow as tf

        return isinstance(self.strategy, tf.distribute.TPUStrategy)


def reduce_before_update(optimizer):
    """Lets an optimizer see the gradients of all replicas together, as one device would.

    Keras sums them after it has clipped them, so that each replica clips by a norm of its own. Here
    they are summed before anything is done with them; `loss` is a mean over all replicas already.
    """
    import tensorflow as tf

    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if "apply" in vars(optimizer):
        return  # done before
    apply, reduce = optimizer.apply, inner._all_reduce_sum_gradients

    def apply_sum(gradients, trainable_variables=None):
        context = tf.distribute.get_replica_context()
        gradients = list(gradients)
        present = [g for g in gradients if g is not None]
        summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
        gradients = [None if g is None else next(summed) for g in gradients]
        # The sum of what is equal everywhere would count it once per replica.
        inner.__dict__["_all_reduce_sum_gradients"] = lambda pairs: pairs
        try:
            return apply(gradients, trainable_variables)
        finally:
            inner.__dict__["_all_reduce_sum_gradients"] = reduce

    optimizer.__dict__["apply"] = apply_sum


def draw_by_replica(generator):
    """Lets the seeds that a `keras.random.SeedGenerator` draws differ from replica to replica.

    Its state is the same on all of them, so that each would drop the same units of its images.
    """
    import tensorflow as tf

    if "next" in vars(generator):
        return  # done before
    draw = generator.next

    def draw_own(ordered=True):
        seed, context = draw(ordered), tf.distribute.get_replica_context()
        if context is None:
            return seed
        replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + tf.stack([replica * _SEED_STRIDE, tf.zeros((), seed.dtype)])

    generator.__dict__["next"] = draw_own


def make(mode, devices=None, model_devices=None, rules=None, timeout=300):
    """`TensorFlowDevices`, or `Devices` for one; the arguments are those of `setup`."""
    import tensorflow as tf

    workers = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {}).get("worker", [])
    if len(workers) > 1:
        raise ValueError(
            "With TensorFlow all devices must be of one process. Received: TF_CONFIG with the "
            f"workers {workers}; use the devices of one host, and unset TF_CONFIG."
        )
    names = [each.name for each in tf.config.list_logical_devices("GPU")]
    names = names or [each.name for each in tf.config.list_logical_devices("CPU")]
    if mode == "auto" and devices is None and len(names) == 1:
        mode = "single"
    if mode == "single":
        return Devices()
    if devices is not None and devices > len(names):
        raise ValueError(
            f"There are not so many devices. Received: devices={devices}; TensorFlow has "
            f"{len(names)}: {names}. tf.config.set_logical_device_configuration makes more of a "
            "CPU, before anything is computed."
        )
    return TensorFlowDevices(tf.distribute.MirroredStrategy(names[:devices]))
