"""The explorer: one HTML file in which one clicks through what a model attends to."""

import base64
import html
import importlib.resources
import io
import json
import os
import pathlib
import re
import warnings
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.checks import positive_float, positive_int
from keras_vit.data.files import files_at
from keras_vit.data.pixels import PATHS
from keras_vit.data.predict import Teller
from keras_vit.heads import errors_of, for_each, heads_of
from keras_vit.inspection import forward
from keras_vit.inspection.attention import attention_distance, iterate_attention, rollout
from keras_vit.inspection.components import component_colors, components_of, patch_tokens
from keras_vit.inspection.figures import as_picture
from keras_vit.inspection.relevance import relevance_maps
from keras_vit.inspection.similarity import position_similarity
from keras_vit.models import VisionTransformer
from keras_vit.outputs import gives_features
from keras_vit.text import visible
from keras_vit.writing import output_place, write_text

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

    It is one file without a network, for mouse, touch and keyboard: attention of every block, head
    and token, rollout (Fig. 6), relevance for the most probable classes, principal components of
    the patches after every block, attention distance (Fig. 7 right) and the similarity of positions
    (Fig. 7 centre). Two images, or two models, stand side by side. Attention is stored in as many
    levels as fit; all else comes from the exact weights.

    Args:
        model: a `VisionTransformer`; or a dict from names to models, to be compared.
        images, blocks: as in `attention_weights`, for each model; a few images.
        path: the file, such as `"report.html"`, which appears whole or not at all.
        top: how many classes to show, with their relevance, if the model has classes.
        class_names: as in `keras_vit.predict`, for each model.
        megabytes: the largest size of the file for each image and model.

    Raises:
        ValueError: no model, or one without such blocks; images of others; more than fits.
    """
    output_place(path)
    positive_float(megabytes, "megabytes")
    top, models = positive_int(top, "top"), model if isinstance(model, dict) else {None: model}
    if not models:
        raise ValueError("There must be at least one model. Received: an empty dict.")
    index, parts, all_looks = {"images": None, "models": []}, {}, []
    for m, (name, one) in enumerate(models.items()):
        given = forward.floats_of(one, images)
        network, x = forward.look_into(one, given)
        index["images"] = _titles(images, len(x))
        layout = forward.layout_of(network, x.shape[1:3])
        every = forward.transformer_blocks(network)
        chosen = forward.transformer_blocks(network, blocks)
        parts[f"positions-{m}"] = _positions(network, layout)
        looks = _looks(network, x, blocks, layout, _predictions(one, given, top, class_names))
        parts |= {f"look-{m}-{i}": part for i, (_, part, _) in enumerate(looks)}
        all_looks += looks
        index["models"].append(
            {
                "name": visible(one.name if name is None else name),
                "rows": layout.grid[0],
                "columns": layout.grid[1],
                "learned": layout.learned,
                "names": layout.names,
                "height": x.shape[1],
                "width": x.shape[2],
                "blocks": [every.index(block) for block in chosen],
                "heads": chosen[0].attention.num_heads,
                "looks": [look for look, _, _ in looks],
            }
        )
    limit = megabytes * 1e6 - (len(_page(index, parts)) + 1000) / len(all_looks)
    for look, part, codes in all_looks:
        look["levels"], part["attention"] = fit(codes, limit)
        if (size := len(part["attention"])) > limit:
            raise ValueError(
                "The attention of {} blocks and {} heads over {} tokens must fit; choose fewer "
                "blocks, a smaller image_size, or more megabytes. Received: {:.1f} MB or more for "
                "an image, megabytes={}.".format(*codes.shape[:3], size / 1e6, megabytes)
            )
    write_text(path, _page(index, parts))
    return pathlib.Path(path)


def _looks(model, x, blocks, layout, predictions):
    """For each image: what the page reads at once, what it reads when needed, and codes."""

    def reduce(attention):  # of one image
        distances = attention_distance(attention[0], layout.grid, layout.stride)
        return *quantize(attention[0]), distances, attention.mean(axis=1)

    try:
        components = [components_of(tokens) for tokens in patch_tokens(model, x, blocks)]
        explained = [np.round(one.explained, 4).tolist() for one in components]
        colors = np.stack([_bytes(component_colors(one)) for one in components], axis=1)
    except ValueError:  # patches that are all alike
        explained, colors = None, None
    looks, of_images = [], iterate_attention(model, x, blocks, 1, reduce)
    for i, (of_blocks, (answers, relevance)) in enumerate(zip(of_images, predictions)):
        codes, scales, distances, means = zip(*of_blocks)
        joint_codes, joint_scales = quantize(rollout(means))
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
            "components": None if colors is None else deflated(colors[i]),
        }
        looks.append((look, part, np.stack(codes)))
    return looks


def _bytes(values):
    return np.rint(255 * values).astype("uint8")


def _titles(images, count):
    """Titles of the images: names of files, else numbers."""
    items = images if isinstance(images, (list, tuple, np.ndarray)) else [images]
    with warnings.catch_warnings(action="ignore"):  # of other files in a folder; it was read before
        paths = [file for x in items if isinstance(x, PATHS) for file in files_at(x)]
    if len(paths) != count:
        return list(map(str, range(count)))
    names = [pathlib.Path(path).name for path in paths]
    return list(map(visible, names if len(set(names)) == len(names) else paths))


def _page(index, parts):
    """The template with all in it: first index and pictures, last what takes long to read."""
    here = importlib.resources.files("keras_vit.inspection")  # also in a zip file
    names = ("explorer.html", "explorer.css", "explorer_data.js", "explorer.js")
    template, css, *scripts = ((here / name).read_text("utf-8") for name in names)
    blanks = {
        "css": css,
        "js": "\n".join(scripts),
        "title": html.escape(" and ".join(one["name"] for one in index["models"])),
        "index": _json(index),
        "parts": "\n".join(
            f'<script type="application/json" id="{key}">{_json(part)}</script>'
            for key, part in parts.items()
        ),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: blanks[match[1]], template)


def _json(data):
    """For an element of the page, in which "</script" and "<!--" have a meaning of their own."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _picture(image, model):
    """A preprocessed image as the URL of a PNG."""
    import PIL.Image

    recipe = getattr(model, "preprocessing", None)
    if recipe is not None and len(recipe.mean) in (1, image.shape[-1]):
        image = (image * np.array(recipe.std) + np.array(recipe.mean)).clip(0, 1)
    image = as_picture(image)
    PIL.Image.fromarray(_bytes(image)).save(file := io.BytesIO(), "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _positions(model, layout):
    """Codes of the similarity from -1 to 1, or None for positions of another kind."""
    try:
        similarity = position_similarity(model)
    except ValueError:
        return None
    of_these = similarity.shape[:2] == layout.grid  # or the images have another size
    return deflated(_bytes((similarity + 1) / 2)) if of_these else None


def _predictions(model, images, top, class_names):
    """For each image its likeliest classes, or its values, head after head; their relevance."""
    heads, of_images = heads_of(model) or {None: model}, [([], []) for _ in images]
    for head, options in for_each(heads, class_names=class_names).items():
        one, before = heads[head], "" if head is None else f"{visible(head)}: "
        shape = getattr(one, "output_shape", None)  # `Teller` asks for a graph that tells it
        if gives_features(one) or (shape is not None and len(shape) != 2):
            continue
        with errors_of(head):
            teller = Teller(one, top, **options)
            # Of two names for one sigmoid, that of its probability.
            teller.names = teller.names[-one.output_shape[1] :]
            parts = forward.features(one, one.outputs, images, batch_size=8)
            rows = teller.tell(np.concatenate([outputs for (outputs,) in parts]))
            rows = [row[:top] for row in rows]  # of a regression all values are told
            ranks = [relevance_maps(one, images, [x.index for x in rank]) for rank in zip(*rows)]
        field = "value" if teller.reading.name == "values" else "probability"
        for i, ((answers, maps), row) in enumerate(zip(of_images, rows)):
            answers += [{"label": before + visible(x.label), field: round(x[2], 6)} for x in row]
            maps += [deflated(_bytes(m[i] / (m[i].max() or 1.0))) for m in ranks]
    return of_images


def quantize(weights):
    """(codes, scales) of attention (..., rows, columns): a weight is (code / 255 · scale / 255)².

    Codes, uint8 of that shape, are square roots, as most weights are small; scales, uint8 (...,
    rows), are those of the largest in the row.
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
        if len(text := deflated(coarser(codes, levels))) <= limit:
            break
    return levels, text


def deflated(array):
    """The bytes of an array, compressed (zlib), as base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 7)).decode()
