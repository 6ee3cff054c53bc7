"""Memory that a process keeps from one training step to the next."""

import ctypes
import sys

# Of mallopt(3): one arena, no mappings for large blocks, nothing returned from its end.
_SETTINGS = {"M_ARENA_MAX": (-8, 1), "M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1)}


def keep_memory():
    """Lets this process keep the memory that it frees, instead of returning it to the system.

    On a CPU, JAX takes the memory of each step from the operating system anew and gives it back,
    which can cost a third of a step: call this before the first model is built. It holds for the
    whole process, whose memory then stays at its peak; hence nothing here calls it by itself.
    The same from outside, for any program: `GLIBC_TUNABLES=glibc.malloc.mmap_max=0` and, joined to
    it by colons, `glibc.malloc.trim_threshold=2147483647` and `glibc.malloc.arena_max=1`.

    Returns:
        Whether it could be done: it takes Linux with the GNU C library.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all([mallopt(*setting) for setting in _SETTINGS.values()])  # each, whatever the others
