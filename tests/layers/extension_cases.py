"""The cases of `tests/harness.py` for what later families have in place of the paper's layers."""

import dataclasses

import numpy as np

from keras_vit import Extensions, Rotary, layers
from tests import definitions
from tests.harness import ATTENTION, BLOCK, LINEAR, MLP, NORM, Case, under

ROTARIES = {
    "dinov3": Rotary("centered", 100.0, pairs="halves"),
    "counted": Rotary("index", 10.0, (4, 3), 1.0, "columns"),
}


def angles(rotary):
    """Of a grid of 2 x 2 patches after a class token."""
    table = np.pad(definitions.angles((2, 2), 8, rotary), ((1, 0), (0, 0)))[:, None]
    halves = rotary.pairs == "halves"
    table = np.tile(table, 2) if halves else np.repeat(table, 2, axis=-1)
    return np.stack([np.cos(table), np.sin(table)])


def learned_angles(w, x):
    rows, columns = np.mgrid[:2, :2].reshape(2, 4, 1, 1)
    table = columns * w["frequencies"][0] + rows * w["frequencies"][1]
    table = np.repeat(np.pad(table, ((1, 0), (0, 0), (0, 0))), 2, axis=-1)
    return np.stack([np.cos(table), np.sin(table)])


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
            layers.ExtendedMLP,
            {"hidden_dim": 12, "extensions": Extensions(activation=activation).to_config()},
            lambda w, x, activation=activation: definitions.mlp(w, x, activation),
            MLP,
        )
        for activation in ("silu", "quick_gelu")
    ),
    *(
        Case(
            f"RotaryPosition_{name}",
            layers.RotaryPosition,
            {
                "kind": dataclasses.asdict(rotary),
                "num_heads": 2,
                "head_width": 8,
                "grid": (2, 2),
                "learned_tokens": 1,
            },
            lambda w, x, rotary=rotary: angles(rotary),
            inputs={"x": (2, 4, 12)},
        )
        for name, rotary in ROTARIES.items()
    ),
    Case(
        "RotaryPosition_mixed",
        layers.RotaryPosition,
        {"kind": "mixed", "num_heads": 2, "head_width": 8, "grid": (2, 2), "learned_tokens": 1},
        learned_angles,
        ("frequencies",),
        inputs={"x": (2, 4, 12)},
    ),
    *(
        Case(
            f"RelativePosition2D_{'class' if class_token else 'patches'}",
            layers.RelativePosition2D,
            {"num_heads": 2, "grid": (2, 3), "class_token": class_token},
            lambda w, x, class_token=class_token: definitions.relative_2d(
                w, 2, (2, 3), class_token
            ),
            ("table",),
            inputs={"x": (2, 6 + class_token, 12)},
        )
        for class_token in (True, False)
    ),
    Case(
        "ExtendedAttention_bias",
        layers.ExtendedAttention,
        {"num_heads": 2, "extensions": Extensions(attention_norm="layer_norm").to_config()},
        lambda w, x, bias: definitions.attention(w, x, bias=bias),
        (*ATTENTION, *under("norm", NORM)),
        inputs={"x": (2, 5, 8), "bias": (2, 5, 5)},
    ),
    Case(
        "AttentionPool_probe",
        layers.AttentionPool,
        {"num_heads": 2, "mlp_dim": None, "qkv_bias": False},
        definitions.probe_pool,
        (
            "probe",
            "attention/key/kernel",
            "attention/value/kernel",
            *under("attention/out", LINEAR),
        ),
    ),
    Case(
        "AttentionPool_quick_gelu",
        layers.AttentionPool,
        {"num_heads": 2, "mlp_dim": 12, "activation": "quick_gelu"},
        lambda w, x: definitions.attention_pool(w, x, "quick_gelu"),
        ("probe", *under("attention", ATTENTION), *under("norm", NORM), *under("mlp", MLP)),
    ),
    Case(
        "PatchDropout",
        layers.PatchDropout,
        {"rate": 0.5, "learned_tokens": 1, "seed": 3},
        lambda w, x: x,
    ),
    Case(
        "MLP_norm",
        layers.ExtendedMLP,
        {"hidden_dim": 12, "extensions": Extensions(mlp_norm="layer_norm").to_config()},
        definitions.mlp,
        (*MLP, *under("norm", NORM)),
    ),
    Case(
        "PostNormBlock",
        layers.PostNormBlock,
        {"num_heads": 2, "mlp_dim": 12},
        definitions.post_norm_block,
        BLOCK,
    ),
    *(
        Case(
            kind,
            getattr(layers, kind),
            {"num_heads": 2, "mlp_dim": 12},
            definitions.add_norm_block,
            BLOCK,
        )
        for kind in ("AddNormBlock", "RematAddNormBlock")
    ),
    *(
        Case(
            f"{kind}_{axis}",
            getattr(layers, kind),
            {"num_heads": 2, "mlp_dim": 12, "grid": grid, "axis": axis},
            lambda w, x, grid=grid, axis=axis: definitions.axial_block(w, x, grid, axis),
            BLOCK,
            inputs={"x": (2, 6, 8)},
        )
        for kind, grid, axis in (
            ("AxialBlock", (2, 3), "row"),
            ("RematAxialBlock", (2, 3), "column"),
        )
    ),
    Case(
        "ParallelBlock",
        layers.ParallelBlock,
        {"num_heads": 2, "mlp_dim": 12, "extensions": Extensions(layer_scale=0.1).to_config()},
        definitions.parallel_block,
        (
            *(path for path in BLOCK if not path.startswith("norm_2")),
            "layer_scale_1/gamma",
        ),
    ),
    *(
        Case(
            f"AxialAttention_{axis}",
            layers.AxialAttention,
            {"num_heads": 2, "grid": (2, 3), "axis": axis},
            lambda w, x, axis=axis: definitions.axial_attention(w, x, (2, 3), axis),
            ATTENTION,
            inputs={"x": (2, 6, 8)},
        )
        for axis in ("row", "column")
    ),
    Case(
        "ExtendedTokenPool",
        layers.ExtendedTokenPool,
        {"pool": "token_mean", "class_token": True, "registers": 1},
        lambda w, x: np.concatenate([x[:, 0], x[:, 2:].mean(axis=1)], axis=-1),
    ),
    Case(
        "SwiGLU",
        layers.SwiGLU,
        {"hidden_dim": 12, "extensions": Extensions(biases="none").to_config()},
        lambda w, x: definitions.mlp(w, x, "silu"),
        ("gate/kernel", "dense_1/kernel", "dense_2/kernel"),
    ),
    *(
        Case(
            f"ExtendedAttention_{norm}",
            layers.ExtendedAttention,
            {"num_heads": 2, "extensions": Extensions(qk_norm=norm, biases="no_key").to_config()},
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
        "ExtendedBlock",
        layers.ExtendedBlock,
        {
            "num_heads": 2,
            "mlp_dim": 12,
            "extensions": Extensions(
                norm="rms_norm", mlp="swiglu", layer_scale=0.1, biases="none"
            ).to_config(),
        },
        lambda w, x: definitions.block(w, x, kind="silu"),
        (
            *(f"attention/{name}/kernel" for name in ("query", "key", "value", "out")),
            *(f"mlp/{name}/kernel" for name in ("gate", "dense_1", "dense_2")),
            *(f"{name}/gamma" for name in ("norm_1", "norm_2", "layer_scale_1", "layer_scale_2")),
        ),
    ),
    Case(
        "RematPostNormBlock",
        layers.RematPostNormBlock,
        {"num_heads": 2, "mlp_dim": 12},
        definitions.post_norm_block,
        BLOCK,
    ),
    Case(
        "RematParallelBlock",
        layers.RematParallelBlock,
        {"num_heads": 2, "mlp_dim": 12, "dropout": 0.1},
        definitions.parallel_block,
        tuple(path for path in BLOCK if not path.startswith("norm_2")),
    ),
]
