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


def later(size, **fields):
    """Arguments of a layer of some size with extensions."""
    return {**size, "extensions": dataclasses.asdict(Extensions(**fields))}


def encode_patches(w, x):
    x = definitions.layer_norm(definitions.below(w, "norm"), x @ w["projection/kernel"])
    learned = [w["class_token"], w["distillation_token"], w["registers"]]
    tokens = np.concatenate([np.repeat(each, len(x), axis=0) for each in learned] + [x], axis=1)
    return tokens + w["position/embedding"]


HEADS, HIDDEN, ROTATED = {"num_heads": 2}, {"hidden_dim": 12}, {"num_heads": 2, "head_width": 8}
ROTATED |= {"grid": (2, 2), "learned_tokens": 1}
TOKENS = ("class_token", "distillation_token", "registers")
SIZE, GRID = {"num_heads": 2, "mlp_dim": 12}, (2, 3)
PATCHES, GRID_TOKENS = {"x": (2, 4, 12)}, {"x": (2, 6, 8)}
MAP = ("probe", *under("attention", ATTENTION), *under("norm", NORM), *under("mlp", MLP))
PROBE = {"attention/key/kernel", "attention/value/kernel", *under("attention/out", LINEAR)}
ONE_BRANCH = tuple(path for path in BLOCK if not path.startswith("norm_2"))
NO_KEY = tuple(path for path in ATTENTION if path != "key/bias")
KERNELS = tuple(f"attention/{name}/kernel" for name in ("query", "key", "value", "out"))
GAMMAS = tuple(f"{name}_{i}/gamma" for name in ("norm", "layer_scale") for i in (1, 2))
GATED = ("gate/kernel", "dense_1/kernel", "dense_2/kernel")

CASES = [
    Case("RMSNorm", layers.RMSNorm, {}, definitions.rms_norm, ("gamma",)),
    Case(
        "LayerScale", layers.LayerScale, {"initial": 0.1}, lambda w, x: w["gamma"] * x, ("gamma",)
    ),
    *(
        Case(
            f"MLP_{activation}",
            layers.ExtendedMLP,
            later(HIDDEN, activation=activation),
            lambda w, x, activation=activation: definitions.mlp(w, x, activation),
            MLP,
        )
        for activation in ("silu", "quick_gelu")
    ),
    Case(
        "MLP_norm",
        layers.ExtendedMLP,
        later(HIDDEN, mlp_norm="layer_norm"),
        definitions.mlp,
        (*MLP, *under("norm", NORM)),
    ),
    Case(
        "SwiGLU",
        layers.SwiGLU,
        later(HIDDEN, biases="none"),
        lambda w, x: definitions.mlp(w, x, "silu"),
        GATED,
    ),
    *(
        Case(
            f"RotaryPosition_{name}",
            layers.RotaryPosition,
            {"kind": dataclasses.asdict(rotary), **ROTATED},
            lambda w, x, rotary=rotary: angles(rotary),
            inputs=PATCHES,
        )
        for name, rotary in ROTARIES.items()
    ),
    Case(
        "RotaryPosition_mixed",
        layers.RotaryPosition,
        {"kind": "mixed", **ROTATED},
        learned_angles,
        ("frequencies",),
        PATCHES,
    ),
    *(
        Case(
            f"RelativePosition2D_{'class' if first else 'patches'}",
            layers.RelativePosition2D,
            {"num_heads": 2, "grid": GRID, "class_token": first},
            lambda w, x, first=first: definitions.relative_2d(w, 2, GRID, first),
            ("table",),
            {"x": (2, 6 + first, 12)},
        )
        for first in (True, False)
    ),
    Case(
        "ExtendedAttention_bias",
        layers.ExtendedAttention,
        later(HEADS, attention_norm="layer_norm"),
        lambda w, x, bias: definitions.attention(w, x, bias=bias),
        (*ATTENTION, *under("norm", NORM)),
        {"x": (2, 5, 8), "bias": (2, 5, 5)},
    ),
    *(
        Case(
            f"ExtendedAttention_{norm}",
            layers.ExtendedAttention,
            later(HEADS, qk_norm=norm, biases="no_key"),
            definitions.attention,
            (*NO_KEY, *under("query_norm", variables), *under("key_norm", variables)),
        )
        for norm, variables in (("layer_norm", NORM), ("rms_norm", ("gamma",)))
    ),
    *(
        Case(
            f"AxialAttention_{axis}",
            layers.AxialAttention,
            {**HEADS, "grid": GRID, "axis": axis},
            lambda w, x, axis=axis: definitions.axial_attention(w, x, GRID, axis),
            ATTENTION,
            GRID_TOKENS,
        )
        for axis in ("row", "column")
    ),
    Case(
        "AttentionPool_probe",
        layers.AttentionPool,
        {"num_heads": 2, "mlp_dim": None, "qkv_bias": False},
        definitions.probe_pool,
        ("probe", *PROBE),
    ),
    Case(
        "AttentionPool_quick_gelu",
        layers.AttentionPool,
        {**SIZE, "activation": "quick_gelu"},
        lambda w, x: definitions.attention_pool(w, x, "quick_gelu"),
        MAP,
    ),
    Case(
        "ExtendedPatchEncoder",
        layers.ExtendedPatchEncoder,
        {
            "width": 8,
            "grid": (2, 2),
            "registers": 2,
            "distillation": True,
            "bias": False,
            "norm": "layer_norm",
        },
        encode_patches,
        ("projection/kernel", *under("norm", NORM), *TOKENS, "position/embedding"),
        {"patches": (2, 4, 12)},
    ),
    Case(
        "ExtendedTokenPool",
        layers.ExtendedTokenPool,
        {"pool": "token_mean", "class_token": True, "registers": 1},
        lambda w, x: np.concatenate([x[:, 0], x[:, 2:].mean(axis=1)], axis=-1),
    ),
    Case(
        "PatchDropout",
        layers.PatchDropout,
        {"rate": 0.5, "learned_tokens": 1, "seed": 3},
        lambda w, x: x,
    ),
    Case(
        "ExtendedBlock",
        layers.ExtendedBlock,
        later(SIZE, norm="rms_norm", mlp="swiglu", layer_scale=0.1, biases="none"),
        lambda w, x: definitions.block(w, x, kind="silu"),
        (*KERNELS, *under("mlp", GATED), *GAMMAS),
    ),
    *(
        Case(cls.__name__, cls, {**SIZE, **rates}, definition, variables)
        for cls, rates, definition, variables in (
            (layers.PostNormBlock, {}, definitions.post_norm_block, BLOCK),
            (layers.RematPostNormBlock, {}, definitions.post_norm_block, BLOCK),
            (layers.AddNormBlock, {}, definitions.add_norm_block, BLOCK),
            (layers.RematAddNormBlock, {}, definitions.add_norm_block, BLOCK),
            (layers.RematParallelBlock, {"dropout": 0.1}, definitions.parallel_block, ONE_BRANCH),
        )
    ),
    Case(
        "ParallelBlock",
        layers.ParallelBlock,
        later(SIZE, layer_scale=0.1),
        definitions.parallel_block,
        (*ONE_BRANCH, "layer_scale_1/gamma"),
    ),
    *(
        Case(
            f"{cls.__name__}_{axis}",
            cls,
            {**SIZE, "grid": GRID, "axis": axis},
            lambda w, x, axis=axis: definitions.axial_block(w, x, GRID, axis),
            BLOCK,
            GRID_TOKENS,
        )
        for cls, axis in ((layers.AxialBlock, "row"), (layers.RematAxialBlock, "column"))
    ),
]
