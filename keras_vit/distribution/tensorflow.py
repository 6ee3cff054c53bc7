"""Many devices with TensorFlow: `tf.distribute`, in one process or several."""

import functools
import os
import weakref

from keras_vit.distribution import shares, tensorflow_processes
from keras_vit.distribution.devices import Devices, copied

_SEED_STRIDE = 1_000_003  # between the seeds of two replicas; Keras adds 1 for each draw


class TensorFlowDevices(Devices):
    """Devices of TensorFlow, under a strategy of `tf.distribute`.

    Args:
        strategy: a `tf.distribute.Strategy`.
        meeting: of the processes, a `Meeting`, where there are several.
    """

    mode = "data_parallel"

    def __init__(self, strategy, meeting=None):
        self.strategy, self.meeting = strategy, meeting
        self.replicas = strategy.num_replicas_in_sync
        if meeting is not None:
            self.processes, self.process = meeting.processes, meeting.process
            self._shares = tensorflow_processes.Shares(strategy, self.process, self.processes)
        self._copies = weakref.WeakKeyDictionary()

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
        if self.processes > 1:
            # `fit` has built the model; Keras would build it from a batch of all processes.
            model.__dict__["_maybe_symbolic_build"] = lambda **_: None
            for name in ("predict", "predict_on_batch"):
                model.__dict__[name] = functools.partial(self._predict, model, name)

    def share(self, pipeline):
        """See `Devices.share`."""
        super().share(pipeline)
        if self.processes == 1:
            return pipeline
        return shares.share_training(pipeline, self.process, self.processes)

    def feed(self, data):
        """See `Devices.feed`."""
        return data if self.processes == 1 else self._shares.training(data)

    def share_evaluation(self, data):
        """See `Devices.share_evaluation`."""
        return data if self.processes == 1 or data is None else self._shares.evaluation(data)

    def _predict(self, model, name, *args, **kwargs):
        """`model.predict` for the images of this process alone, which needs no other process."""
        if model not in self._copies:
            self._copies[model] = copied(model)
        self._copies[model].set_weights(model.get_weights())
        return getattr(self._copies[model], name)(*args, **kwargs)

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

    joined = tensorflow_processes.join(timeout)
    if joined is not None:
        meeting, strategy = joined
        if devices is not None and devices != strategy.num_replicas_in_sync:
            raise ValueError(
                "Several processes use all of their devices. Received: "
                f"devices={devices}, {strategy.num_replicas_in_sync} devices of "
                f"{meeting.processes} processes; leave devices out, or start other processes."
            )
        return TensorFlowDevices(strategy, meeting)
    if os.environ.get("TPU_NAME"):
        return TensorFlowDevices(_tpu(os.environ["TPU_NAME"]))
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
