"""The explorer: one HTML file in which one clicks through what a model attends to."""

import base64
import html
import importlib.resources
import io
import json
import os
import pathlib
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.checks import positive_float, positive_int
from keras_vit.data.predict import Teller
from keras_vit.heads import errors_of, for_each, heads_of
from keras_vit.inspection import forward
from keras_vit.inspection.attention import attention_distance, iterate_attention, rollout
from keras_vit.inspection.components import component_colors, components_of, patch_tokens
from keras_vit.inspection.relevance import relevance_maps
from keras_vit.inspection.similarity import position_similarity
from keras_vit.models import VisionTransformer
from keras_vit.text import visible
from keras_vit.writing import output_place, write_text

HERE = importlib.resources.files("keras_vit.inspection")  # also in a zip file
LEVELS = (256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8)  # of stored attention, as many as fit


def explore(
    model: VisionTransformer,
    images: Any,
    path: str | os.PathLike[str],
    blocks: Sequence[int] | None = None,
    top: int = 5,
    class_names: Sequence[str] | None = None,
    megabytes: float = 5.0,
) -> pathlib.Path:
    """Writes a page that shows what each patch of some images attends to; returns its path.

    The page is one file that works without a network, by mouse, touch and keyboard: attention of
    every block, head and token, rollout (Fig. 6), relevance for the most probable classes,
    principal components of the patches after every block, attention distance (Fig. 7 right) and
    the similarity of positions (Fig. 7 centre). Two images, or two models, stand side by side with
    one selection for both. Attention is stored in as many levels as fit, see `quantize`;
    everything else comes from the exact weights.

    Args:
        model: a `VisionTransformer`; or a dict from names to models, to be compared.
        images: as in `attention_weights`; a few.
        path: the file, such as `"report.html"`, which appears whole or not at all.
        blocks: indices of the blocks to show, of each model; `None` for all.
        top: how many classes to show, with their relevance, if the model has classes.
        class_names: as in `keras_vit.predict`, for each model.
        megabytes: the largest size of the file for each image and model.

    Raises:
        ValueError: no model; a model without attention; a block that does not exist; images that a
            model does not take; or more attention than fits.
    """
    output_place(path)
    positive_float(megabytes, "megabytes")
    top, models = positive_int(top, "top"), model if isinstance(model, dict) else {None: model}
    if not models:
        raise ValueError("There must be at least one model. Received: an empty dict.")
    index, codes, parts = {"images": None, "models": []}, {}, {}
    for m, (name, one) in enumerate(models.items()):
        given = forward.floats_of(one, images)
        network, x = forward.look_into(one, given)
        index["images"] = _titles(images, len(x))
        shown = _index(one.name if name is None else name, network, x, blocks)
        parts[f"positions-{m}"] = _positions(network, forward.layout_of(network, x.shape[1:3]))
        looks = _looks(network, x, blocks, _predictions(one, given, top, class_names))
        index["models"].append({**shown, "looks": [look for look, _, _ in looks]})
        for i, (_, part, attention) in enumerate(looks):
            parts[f"look-{m}-{i}"], codes[m, i] = part, attention
    limit = megabytes * 1e6 - (len(_page(index, parts)) + 1000) / len(codes)
    for (m, i), attention in codes.items():
        levels, text = fit(attention, limit)
        shown = index["models"][m]
        if len(text) > limit:
            raise ValueError(
                f"The attention of {len(shown['blocks'])} blocks and {shown['heads']} heads over "
                f"{attention.shape[-1]} tokens must fit; choose fewer blocks, a smaller "
                f"image_size, or more megabytes. Received: {len(text) / 1e6:.1f} MB or more for an "
                f"image, megabytes={megabytes}."
            )
        shown["looks"][i]["levels"] = levels
        parts[f"look-{m}-{i}"]["attention"] = text
    write_text(path, _page(index, parts))
    return pathlib.Path(path)


def _index(name, model, x, blocks):
    """What the page says of a model."""
    layout = forward.layout_of(model, x.shape[1:3])
    names = [block.name for block in forward.transformer_blocks(model)]
    chosen = forward.transformer_blocks(model, blocks)
    return {
        "name": visible(name),
        "rows": layout.grid[0],
        "columns": layout.grid[1],
        "learned": layout.learned,
        "names": layout.names,
        "height": x.shape[1],
        "width": x.shape[2],
        "blocks": [names.index(block.name) for block in chosen],
        "heads": chosen[0].attention.num_heads,
    }


def _looks(model, x, blocks, predictions):
    """For each image: what the page reads at once, what it reads when needed, and codes."""
    colors, explained = _components(model, x, blocks)
    looks = []
    for i, (answers, relevance) in enumerate(predictions):
        codes, scales, distances, joint = _attention(model, x[i : i + 1], blocks)
        joint_codes, joint_scales = quantize(joint)
        look = {
            "picture": _picture(x[i], model),
            "predictions": answers,
            "distances": np.round(distances, 2).tolist(),
            "explained": explained,
        }
        part = {
            "scales": deflated(scales),
            "rollout": deflated(joint_codes),
            "rolloutScales": deflated(joint_scales),
            "relevance": relevance,
            "components": None if colors is None else deflated(colors[:, i]),
        }
        looks.append((look, part, codes))
    return looks


def _components(model, x, blocks):
    """Colours of the patches after each block, (blocks, images, rows, columns, 3), and shares.

    None for patches that are all alike.
    """
    try:
        components = [components_of(tokens) for tokens in patch_tokens(model, x, blocks)]
    except ValueError:
        return None, None
    colors = [np.rint(255 * component_colors(one)).astype("uint8") for one in components]
    return np.stack(colors), [np.round(one.explained, 4).tolist() for one in components]


def _titles(images, count):
    """Titles of the images: names of files, else numbers."""
    paths = images if isinstance(images, (list, tuple)) else [images]
    if not all(isinstance(path, (str, pathlib.Path)) for path in paths):
        return list(map(str, range(count)))
    names = [pathlib.Path(path).name for path in paths]
    return list(map(visible, names if len(set(names)) == len(names) else paths))


def _page(index, parts):
    """The template with all in it: first index and pictures, last what takes long to read."""
    names = ("explorer.html", "explorer.css", "explorer_data.js", "explorer.js")
    template, css, *scripts = ((HERE / name).read_text("utf-8") for name in names)
    blanks = {
        "css": css,
        "js": "\n".join(scripts),
        "title": html.escape(" and ".join(one["name"] for one in index["models"])),
        "facts": _json(index),
        "parts": "\n".join(
            f'<script type="application/json" id="{key}">{_json(part)}</script>'
            for key, part in parts.items()
        ),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: blanks[match[1]], template)


def _json(data):
    """For an element of the page, in which "</script" and "<!--" have a meaning of their own."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _attention(model, image, blocks):
    """Codes and scales of each block, distances of its heads, and the rollout, of one image."""
    layout = forward.layout_of(model, image.shape[1:3])

    def reduce(attention):
        attention = attention[0]
        distance = attention_distance(attention, layout.grid, layout.stride)
        return *quantize(attention), distance, attention.mean(axis=0)

    (of_blocks,) = iterate_attention(model, image, blocks, 1, reduce)
    codes, scales, distances, means = zip(*of_blocks)
    joint = rollout(mean[None] for mean in means)
    return np.stack(codes), np.stack(scales), np.stack(distances), joint


def _picture(image, model):
    """A preprocessed image as the URL of a PNG."""
    import PIL.Image

    recipe = getattr(model, "preprocessing", None)
    if recipe is None or len(recipe.mean) not in (1, image.shape[-1]):
        image = (image - image.min()) / (np.ptp(image) or 1.0)
    else:
        image = image * np.array(recipe.std) + np.array(recipe.mean)
    image = image if image.shape[-1] == 3 else np.repeat(image[..., :1], 3, axis=-1)
    file = io.BytesIO()
    PIL.Image.fromarray(np.rint(image.clip(0, 1) * 255).astype("uint8")).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _positions(model, layout):
    """Codes of the similarity from -1 to 1, or None for positions of another kind."""
    try:
        similarity = position_similarity(model)
    except ValueError:
        return None
    if similarity.shape[:2] != layout.grid:
        return None  # images of another size than the table
    return deflated(np.rint((similarity + 1) * 127.5).astype("uint8"))


def _predictions(model, images, top, class_names):
    """For each image its likeliest classes, or its values, and the relevance for each.

    Of several heads these stand one after the other, each with the name of its head.
    """
    heads = heads_of(model) or {None: model}
    of_images = [([], []) for _ in images]
    for head, given in for_each(heads, class_names=class_names).items():
        with errors_of(head):
            of_head = _of_head(heads[head], images, top, **given)
        before = "" if head is None else f"{visible(head)}: "
        for (answers, maps), (more_answers, more_maps) in zip(of_images, of_head):
            answers += [{**one, "label": before + one["label"]} for one in more_answers]
            maps += more_maps
    return of_images


def _of_head(model, images, top, class_names=None):
    """`_predictions` of a model with one output."""
    shape = model.output_shape
    if getattr(model, "num_classes", None) == 0 or len(shape) != 2:
        return [([], [])] * len(images)
    teller = Teller(model, top, class_names)
    # Of two names for one sigmoid, that of its probability.
    teller.names = teller.names[-shape[1] :]
    outputs = forward.outputs(model, model.outputs, images, 8)
    told = teller.tell(np.concatenate([forward.to_array(x)[:n] for (x,), n in outputs]))
    told = [best[:top] for best in told]  # of a regression all values are told
    indices = np.array([[one.index for one in best] for best in told])
    maps = [relevance_maps(model, images, column) for column in indices.T]
    field = "value" if teller.reading.name == "values" else "probability"
    return [
        (
            [{"label": visible(label), field: round(number, 6)} for label, _, number in best],
            [deflated(np.rint(255 * m[i] / (m[i].max() or 1.0)).astype("uint8")) for m in maps],
        )
        for i, best in enumerate(told)
    ]


def quantize(weights):
    """Rows of attention as bytes: square roots, relative to that of the largest in the row.

    Square roots, because most weights are small and all that the eye sees is their order. The
    value is (code / 255)² · (scale / 255)². Codes, uint8, have the shape of the weights, (...,
    rows, columns), and scales have shape (..., rows).
    """
    roots = np.sqrt(np.asarray(weights, "float32").clip(0, 1))
    scales = np.ceil(roots.max(axis=-1) * 255).clip(1, 255)
    codes = np.rint(roots * (255 * 255 / scales[..., None]))
    return codes.clip(0, 255).astype("uint8"), scales.astype("uint8")


def coarser(codes, levels):
    """Codes 0..255 in fewer levels, from 0 to levels - 1."""
    return np.rint(codes * np.float32((levels - 1) / 255)).astype("uint8")


def fit(codes, limit):
    """(levels, text): the finest levels whose codes take `limit` bytes of text, or the coarsest."""
    for levels in LEVELS:
        text = deflated(coarser(codes, levels))
        if len(text) <= limit:
            break
    return levels, text


def deflated(array):
    """The bytes of an array, compressed (zlib), as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 7)).decode()
