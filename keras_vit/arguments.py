"""Arguments of the models as types, for editors and type checkers.

Written by `python -m tests.typing.write`.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from keras_vit.extensions import Rotary


class ViTFields(TypedDict, total=False):
    """Fields of `keras_vit.Variant`."""

    width: int
    depth: int
    num_heads: int
    mlp_dim: int | None
    patch_size: int | tuple[int, int]
    pool: Literal["token", "mean", "token_mean", "map", "probe", "first", None]
    class_token: bool | None
    representation_size: int | None
    position: Literal[
        "learned_1d", "learned_2d", "sincos_2d", "relative", "relative_2d", "none", None
    ]
    position_at: Literal["input", "every_layer", "shared", None]
    stem: tuple[int, ...] | None
    stem_width: float
    stem_numerics: Literal["google", "timm"]
    stem_folded: bool
    interpolation: Literal[
        "align_corners",
        "bilinear",
        "bilinear_antialias",
        "bicubic",
        "bicubic_no_antialias",
        "bicubic_align_corners",
        "scipy_zoom",
    ]
    registers: int
    norm_after_pool: bool
    gelu: Literal["tanh", "erf"]
    qkv_bias: bool
    epsilon: float
    norm: Literal["layer_norm", "rms_norm"]
    block: Literal["pre_norm", "post_norm", "add_norm", "parallel", "axial"]
    mlp: Literal["mlp", "swiglu"]
    activation: Literal[None, "gelu_tanh", "gelu_erf", "quick_gelu", "silu"]
    layer_scale: float | None
    qk_norm: Literal[None, "layer_norm", "rms_norm"]
    mlp_norm: Literal[None, "layer_norm", "rms_norm"]
    attention_norm: Literal[None, "layer_norm", "rms_norm"]
    patch_norm: Literal[None, "layer_norm", "rms_norm"]
    pre_norm: Literal[None, "layer_norm", "rms_norm"]
    final_norm: bool | None
    biases: Literal["all", "no_key", "qkv", "attention", "no_out", "none"]
    patch_bias: bool
    rotary: Rotary | str | dict | None
    distillation: bool
    pool_heads: int | None
    pool_mlp_dim: int | None
    pool_patches: bool
    projection: int | None


class ViTOptions(ViTFields, total=False):
    """Further arguments of the builders of `keras_vit.VisionTransformer`."""

    channels: int
    dropout: float
    attention_dropout: float
    stochastic_depth: float
    head_bias: float
    remat: bool
    variable_size: bool
    patch_dropout: float
    token_merging: int | Sequence[int]
    name: str | None
    dtype: Any


class BiTFields(TypedDict, total=False):
    """Fields of `keras_vit.BiTVariant`."""

    blocks: tuple[int, ...]
    width: float
    version: Literal["v1", "v2"]
    numerics: Literal["google", "timm", "bit", "bit_paper"]
    folded: bool


class BiTOptions(BiTFields, total=False):
    """Further arguments of the builders of `keras_vit.BiT`."""

    channels: int
    head_bias: float
    name: str | None
    dtype: Any
