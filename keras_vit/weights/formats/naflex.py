"""NaFlex checkpoints: folders of transformers' `Siglip2VisionModel`, `Siglip2Model` and
`Siglip2ForImageClassification`, whose patches are multiplied by a matrix."""

import math
import os
import re
from typing import Any

import keras

from keras_vit.models.naflex import NaFlexVisionTransformer
from keras_vit.weights import tables
from keras_vit.weights.files import CheckpointError, open_checkpoint
from keras_vit.weights.load import file_of
from keras_vit.weights.tables import SAME, TRANSPOSED, Table, split_heads

BLOCK, HEAD = "encoder.layers.{i}.", "head."
TABLE = Table(
    *tables.torch_linear("embeddings.patch_embedding", "patch_encoder/projection"),
    ("embeddings.position_embedding.weight", "patch_encoder/position/embedding", SAME),
    *tables.torch_norm(BLOCK + "layer_norm1", "block_{i}/norm_1"),
    *(
        row
        for part in tables.PARTS
        for row in tables.torch_linear(
            f"{BLOCK}self_attn.{'out' if part == 'out' else part[0]}_proj",
            "block_{i}/attention/" + part,
        )
    ),
    *tables.torch_norm(BLOCK + "layer_norm2", "block_{i}/norm_2"),
    *tables.torch_linear(BLOCK + "mlp.fc1", "block_{i}/mlp/dense_1"),
    *tables.torch_linear(BLOCK + "mlp.fc2", "block_{i}/mlp/dense_2"),
    *tables.torch_norm("post_layernorm", "norm"),
    (HEAD + "probe", "pool/probe", SAME),
    (HEAD + "attention.in_proj_weight", "pool/attention/[query|key|value]/kernel", TRANSPOSED),
    (HEAD + "attention.in_proj_bias", "pool/attention/[query|key|value]/bias", SAME),
    *tables.torch_linear(HEAD + "attention.out_proj", "pool/attention/out"),
    *tables.torch_norm(HEAD + "layernorm", "pool/norm"),
    *tables.torch_linear(HEAD + "mlp.fc1", "pool/mlp/dense_1"),
    *tables.torch_linear(HEAD + "mlp.fc2", "pool/mlp/dense_2"),
    *tables.torch_linear("classifier", "head"),
)
IGNORED = (r"text_model\..*", "logit_scale", "logit_bias")
DEFAULTS = {  # of `Siglip2VisionConfig`, which a config does not repeat
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "num_attention_heads": 12,
    "num_channels": 3,
    "patch_size": 16,
    "vision_use_head": True,
}
ACTIVATIONS = {
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu_erf",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}


def naflex_from_checkpoint(
    weights: str | os.PathLike[str], **options: Any
) -> NaFlexVisionTransformer:
    """A model with the architecture and the weights of a NaFlex checkpoint of SigLIP 2.

    Args:
        weights: folder of transformers with `config.json` and the weights, or the file of these; a
            URL (`hf://`) or a name of the catalogue, as in `keras_vit.load_weights`.
        **options: `name`, `dtype`, `dropout`, `attention_dropout`, `stochastic_depth` of
            `NaFlexVisionTransformer`.

    Returns:
        A `keras_vit.NaFlexVisionTransformer`: with the classes of a classifier, which averages the
        patches; else with attention pooling where the file has it, or `pool=None`.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the folder has another model, or something that has no place in this one.
    """
    contents = open_checkpoint(file_of(weights))
    kind, config = contents.config.get("model_type"), contents.config
    if kind not in ("siglip2", "siglip2_vision_model"):
        raise CheckpointError(
            f"Expected a config.json with model_type 'siglip2' beside the weights. Received: "
            f"model_type={kind!r}; other models are read by keras_vit.from_checkpoint."
        )
    config = {**DEFAULTS, **config, **config.get("vision_config", {})}
    if config["hidden_act"] not in ACTIVATIONS:
        raise CheckpointError(
            f"Received: hidden_act={config['hidden_act']!r}; expected one of {list(ACTIVATIONS)}."
        )
    named = {re.sub(r"^vision_model\.", "", name): a for name, a in contents.arrays.items()}
    arrays, _, _ = TABLE.read(named, "SigLIP 2's NaFlex", IGNORED)
    if "head/kernel" in arrays:
        pool = "mean"
        arrays = {name: array for name, array in arrays.items() if not name.startswith("pool/")}
    else:
        pool = "map" if config["vision_use_head"] else None
    split_heads(arrays, config["num_attention_heads"])
    table = "patch_encoder/position/embedding"
    try:
        side = math.isqrt(len(arrays[table]))
        arrays[table] = arrays[table][None]
        model = NaFlexVisionTransformer(
            width=arrays[table].shape[-1],
            depth=len({name.split("/")[0] for name in arrays if name.startswith("block_")}),
            num_heads=config["num_attention_heads"],
            mlp_dim=arrays["block_0/mlp/dense_1/kernel"].shape[1],
            patch_size=config["patch_size"],
            grid=side,
            channels=config["num_channels"],
            num_classes=len(arrays["head/bias"]) if "head/bias" in arrays else 0,
            pool=pool,
            activation=ACTIVATIONS[config["hidden_act"]],
            gelu="erf" if config["hidden_act"] == "gelu" else "tanh",
            epsilon=config["layer_norm_eps"],
            **options,
        )
    except KeyError as error:
        raise CheckpointError(f"The file has no array {error} of a NaFlex model.") from None
    _assign(model, arrays)
    return model


def _assign(model, arrays):
    """Gives every variable its array, or raises a CheckpointError before the first."""
    wanted = {variable.path: variable for variable in model.weights}
    if wanted.keys() != arrays.keys():
        raise CheckpointError(
            f"File and model differ. Only in the file: {sorted(arrays.keys() - wanted.keys())}; "
            f"missing in it: {sorted(wanted.keys() - arrays.keys())}."
        )
    for path, variable in wanted.items():
        if tuple(variable.shape) != arrays[path].shape:
            raise CheckpointError(
                f"{path!r} must have the shape {tuple(variable.shape)}. Received: shape "
                f"{arrays[path].shape}."
            )
    for path, variable in wanted.items():
        variable.assign(keras.ops.cast(arrays[path], variable.dtype))
