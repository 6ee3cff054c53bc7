"""What the authors' code and published analyses say about two models, for several tests."""

from tests.support import ORACLES, OracleCase, read_arrays

ANALYSES = read_arrays(ORACLES / "attention_analysis" / "attention.npz")
GRIDS = {"token_p8": 4, "token_prelogits_p4": 6}
PATCHES = {"token_p8": 8, "token_prelogits_p4": 4}


def case(name):
    return OracleCase(ORACLES / "flax_vit" / name)


def analysis(name):
    """attn, distance_keras_io, distance_renormalised, rollout_joint and so on."""
    prefix = f"{name}/"
    return {k.removeprefix(prefix): v for k, v in ANALYSES.items() if k.startswith(prefix)}
