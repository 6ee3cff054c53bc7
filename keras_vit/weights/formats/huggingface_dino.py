"""Folders of Hugging Face's Dinov2, Dinov2WithRegisters and DINOv3ViT.

The head of Dinov2 sees the class token and the mean of the patches, one after the other; its
registers have no positions. DINOv3 has rotary positions and no head.
"""

import dataclasses

import numpy as np

from keras_vit.extensions import BIASES, ROTARIES
from keras_vit.weights import tables
from keras_vit.weights.canonical import QKV, smallest_fitting
from keras_vit.weights.formats import huggingface
from keras_vit.weights.model_arguments import CUSTOM, POSITION
from keras_vit.weights.safety import of_other_model, unsupported
from keras_vit.weights.tables import CONV, PARTS, SAME, Table
from keras_vit.weights.writable import ANY

REGISTERS = "patch_encoder/registers"
DINOV3_BLOCK = "[layer|model.layer].{i}."
GATED = "gate_proj up_proj down_proj"  # the linear maps of an MLP with a gate
MLP = huggingface.BLOCK + "mlp."
PACKED = (  # with a gate, as in files of Dinov2
    *tables.torch_linear(MLP + "weights_in", "block_{i}/mlp/[gate|dense_1]"),
    *tables.torch_linear(MLP + "weights_out", "block_{i}/mlp/dense_2"),
)
LINEAR = {  # names of `Extensions.biases` -> layers of a block
    **{part: (f"attention/{part}",) for part in PARTS},
    "mlp": ("mlp/gate", "mlp/dense_1", "mlp/dense_2"),
}


class Dino(huggingface.HuggingFace):
    """What the three families share: LayerScale, a mask token, and registers, which may be 0."""

    def recognises(self, arrays):
        has_scale = any(name.endswith("layer_scale1.lambda1") for name in arrays)
        return has_scale and super().recognises(arrays)

    def single_layers(self, arrays):
        """Without the empty array of a model without registers."""
        return {name: array for name, array in arrays.items() if array.size}

    def write(self, model, arrays):
        file = super().write(model, arrays)
        token = next(name for name in file if name.endswith("cls_token"))
        shape = (1,) * self.mask_axes + file[token].shape[-1:]
        file[token.replace("cls_token", "mask_token")] = np.zeros(shape, file[token].dtype)
        return file

    def obstacles(self, model):
        return super().obstacles(model) | {"layer_scale=None": model.variant.layer_scale is None}


class Dinov2(Dino):
    """Dinov2 with registers or without."""

    mask_axes = 1

    def complete(self, weights, arguments, contents):
        if arguments["mlp"] == "swiglu":
            arguments["activation"] = "silu"  # whatever hidden_act says
        if arguments["registers"] and POSITION in weights.arrays:
            weights.add_zero_positions(at=1, count=arguments["registers"])
        super().complete(weights, arguments, contents)
        ratio = arguments.config.get("mlp_ratio", 4)
        units = _hidden_units(arguments["width"], ratio, arguments["mlp"])
        if arguments.config and units != arguments["mlp_dim"]:
            has = f"the file has {arguments['mlp_dim']}"
            what = f"mlp_ratio={ratio} stands for {units} hidden units, and {has}"
            raise of_other_model(arguments.config, what)
        huggingface.to_the_grid(weights.arrays, arguments)

    def write(self, model, arrays):
        if count := model.variant.registers:
            first, of_registers, patches = np.split(arrays[POSITION], [1, 1 + count], axis=1)
            positions = np.concatenate([first, patches], axis=1)
            registers = arrays[REGISTERS] + of_registers
            arrays = {**arrays, REGISTERS: registers, POSITION: positions}
        return super().write(model, arrays)

    def rows_for(self, v):
        return PACKED if v.mlp == "swiglu" else ()

    def config_for(self, model):
        return {**super().config_for(model), "mlp_ratio": _ratio(model.variant)}

    def obstacles(self, model):
        v = model.variant
        lacks_silu = v.mlp == "swiglu" and v.activation not in (None, "silu")
        return super().obstacles(model) | {
            **huggingface.not_square(model),
            f"mlp_dim={v.mlp_dim} with width={v.width}": _ratio(v) is None,
            f"activation={v.activation!r}": lacks_silu,
        }


def _hidden_units(width, ratio, mlp):
    units = int(width * ratio)
    return (int(units * 2 / 3) + 7) // 8 * 8 if mlp == "swiglu" else units


def _ratio(v):
    """The whole `mlp_ratio` that stands for the hidden units of a variant, or `None`."""
    ratios = range(1, 2 + 2 * v.mlp_dim // v.width)
    return next((r for r in ratios if _hidden_units(v.width, r, v.mlp) == v.mlp_dim), None)


class Dinov3(Dino):
    mask_axes = 2

    def flat_config(self, contents):
        """Newer ones keep the numbers of the rotary positions in a dict of their own."""
        rope = contents.config.get("rope_parameters") or {}
        if rope.get("rope_type", "default") != "default":
            raise unsupported(f"been built with rope_parameters={rope} (its config)")
        return {**contents.config, **{k: rope[k] for k in ("rope_theta",) if k in rope}}

    def complete(self, weights, arguments, contents):
        super().complete(weights, arguments, contents)
        rotary, temperature = ROTARIES["dinov3"], arguments.from_config("rotary")
        if temperature is None:
            arguments.override(CUSTOM, rotary=rotary)
        else:
            arguments["rotary"] = dataclasses.replace(rotary, temperature=temperature)
        # Some linear maps have a bias where others have none, as a config may say; these get zeros.
        has_bias = lambda layer: f"block_0/{layer}/bias" in weights.arrays  # noqa: E731
        biased = {name for name, layers in LINEAR.items() if any(map(has_bias, layers))}
        arguments["biases"], arguments["qkv_bias"] = smallest_fitting(biased)
        given = set(BIASES[arguments["biases"]]) - (set() if arguments["qkv_bias"] else QKV)
        layers = [layer for name in given - biased for layer in LINEAR[name]]
        if layers:
            arguments.assumed["biases"] = "zeros where the file has none"
            weights.add_zero_biases("|".join(layers), "zeros, as the file has none")

    def config_for(self, model):
        rope_theta = float(model.variant.rotary.temperature)
        return {**super().config_for(model), "rope_theta": rope_theta}

    def write(self, model, arrays):
        file, v = super().write(model, arrays), model.variant
        if not v.registers:
            token = file["embeddings.cls_token"]
            file["embeddings.register_tokens"] = np.zeros((1, 0, v.width), token.dtype)
        return file

    def obstacles(self, model):
        v = model.variant
        at_100 = v.rotary and dataclasses.replace(v.rotary, temperature=100.0)
        return super().obstacles(model) | {f"rotary={v.rotary!r}": at_100 != ROTARIES["dinov3"]}


def _layers(block):
    return [
        *tables.torch_norm(block + "norm{n}", "block_{i}/norm_{n}"),
        (block + "layer_scale{n}.lambda1", "block_{i}/layer_scale_{n}/gamma", SAME),
    ]


HOLDS = {
    **huggingface.PLAIN_END,
    "class_token": (True,),
    **dict.fromkeys(("registers", "layer_scale", "activation", "mlp"), ANY),
}


DINOV2 = Dinov2(
    name="Hugging Face Dinov2",
    signature=r"(.*\.)?encoder\.layer\.\d+\.mlp\.(fc1|weights_in|gate_proj)\.weight$",
    stripped=r"^dinov2(_with_registers)?\.",
    table=Table(
        *huggingface.EMBEDDINGS,
        ("embeddings.register_tokens", REGISTERS, SAME),
        *huggingface.ATTENTION,
        *_layers(huggingface.BLOCK),
        *tables.torch_linear(MLP + "fc{n}", "block_{i}/mlp/dense_{n}"),
        *PACKED,
        *tables.torch_mlp(MLP, GATED),  # the modules of transformers 5
        *tables.torch_norm("layernorm", "norm"),
        *tables.torch_linear("classifier", "head"),
    ),
    defaults={**huggingface.FAMILY.defaults, "epsilon": 1e-6},
    config={
        **{k: v for k, v in huggingface.SETTINGS.items() if k != "intermediate_size"},
        "qkv_bias": "qkv_bias",
        "layerscale_value": "layer_scale",
    },
    can_store={
        **HOLDS,
        "position": huggingface.TABLES,
        "pool": ("token", "token_mean", None),
        "registers": (0,),
    },
    model_types=("dinov2",),
    arrays_by_key={"use_swiglu_ffn": "block_0/mlp/gate/kernel"},
    model_type="dinov2",
    title="Dinov2",
    head_pools=("token_mean",),
)
DINOV2_WITH_REGISTERS = dataclasses.replace(
    DINOV2,
    name="Hugging Face Dinov2WithRegisters",
    signature=r"(.*\.)?embeddings\.register_tokens$",
    defaults={**DINOV2.defaults, "interpolation": "bicubic"},
    config={**DINOV2.config, "num_register_tokens": "registers"},
    can_store={**DINOV2.can_store, "registers": ANY},
    model_types=("dinov2_with_registers",),
    model_type="dinov2_with_registers",
    title="Dinov2WithRegisters",
)
DINOV3 = Dinov3(
    name="Hugging Face DINOv3ViT",
    signature=r"(model\.)?layer\.\d+\.layer_scale1\.lambda1$",
    table=Table(
        *huggingface.EMBEDDINGS[:1],
        ("embeddings.register_tokens", REGISTERS, SAME),
        *tables.torch_linear("embeddings.patch_embeddings", "patch_encoder/projection", CONV),
        *tables.torch_attention(DINOV3_BLOCK + "attention.", "q_proj k_proj v_proj o_proj"),
        *_layers(DINOV3_BLOCK),
        *tables.torch_mlp(DINOV3_BLOCK + "mlp.", GATED),
        *tables.torch_norm("norm", "norm"),
    ),
    defaults={
        **huggingface.FAMILY.defaults,
        "interpolation": "bicubic",
        "epsilon": 1e-5,
        "position": "none",
    },
    config={
        **huggingface.SETTINGS,
        "num_register_tokens": "registers",
        "layerscale_value": "layer_scale",
        "rope_theta": "rotary",
    },
    can_store={
        **HOLDS,
        "position": ("none",),
        "rotary": ANY,
        "biases": ANY,
        "pool": ("token", None),
    },
    model_types=("dinov3_vit",),
    arrays_by_key={
        **{f"{part}_bias": f"block_0/attention/{part}/bias" for part in PARTS[:3]},
        "proj_bias": "block_0/attention/out/bias",
        "mlp_bias": "block_0/mlp/dense_1/bias",
        "use_gated_mlp": "block_0/mlp/gate/kernel",
    },
    model_type="dinov3_vit",
    title="DINOv3ViT",
    head_pools=(),
)
FAMILIES = (DINOV2, DINOV2_WITH_REGISTERS, DINOV3)
