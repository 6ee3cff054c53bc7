"""CPUs of other kinds than that of this machine, by their flags."""

from keras_vit.layers import cpu
from tests.support import BACKEND

CPUS = {  # flags of a CPU of each kind that a backend multiplies otherwise on
    "amd_avx512": "AuthenticAMD fpu avx512f avx512_bf16 avx512_fp16",
    "intel_avx512": "GenuineIntel fpu avx512f avx512_bf16 avx512_fp16",
    "avx2": "AuthenticAMD fpu avx2",
}


def become(cpu_name, monkeypatch):
    words = set(CPUS[cpu_name].split())
    monkeypatch.setattr(cpu, "MULTIPLIED", cpu.multiplied(words))
    monkeypatch.setattr(cpu, "EMULATED", cpu.emulated(words))
    if BACKEND == "torch":
        import torch

        from keras_vit.layers import fast_torch_products as products

        monkeypatch.setattr(products, "HAS_AVX512", "avx512f" in words)
        monkeypatch.setattr(products, "ONEDNN_IS_FASTER", products.onednn_is_faster(words))
        monkeypatch.setattr(products, "EMULATED", {getattr(torch, name) for name in cpu.EMULATED})
