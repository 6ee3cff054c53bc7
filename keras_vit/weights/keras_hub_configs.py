"""The JSON files of a KerasHub preset: what they say, and whether it is said of these weights."""

import json

from keras_vit.checks import pair
from keras_vit.weights.files import CheckpointError


def _json(path):
    """The content of a serialised Keras object, or an empty dict where there is no file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
            raise ValueError("it has no 'config' of names and values")
        return content
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{str(path)!r} cannot be read as a part of a KerasHub preset: {error}."
        ) from error


def task_arguments(folder, found):
    """The arguments of the `ViTImageClassifier`; empty where there is no head or no `task.json`."""
    content = _json(folder / "task.json") if found["num_classes"] else {}
    if not content:
        return {}
    task = content["config"]
    heads = {"num_classes": found["num_classes"], "intermediate_dim": found["representation_size"]}
    wrong = {k: (task[k], value) for k, value in heads.items() if task.get(k, value) != value}
    if content.get("class_name") != "ViTImageClassifier" or wrong:
        raise CheckpointError(
            f"The task.json of {str(folder)!r} must be that of this ViTImageClassifier. Received: "
            f"class_name={content.get('class_name')!r}; (task.json, file) differ in {wrong}."
        )
    return task


def backbone_arguments(content, folder):
    """The arguments of the `ViTBackbone`; empty where nothing tells them."""
    if not content:
        return {}
    if (
        not isinstance(content, dict)
        or content.get("class_name") != "ViTBackbone"
        or not isinstance(content.get("config"), dict)
    ):
        received = content.get("class_name") if isinstance(content, dict) else content
        raise CheckpointError(
            f"The config.json of {str(folder)!r} must be that of a KerasHub ViTBackbone. Received: "
            f"class_name={received!r}."
        )
    return content["config"]


def image_size_of(config, found, folder):
    """The (height, width) of the config, after a look at whether it is of this model."""
    if not config:
        return None
    given = {
        "num_layers": found["depth"],
        "num_heads": found["num_heads"],
        "hidden_dim": found["width"],
        "mlp_dim": found["mlp_dim"],
        "use_class_token": found["class_token"],
    }
    wrong = {
        key: (config[key], value) for key, value in given.items() if config.get(key, value) != value
    }
    patch_size = config.get("patch_size", found["patch_size"])
    if pair(patch_size, "patch_size") != found["patch_size"]:
        wrong["patch_size"] = (patch_size, found["patch_size"])
    shape = config.get("image_shape")
    if not isinstance(shape, list) or len(shape) != 3 or found["channels"] not in shape[::2]:
        wrong["image_shape"] = (shape, f"3 sides, {found['channels']} of them channels")
    if wrong:
        raise CheckpointError(
            f"The config.json of {str(folder)!r} is of another model; (config, file) differ in "
            f"{wrong}."
        )
    # The channels come first where the model was built for `data_format="channels_first"`.
    size = shape[:2] if shape[2] == found["channels"] else shape[1:]
    return pair(size, "image_shape")


def converter_arguments(folder, task):
    """The arguments of the image converter, from the first file that has one."""
    places = (
        (_json(folder / "preprocessor.json"), "config", "image_converter", "config"),
        (task, "preprocessor", "config", "image_converter", "config"),
        (_json(folder / "image_converter.json"), "config"),
    )
    return next((found for place in places if (found := _inside(*place))), {})


def _inside(content, *keys):
    """The dict below `keys`, or an empty one."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}
