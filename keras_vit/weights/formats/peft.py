"""Folders of Hugging Face's PEFT: LoRA matrices, and the name of the model that they belong to.

They are added to the weights of that model, W + alpha / r · B A, as `merge_and_unload()` does.
"""

import dataclasses
import math
import pathlib
import re

from keras_vit.text import shortened
from keras_vit.weights.fetch import fetch
from keras_vit.weights.files import open_checkpoint, read_json
from keras_vit.weights.readers import find_model
from keras_vit.weights.safety import CheckpointError, opening, require

CONFIG = "adapter_config.json"
PREFIX = re.compile(r"^base_model\.model\.|(?<=\.)(modules_to_save|base_layer|default)\.")
MATRICES = r"\.lora_([A-Z]|embedding|magnitude)"
OTHERS = rf"^(base_model|prompt_\w+)\b|{MATRICES}"
MATRIX = re.compile(r"(?P<layer>.+)\.lora_(?P<which>[AB])\.(default\.)?weight")
# Settings of PEFT -> the values with which matrices are added as here, to the model as it is: other
# beginnings, such as PiSSA's, take a part of its kernels away first.
PLAIN = {
    "peft_type": ("LORA",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal", "mica"),
    "layer_replication": (None,),
    **dict.fromkeys("use_dora fan_in_fan_out use_qalora lora_bias".split(), (False,)),
}
ADVICE = (
    "Merge it where it was trained, model.merge_and_unload().save_pretrained(folder), and load "
    "that folder."
)


def merge_adapter(contents):
    """The `Contents` of an adapter with the model that it was trained on; others as they are.

    Raises:
        CheckpointError: it is another adapter than LoRA, or does not fit the model that it names.
    """
    path = contents.path
    folder = path if path.is_dir() else path.parent
    settings = read_json(folder / CONFIG)
    pattern = OTHERS if settings else MATRICES
    if not any(re.search(pattern, name) for name in contents.arrays):
        return contents
    strange = {k: settings[k] for k in PLAIN if settings.get(k, PLAIN[k][0]) not in PLAIN[k]}
    if strange or not settings:
        what = f"one with {strange}" if strange else f"no {CONFIG} beside it"
        raise CheckpointError(
            "It is an adapter of PEFT, and only LoRA's plain matrices are merged here. "
            f"Received: {what}. {ADVICE}"
        )
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    place = base
    if not (isinstance(base, str) and base and pathlib.Path(base).expanduser().exists()):
        if not isinstance(base, str) or not re.fullmatch(r"[\w.-]+/[\w.-]+", base, re.ASCII):
            raise CheckpointError(
                "It is an adapter of PEFT, and the model that it was trained on is neither on this "
                "disk nor a repository of the hub. Received: "
                f"base_model_name_or_path={base!r} in {CONFIG}. Write its path there. Or: {ADVICE}"
            )
        place = fetch(f"hf://{base}@{revision}" if isinstance(revision, str) else f"hf://{base}")
    below = open_checkpoint(place)
    with opening(folder / CONFIG, "the settings of an adapter"):
        arrays = _merged(find_model(below), contents.arrays, settings)
    return dataclasses.replace(below, path=path, arrays=arrays, adapted=base)


def _merged(model, adapter, settings):
    """The arrays of a model, a `ModelInFile`, with those of an adapter in them."""
    arrays, family, pairs, others = dict(model.arrays), model.family, {}, {}
    stored = family.arrays_of(model.arrays).names_in_file

    def name_of(name):
        """What the model's file calls an array: often otherwise than its library does."""
        targets = family.table.targets(family.plain_name(name, arrays))
        return next((stored[target] for target in targets if target in stored), None)

    for name, array in adapter.items():
        plain = PREFIX.sub("", name)
        if match := MATRIX.fullmatch(plain):
            pairs.setdefault(match["layer"], {})[match["which"]] = array
        else:
            others[plain] = array
    patterns = settings.get("alpha_pattern") or {}
    require(not re.search(r"[^\w.]", "".join(patterns)), f"alpha_pattern={patterns} has patterns")
    for layer, pair in pairs.items():
        name = name_of(f"{layer}.weight")
        shapes = [pair[w].shape for w in "AB" if w in pair and pair[w].ndim == 2]
        fits = name in arrays and len(shapes) == 2
        if not fits or (shapes[1][0], shapes[0][1]) != arrays[name].shape:
            shape = f"shape {arrays[name].shape}" if name in arrays else "none of this name"
            raise CheckpointError(
                "The adapter does not fit the model that it names. Received: "
                f"{layer!r} with A and B of the shapes {shapes}, and in the model {shape}. {ADVICE}"
            )
        change = pair["B"].astype("float64") @ pair["A"].astype("float64")
        of_layer = (a for end, a in patterns.items() if f".{layer}".endswith(f".{end}"))
        scale = next(of_layer, settings.get("lora_alpha", 8))
        scale /= math.sqrt(shapes[0][0]) if settings.get("use_rslora") else shapes[0][0]
        arrays[name] = (arrays[name] + scale * change).astype("float32")
    strange = [name for name in others if "lora_" in name or not name.endswith(("weight", "bias"))]
    if strange:
        raise CheckpointError(
            "The adapter has more than LoRA's two matrices. Received: "
            f"{shortened(strange, 4)}. {ADVICE}"
        )
    # Those of layers that were trained as a whole, such as a head.
    arrays |= {name_of(name) or name: array for name, array in others.items()}
    if any(name.startswith("classifier.") for name in others):
        # The classes with a head do not use this layer of the model without one.
        arrays = {name: a for name, a in arrays.items() if "pooler.dense." not in name}
    return arrays
