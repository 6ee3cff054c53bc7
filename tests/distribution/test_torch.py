"""What a process of PyTorch does of its own in `model.fit`; `test_processes` has two of them."""

import keras
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("processes of PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist

from keras_vit.distribution.torch import TrainTogether
from keras_vit.layers import Dropout, StochasticDepth
from tests.support import to_numpy


@pytest.fixture
def a_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("layer", [Dropout, StochasticDepth])
@pytest.mark.parametrize("seed", [None, 7])
def test_each_process_drops_other_units(layer, seed, a_process, monkeypatch):
    """Both begin with the same state of PyTorch, as a script makes it that sets a seed."""

    def mask(rank):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3, 4)), layer(0.5, seed=seed)])
        monkeypatch.setattr(dist, "get_rank", lambda: rank)
        together = TrainTogether()
        together.set_model(model)
        together.on_train_begin()
        together.on_train_batch_begin(0)
        return to_numpy(model(torch.ones(64, 3, 4), training=True)).tolist()

    assert mask(0) == mask(0) != mask(1)
