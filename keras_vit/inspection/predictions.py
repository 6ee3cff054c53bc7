"""The figure of predictions: what a model says of images, what is right, and where it looks."""

import importlib.util
import itertools
import textwrap
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_vit.data.pixels import per_channel
from keras_vit.heads import for_each, heads_of, of_head, split
from keras_vit.inspection import figures
from keras_vit.inspection.attention import attention_maps
from keras_vit.inspection.figures import FilePath, as_picture, finish, plain, show
from keras_vit.models import VisionTransformer
from keras_vit.models.backbone import backbones
from keras_vit.outputs import reading_of


def draw_predictions(model, test, path, count=12):
    """Draws test images and their attention maps, mistakes first, which teach most.

    A model without attention and a machine without matplotlib draw nothing. Of several heads,
    images are drawn that have a label, and so a weight above 0, for each.
    """
    has_attention = any(isinstance(x, VisionTransformer) for x in backbones(model).values())
    if not has_attention or not importlib.util.find_spec("matplotlib"):
        return
    batches, heads = list(itertools.islice(test, 8)), heads_of(model)
    images = np.concatenate([np.asarray(batch[0]) for batch in batches])
    outputs = model.predict(images, batch_size=len(batches[0][0]), verbose=0)
    labels, scores, readings, mistakes = {}, {}, {}, 0
    for head, output in split(outputs, heads, model.name).items():
        labels[head] = np.concatenate([np.asarray(of_head(batch[1], head)) for batch in batches])
        reading = reading_of(heads.get(head, model)).decided(output)
        scores[head], readings[head] = reading.scores(output), reading.name
        errors = prediction_errors(labels[head], scores[head], reading.name)
        mistakes = mistakes + errors / (errors.max() or 1)  # so that heads count alike
    weights = [keras.tree.flatten(batch[2:]) or [np.ones(len(batch[0]))] for batch in batches]
    is_labelled = np.concatenate([np.min(np.asarray(each), axis=0) > 0 for each in weights])
    order = np.argsort(-mistakes, kind="stable")
    chosen = order[is_labelled[order]][:count]
    if not len(chosen):
        return
    labels, scores = ({head: x[chosen] for head, x in each.items()} for each in (labels, scores))
    mean, std = per_channel(test.preprocessing, images.shape[-1])
    pictures, maps = (images[chosen] * std + mean).clip(0, 1), attention_maps(model, images[chosen])
    plot_predictions(pictures, maps, labels, scores, test.class_names, path, readings)


def plot_predictions(
    images: ArrayLike,
    maps: ArrayLike,
    labels: ArrayLike | dict[str, ArrayLike],
    probabilities: ArrayLike | dict[str, ArrayLike],
    class_names: Sequence[str] | dict[str, Sequence[str]] | None,
    path: FilePath,
    reading: str | dict[str, str] = "softmax",
) -> Any:
    """Draws each image beside its attention map, under what was predicted and what is right.

    The colours of a map go from its own lowest value to its own highest. Of several heads, labels
    and probabilities are dicts {head: array}, and the other arguments may be.

    Args:
        images, path: as in `plot_maps`.
        maps: (n, rows, columns), what `attention_maps` returns.
        labels: (n,) or (n, 1) true classes; (n, classes) of 0 and 1; or values, (n,) or
            (n, targets).
        probabilities: (n, classes) of the model; of a regression its values (n, targets).
        class_names: names of the classes or of the targets; `None` for numbers.
        reading: `"softmax"`, `"sigmoid"` or `"values"`: what the outputs are.
    """
    heads = list(labels) if isinstance(labels, dict) else [None]
    options = {"labels": labels, "scores": probabilities, "names": class_names, "reading": reading}
    predictions = for_each(heads, **options)
    shape = np.median([np.shape(image)[0] / np.shape(image)[1] for image in images])
    height = 1.8 * min(max(shape, 0.5), 2) + 0.6 + 0.3 * (len(heads) - 1)
    figure, grid = figures.pairs_of_places(len(images), width=4.4, height=height, title=0.5)
    errors = [
        prediction_errors(one["labels"], one["scores"], one["reading"])
        for one in predictions.values()
        if one["reading"] != "values"
    ]
    for i, ((left, right), image, attention) in enumerate(zip(grid, images, maps)):
        picture = as_picture(image)
        show(left, picture, picture)
        show(right, picture, picture)
        low, high = np.nanmin(attention), np.nanmax(attention)
        scale = {"vmin": low, "vmax": high if high > low else low + 1e-9}
        drawn = show(right, attention, picture, cmap="inferno", alpha=0.7, **scale)
        bar = figure.colorbar(drawn, ax=right, fraction=0.046, pad=0.04)
        bar.set_ticks([low, high], labels=[f"{low:.3g}", f"{high:.3g}"])
        bar.ax.tick_params(labelsize=7)
        color = "crimson" if any(of_head[i] for of_head in errors) else "darkgreen"
        lines = "\n".join(_told(i, head, **one) for head, one in predictions.items())
        left.set_title(lines, color=color if errors else "black", fontsize=9)
        right.set_title("attention", fontsize=9)
    title = "Predictions, and attention to each patch in the last block"
    figure.suptitle(title, fontsize=9 if len(images) == 1 else 12)
    return finish(figure, path, dpi=120)


def prediction_errors(labels, scores, reading):
    """How wrong each prediction is, (n,): 0 or 1, the wrong classes, or a mean distance."""
    labels, scores = _without_column(labels, reading), np.asarray(scores)
    if reading == "values":
        return np.abs(scores - labels.reshape(scores.shape)).mean(axis=1)
    if labels.ndim == 2 and labels.shape[1] == scores.shape[1] and reading == "sigmoid":
        return ((scores >= 0.5) != (labels >= 0.5)).sum(axis=1)
    labels = labels.argmax(axis=-1) if labels.ndim == 2 else labels
    guesses = scores.argmax(axis=1) if scores.shape[1] > 1 else scores[:, 0] > 0.5
    return (guesses != labels).astype(int)


def _without_column(labels, reading):
    """A single column of class numbers (n, 1) as (n,); other labels as an array of their shape."""
    labels = np.asarray(labels)
    return labels[:, 0] if reading != "values" and labels.shape[1:] == (1,) else labels


def _told(index, head, labels, scores, reading, names=None, longest=18):
    """What a head predicts for the image of this index, and what is right, as short lines."""

    def name(number):
        text = plain(str(number) if names is None else names[number])
        return text if len(text) <= longest else f"{text[: longest - 1]}…"

    def joined(numbers):
        more = [f"{len(numbers) - 3} more"] if len(numbers) > 3 else []
        return textwrap.fill(", ".join([*map(name, numbers[:3]), *more]), 22) or "none"

    label, scores = _without_column(labels, reading)[index], np.asarray(scores)[index]
    if reading == "values":
        guess, truth = (", ".join(f"{x:.4g}" for x in np.ravel(v)[:3]) for v in (scores, label))
    elif label.ndim and reading == "sigmoid" and len(label) == len(scores):
        guess, truth = (joined(np.flatnonzero(v >= 0.5)) for v in (scores, label))
    else:
        scores = np.append(1 - scores, scores) if len(scores) == 1 else scores
        if names is not None and len(names) == 1:  # of a single sigmoid
            names = (f"not {names[0]}", names[0])
        guess = f"{name(scores.argmax())} ({scores.max():.0%})"
        truth = name(int(label.argmax()) if label.ndim else int(label))
    before = "" if head is None else f"{plain(head)}: "
    return f"{before}{guess}\ntruth: {truth}"
