"""Names of Hugging Face `BitForImageClassification` and `BitModel` folders -> canonical names."""

import re

from keras_vit.models.bit_variants import BiTVariant
from keras_vit.weights import torch_stem
from keras_vit.weights.bit_canonical import canonical_of
from keras_vit.weights.bit_timm import flat_head
from keras_vit.weights.canonical import rename
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.huggingface import _class_names, _preprocessing

FAMILY = "Hugging Face transformers (BiT)"
UNIT = r"encoder\.stages\.(\d+)\.layers\.(\d+)\."

TABLE = (
    *torch_stem.table(r"embedder\.convolution", r"embedder\.norm", UNIT),
    (r"norm\.weight", "norm/gamma", None),
    (r"norm\.bias", "norm/beta", None),
    (r"classifier\.1\.weight", "head/kernel", flat_head),
    (r"classifier\.1\.bias", "head/bias", None),
)


def recognises(arrays):
    """Whether these are the names of this family."""
    pattern = rf"(bit\.)?({UNIT}conv[123]\.weight|embedder\.convolution\.weight)$"
    return any(re.match(pattern, name) for name in arrays)


def read(contents, hints):
    """The `Canonical` of a folder; arguments and errors as in `bit_big_transfer.read`."""
    names = {name.removeprefix("bit."): name for name in contents.arrays}
    if len(names) != len(contents.arrays):
        raise CheckpointError("The file has the same arrays with and without the prefix 'bit.'.")
    tower = {short: contents.arrays[name] for short, name in names.items()}
    arrays, origin, ignored = rename(tower, TABLE, FAMILY)
    origin = {name: names[where] for name, where in origin.items()}
    canonical = canonical_of(
        FAMILY,
        (arrays, origin, ignored),
        "timm",
        hints,
        {"image_size": _size(contents.processor)},
        preprocessing=_preprocessing(contents.processor),
    )
    found = canonical.architecture
    _check_config(contents.config, found, contents.path)
    canonical.class_names = _class_names(contents.config, found["num_classes"])
    return canonical


def _size(processor):
    """The image size that `preprocessor_config.json` says, or `None`."""
    size = processor.get("crop_size", processor.get("size"))
    if isinstance(size, dict):
        edge = size.get("shortest_edge")
        size = (size.get("height", edge), size.get("width", edge))
    return size


def _check_config(config, found, path):
    """Raises a CheckpointError unless `config.json` is of a model that computes as ours does."""
    v = BiTVariant(*(found[name] for name in ("blocks", "width", "version", "numerics")))
    stages = len(v.blocks)
    is_v1 = v.version == "v1"
    expected = {
        "layer_type": "bottleneck" if is_v1 else "preactivation",
        # What surrounds the convolutions and the max pooling: as in the hybrids, as in BiT.
        "global_padding": "SAME" if is_v1 else None,
        "embedding_dynamic_padding": is_v1,
        "depths": list(v.blocks),
        "hidden_sizes": [v.channels_of(stage) for stage in range(1, stages + 1)],
        "embedding_size": v.filters_of(1),
        "num_groups": 32,
        "width_factor": 1,
        "hidden_act": "relu",
        "num_channels": found["channels"],
    }
    wrong = {
        name: config[name]
        for name, value in expected.items()
        if name in config and _plain(config[name]) != value
    }
    if config.get("output_stride", 32) < 2 ** (stages + 1):  # it would dilate instead
        wrong["output_stride"], expected["output_stride"] = config["output_stride"], 32
    if wrong:
        raise CheckpointError(
            f"The config.json of {str(path)!r} does not fit its arrays, or is of a ResNet that is "
            f"no BiT. Received: {wrong}; expected { {name: expected[name] for name in wrong} }."
        )


def _plain(value):
    return value.upper() if value in ("same", "Same") else value
