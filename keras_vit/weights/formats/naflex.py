"""NaFlex checkpoints: folders of transformers' `Siglip2VisionModel`, `Siglip2Model` and
`Siglip2ForImageClassification`, whose patches are multiplied by a matrix."""

import math
import os
import re
from typing import Any

import keras

from keras_vit.models.naflex import NaFlexVisionTransformer
from keras_vit.weights import tables
from keras_vit.weights.assign import make_plan
from keras_vit.weights.canonical import POSITION
from keras_vit.weights.files import CheckpointError, open_checkpoint
from keras_vit.weights.formats import vision_towers
from keras_vit.weights.formats.huggingface import ACTIVATIONS
from keras_vit.weights.locate import locate
from keras_vit.weights.readers import file_of
from keras_vit.weights.tables import Table, split_heads

TABLE = Table(
    *tables.torch_linear("embeddings.patch_embedding", "patch_encoder/projection"),
    *vision_towers.SIGLIP_ROWS,
)
DEFAULTS = {  # of `Siglip2VisionConfig`, which a config does not repeat
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "num_attention_heads": 12,
    "num_channels": 3,
    "patch_size": 16,
    "vision_use_head": True,
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
    contents = open_checkpoint(file_of(*locate(weights)))
    config = contents.config
    if config.get("model_type") not in ("siglip2", "siglip2_vision_model"):
        raise CheckpointError(
            "Expected a config.json with model_type 'siglip2' beside the weights. Received: "
            f"model_type={config.get('model_type')!r}; other models are read by "
            "keras_vit.from_checkpoint."
        )
    config = {**DEFAULTS, **config, **config.get("vision_config", {})}
    if config["hidden_act"] not in ACTIVATIONS:
        raise CheckpointError(
            f"Received: hidden_act={config['hidden_act']!r}; expected one of {list(ACTIVATIONS)}."
        )
    named = {re.sub(r"^vision_model\.", "", name): a for name, a in contents.arrays.items()}
    arrays, _, _ = TABLE.read(named, "SigLIP 2's NaFlex", vision_towers.SIGLIP.ignored)
    if "head/kernel" in arrays:
        pool = "mean"
        arrays = {name: array for name, array in arrays.items() if not name.startswith("pool/")}
    else:
        pool = "map" if config["vision_use_head"] else None
    split_heads(arrays, config["num_attention_heads"])
    try:
        _, positions, width = arrays[POSITION].shape
        model = NaFlexVisionTransformer(
            width=width,
            depth=len({name.split("/")[0] for name in arrays if name.startswith("block_")}),
            num_heads=config["num_attention_heads"],
            mlp_dim=arrays["block_0/mlp/dense_1/kernel"].shape[1],
            patch_size=config["patch_size"],
            grid=math.isqrt(positions),
            channels=config["num_channels"],
            num_classes=len(arrays["head/bias"]) if "head/bias" in arrays else 0,
            pool=pool,
            activation=ACTIVATIONS[config["hidden_act"]],
            gelu="erf" if ACTIVATIONS[config["hidden_act"]] == "gelu_erf" else "tanh",
            epsilon=config["layer_norm_eps"],
            **options,
        )
    except KeyError as error:
        raise CheckpointError(f"The file has no array {error} of a NaFlex model.") from None
    variables = {variable.path: variable for variable in model.weights}
    plan = make_plan(arrays, variables)
    if not plan.fits:
        shapes = [
            f"; {path!r} must have the shape {expected}. Received: shape {shape}"
            for path, (shape, expected) in plan.misshapen.items()
        ]
        raise CheckpointError(
            f"File and model differ. Only in the file: {[*plan.unused]}; missing in it: "
            f"{[*plan.missing]}{''.join(shapes)}."
        )
    for path, value in plan.values.items():
        variables[path].assign(keras.ops.cast(value, variables[path].dtype))
    return model
