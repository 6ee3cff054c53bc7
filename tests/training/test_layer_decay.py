"""Which layer gets which share of the learning rate."""

import pytest

from keras_vit.models import BiT
from keras_vit.training import AdamW, layer_rates
from tests.support import refuses, tiny_vit

pytestmark = pytest.mark.any_backend


def rate_by_layer(model, layer_decay, num_blocks=None):
    paths = [v.path for v in model.trainable_variables]
    rates = layer_rates(paths, layer_decay, num_blocks)
    return {path.split("/")[-2 if "/" not in path else 0]: r for path, r in zip(paths, rates)}


def test_the_rate_halves_from_layer_to_layer():
    found = rate_by_layer(tiny_vit(depth=3, representation_size=4, pool="map"), 0.5)
    blocks = {"patch_encoder": 1 / 16, "block_0": 1 / 8, "block_1": 1 / 4, "block_2": 1 / 2}
    assert found == blocks | dict.fromkeys(("norm", "pool", "pre_logits", "head"), 1.0)


def test_every_layer_of_every_family_has_a_place():
    hybrid = rate_by_layer(tiny_vit(stem=(1,), stem_width=0.5, patch_size=2, depth=1), 0.5)
    assert hybrid["root"] == hybrid["stage_1_unit_1"] == hybrid["patch_encoder"] == 0.25
    every = rate_by_layer(tiny_vit(depth=2, position="learned_1d", position_at="every_layer"), 0.5)
    assert every["position_0"] == every["block_0"] == 0.25
    assert every["position_1"] == every["block_1"] == 0.5
    later = {"rotary": "mixed", "pre_norm": "layer_norm", "distillation": True, "layer_scale": 0.1}
    found = rate_by_layer(tiny_vit(**later), 0.5)
    assert found["patch_encoder"] == found["pre_norm"] == 1 / 8
    assert found["rotary_0"] == found["block_0"] == 1 / 4
    assert found["rotary_1"] == found["block_1"] == 1 / 2
    assert found["norm"] == found["head"] == found["head_distillation"] == 1.0
    shared = {"position": "relative_2d", "position_at": "shared", "projection": 4}
    found = rate_by_layer(tiny_vit(**shared), 0.5)
    assert found["position"] == found["projection"] == 1.0  # as in BEiT
    assert rate_by_layer(tiny_vit(position="relative_2d"), 0.5)["position_0"] == 1 / 4


def test_paths_alone_tell_the_rates():
    paths = ["backbone/block_0/norm_1/gamma", "backbone/patch_encoder/bias", "head/kernel"]
    assert layer_rates(paths, 1.0) == layer_rates(paths, None) == (1.0, 1.0, 1.0)
    assert layer_rates(paths, 0.5) == (0.5, 0.25, 1.0)
    assert layer_rates(["decoder/block_0/norm_1/gamma", *paths], 0.5)[0] == 1.0
    # The depth can be given where blocks are frozen.
    assert layer_rates(["head/kernel", "norm/gamma"], 0.5, num_blocks=12) == (1.0, 1.0)
    assert layer_rates(["block_3/a/kernel"], 0.5, num_blocks=12) == (0.5**9,)


def test_what_has_no_rates_is_refused():
    model = BiT(blocks=(1,), width=0.5, num_classes=2, image_size=16)
    refuses("named block_0", AdamW(0.1, layer_decay=0.5).build, model.trainable_variables)
    paths = ["block_0/kernel", "probe/kernel"]
    refuses(r"variables \['probe/kernel'\]; leave", layer_rates, paths, 0.5)
    for factor in (0.0, 1.1, -1, "0.5"):
        refuses(r"layer_decay must be a number in \(0, 1\]", layer_rates, paths, factor)
    refuses("num_blocks must be a positive integer", layer_rates, paths, 0.5, num_blocks=0)
