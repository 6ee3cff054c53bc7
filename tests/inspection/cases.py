"""Models that several tests look at, and what published code says about two of them."""

import functools

from tests.support import ORACLES, OracleCase, randomize, read_arrays, tiny_vit

ANALYSES = read_arrays(ORACLES / "attention_analysis" / "attention.npz")
GRIDS = {"token_p8": 4, "token_prelogits_p4": 6}
WIDE = {"image_size": (16, 24), "patch_size": 8, "registers": 1}
CLASSES = ["cat", "</script><!--<script><b>dog", "bird"]
PATCHES = {"token_p8": 8, "token_prelogits_p4": 4}


def case(name):
    return OracleCase(ORACLES / "flax_vit" / name)


@functools.cache
def oracle_model(name):
    """Nobody changes it: looking at a model leaves it as it is."""
    return case(name).load()


@functools.cache
def random_vit(**options):
    return randomize(tiny_vit(**options))


def analysis(name):
    """attn, distance_keras_io, distance_renormalised, rollout_joint and so on."""
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in ANALYSES.items() if k.startswith(prefix)}
