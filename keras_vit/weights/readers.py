"""The families whose files are read, and which of them has the format of a file."""

from keras_vit.weights.family import of_no_family
from keras_vit.weights.formats import (
    aimv2,
    bit,
    google,
    huggingface,
    huggingface_beit,
    huggingface_dino,
    keras_hub,
    official,
    open_clip,
    timm,
    vision_towers,
)
from keras_vit.weights.models_in_file import Search
from keras_vit.weights.safety import CheckpointError, of_other_model

# The first that recognises a file reads it: families that share names with others come before
# those that have less beside them.
FAMILIES = (
    *huggingface_beit.FAMILIES,
    *huggingface_dino.FAMILIES[::-1],
    huggingface.FAMILY,
    *open_clip.FAMILIES,
    *official.FAMILIES,
    vision_towers.CLIP,
    vision_towers.SIGLIP,
    aimv2.FAMILY,
    aimv2.APPLE,
    timm.FAMILY,
    *bit.FAMILIES,
    official.TORCHVISION,
    keras_hub.FAMILY,
    *google.FAMILIES,
)


def find_model(contents, prefix=None):
    """The `ModelInFile` of the `Contents` of a file, with the family whose format it has.

    Raises:
        CheckpointError: nothing begins with `prefix`, there are several models, or one of no known
            format, or beside it is the config.json of another.
    """
    if not contents.arrays:
        raise CheckpointError("It holds no arrays. Give the file that the weights were saved in.")
    model = Search(contents.arrays, FAMILIES).find(prefix)
    if model.family is None:
        raise of_no_family(contents.arrays, FAMILIES)
    model_type, own = contents.config.get("model_type"), model.family.model_types
    of_config = [f.name for f in FAMILIES if model_type in f.model_types]
    if own and of_config and model_type not in own:
        stands_for = f"model_type={model_type!r} stands for {' or '.join(of_config)}"
        what = f"{stands_for}, and the arrays are those of {model.family.name}"
        raise of_other_model({}, what)
    return model
