"""PyTorch: which library multiplies is settled by timings, made once."""

import pytest

from keras_vit.layers import kernels
from tests.support import BACKEND

if BACKEND != "torch":
    pytest.skip("PyTorch's own functions", allow_module_level=True)

import torch

from keras_vit.layers import fast_torch, fast_torch_timing


@pytest.fixture(autouse=True)
def nothing_is_settled():
    settled = (fast_torch.onednn_is_faster, fast_torch.onednns_gelu_is_faster)
    for choice in settled:
        choice.cache_clear()
    yield
    for choice in settled:
        choice.cache_clear()


def test_a_pytorch_without_the_operation_takes_the_other_way(monkeypatch):
    def missing(*_):
        raise AttributeError("no such operation")

    monkeypatch.setattr(fast_torch, "_onednn", missing)
    for dtype in (torch.float32, torch.bfloat16):
        assert not fast_torch.onednn_is_faster(dtype)
        assert not fast_torch.onednns_gelu_is_faster(kernels.gelu_tanh, dtype, 768, 3072)


def test_each_large_size_has_its_own_choice_and_small_ones_share_one(monkeypatch):
    measured = []

    def shortest(linears, dtype, rows, into, out):
        measured.append((into, out))
        return (2, 1) if (into, out) in [(384, 384), (768, 3072)] else (1, 2)  # oneDNN's first

    monkeypatch.setattr(fast_torch_timing, "shortest", shortest)
    sizes = [(8, 16), (192, 768), (768, 3072), (384, 1536)]
    choose = fast_torch.onednns_gelu_is_faster
    found = [choose(kernels.gelu_tanh, torch.float32, *each) for each in sizes]
    assert found == [False, False, False, True]
    assert measured == [(384, 384), (384, 384), (768, 3072), (384, 1536)]  # first, without GELU
