"""Faults of others that are worked around, each with the version in which it was found."""

import contextlib
import ctypes
import functools
import random
import sys
import threading
import types

import keras
import numpy as np


def set_random_seed(seed: int) -> None:
    """What `keras.utils.set_random_seed` does, without importing TensorFlow on other backends.

    Keras 3.15 imports it wherever it is installed, which takes seconds and half a gigabyte.
    """
    random.seed(seed)
    np.random.seed(seed)
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(seed)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.random.set_seed(seed)


@contextlib.contextmanager
def python_random(seed):
    """Seeds Python's `random`, and sets it back afterwards.

    `keras.layers.AugMix` of Keras 3.15 chooses its operations from there, whatever its own seed.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)


def draw_apart(layer):
    """Lets a layer of Keras draw gamma and beta on PyTorch without PyTorch's global generator.

    Keras 3.15 seeds that one for the draw and sets it back, so that what another thread draws
    meanwhile, such as the dropout of the model, and the draw itself differ from run to run.
    """
    for part in (layer, *getattr(layer, "layers", ())):
        backend = getattr(part, "backend", None)
        if keras.backend.backend() == "torch" and hasattr(backend, "random"):
            own = {name: functools.partial(_draw, name) for name in ("beta", "gamma")}
            backend.random = types.SimpleNamespace(**{**vars(backend.random), **own})


def _draw(name, shape, *parameters, dtype=None, seed=None, **named):
    seeds = seed if hasattr(seed, "next") else keras.random.SeedGenerator(seed)
    rng = np.random.default_rng([int(each) for each in seeds.next()])
    parameters = [keras.ops.convert_to_numpy(each) for each in (*parameters, *named.values())]
    drawn = getattr(rng, name)(*parameters, size=tuple(shape))
    return keras.ops.convert_to_tensor(drawn, dtype or keras.config.floatx())


def keep_memory() -> bool:
    """Lets this process keep the memory that it frees, instead of returning it to the system.

    On a CPU, JAX 0.10 takes the memory of each step from the system anew, which can cost a tenth
    of a step. Call this before anything is computed, since threads of JAX that are there already
    go on as before; memory then stays at its peak. Returns whether it could be done: it takes
    Linux and glibc.
    """
    mallopt = sys.platform.startswith("linux") and getattr(ctypes.CDLL(None), "mallopt", None)
    # Of mallopt(3): M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD.
    settings = ((-8, 1), (-4, 0), (-1, 2**31 - 1))
    return bool(mallopt) and all([mallopt(*setting) for setting in settings])


_USED = {}  # layer -> the thread that uses it
_FREED = threading.Condition()


@contextlib.contextmanager
def one_at_a_time(model, step="predict"):
    """Lets a thread wait while another trains, evaluates or predicts with the same model.

    In Keras 3.15 a call keeps its metrics in the model, where another call resets them, and on JAX
    takes the values of all variables too, so that two threads that predict at once, by models that
    share layers, fail with "Buffer has been deleted or donated". `step` is "train", "test" or
    "predict", for which threads of TensorFlow and PyTorch need not wait.
    """
    is_jax, thread = keras.backend.backend() == "jax", threading.get_ident()
    layers = model._flatten_layers() if is_jax else [model] if step != "predict" else []
    with _FREED:  # all of them or none, so that no two threads wait for one another
        _FREED.wait_for(lambda: all(_USED.get(layer, thread) == thread for layer in layers))
        new = [layer for layer in layers if layer not in _USED]
        _USED.update(dict.fromkeys(new, thread))
    try:
        yield
    finally:
        with _FREED:
            for layer in new:
                del _USED[layer]
            _FREED.notify_all()


@contextlib.contextmanager
def keep_values_after_errors(model):
    """Lets a model live on after a batch that it cannot take.

    On JAX, Keras 3.15 takes the values out of the variables before the first batch, and puts them
    back at the end, but not after an error.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    slots = model.optimizer.variables if model.compiled and model.optimizer else ()
    before = [(variable, variable.value) for variable in (*model.variables, *slots)]
    try:
        yield
    except BaseException:
        model.jax_state_sync()  # what the batches before have made of the values
        for variable, value in before:
            try:
                _ = variable.value
            except TypeError:
                variable.assign(value)
        raise


def calling_model():
    """The model whose `fit`, `evaluate` or `predict` asks for data, and the name of that method.

    Keras 3.15 tells a `PyDataset` nothing of the model, so this looks at who called: (None, None)
    outside of such a call.
    """
    frame = sys._getframe()
    while frame := frame.f_back:
        model, method = frame.f_locals.get("self"), frame.f_code.co_name
        if method in ("fit", "evaluate", "predict") and isinstance(model, keras.Model):
            return model, method
    return None, None


def new_train_function(model):
    """Keras's function of a model for a batch of training, which traces its layers as they are.

    In Keras 3.15 on JAX, `make_train_function(force=True)` gives a program of before where one is
    kept: JAX takes functions that are equal, as the methods of a model are, for one.
    """
    model.train_step = functools.partial(model.train_step)
    try:
        model.make_train_function(force=True)
    finally:
        del model.train_step
    return model.train_function


def sum_over_replicas(gradients):
    """The sum of each gradient over the replicas of `tf.distribute`; elsewhere the gradients.

    Keras 3.15 sums them after it has clipped them, so that each replica clips by a norm of its own.
    """
    if keras.backend.backend() != "tensorflow":
        return gradients
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return gradients
    present = [gradient for gradient in gradients if gradient is not None]
    summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return [None if gradient is None else next(summed) for gradient in gradients]


def different_noise_on_replicas(model):
    """Lets the seeds of a model's layers differ from replica to replica of `tf.distribute`.

    In Keras 3.15 all replicas have the same seeds, and drop the same units.
    """
    import tensorflow as tf

    def of_replica(draw, ordered=True):
        seed, context = draw(ordered), tf.distribute.get_replica_context()
        if context is None:
            return seed
        replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
        # The second number of a seed counts the calls; the stride keeps replicas apart.
        return seed + tf.stack([replica * 1_000_003, tf.zeros((), seed.dtype)])

    for layer in model._flatten_layers():
        generator = getattr(layer, "seed_generator", None)
        if generator is not None and "next" not in vars(generator):
            generator.next = functools.partial(of_replica, generator.next)


def is_compiling():
    """Whether JAX compiles what runs now; only then can Keras 3.15 cut an uneven batch."""
    import jax

    return isinstance(jax.numpy.ones(()), jax.core.Tracer)


def make_workers_strategy(timeout):
    """A `MultiWorkerMirroredStrategy` under which Keras's `fit` and `evaluate` run.

    Keras 3.15 asks it for the mean over the first axis of metrics, which have none, and for one
    batch of its replicas. An operation that needs another process fails after `timeout` seconds.
    """
    import tensorflow as tf

    class Strategy(tf.distribute.MultiWorkerMirroredStrategy):
        def reduce(self, reduce_op, value, axis=None):
            local = self.experimental_local_results
            if isinstance(value, tuple):
                return keras.tree.map_structure(lambda each: local(each)[0], value)
            if axis == 0 and all(each.shape.rank == 0 for each in local(value)):
                axis = None
            return super().reduce(reduce_op, value, axis=axis)

    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout)
    return Strategy(communication_options=options)


def policy_at(policy, path):
    """The dtype policy of the layer at `path`, also where it stands in a `DTypePolicyMap`.

    Keras 3.15 asks the map itself: `==` fails on it, and `EinsumDense.save_own_variables` takes a
    layer that the map quantises for one that is not. A layer has no path before it is built.
    """
    is_map = isinstance(policy, keras.dtype_policies.DTypePolicyMap)
    return policy[path] if is_map and path else policy


def policies_in(policy):
    """All dtype policies that a `DTypePolicyMap` gives to layers; of another policy itself."""
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return [policy]
    return [policy.default_policy, *(policy[path] for path in policy)]


def own_policy(policy, default=None):
    """A dtype policy that nobody else changes: the same, or the copy of a `DTypePolicyMap`.

    In Keras 3.15 a layer whose policy is changed writes it into the map, which all layers share,
    and `get_config` of a map without a default takes the names away from the policies in it.
    `default` replaces the default of a map, for what it does not name, or all of another policy.
    """
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return keras.DTypePolicy(default) if default else policy
    default = default or policy.default_policy.name
    return keras.dtype_policies.DTypePolicyMap(default, {path: policy[path] for path in policy})


def decode(image):
    """Decodes a PIL image that was opened.

    Pillow 13 maps an uncompressed TIFF that has a path into memory, unless it is RGB, and takes
    rows for columns where the image lies on its side.
    """
    path, image.filename = getattr(image, "filename", ""), ""
    try:
        image.load()
    finally:
        image.filename = path


def report_ended_workers():
    """Lets Grain report each worker process that has ended, with an error that says what to do.

    Grain 0.2.18 waits for ever for a worker whose script calls `sys.exit()` where it is imported.
    """
    try:
        from grain._src.python.dataset.transformations import process_prefetch
    except ImportError:  # another version
        return

    def check(iterator):
        """Called by Grain where a second has passed without a batch."""
        process = iterator._prefetch_process
        # What a process has put there is there when it has ended: its last batch, or its error.
        if process is not None and process.exitcode is not None and iterator._buffer.empty():
            raise RuntimeError(
                f"A worker process of the pipeline has ended with exit code {process.exitcode}. "
                "Its own error stands above, if it had one. Each worker imports the script that "
                'was started, whose actions must stand below `if __name__ == "__main__":`, and '
                "whose imports must be there. A negative code is a signal: -9 often means that "
                "memory ran out. workers=0 reads in this process."
            )

    process_prefetch.ProcessPrefetchDatasetIterator._process_failed = check
