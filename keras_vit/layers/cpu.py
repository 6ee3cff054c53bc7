"""What the instructions of a CPU say about products of matrices, without a timing.

A resumed training must multiply as before, and all processes of a run alike. docs/performance.md
has the measurements.
"""

import pathlib
import platform

INSTRUCTIONS = {  # that multiply a short type, as Linux names them
    "bfloat16": ("avx512_bf16", "amx_bf16"),
    "float16": ("avx512_fp16", "amx_fp16"),
}


def words_of_cpu():
    """The maker of the CPU and its instructions, as Linux names them; elsewhere the maker alone."""
    file = pathlib.Path("/proc/cpuinfo")
    return set((file.read_text() if file.exists() else platform.processor()).split())


def multiplied(words):
    """The short types for which a CPU is known to have an instruction."""
    return {dtype for dtype, names in INSTRUCTIONS.items() if not words.isdisjoint(names)}


def emulated(words):
    """The short types for which an x86 CPU has no instruction; of other CPUs nothing is known.

    Products take 5 to 45 times as long as in float32 with PyTorch, and up to 3 with TensorFlow.
    """
    return INSTRUCTIONS.keys() - multiplied(words) if "fpu" in words else set()


MULTIPLIED = multiplied(words_of_cpu())
EMULATED = emulated(words_of_cpu())
