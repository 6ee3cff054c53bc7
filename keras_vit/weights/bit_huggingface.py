"""Names of Hugging Face `BitForImageClassification` and `BitModel` folders <-> canonical names."""

import re

import numpy as np

from keras_vit.layers.standardize import GROUPS
from keras_vit.models.bit_variants import BiTVariant
from keras_vit.weights import bit_timm, huggingface_save, torch_stem
from keras_vit.weights.bit_canonical import canonical_of
from keras_vit.weights.bit_timm import flat_head
from keras_vit.weights.canonical import rename
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.huggingface import class_names_of
from keras_vit.weights.huggingface_images import preprocessing_of

FAMILY = "Hugging Face transformers (BiT)"
UNIT = r"encoder\.stages\.(\d+)\.layers\.(\d+)\."

TABLE = (
    *torch_stem.table(r"embedder\.convolution", r"embedder\.norm", UNIT),
    (r"norm\.weight", "norm/gamma", None),
    (r"norm\.bias", "norm/beta", None),
    (r"classifier\.1\.weight", "head/kernel", flat_head),
    (r"classifier\.1\.bias", "head/bias", None),
)
ENDS = {
    "norm/gamma": "norm.weight",
    "norm/beta": "norm.bias",
    "head/kernel": "classifier.1.weight",
    "head/bias": "classifier.1.bias",
}


def recognises(arrays):
    """Whether these are the names of this family."""
    pattern = rf"(bit\.)?({UNIT}conv[123]\.weight|embedder\.convolution\.weight)$"
    return any(re.match(pattern, name) for name in arrays)


def read(contents, hints):
    """The `Canonical` of a folder; arguments and errors as in `google.read`."""
    names = {name.removeprefix("bit."): name for name in contents.arrays}
    if len(names) != len(contents.arrays):
        raise CheckpointError("The file has the same arrays with and without the prefix 'bit.'.")
    tower = {short: contents.arrays[name] for short, name in names.items()}
    arrays, origin, ignored = rename(tower, TABLE, FAMILY)
    origin = {name: names[where] for name, where in origin.items()}
    preprocessing, unsaid = preprocessing_of(contents.processor)
    canonical = canonical_of(
        FAMILY,
        (arrays, origin, ignored),
        "timm",
        hints,
        {"image_size": _size(contents.processor)},
        preprocessing=preprocessing,
    )
    canonical.ignored = (*unsaid, *canonical.ignored)
    found = canonical.architecture
    _check_config(contents.config, found, contents.path)
    canonical.class_names = class_names_of(contents.config, found["num_classes"])
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
    expected, stride = _architecture(v, found["channels"]), _stride(v)
    wrong = {
        name: config[name]
        for name, value in expected.items()
        if name in config and _plain(config[name]) != value
    }
    if config.get("output_stride", 32) < stride:  # it would dilate instead
        wrong["output_stride"], expected["output_stride"] = config["output_stride"], stride
    if wrong:
        raise CheckpointError(
            f"The config.json of {str(path)!r} does not fit its arrays, or is of a ResNet that is "
            f"no BiT. Received: {wrong}; expected { {name: expected[name] for name in wrong} }."
        )


def _architecture(v, channels):
    """Entries of `config.json` that make Hugging Face compute as a `BiT` does."""
    is_v1 = v.version == "v1"
    return {
        "layer_type": "bottleneck" if is_v1 else "preactivation",
        # What surrounds the convolutions and the max pooling: as in the hybrids, as in BiT.
        "global_padding": "SAME" if is_v1 else None,
        "embedding_dynamic_padding": is_v1,
        "depths": list(v.blocks),
        "hidden_sizes": [v.channels_of(stage) for stage in range(1, len(v.blocks) + 1)],
        "embedding_size": v.filters_of(1),
        "num_groups": GROUPS,
        "width_factor": 1,
        "hidden_act": "relu",
        "num_channels": channels,
    }


def _stride(v):
    """Pixels from one place of the last feature map to the next."""
    return 2 ** (len(v.blocks) + 1)


def _plain(value):
    return value.upper() if value in ("same", "Same") else value


def write(model, arrays):
    """The arrays of `model.safetensors` from canonical ones.

    Args:
        model: a `BiT`.
        arrays: dict from canonical name to array.
    """
    prefix = "bit." if model.num_classes else ""
    return dict(_written(name, array, prefix) for name, array in arrays.items())


def _written(name, array, prefix):
    if name in ENDS:
        array = array.T if name == "head/kernel" else array
        where = ENDS[name] if name.startswith("head/") else prefix + ENDS[name]
        return where, np.ascontiguousarray(array)
    places = ("embedder.convolution", "embedder.norm", "encoder.stages.{}.layers.{}.")
    return torch_stem.write(name, array, *(prefix + place for place in places))


def config(model):
    """`config.json`."""
    v, stages = model.variant, [f"stage{i}" for i in range(1, len(model.variant.blocks) + 1)]
    return {
        "architectures": ["BitForImageClassification" if model.num_classes else "BitModel"],
        "model_type": "bit",
        **_architecture(v, model.channels),
        "drop_path_rate": 0.0,
        "out_features": stages[-1:],
        "out_indices": [len(stages)],
        "output_stride": max(_stride(v), 32),
        "stage_names": ["stem", *stages],
        "torch_dtype": "float32",
        **huggingface_save.labels(model),
    }


def processor(model):
    """`preprocessor_config.json`; what a `BitImageProcessor` is not told it crops."""
    said = huggingface_save.processor(model)
    return {"do_center_crop": False, **said, "image_processor_type": "BitImageProcessor"}


def impossible(model):
    """What of a model Hugging Face's `BitModel` has no place for, as texts."""
    return []


def obstacles(variant):
    """What of `variant` Hugging Face computes otherwise, as texts: what timm does."""
    return bit_timm.obstacles(variant)
