"""Models as checkpoints that other libraries open: Google npz, timm, Hugging Face."""

import json
import os
import pathlib
from typing import Literal

import keras
import numpy as np
import safetensors.numpy

from keras_vit.checks import check_choice
from keras_vit.heads import heads_of
from keras_vit.models import VisionTransformer
from keras_vit.models.backbone import MODELS, check_model
from keras_vit.models.bit import BiT
from keras_vit.text import shortened
from keras_vit.weights.formats import (
    aimv2,
    bit,
    google,
    huggingface,
    huggingface_beit,
    huggingface_dino,
    timm_writing,
    vision_towers,
)
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.read_back import warn_of_changes
from keras_vit.weights.safety import warn
from keras_vit.weights.writable import DIFFERS
from keras_vit.writing import output_place, replacing, replacing_files, write_text

# Format -> the families that write it, of which the first that has a place for a model does.
WRITERS = {
    "google": (google.FAMILY, bit.BIG_TRANSFER),
    "timm": (*timm_writing.WRITERS, bit.TIMM),
    "huggingface": (
        huggingface.FAMILY,
        *huggingface_beit.WRITERS,
        *huggingface_dino.FAMILIES,
        vision_towers.CLIP,
        vision_towers.SIGLIP,
        aimv2.FAMILY,
        huggingface_beit.IJEPA,
        bit.HUGGING_FACE,
    ),
}
BY_SUFFIX = {".npz": "google", ".safetensors": "timm", "": "huggingface"}
WITH_CONFIG = (".safetensors", ".bin", ".pth", ".pt")  # files that are read by a config.json
DTYPES = ("float32", "float16", "bfloat16")


def save_weights(
    model: VisionTransformer | BiT,
    path: str | os.PathLike[str],
    format: Literal["google", "timm", "huggingface"] | None = None,
    force: bool = False,
    card: bool = False,
    dtype: Literal["float32", "float16", "bfloat16"] | None = None,
) -> pathlib.Path:
    """Writes the weights of a model in a format that another library reads.

    - `"google"`: npz with the names of the published files, for google-research/
      vision_transformer, big_vision and timm; of a BiT, for google-research/big_transfer.
    - `"timm"`: a safetensors file, and beside it the `config.json` with which timm builds the
      same model: `timm.create_model(config["architecture"], **config["model_args"])`.
    - `"huggingface"`: a folder for `from_pretrained` of the class of transformers that has the
      architecture: `ViTForImageClassification`, or `ViTModel` where the model has no head, or a
      class of DeiT, IJepa, Beit, Dinov2, DINOv3, CLIP, SigLIP or AIMv2; of a BiT,
      `BitForImageClassification` or `BitModel`.

    A learned 2-D or fixed sin-cos embedding is written as the table that it adds.

    Args:
        model: a `VisionTransformer` or a `BiT`; of a model around one, its `keras_vit.backbone`.
        path: the file; for `"huggingface"` the folder. It and what stands beside it appear whole or
            not at all: what a killed process left is the old, the new, or refused when it is read.
        format: one of the three; `None` to tell by the suffix of `path`: .npz, .safetensors, none.
        force: whether to write what the other library would compute otherwise, too. Another
            epsilon of its norms is only warned of.
        card: whether to write the model card of what the model itself knows, too, as README.md in
            the folder of the weights. `keras_vit.model_card` writes one that says more. Without a
            card, a warning tells what of images and outputs the file cannot say.
        dtype: what the weights are rounded to; `None` for float32, and float64 of a model in it.
            `"float16"` and `"bfloat16"` halve the file; npz has no place for bfloat16.

    Returns:
        `path` as a `pathlib.Path`.

    Raises:
        TypeError: `model` is neither, and has none inside.
        ValueError: an unknown format, or a model that the format cannot hold; says what stands
            against it, and which formats can. Somebody's own README.md where a card should be.
            A `dtype` that the format cannot hold, or in which a weight would be infinite.
    """
    model = check_model(model, whole=True)
    path = pathlib.Path(path)
    format = BY_SUFFIX.get(path.suffix) if format is None else format
    if format not in WRITERS:
        raise ValueError(
            f"Unknown format. Received: path={str(path)!r}, format={format!r}; expected format to "
            f"be one of {list(WRITERS)}, or a path that ends in .npz, .safetensors or nothing."
        )
    check_choice("dtype", dtype, (None, *DTYPES))
    if (format, dtype) == ("google", "bfloat16"):
        raise ValueError(
            "The readers of npz files know no bfloat16. Received: format='google', "
            "dtype='bfloat16'; choose 'float16', or another format."
        )
    _check_obstacles(model, format, force)
    family, is_folder = _family(model, format), format == "huggingface"
    folder = path if is_folder else path.parent
    output_place(folder, folder=True)
    file = folder / ("model.safetensors" if is_folder else path.name)
    output_place(file)
    if card:
        from keras_vit.weights.card import check_card_place, make_card  # few need a card

        check_card_place(folder / "README.md")
    arrays = _rounded(family.write(model, _canonical_arrays(model)), dtype)
    json_files, texts = family.json_files(model), {}
    for name, content in json_files.items():
        precision = {"torch_dtype": dtype} if dtype and "torch_dtype" in content else {}
        texts[name] = json.dumps({**content, **precision}, indent=2) + "\n"
    _warn_of_others(file, texts.get("config.json"))
    with replacing_files(folder / "config.json" if json_files else file) as draft:
        drafts = draft.parent
        write = write_npz if format == "google" else write_safetensors
        write(drafts / file.name, arrays)
        for name, text in texts.items():
            write_text(drafts / name, text)
        if card:
            weights = drafts if is_folder else drafts / file.name
            write_text(drafts / "README.md", str(make_card(model, weights, format=format)))
    if not card:  # which says it
        warn_of_changes(model, path, arrays, json_files, format)
    return path


def reader_of(model, format):
    """The class that opens what `save_weights` writes, whose it is, and why it, as text.

    `format` may also be `"keras"`, for any model.
    """
    count, heads = getattr(model, "num_classes", None), ", ".join(map(repr, heads_of(model)))
    if heads:
        why = f"the model has the heads {heads}"
    elif count is None:  # a model of Keras
        why = f"the model has outputs of shape {model.output_shape}"
    else:
        why = f"the model has {f'a head of {count:,} classes' if count else 'no head'}"
    if format not in WRITERS:
        return f"{type(model).__name__} of {type(model).__module__.split('.')[0]}: {why}"
    family = _family(model, format)
    config = family.json_files(model).get("config.json", {})
    name, *_ = config.get("architectures") or [config.get("architecture", "the usual arrays")]
    library = {"timm": "timm", "huggingface": "transformers"}.get(format, family.name)
    usual = _families(model, format)[0]
    if family is not usual and (lacks := _obstacles(model, usual)[0]):
        why += f", and {lacks[0]}, for which the plain one of {library} has no place"
    return f"{name} of {library}: {why}"


def _families(model, format):
    return [family for family in WRITERS[format] if isinstance(model, MODELS[family.model])]


def _family(model, format):
    """The first family of a format that has a place for a model, or else that lacks least."""
    return min(_families(model, format), key=lambda f: [*map(len, _obstacles(model, f))])


def _check_obstacles(model, format, force):
    hard, soft = _obstacles(model, _family(model, format))
    if hard:
        reason, advice = f"has no place for: {', '.join(hard)}", ""
    elif soft and all(text.startswith("epsilon=") for text in soft):
        warn(
            f"The code that reads {format!r} files has another epsilon in its norms than this "
            f"model, {soft[0]}; outputs may differ in late digits."
        )
        return
    elif soft and not force:
        reason = f"is for code that computes something else than this model: {', '.join(soft)}"
        advice = ", or write the weights all the same with force=True (--allow-differences)"
    else:
        return
    others = (f for f in WRITERS if f != format)
    holding = [f for f in others if _obstacles(model, _family(model, f)) == ([], [])]
    raise ValueError(
        f"The format {format!r} {reason}. Choose another of {[*holding, 'model.save(...)']}"
        f"{advice}."
    )


def _obstacles(model, family):
    """What a format has no place for, and what its readers compute otherwise, as texts."""
    v, paths = model.variant, " ".join(variable.path for variable in model.weights)
    folded = v.folded if isinstance(model, BiT) else v.stem_folded
    obstacles = family.obstacles(model) | {
        "folded kernels, which would be standardised twice": folded,
        "quantised layers, for which model.save(...) is": "kernel_scale" in paths,
        "LoRA, which keras_vit.training.merge_lora(model) adds to the kernels": "lora_" in paths,
    }
    differing = [text for text, kind in obstacles.items() if kind == DIFFERS]
    return [text for text in obstacles if obstacles[text] and text not in differing], differing


def _canonical_arrays(model):
    """The weights by canonical name, in float32 unless the model has float64."""
    arrays = {}
    for variable in model.weights:
        if "seed_generator" not in variable.path:
            array = keras.ops.convert_to_numpy(variable)
            arrays[variable.path] = array if array.dtype == "float64" else array.astype("float32")
    # Other libraries know position embeddings as one vector per token, and no others.
    if getattr(model.variant, "position", None) in ("learned_2d", "sincos_2d"):
        arrays = {n: a for n, a in arrays.items() if not n.startswith("patch_encoder/position/")}
        table = model.get_layer("patch_encoder").position.table()
        arrays[POSITION] = keras.ops.convert_to_numpy(table)
    return arrays


def _rounded(file, dtype):
    """The arrays of a file in a precision, or as they are for `None`."""
    if dtype is None:
        return file
    with np.errstate(over="ignore"):  # told below, by name
        rounded = {name: array.astype(np.dtype(dtype)) for name, array in file.items()}
    finite = lambda array: np.isfinite(array.astype("float32")).all()  # noqa: E731
    if large := [n for n, array in rounded.items() if finite(file[n]) and not finite(array)]:
        raise ValueError(
            f"Weights in {shortened(large, 4)} are too large for it. Received: dtype={dtype!r}; "
            "choose 'bfloat16' or 'float32'."
        )
    return rounded


# ---- files


def write_npz(path, arrays):
    with replacing(path) as stream:
        np.savez(stream, **arrays)


def write_safetensors(path, arrays):
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with replacing(path) as stream:
        stream.write(safetensors.numpy.save(arrays, {"format": "pt"}))


def _warn_of_others(file, config):
    """Warns where a config of these weights takes the place of that of others beside them."""
    place = file.with_name("config.json")
    if config is None or not place.is_file() or place.read_bytes() == config.encode():
        return
    files = sorted(each.name for each in file.parent.iterdir() if each.suffix in WITH_CONFIG)
    if others := [name for name in files if name != file.name]:
        warn(
            f"All weights in a folder share one config.json, which is of {file.name!r} now. "
            f"Received: {shortened(others, 4)} beside it, with another. Give each model a folder "
            "of its own."
        )
