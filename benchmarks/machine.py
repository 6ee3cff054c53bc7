"""What the speed benchmarks say about the machine: its name, its memory, its threads."""

import contextlib
import datetime
import os
import pathlib
import platform

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
MIB = 2**20


def describe():
    """Processor, cores this process may use, memory, system, load and date."""
    return {
        "processor": processor(),
        "cores": len(cores()),
        "memory_gib": round(_pages("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": f"{datetime.date.today():%Y-%m-%d}",
    }


def processor():
    """The processor by its own name, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cores():
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def thread_environment(threads):
    """Environment variables that limit the threads of every library."""
    return {name: str(threads) for name in THREAD_VARIABLES}


def use_cores(chosen):
    """Limits this process to some cores; XLA makes as many threads as there are."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)


def available_memory():
    """Bytes that are free for new processes, or None."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return None


def _pages(name):
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def memory(field="VmHWM", process="self"):
    """Bytes that a process has in memory: `VmRSS` now, `VmHWM` at most since `reset_peak`.

    None where the system does not tell. Unlike `ru_maxrss`, this is not inherited from whoever
    started the process.
    """
    with contextlib.suppress(OSError, IndexError):
        for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak():
    """Lets `VmHWM` of this process begin again at what is in memory now; says whether it did."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def accelerator(backend):
    """The name of the accelerator that a backend computes on, or None for the CPU."""
    if backend == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if backend == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        return None
    return tf.config.experimental.get_device_details(devices[0]).get("device_name", "GPU")


def accelerator_peak(backend):
    """Bytes of the accelerator's memory in use at most, or None on a CPU."""
    if accelerator(backend) is None:
        return None
    if backend == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    if backend == "jax":
        import jax

        return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]
