"""Presets of KerasHub's `ViTImageClassifier` and `ViTBackbone`; they are read, not written.

A preset is a folder: `model.weights.h5` is the backbone and `config.json` its arguments;
`task.weights.h5` is the head alone and `task.json` says how its input is pooled;
`preprocessor.json` prepares the images. A file of `classifier.save_weights` has both parts in one.
Keras names variables by number: 0 is a kernel or gamma, 1 a bias or beta.

KerasHub computes GELU exactly, and its `"gap"` averages all tokens, the class token too.
"""

import dataclasses
import re

import numpy as np

from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.files import read_hdf5, read_json
from keras_vit.weights.model_arguments import CALLER, CONFIG, CUSTOM, POSITION
from keras_vit.weights.safety import CheckpointError
from keras_vit.weights.tables import FLAX_PATCHES, ROWS, SAME, Table

EMBEDDING = "layers/vi_t_patching_and_embedding/"
ENCODER = "layers/vi_t_encoder/"
BLOCK = ENCODER + "encoder_layers/vi_t_encoder_block_{i}/"


class KerasHub(Family):
    def plain_name(self, name, file):
        """Keras numbers layers of a kind from the second one."""
        name = name.replace("/vi_t_encoder_block/", "/vi_t_encoder_block_0/")
        if "layers/dense_1/vars/0" in file:
            name = name.replace("layers/dense/", "layers/pre_logits/")
        return super().plain_name(re.sub(r"^layers/dense(_1)?/", "layers/head/", name), file)

    def read(self, contents, caller):
        """A folder with a task is read whole, and so is its `task.weights.h5`.

        The path of its `model.weights.h5` means the backbone alone, whose output is the tokens
        after the last norm.
        """
        folder = _folder(contents)
        if not any("vi_t_" in name for name in contents.arrays):
            arrays = contents.arrays | read_hdf5(folder / "model.weights.h5")
            contents = dataclasses.replace(contents, arrays=arrays)
        return super().read(contents, caller)

    def flat_config(self, contents):
        """The arguments of backbone and task in one dict."""
        has_head = any(re.match("layers/dense(_1)?/vars/0", name) for name in contents.arrays)
        task = _config_in(_folder(contents) / "task.json") if has_head else {}
        backbone = (contents.config or task.get("backbone", {})).get("config", {})
        return {**{k: task[k] for k in ("pooling", "activation") if k in task}, **backbone}

    def complete(self, weights, arguments, contents):
        channels = arguments["channels"]
        if shape := arguments.from_config("image_size"):
            # The channels come first in a model for `data_format="channels_first"`.
            arguments["image_size"] = shape[:2] if shape[2] == channels else shape[1:]
        arguments["biases"] = "all"  # one that the model was built without is of zeros
        for key, bias in self.arrays_by_key.items():
            if not arguments.config.get(key, True):
                layers = re.sub("block_0/|/bias", "", bias).replace("dense_1", "dense_[12]")
                weights.add_zero_biases(layers, f"{key}=False")
        _choose_pool(arguments)

    def metadata(self, arguments, contents):
        activation = arguments.config.get("activation")
        if activation not in (None, "linear"):
            text = f"activation={activation!r} of the head: the model gives logits"
            arguments.ignored.append(text)
        reading = activation if activation in ("softmax", "sigmoid") else None
        return dataclasses.replace(super().metadata(arguments, contents), reading=reading)

    def images(self, arguments, contents):
        folder, size = _folder(contents), arguments["image_size"]
        both = _config_in(folder / "preprocessor.json").get("image_converter", {})
        converter = both.get("config") or _config_in(folder / "image_converter.json")
        return *_preprocessing(converter, arguments["channels"], size), converter


def _folder(contents):
    return contents.path if contents.path.is_dir() else contents.path.parent


def _config_in(path):
    return read_json(path).get("config", {})


def _choose_pool(arguments):
    """Sets what the head sees, and refuses what no head here sees."""
    caller, has_token = arguments.caller, arguments["class_token"]
    if not arguments["num_classes"]:
        # Whoever asks for a number of classes wants the tokens pooled, by custom.
        usual = ("token" if has_token else "mean") if "num_classes" in caller else None
        pool = caller.get("pool", usual)
        arguments.override(CUSTOM, "a backbone alone leaves it open", pool=pool)
        return
    if arguments.source_of("pool") == CONFIG:
        arguments.override(CONFIG, "its task.json", pool=arguments["pool"])
    elif "pool" in caller:
        arguments.override(CALLER, pool=caller["pool"])
    else:
        raise CheckpointError(
            "The file has a head, and nothing says what the head sees. Put the task.json of "
            "the preset beside it, or say pool='token' or pool='mean'."
        )
    if (arguments["pool"], has_token) in (("mean", True), ("token", False)):
        what = "all tokens, the class token too" if has_token else "the first patch"
        raise CheckpointError(
            f"The head of the classifier sees {what}, which no head here does. The path of its "
            "model.weights.h5 loads the backbone, for a head of your own."
        )


def _preprocessing(converter, channels, image_size):
    """What the image converter of a preset does, and texts for what no recipe here can say.

    The converter resizes, multiplies by `scale` and adds `offset`. It cuts the largest window of
    the target's proportions out of an image first, unless it is told to squash.
    """
    if not converter:
        return Preprocessing(resize="center_square"), ()
    stated = {key: value for key, value in converter.items() if value is not None}
    of = lambda key, usual: np.broadcast_to(np.float64(stated.get(key, usual)), channels)  # noqa: E731
    with np.errstate(all="ignore"):  # `Preprocessing` refuses what comes of a scale of 0
        scale, offset = of("scale", 1.0), of("offset", 0.0)
        if "mean" in converter and "variance" in converter:  # as older presets say it
            std = np.sqrt(of("variance", 1.0))
            scale, offset = scale / std, -of("mean", 0.0) / std
        # x * scale + offset = (x / 255 - mean) / std, without a last digit beside it
        rows = (-offset / (255 * scale), 1 / (255 * scale))
        mean, std = (tuple(float(f"{v:.12g}") + 0.0 for v in values) for values in rows)
    crops = converter.get("crop_to_aspect_ratio", True)
    interpolation = converter.get("interpolation", "bilinear")
    is_known = interpolation in ("bilinear", "bicubic")
    resize, used = "center_square" if crops else "squash", interpolation if is_known else "bilinear"
    size = tuple(converter.get("image_size") or image_size)
    is_wide = crops and image_size[0] != image_size[1]
    unsaid = {
        "antialias=True": converter.get("antialias"),
        "pad_to_aspect_ratio=True": converter.get("pad_to_aspect_ratio"),
        f"{interpolation=}": not is_known,
        f"image_size={list(size)}": size != image_size,
        "crop_to_aspect_ratio=True, for an image that is not square": is_wide,
    }
    notes = tuple(f"{text} of the image converter" for text, is_so in unsaid.items() if is_so)
    return Preprocessing(mean, std, resize, interpolation=used), notes


FAMILY = KerasHub(
    name="KerasHub",
    signature=r"layers/(vi_t_|dense/vars/0)",
    stripped=r"(?<=^layers/)vi_t_backbone/layers/",
    table=Table(
        (EMBEDDING + "vars/0", "patch_encoder/class_token", SAME),
        *tables.keras_dense(
            EMBEDDING + "patch_embedding", "patch_encoder/projection", FLAX_PATCHES
        ),
        (EMBEDDING + "position_embedding/vars/0", POSITION, ROWS),
        *tables.keras_norm(BLOCK + "layer_norm_{n}", "block_{i}/norm_{n}"),
        *tables.keras_dense(BLOCK + "mha/query_dense", "block_{i}/attention/query"),
        *tables.keras_dense(BLOCK + "mha/key_dense", "block_{i}/attention/key"),
        *tables.keras_dense(BLOCK + "mha/value_dense", "block_{i}/attention/value"),
        *tables.keras_dense(BLOCK + "mha/output_dense", "block_{i}/attention/out"),
        *tables.keras_dense(BLOCK + "mlp/dense_{n}", "block_{i}/mlp/dense_{n}"),
        *tables.keras_norm(ENCODER + "layer_norm", "norm"),
        *tables.keras_dense("layers/pre_logits", "pre_logits"),
        *tables.keras_dense("layers/head", "head"),
    ),
    # What training leaves in a file beside the weights.
    ignored=(r"optimizer/.*", r".*/seed_generators?/.*"),
    defaults={"interpolation": "bicubic_no_antialias", "gelu": "erf", "epsilon": 1e-6},
    needs_config=True,
    arrays_by_key={
        "use_patch_bias": "patch_encoder/projection/bias",
        "use_mha_bias": "block_0/attention/out/bias",
        "use_mlp_bias": "block_0/mlp/dense_1/bias",
    },
    config={
        "num_layers": "depth",
        "num_heads": "num_heads",
        "hidden_dim": "width",
        "mlp_dim": "mlp_dim",
        "use_class_token": "class_token",
        "layer_norm_epsilon": "epsilon",
        "image_shape": "image_size",
        "pooling": ("pool", {"token": "token", "gap": "mean", None: None}),
    },
)
