"""Presets of KerasHub's `ViTImageClassifier` and `ViTBackbone`; they are read, not written.

A preset is a folder: `model.weights.h5` is the backbone and `config.json` its arguments;
`task.weights.h5` is the head alone and `task.json` says how its input is pooled;
`preprocessor.json` prepares the images. A file of `classifier.save_weights` has both parts in one.
Keras names variables by number: 0 is a kernel or gamma, 1 a bias or beta.

KerasHub computes GELU exactly, and its `"gap"` averages all tokens, the class token too.
"""

import re

import numpy as np

from keras_vit.checks import pair
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.assumptions import add_image_size, add_position
from keras_vit.weights.canonical import (
    POSITION,
    Canonical,
    architecture_of,
    heads_of,
)
from keras_vit.weights.files import CheckpointError, read_hdf5, read_json
from keras_vit.weights.tables import PARTS, PATCHES, SAME, Layout, Table, simplified

FAMILY = "KerasHub"
EMBEDDING = "layers/vi_t_patching_and_embedding/"
ENCODER = "layers/vi_t_encoder/"
BLOCK = ENCODER + "encoder_layers/vi_t_encoder_block_{i}/"
TRAINING = r"optimizer/.*|.*/seed_generators?/.*"  # what it leaves in a file beside the weights


def _variables(theirs, ours, names=("kernel", "bias"), layout=SAME):
    first, second = names
    return [
        (f"{theirs}/vars/0", f"{ours}/{first}", layout),
        (f"{theirs}/vars/1", f"{ours}/{second}", SAME),
    ]


def _norm(theirs, ours):
    return _variables(theirs, ours, ("gamma", "beta"))


TABLE = Table(
    (EMBEDDING + "vars/0", "patch_encoder/class_token", SAME),
    *_variables(EMBEDDING + "patch_embedding", "patch_encoder/projection", layout=PATCHES),
    (
        EMBEDDING + "position_embedding/vars/0",
        POSITION,
        Layout(2, lambda table: table[None], lambda table, v: table[0]),
    ),
    *_norm(BLOCK + "layer_norm_{n}", "block_{i}/norm_{n}"),
    *(
        row
        for theirs, ours in zip(("query", "key", "value", "output"), PARTS)
        for row in _variables(BLOCK + f"mha/{theirs}_dense", "block_{i}/attention/" + ours)
    ),
    *_variables(BLOCK + "mlp/dense_{n}", "block_{i}/mlp/dense_{n}"),
    *_norm(ENCODER + "layer_norm", "norm"),
    *_variables("pre_logits", "pre_logits"),
    *_variables("head", "head"),
)
# Argument of `ViTBackbone` -> the biases that it decides about.
BIASES = {
    "use_patch_bias": r"patch_encoder/projection/bias",
    "use_mha_bias": r"block_\d+/attention/out/bias",
    "use_mlp_bias": r"block_\d+/mlp/dense_[12]/bias",
}
POOLS = {"token": "token", "gap": "mean", None: None}


def recognises(arrays):
    """Whether these are the names of this family."""
    return any(re.match(r"layers/(vi_t_|dense/vars/0)", name) for name in arrays)


def read(contents, hints):
    """The `Canonical` of a preset, or of one of its files; arguments as in `google.read`.

    A folder with a task is read whole, and so is its `task.weights.h5`; the path of its
    `model.weights.h5` means the backbone alone, whose output is the tokens after the last norm.

    Raises:
        CheckpointError: the files are damaged, contradict each other, or make a model that this
            library cannot compute.
    """
    folder = contents.path if contents.path.is_dir() else contents.path.parent
    stored = dict(contents.arrays)
    if not any("vi_t_" in name for name in stored):
        stored |= read_hdf5(folder / "model.weights.h5")  # the backbone of a head
    skipped = tuple(name for name in stored if re.fullmatch(TRAINING, name))
    stored = {name: array for name, array in stored.items() if name not in skipped}
    has_pre_logits = "layers/dense_1/vars/0" in stored
    short, names = simplified(stored, r"(?<=^layers/)vi_t_backbone/layers/")
    by_place = {}
    for name, array in short.items():
        place = name.replace("/vi_t_encoder_block/", "/vi_t_encoder_block_0/")
        first = "pre_logits/" if has_pre_logits else "head/"
        place = re.sub("^layers/dense_1/", "head/", re.sub("^layers/dense/", first, place))
        by_place[place], names[place] = array, names[name]
    arrays, origin, _ = TABLE.read(by_place, FAMILY)
    origin = {target: names[where] for target, where in origin.items()}

    task = read_json(folder / "task.json").get("config", {}) if "head/kernel" in arrays else {}
    backbone = (contents.config or task.get("backbone", {})).get("config", {})
    found, assumed = {**architecture_of(arrays, FAMILY), "num_heads": heads_of(arrays)}, {}
    *patch_size, channels, _ = by_place[EMBEDDING + "patch_embedding/vars/0"].shape
    found.update(
        patch_size=tuple(patch_size),
        channels=channels,
        interpolation="bicubic_no_antialias",  # KerasHub has no rule: that of their source
        gelu="erf",
        epsilon=backbone.get("layer_norm_epsilon", 1e-6),
    )
    if not backbone:
        assumed["epsilon"] = "KerasHub's default, as there is no config.json"
    image_size = _image_size(backbone, found, folder)
    _add_zero_biases(arrays, origin, backbone, found)
    unsaid = _choose_pool(found, assumed, task, hints)
    add_position(found, assumed, arrays, hints)
    add_image_size(found, assumed, arrays, hints, image_size)
    preprocessing, more = _preprocessing(folder, task, found)
    ignored = (*unsaid, *more, *skipped)  # what changes numbers first
    return Canonical(FAMILY, arrays, origin, found, assumed, ignored, preprocessing)


def _image_size(backbone, found, folder):
    """The (height, width) of the config, after a look at whether it is of this model."""
    if not backbone:
        return None
    said = {"num_layers": "depth", "num_heads": "num_heads", "hidden_dim": "width"}
    said |= {"mlp_dim": "mlp_dim", "use_class_token": "class_token"}
    pairs = {key: (backbone[key], found[field]) for key, field in said.items() if key in backbone}
    wrong = {key: values for key, values in pairs.items() if values[0] != values[1]}
    shape = backbone.get("image_shape", ())
    if len(shape) != 3 or found["channels"] not in shape[::2]:
        wrong["image_shape"] = (shape, f"3 sides, {found['channels']} of them channels")
    if wrong:
        raise CheckpointError(
            f"The config.json of {str(folder)!r} is of another model; (config, file) differ in "
            f"{wrong}."
        )
    # The channels come first where the model was built for `data_format="channels_first"`.
    return pair(shape[:2] if shape[2] == found["channels"] else shape[1:], "image_shape")


def _add_zero_biases(arrays, origin, backbone, found):
    """A bias that the model was built without is one of zeros."""
    wanted = {"patch_encoder/projection/bias": found["width"]}
    for i in range(found["depth"]):
        wanted[f"block_{i}/attention/out/bias"] = found["width"]
        wanted[f"block_{i}/mlp/dense_1/bias"] = found["mlp_dim"]
        wanted[f"block_{i}/mlp/dense_2/bias"] = found["width"]
    for argument, pattern in BIASES.items():
        for name in (n for n in wanted if re.fullmatch(pattern, n) and n not in arrays):
            if not backbone.get(argument, True):
                arrays[name], origin[name] = np.zeros(wanted[name], "float32"), f"{argument}=False"


def _choose_pool(found, assumed, task, hints):
    """Sets what the head sees; returns what of the task has no place in the model, as texts."""
    if not found["num_classes"]:
        # Whoever asks for a number of classes wants the tokens pooled, by custom.
        custom = ("token" if found["class_token"] else "mean") if "num_classes" in hints else None
        found["pool"], assumed["pool"] = (
            hints.get("pool", custom),
            "a backbone alone leaves it open",
        )
        return ()
    if not task and "pool" not in hints:
        raise CheckpointError(
            "The file has a head, and nothing says what the head sees. Put the task.json of the "
            "preset beside it, or say pool='token' or pool='mean'."
        )
    if task and task.get("pooling") not in list(POOLS):
        raise CheckpointError(
            f"The task pools with {task.get('pooling')!r}; expected one of {list(POOLS)}."
        )
    found["pool"] = POOLS[task.get("pooling")] if task else hints["pool"]
    assumed["pool"] = "its task.json" if task else "pool as given"
    if (found["pool"], found["class_token"]) in (("mean", True), ("token", False)):
        what = "all tokens, the class token too" if found["class_token"] else "the first patch"
        raise CheckpointError(
            f"The head of the classifier sees {what}, which no head here does. The path of its "
            "model.weights.h5 loads the backbone, for a head of your own."
        )
    activation = task.get("activation")
    is_linear = activation in (None, "linear")
    return () if is_linear else (f"activation={activation!r} of the head: the model gives logits",)


def _preprocessing(folder, task, found):
    """What the image converter of a preset does, and what no recipe here can say.

    The converter resizes, multiplies by `scale` and adds `offset`. It cuts the largest window of
    the target's proportions out of an image first, unless it is told to squash.
    """
    places = (
        read_json(folder / "preprocessor.json").get("config", {}).get("image_converter", {}),
        (task.get("preprocessor") or {}).get("config", {}).get("image_converter", {}),
        read_json(folder / "image_converter.json"),
    )
    said = next((place["config"] for place in places if place.get("config")), {})
    if not said:
        return Preprocessing(resize="center_square"), ()

    def of(key, default):
        values = np.asarray(default if said.get(key) is None else said[key], "float64")
        return np.broadcast_to(values, found["channels"])

    with np.errstate(all="ignore"):  # `Preprocessing` refuses what comes of a scale of 0
        scale, offset = of("scale", 1.0), of("offset", 0.0)
        if "mean" in said and "variance" in said:  # as older presets say it
            std = np.sqrt(of("variance", 1.0))
            scale, offset = scale / std, -of("mean", 0.0) / std
        # x * scale + offset = (x / 255 - mean) / std, without a last digit beside it
        mean, std = (
            tuple(float(f"{v:.12g}") + 0.0 for v in values)
            for values in (-offset / (255 * scale), 1 / (255 * scale))
        )
    crops, kind = said.get("crop_to_aspect_ratio", True), said.get("interpolation", "bilinear")
    is_known = kind in ("bilinear", "bicubic")
    recipe = Preprocessing(
        mean,
        std,
        resize="center_square" if crops else "squash",
        interpolation=kind if is_known else "bilinear",
    )
    size = tuple(said.get("image_size") or found["image_size"])
    is_wide = crops and found["image_size"][0] != found["image_size"][1]
    unsaid = [f"{key}=True" for key in ("antialias", "pad_to_aspect_ratio") if said.get(key)]
    unsaid += [f"interpolation={kind!r}"] * (not is_known)
    unsaid += [f"image_size={list(size)}"] * (size != found["image_size"])
    unsaid += ["crop_to_aspect_ratio=True, for an image that is not square"] * is_wide
    return recipe, tuple(f"{text} of the image converter" for text in unsaid)
