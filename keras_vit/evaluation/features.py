"""What a model gives for images: its outputs, and the features that its head reads."""

import csv
import functools
import io
import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.checks import positive_int, require, to_array, warn_of_parts
from keras_vit.data.preprocess import input_of, list_images, preprocess, preprocess_readable
from keras_vit.data.resize import as_loaded
from keras_vit.evaluation.metrics import check_same_length, class_numbers
from keras_vit.heads import heads_of, of_head, picked, split
from keras_vit.inspection.forward import check_shape
from keras_vit.models.backbone import owner_of_images, prepares_bytes
from keras_vit.models.features import features
from keras_vit.models.trainer import compare_images, look, one_look
from keras_vit.text import csv_cell, follow
from keras_vit.workarounds import one_at_a_time
from keras_vit.writing import output_place, replacing, write_text


def embed(
    model: keras.Model,
    images: Any,
    normalize: bool = False,
    layer: str | None = None,
    batch_size: int = 64,
    skip_corrupt: bool = False,
    progress: bool | None = False,
) -> np.ndarray:
    """The features of images without labels: of CLIP and SigLIP, their embeddings.

    Args:
        model, normalize, layer: as in `features`.
        images: what `keras_vit.preprocess` takes with a model, prepared as the weights ask; or a
            float array (images, height, width, channels), which goes into the model as it is.
        batch_size, skip_corrupt, progress: as in `keras_vit.predict`.

    Returns:
        A float array (images, features), in the order of the images (of a folder, that of
        `keras_vit.data.image_files`); a row of NaN for an image that was left out.

    Raises:
        ValueError: images that cannot be read or do not fit; otherwise as `features`.
    """
    backbone = features(model, layer, normalize)
    if getattr(images, "ndim", None) != 4:
        images = list_images(images, input_of(backbone)[1], must_exist=not skip_corrupt)
    data = images, np.arange(len(images))
    left_out = [] if skip_corrupt else None
    parts = labelled_outputs(backbone, data, batch_size, progress=progress, left_out=left_out)
    vectors, rows = map(np.concatenate, zip(*((x[None], rows[None]) for x, rows in parts)))
    result = np.full((len(images), vectors.shape[1]), np.nan, vectors.dtype)
    result[rows] = vectors
    return result


def extract_features(
    model: keras.Model,
    data: Any,
    layer: str | None = None,
    batch_size: int = 64,
    steps: int | None = None,
    progress: bool | None = None,
    normalize: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The features of all images, in the order of the data.

    Args:
        model, layer, normalize: as in `features`.
        data, batch_size, steps, progress: as in `evaluate`; of a dataset in memory the test images,
            so pass `(d.train_images, d.train_labels)` for the others.

    Returns:
        (features, labels): a float array (images, features), and int64 class numbers (images,).

    Raises:
        ValueError: no images, labels that are no class numbers, features that are not finite.
    """
    rule = "Labels of features are those of classes, and not values to estimate"
    require(getattr(data, "problem", None) != "regression", rule, received="problem='regression'")
    backbone = features(model, layer, normalize)
    parts = []
    for vectors, labels in labelled_outputs(backbone, data, batch_size, steps, progress):
        numbers = class_numbers(labels[None], what=f"labels of batch {len(parts)}")
        parts.append((vectors[None], numbers))
    return check_features(*map(np.concatenate, zip(*parts)), backbone.name)


def check_features(vectors, labels, what="features", num_classes=None):
    """Features as a finite float array (images, features), and their class numbers."""
    vectors, labels = np.asarray(vectors), class_numbers(labels, num_classes, f"labels of {what}")
    check_same_length(vectors, labels, (what, "labels"))
    fits = vectors.ndim == 2 and vectors.size
    require(fits, f"{what} must have shape (images, features)", received=vectors.shape)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise ValueError(f"{what} must be finite. Received: NaN or infinity, first in row {row}.")
    is_float = vectors.dtype in (np.float32, np.float64)
    return vectors if is_float else vectors.astype(np.float32), labels


def labelled_outputs(model, data, batch_size=64, steps=None, progress=None, left_out=None):
    """Yields ({head: outputs}, {head: labels}) for each batch of data as `evaluate` takes it.

    The head of a model with one output is `None`. All calls of the model have the size of the
    first, so that a backend compiles once; what fills a smaller batch up is dropped. Unreadable
    files are an error, or go to the list `left_out` with a warning.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a Keras model. Received: {type(model).__name__}.")
    owner = owner_of_images(model)
    compare_images(model, data, owner=owner)
    warn_of_parts(None, data)
    heads = heads_of(model)
    batches, total = _batches(data, positive_int(batch_size, "batch_size"), model, heads)
    if steps is not None:
        batches = itertools.islice(batches, positive_int(steps, "steps"))
        total = steps if total is None else min(steps, total)
    elif total == np.inf:
        raise ValueError("The data never ends. Say after how many batches to stop: steps=...")
    # The images of a dataset in memory are as `keras_vit.data.load` has read them.
    stored, size, looked = hasattr(data, "test_images"), None, set()
    if getattr(data, "resized", False):
        image_size, _, preprocessing = input_of(model)
        as_loaded(preprocessing, data, image_size, may_change=False)
    for index, batch in enumerate(follow(batches, model.name, total, progress)):
        images, labels, known = _split(batch, index, model, heads)
        if not len(images):
            continue
        is_files = isinstance(images, list) or images.dtype.kind in "OSU"
        if is_files or stored or (images.dtype == np.uint8 and prepares_bytes(model)):
            looked.add((id(model), "predict"))  # `preprocess` is right, even of a white page
            items = list(images) if is_files else images
            if not is_files or left_out is None:
                images = preprocess(items, model)
            else:
                images, gone = preprocess_readable(items, model)
                left_out += [items[i] for i in gone]
                kept = functools.partial(np.delete, obj=gone, axis=0)
                labels, known = keras.tree.map_structure(kept, (labels, known))
        if not len(images):
            continue
        check_shape(model, images)
        size = size or len(batch[0])  # with those left out, which the next may have
        parts = []
        for start in range(0, len(images), size):
            part = images[start : start + size]
            filled = np.resize(part, (size, *part.shape[1:]))  # by repeating images
            with one_look(looked), one_at_a_time(model):
                look(model, "predict", filled, owner)
                outputs = split(model.predict_on_batch(filled), heads, model.name)
            parts.append({head: to_array(x)[: len(part)] for head, x in outputs.items()})
        outputs = {h: np.concatenate([part[h] for part in parts])[known[h]] for h in labels}
        yield outputs, {head: each[known[head]] for head, each in labels.items()}
    require(size is not None, "The data must hold at least one image", received="none")


def _batches(data, batch_size, model, heads):
    """The batches of the data, and how many: infinity if they never end, None if unknown."""
    if hasattr(data, "test_images"):
        data = data.test_images, data.test_labels
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(x, "__len__") for x in data):
        images, labels = data[0], _labels_by_head(data[1], model, heads)
        starts = range(0, max(map(len, (images, *labels.values()))), batch_size)

        def cut(start):
            part = {head: each[start : start + batch_size] for head, each in labels.items()}
            return images[start : start + batch_size], part if heads else part[None]

        return map(cut, starts), len(starts)
    if isinstance(data, (tuple, str, bytes, Mapping)) or not hasattr(data, "__iter__"):
        parts = f" of {[type(x).__name__ for x in data]}" if isinstance(data, tuple) else ""
        raise TypeError(
            "data must be a pair (images, labels) of arrays, a dataset or a pipeline of "
            "keras_vit.data, a tf.data dataset, a PyDataset, or an iterable of batches (images, "
            f"labels). Received: {type(data).__name__}{parts}."
        )
    if isinstance(data, keras.utils.PyDataset):
        return iter(data), np.inf if data.num_batches is None else data.num_batches
    if hasattr(data, "cardinality"):  # tf.data: -1 for no end, -2 for unknown
        total = int(data.cardinality())
        return iter(data), {-1: np.inf, -2: None}.get(total, total)
    return iter(data), len(data) if hasattr(data, "__len__") else None


def _labels_by_head(labels, model, heads):
    """{head: its labels} of what data give as labels; {None: labels} of a model with one output.

    Those of outputs in a list may be one too, as Keras takes them.
    """
    is_list = isinstance(labels, (list, tuple)) and isinstance(model.output, list)
    if heads and is_list and len(labels) == len(heads):
        labels = dict(zip(heads, labels))
    is_dict = isinstance(labels, Mapping)
    if not heads and not is_dict:
        return {None: labels}
    if heads and is_dict and set(labels) == set(heads):
        return {head: labels[head] for head in heads}
    received = f"those of {', '.join(map(repr, labels))}" if is_dict else type(labels).__name__
    expected = "one array, as the model has one output"
    if heads:
        expected = (
            f"a dict {{head: labels}} of {', '.join(map(repr, heads))}; to measure one head, give "
            f"{picked(model, heads)} and its labels"
        )
    raise ValueError(f"Labels must be {expected}. Received: labels {received}.")


def _split(batch, index, model, heads):
    """(images, {head: labels}, {head: where they are known}) of a batch in NumPy.

    In {head: weights}, 0 is a missing label. Rows that have weight 0 alone are dropped.
    """
    fits = isinstance(batch, (tuple, list)) and len(batch) in (2, 3)
    rule = "Every batch must be (images, labels), as of dataset.map(lambda e: (e['image'], "
    require(fits, f"{rule}e['label']))", received=f"{type(batch).__name__} as batch {index}")
    images, labels, weights = keras.utils.unpack_x_y_sample_weight(batch)
    images = images if isinstance(images, list) else to_array(images)
    labels = _labels_by_head(labels, model, heads)
    labels = {head: to_array(each) for head, each in labels.items()}
    for each in labels.values():
        if each.ndim == 0 or len(each) != len(images):
            raise ValueError(
                "There must be one label for each image; call .batch(...) on single images. "
                f"Received: {len(images)} images and labels of shape {each.shape} in batch {index}."
            )
    known = {}
    for head in labels:
        w = of_head(weights, head)
        w = np.ones(len(images)) if w is None else to_array(w)
        if w.shape != (len(images),) or not np.isin(w, (0, 1)).all():
            raise ValueError(
                "Weights of examples must be 0 or 1, one for each. Received: weights of shape "
                f"{w.shape} from {w.min():g} to {w.max():g} in batch {index}."
            )
        known[head] = w == 1
    kept = np.flatnonzero(np.any([*known.values()], axis=0))
    images = [images[i] for i in kept] if isinstance(images, list) else images[kept]
    return images, *keras.tree.map_structure(lambda x: x[kept], (labels, known))


def output_of_features(path):
    """The place where `save_features` may write, or an error before the work begins."""
    path = pathlib.Path(path)
    if path.suffix.lower() not in (".npz", ".csv"):
        raise ValueError(f"Features are written as .npz or .csv. Received: {str(path)!r}")
    return output_place(path)


def save_features(
    path: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]], vectors: np.ndarray
) -> int:
    """Writes features with the paths of their images; returns how many rows of NaN are left out.

    Args:
        path: a .npz file, with the arrays `paths` (images,) and `features` (images, features); or
            a .csv file, with the columns path, 0, 1, 2 and so on.
        files, vectors: paths of the images, and (images, features) as `embed` gives them.

    Raises:
        ValueError: another suffix, or other numbers of files and rows.
    """
    path, paths = output_of_features(path), np.array(list(map(str, files)))
    check_same_length(vectors, paths, ("vectors", "files"))
    kept = ~np.isnan(vectors).all(axis=1)
    paths, vectors = paths[kept], vectors[kept]
    if path.suffix.lower() == ".npz":
        with replacing(path) as stream:
            np.savez(stream, paths=paths, features=vectors)
    else:
        writer = csv.writer(lines := io.StringIO(), lineterminator="\n")
        writer.writerow(["path", *range(vectors.shape[1])])
        writer.writerows([csv_cell(file), *row] for file, row in zip(paths.tolist(), vectors))
        write_text(path, lines.getvalue())
    return len(kept) - len(paths)
