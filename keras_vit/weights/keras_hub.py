"""Presets of KerasHub's `ViTImageClassifier` and `ViTBackbone` -> canonical names.

A preset is a folder: `model.weights.h5` is the backbone and `config.json` its arguments;
`task.weights.h5` is the head alone and `task.json` says how its input is pooled;
`preprocessor.json` prepares the images. A file of `classifier.save_weights` has both parts in one.
Keras names variables by number: 0 is a kernel or gamma, 1 a bias or beta.

KerasHub computes GELU exactly, and its `"gap"` averages all tokens, the class token too.
"""

import re

import numpy as np

from keras_vit.weights.canonical import (
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    rename,
    shortened,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.google import flat_kernel
from keras_vit.weights.hdf5 import read_hdf5
from keras_vit.weights.image_size import add_image_size
from keras_vit.weights.keras_hub_configs import (
    backbone_arguments,
    converter_arguments,
    image_size_of,
    task_arguments,
)
from keras_vit.weights.keras_hub_images import preprocessing_of

FAMILY = "KerasHub"
TASK_WEIGHTS, MODEL_WEIGHTS = "task.weights.h5", "model.weights.h5"
EMBEDDING = "layers/vi_t_patching_and_embedding/"
ENCODER = "layers/vi_t_encoder/"
BLOCK = ENCODER + r"encoder_layers/vi_t_encoder_block_(\d+)/"
# What training leaves in a file beside the weights.
SKIPPED = r"optimizer/.*|.*/seed_generators?/.*"


def _with_axes(count):
    def check(array):
        if array.ndim != count or array.dtype.kind != "f":
            raise ValueError(f"it must be floats with {count} axes, not {array.dtype}")
        return array

    return check


def _positions(table):
    """(tokens, D) -> (1, tokens, D)."""
    return _with_axes(2)(table)[None]


VECTOR, MATRIX = _with_axes(1), _with_axes(2)
TABLE = (
    (EMBEDDING + "vars/0", "patch_encoder/class_token", _with_axes(3)),
    (EMBEDDING + "patch_embedding/vars/0", PROJECTION, lambda k: flat_kernel(_with_axes(4)(k))),
    (EMBEDDING + "patch_embedding/vars/1", "patch_encoder/projection/bias", VECTOR),
    (EMBEDDING + "position_embedding/vars/0", POSITION, _positions),
    (BLOCK + "layer_norm_([12])/vars/0", r"block_\1/norm_\2/gamma", VECTOR),
    (BLOCK + "layer_norm_([12])/vars/1", r"block_\1/norm_\2/beta", VECTOR),
    (BLOCK + "mha/(query|key|value)_dense/vars/0", r"block_\1/attention/\2/kernel", _with_axes(3)),
    (BLOCK + "mha/(query|key|value)_dense/vars/1", r"block_\1/attention/\2/bias", MATRIX),
    (BLOCK + "mha/output_dense/vars/0", r"block_\1/attention/out/kernel", _with_axes(3)),
    (BLOCK + "mha/output_dense/vars/1", r"block_\1/attention/out/bias", VECTOR),
    (BLOCK + "mlp/dense_([12])/vars/0", r"block_\1/mlp/dense_\2/kernel", MATRIX),
    (BLOCK + "mlp/dense_([12])/vars/1", r"block_\1/mlp/dense_\2/bias", VECTOR),
    (ENCODER + "layer_norm/vars/0", "norm/gamma", VECTOR),
    (ENCODER + "layer_norm/vars/1", "norm/beta", VECTOR),
    ("(pre_logits|head)/vars/0", r"\1/kernel", MATRIX),
    ("(pre_logits|head)/vars/1", r"\1/bias", VECTOR),
)
# Argument of `ViTBackbone` -> the biases that it decides about.
BIASES = {
    "use_patch_bias": r"patch_encoder/projection/bias",
    "use_mha_bias": r"block_\d+/attention/\w+/bias",
    "use_mlp_bias": r"block_\d+/mlp/dense_[12]/bias",
}
POOLS = {"token": "token", "gap": "mean", None: None}
POOLINGS = {ours: theirs for theirs, ours in POOLS.items()}


def read(contents, hints):
    """The `Canonical` of a preset, or of one of its files.

    A folder with a task is read whole, and so is its `task.weights.h5`; the path of its
    `model.weights.h5` means the backbone alone, whose output is the tokens after the last norm.

    Args:
        contents: a `Contents`; its `config` is that of the backbone.
        hints: dict of what the caller knows, with the constructor's argument names.

    Raises:
        CheckpointError: the files are damaged, contradict each other, or make a model that this
            library cannot compute.
    """
    folder = contents.path if contents.path.is_dir() else contents.path.parent
    named, names, skipped = _arrays(contents.path)
    arrays, origin, _ = rename(named, TABLE, FAMILY)
    found = {**architecture_of(arrays, FAMILY), "num_heads": _heads(arrays)}
    height, width, channels, _ = named[EMBEDDING + "patch_embedding/vars/0"].shape
    task = task_arguments(folder, found)
    config = backbone_arguments(contents.config or task.get("backbone"), folder)
    found.update(
        patch_size=(height, width),
        channels=channels,
        interpolation="bicubic_no_antialias",  # KerasHub has no rule: that of their source
        gelu="erf",
        epsilon=config.get("layer_norm_epsilon", 1e-6),
        qkv_bias=bool(config.get("use_mha_bias", True)),
    )
    assumed = {} if config else {"epsilon": "KerasHub's default, as there is no config.json"}
    image_size = image_size_of(config, found, folder)
    _add_zero_biases(arrays, origin, config, found)
    activation = _choose_pool(found, assumed, task, hints)
    _add_image_size(found, assumed, arrays, hints, image_size)
    preprocessing, unsaid = preprocessing_of(
        converter_arguments(folder, task), channels, found["image_size"]
    )
    return Canonical(
        FAMILY,
        arrays,
        {target: names.get(where, where) for target, where in origin.items()},
        found,
        assumed,
        (*activation, *unsaid, *skipped),  # what changes numbers first
        preprocessing,
    )


def _arrays(path):
    """Arrays by a name without what differs between files, their full names, and the rest."""
    file = path
    if path.is_dir():
        file = path / (TASK_WEIGHTS if (path / TASK_WEIGHTS).is_file() else MODEL_WEIGHTS)
    arrays, skipped = read_hdf5(file, SKIPPED)
    backbone = file.parent / MODEL_WEIGHTS
    if "layers/dense/vars/0" in arrays and not any("vi_t_" in name for name in arrays):
        if not backbone.is_file():
            raise CheckpointError(
                f"{str(file)!r} is the head of a classifier: {shortened(sorted(arrays))}. Expected "
                f"its backbone, {MODEL_WEIGHTS!r}, in the same folder (in one piece: presets that "
                "are split into several files are not read)."
            )
        more, more_skipped = read_hdf5(backbone, SKIPPED)
        arrays, skipped = {**more, **arrays}, more_skipped + skipped
    has_pre_logits = any(name.startswith("layers/dense_1/") for name in arrays)
    names = {_short(name, has_pre_logits): name for name in arrays}
    if len(names) != len(arrays):
        raise CheckpointError(f"{str(file)!r} has the same arrays under two names.")
    return {short: arrays[name] for short, name in names.items()}, names, skipped


def _short(name, has_pre_logits):
    name = name.removeprefix("layers/vi_t_backbone/")
    name = name.replace("/vi_t_encoder_block/", "/vi_t_encoder_block_0/")
    if has_pre_logits:
        name = re.sub("^layers/dense/", "pre_logits/", name)
    return re.sub("^layers/dense(_1)?/", "head/", name)


def _heads(arrays):
    """The number of heads, which the query kernel keeps as an axis."""
    width, heads, head_width = arrays["block_0/attention/query/kernel"].shape
    if heads * head_width != width:
        raise CheckpointError(
            f"{heads} heads of {head_width} units do not make up the width {width}. The Vision "
            "Transformer of this library divides its width among the heads."
        )
    return heads


def _add_zero_biases(arrays, origin, config, found):
    """A bias that the model was built without is one of zeros."""
    wanted = {"patch_encoder/projection/bias": found["width"]}
    for i in range(found["depth"]):
        wanted[f"block_{i}/attention/out/bias"] = found["width"]
        wanted[f"block_{i}/mlp/dense_1/bias"] = found["mlp_dim"]
        wanted[f"block_{i}/mlp/dense_2/bias"] = found["width"]
    for argument, pattern in BIASES.items():
        if config.get(argument, True):
            continue
        if present := [origin[name] for name in arrays if re.fullmatch(pattern, name)]:
            raise CheckpointError(
                f"The config says {argument}=False, and the file has {shortened(present)}."
            )
        for name in (name for name in wanted if re.fullmatch(pattern, name)):
            arrays[name], origin[name] = np.zeros(wanted[name], "float32"), f"{argument}=False"


def _choose_pool(found, assumed, task, hints):
    """Sets what the head sees; returns what of the task has no place in the model, as texts."""
    if not found["num_classes"]:
        # Whoever asks for a number of classes wants the tokens pooled, by custom.
        custom = ("token" if found["class_token"] else "mean") if "num_classes" in hints else None
        found["pool"] = hints.get("pool", custom)
        assumed["pool"] = "a backbone alone leaves it open"
        return ()
    if not task and "pool" not in hints:
        raise CheckpointError(
            "The file has a head, and nothing says what the head sees. Put the task.json of the "
            "preset beside it, or say pool='token' or pool='mean'."
        )
    pooling = task.get("pooling", "token") if task else POOLINGS.get(hints["pool"], hints["pool"])
    if pooling not in list(POOLS):
        raise CheckpointError(f"The task pools with {pooling!r}; expected one of {list(POOLS)}.")
    _refuse_pooling(pooling, found["class_token"])
    found["pool"] = POOLS[pooling]
    assumed["pool"] = "its task.json" if task else "pool as given"
    activation = task.get("activation")
    is_linear = activation in (None, "linear")
    return () if is_linear else (f"activation={activation!r} of the head: the model gives logits",)


def _refuse_pooling(pooling, class_token):
    if pooling == "gap" and class_token:
        raise CheckpointError(
            "The classifier pools with 'gap', and KerasHub then averages the class token together "
            "with the patches; pool='mean' of this library leaves the class token out, so that no "
            f"model here computes the same. The path of its {MODEL_WEIGHTS} loads the backbone, "
            "for a head of your own."
        )
    if pooling == "token" and not class_token:
        raise CheckpointError(
            "The classifier pools with 'token' and has no class token: KerasHub then reads the "
            f"first patch, which no model here does. The path of its {MODEL_WEIGHTS} loads the "
            "backbone, for a head of your own."
        )


def _add_image_size(found, assumed, arrays, hints, configured):
    if POSITION not in arrays:
        raise CheckpointError(
            f"The file has no position embedding; expected {EMBEDDING}position_embedding/vars/0, "
            "which every ViTBackbone has."
        )
    add_image_size(found, assumed, arrays, hints, configured)
