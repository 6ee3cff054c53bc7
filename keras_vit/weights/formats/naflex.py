"""NaFlex checkpoints: folders of transformers' `Siglip2VisionModel`, `Siglip2Model` and
`Siglip2ForImageClassification`, whose patches are multiplied by a matrix.

As a convolution it makes them folders of SigLIP, whose family reads them.
"""

import dataclasses
import os
from typing import Any

from keras_vit.models.naflex import NaFlexVisionTransformer
from keras_vit.weights.assign import plan_load
from keras_vit.weights.fetch import local_path, locate
from keras_vit.weights.files import open_checkpoint
from keras_vit.weights.load import read_contents
from keras_vit.weights.safety import CheckpointError, expect

KERNEL = "embeddings.patch_embedding.weight"
# Of `Siglip2VisionConfig`, which a config does not repeat.
DEFAULTS = {"num_channels": 3, "patch_size": 16}


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
    contents = open_checkpoint(local_path(*locate(weights)))
    config = contents.config
    if config.get("model_type") not in ("siglip2", "siglip2_vision_model"):
        raise CheckpointError(
            "Expected a config.json with model_type 'siglip2' beside the weights. Received: "
            f"model_type={config.get('model_type')!r}; other models are read by "
            "keras_vit.from_checkpoint."
        )
    tower = {**DEFAULTS, **config, **config.get("vision_config", {})}
    tower.pop("image_size", None)  # images have any
    arrays, patch, channels = dict(contents.arrays), tower["patch_size"], tower["num_channels"]
    for name in [n for n, a in arrays.items() if n.endswith(KERNEL) and a.ndim == 2]:
        fits = arrays[name].shape[1] == patch * patch * channels
        shape = f"the shape (width, {patch}² * {channels}) for patch_size={patch}"
        expect(fits, name, arrays[name], shape)
        kernel = arrays[name].reshape(-1, patch, patch, channels)
        arrays[name] = kernel.transpose(0, 3, 1, 2)  # to (width, channels, height, width)
    config = {**config, "vision_config": tower}
    checkpoint = read_contents(dataclasses.replace(contents, arrays=arrays, config=config), {})
    arguments = checkpoint.arguments
    if not arguments["num_classes"]:
        arguments["pool"] = "map" if arguments.config.get("vision_use_head", True) else None
    grid = arguments.shape.grid(arguments.pop("image_size"))
    del arguments["interpolation"]  # of the positions, which each call resamples
    model = NaFlexVisionTransformer(grid=grid, **{**arguments, **options})
    variables = {variable.path: variable for variable in model.weights}
    for path, value in plan_load(model, checkpoint).values.items():
        variables[path].assign(value)
    return model
