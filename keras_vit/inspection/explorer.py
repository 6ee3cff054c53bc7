"""The explorer: one HTML file in which one clicks through what a model attends to."""

import base64
import html
import io
import json
import os
import pathlib
import re
import zlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checks import positive_float, positive_int
from keras_vit.data.predict import resolve_class_names
from keras_vit.inspection import forward
from keras_vit.inspection.attention import attention_distance, iterate_attention, rollout
from keras_vit.inspection.learned import position_similarity
from keras_vit.inspection.relevance import relevance_maps
from keras_vit.models import VisionTransformer

HERE = pathlib.Path(__file__).parent
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
    attention distance (Fig. 7 right) and the similarity of positions (Fig. 7 centre). Attention is
    stored in as many levels as fit, see `quantize`; everything else comes from the exact weights.

    Args:
        model: a `VisionTransformer`.
        images: as in `attention_weights`; a few.
        path: the file to write, such as `"report.html"`.
        blocks: indices of the blocks to show; `None` for all.
        top: how many classes to show, with their relevance, if the model has classes.
        class_names: as in `keras_vit.predict`.
        megabytes: the largest size of the file for each image.

    Raises:
        ValueError: a model without attention, a block that does not exist, images that the model
            does not take, or more attention than fits.
    """
    positive_float(megabytes, "megabytes")
    x, chosen = forward.as_inputs(model, images), forward.transformer_blocks(model, blocks)
    layout = forward.layout_of(model, x.shape[1:3])
    names = [block.name for block in forward.transformer_blocks(model)]
    predictions = _predictions(model, x, positive_int(top, "top"), class_names)
    pictures, codes = [], []
    for image, found, title in zip(x, predictions, _titles(images, len(x))):
        packed, scales, distances, joint = _attention(model, image[None], blocks, layout)
        joint_codes, joint_scales = quantize(joint)
        codes.append(packed)
        pictures.append(
            {
                "name": title,
                "picture": _picture(image, model),
                "predictions": found,
                "scales": deflated(scales),
                "rollout": deflated(joint_codes),
                "rolloutScales": deflated(joint_scales),
                "distances": np.round(distances, 2).tolist(),
            }
        )
    data = {
        "model": model.name,
        "rows": layout.grid[0],
        "columns": layout.grid[1],
        "learned": layout.learned,
        "names": layout.names,
        "classToken": layout.class_token,
        "height": x.shape[1],
        "width": x.shape[2],
        "blocks": [names.index(block.name) for block in chosen],
        "heads": chosen[0].attention.num_heads,
        "positions": _positions(model, layout),
        "images": pictures,
    }
    limit = (len(x) * megabytes * 1e6 - len(_page(data)) - 1000) / len(x)
    for picture, packed in zip(pictures, codes):
        picture["levels"], picture["attention"] = fit(packed, limit)
        if len(picture["attention"]) > limit:
            raise ValueError(
                f"The attention of {len(chosen)} blocks and {data['heads']} heads over "
                f"{layout.tokens} tokens must fit; choose fewer blocks, a smaller image_size, or "
                f"more megabytes. Received: {len(picture['attention']) / 1e6:.1f} MB or more for "
                f"an image, megabytes={megabytes}."
            )
    path = pathlib.Path(path)
    path.write_text(_page(data), encoding="utf-8")
    return path


def _titles(images, count):
    """Titles of the images: names of files, else numbers."""
    paths = images if isinstance(images, (list, tuple)) else [images]
    if not all(isinstance(path, (str, pathlib.Path)) for path in paths):
        return list(map(str, range(count)))
    names = [pathlib.Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))


def _page(data):
    """The template with everything put into it."""
    parts = {kind: (HERE / f"explorer.{kind}").read_text("utf-8") for kind in ("css", "js")}
    parts["title"] = html.escape(data["model"])
    # In the element that holds the data, "</script" and "<!--" have a meaning of their own.
    parts["data"] = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    template = (HERE / "explorer.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def _attention(model, image, blocks, layout):
    """Codes and scales of each block, distances of its heads, and the rollout, of one image."""

    def reduce(attention):
        attention = attention[0]
        distance = attention_distance(attention, layout.grid, layout.stride)
        return *quantize(attention), distance, attention.mean(axis=0)

    (found,) = iterate_attention(model, image, blocks, 1, reduce)
    codes, scales, distances, means = zip(*found)
    joint = rollout(mean[None] for mean in means)
    return np.stack(codes), np.stack(scales), np.stack(distances), joint


def _picture(image, model):
    """A preprocessed image as the URL of a PNG."""
    import PIL.Image

    facts = getattr(model, "preprocessing", None)
    if facts is None or len(facts.mean) not in (1, image.shape[-1]):
        image = (image - image.min()) / (np.ptp(image) or 1.0)
    else:
        image = image * np.array(facts.std) + np.array(facts.mean)
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
    """For each image a list of its most probable classes, with the relevance of the patches."""
    shape = model.output_shape
    if getattr(model, "num_classes", None) == 0 or len(shape) != 2:
        return [[] for _ in images]
    names = resolve_class_names(model, shape[1], class_names)
    outputs = forward.outputs(model, model.outputs, images, 8)
    logits = np.concatenate([forward.to_array(x)[:count] for (x,), count in outputs])
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    maps = [relevance_maps(model, images, order[:, rank]) for rank in range(order.shape[1])]
    return [
        [
            {
                "label": str(names[index]),
                "probability": round(float(probabilities[i, index]), 6),
                "relevance": _bytes_of(maps[rank][i]),
            }
            for rank, index in enumerate(order[i])
        ]
        for i in range(len(images))
    ]


def _bytes_of(values):
    values = np.asarray(values, "float64")
    return deflated(np.rint(255 * values / (values.max() or 1.0)).astype("uint8"))


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
