"""Which of two linear maps of PyTorch is the faster one on this machine."""

import time

import torch


def is_faster(one, other, times, dtype, *sizes):
    """Whether `one` computes a linear map (rows, in, out) that many times faster than `other`."""
    _keep_some_memory()
    threads = torch.get_num_threads()
    # One thread, and the time that it computed: whatever else the machine does, every process
    # comes to the same end, and a resumed training to the same weights.
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            ours, theirs = shortest((one, other), dtype, *sizes)
            return ours * times < theirs
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    finally:
        torch.set_num_threads(threads)


def _keep_some_memory():
    """Lets the C library keep up to 62 MiB of what is freed.

    glibc does so once a block of 31 MiB was freed. Before, it returns every activation of some MiB
    to the system, and takes it again page by page: up to a fifth of the time of an inference.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def shortest(linears, dtype, rows, into, out):
    """The shortest times of some linear maps to values of 1: GELU is slow for large ones.

    They take turns, because the speed of a shared machine changes from moment to moment.
    """
    x, kernel = torch.ones(rows, into, dtype=dtype), torch.full((into, out), 1 / into, dtype=dtype)
    bias, times = torch.zeros(out, dtype=dtype), [float("inf")] * len(linears)
    for _ in range(5):
        for i, linear in enumerate(linears):
            start = time.thread_time()
            linear(x, kernel, bias)
            times[i] = min(times[i], time.thread_time() - start)
    return times
