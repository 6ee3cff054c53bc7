"""The formats that are read."""

from keras_vit.weights.family import nearest
from keras_vit.weights.formats import (
    aimv2,
    big_vision,
    bit,
    google,
    huggingface,
    huggingface_beit,
    huggingface_dino,
    keras_hub,
    official,
    open_clip,
    timm,
    torchvision,
    vision_towers,
)
from keras_vit.weights.reading import CheckpointError

# No two recognise the same file, but for timm's and the last, whose names official ones and
# big_vision share, and which come after these.
FAMILIES = (
    huggingface.FAMILY,
    *open_clip.FAMILIES,
    *official.FAMILIES,
    vision_towers.CLIP,
    vision_towers.SIGLIP,
    aimv2.FAMILY,
    aimv2.APPLE,
    *huggingface_beit.FAMILIES,
    *huggingface_dino.FAMILIES,
    timm.FAMILY,
    *bit.FAMILIES,
    torchvision.FAMILY,
    keras_hub.FAMILY,
    big_vision.FAMILY,
    google.FAMILY,
)


def check_family(family, contents):
    """Raises an error for a file of no format, or one with the config.json of another."""
    if family is None:
        raise CheckpointError(
            f"It is of no family known here. {nearest(contents.arrays, FAMILIES)} "
            "docs/checkpoints.md lists the formats; what Keras itself wrote (.weights.h5) is read "
            "by model.load_weights(path)."
        )
    model_type = contents.config.get("model_type")
    of_config = [f.name for f in FAMILIES if model_type in f.model_types]
    if family.model_types and of_config and family.name not in of_config:
        raise CheckpointError(
            f"It has a config.json of another model: model_type={model_type!r} stands for "
            f"{' or '.join(of_config)}, and the arrays are those of {family.name}. Put the one of "
            "this model beside the file, or none."
        )
