"""How much memory a process has used at most."""

import sys

import keras


def peak_memory():
    """The highest number of bytes so far: of the accelerator if there is one, or of the process.

    Returns:
        An int, or None where the system does not tell.
    """
    return _of_accelerator(keras.backend.backend()) or _of_process()


def _of_accelerator(backend):
    if backend == "torch":
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    if backend == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def _of_process():
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
