"""The cases of `tests/harness.py` for what later families have in place of the paper's layers."""

import numpy as np

from keras_vit import Later, layers
from tests import definitions
from tests.definitions import dinov3_angles
from tests.harness import ATTENTION, MLP, NORM, Case, under

CASES = [
    Case("RMSNorm", layers.RMSNorm, {}, definitions.rms_norm, ("gamma",)),
    Case(
        "LayerScale",
        layers.LayerScale,
        {"initial": 0.1},
        lambda w, x: w["gamma"] * x,
        ("gamma",),
    ),
    *(
        Case(
            f"MLP_{activation}",
            layers.MLP,
            {"hidden_dim": 12, "later": Later(activation=activation).to_config()},
            lambda w, x, activation=activation: definitions.mlp(w, x, activation),
            MLP,
        )
        for activation in ("silu", "quick_gelu")
    ),
    Case(
        "RotaryPosition",
        layers.RotaryPosition,
        {"kind": "dinov3", "head_width": 8, "grid": (2, 2)},
        lambda w, x: np.stack([f(np.tile(dinov3_angles((2, 2), 8), 2)) for f in (np.cos, np.sin)]),
        inputs={"x": (2, 4, 12)},
    ),
    Case(
        "SwiGLU",
        layers.SwiGLU,
        {"hidden_dim": 12, "later": Later(biases="none").to_config()},
        lambda w, x: definitions.mlp(w, x, "silu"),
        ("gate/kernel", "dense_1/kernel", "dense_2/kernel"),
    ),
    *(
        Case(
            f"MultiHeadSelfAttention_{norm}",
            layers.MultiHeadSelfAttention,
            {"num_heads": 2, "later": Later(qk_norm=norm, biases="no_key").to_config()},
            definitions.attention,
            (
                *(path for path in ATTENTION if path != "key/bias"),
                *under("query_norm", variables),
                *under("key_norm", variables),
            ),
        )
        for norm, variables in (("layer_norm", NORM), ("rms_norm", ("gamma",)))
    ),
    Case(
        "TransformerBlock_later",
        layers.TransformerBlock,
        {
            "num_heads": 2,
            "mlp_dim": 12,
            "later": Later("rms_norm", "swiglu", layer_scale=0.1, biases="none").to_config(),
        },
        lambda w, x: definitions.block(w, x, kind="silu"),
        (
            *(f"attention/{name}/kernel" for name in ("query", "key", "value", "out")),
            *(f"mlp/{name}/kernel" for name in ("gate", "dense_1", "dense_2")),
            *(f"{name}/gamma" for name in ("norm_1", "norm_2", "layer_scale_1", "layer_scale_2")),
        ),
    ),
]
