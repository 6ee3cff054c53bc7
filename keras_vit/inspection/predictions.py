"""The figure of predictions: what a model says of images, what is right, and where it looks."""

import importlib.util
import itertools
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.data.pixels import per_channel
from keras_vit.inspection.attention import attention_maps
from keras_vit.inspection.figures import finish, pairs_of_axes, plain
from keras_vit.inspection.plot_images import as_picture, extent_of
from keras_vit.models import VisionTransformer
from keras_vit.outputs import reading_of


def draw_predictions(model, test, path, count=12):
    """Draws test images and their attention maps, mistakes first, which teach most.

    A model without attention and a machine without matplotlib draw nothing.
    """
    if not isinstance(model, VisionTransformer) or not importlib.util.find_spec("matplotlib"):
        return
    batches = list(itertools.islice(test, 8))
    images, labels = (np.concatenate([np.asarray(b[i]) for b in batches]) for i in (0, 1))
    outputs = model.predict(images, batch_size=len(batches[0][1]), verbose=0)
    reading = reading_of(model).decided(outputs)
    scores = reading.scores(outputs)
    mean, std = per_channel(test.preprocessing, images.shape[-1])
    mistakes = -prediction_errors(labels, scores, reading.name)
    chosen = np.argsort(mistakes, kind="stable")[:count]
    plot_predictions(
        (images[chosen] * std + mean).clip(0, 1),
        attention_maps(model, images[chosen]),
        labels[chosen],
        scores[chosen],
        test.class_names,
        path,
        reading.name,
    )


def plot_predictions(
    images: ArrayLike,
    maps: ArrayLike,
    labels: ArrayLike,
    probabilities: ArrayLike,
    class_names: Sequence[str] | None,
    path: str | os.PathLike[str] | None,
    reading: str = "softmax",
) -> Any:
    """Draws each image beside its attention map, under what was predicted and what is right.

    The colours of a map go from its own lowest value to its own highest.

    Args:
        images, path: as in `plot_maps`.
        maps: (n, rows, columns), what `attention_maps` returns.
        labels: (n,) true classes; of several classes at once (n, classes) of 0 and 1; or values,
            (n,) or (n, targets).
        probabilities: (n, classes) of the model; of a regression its values (n, targets).
        class_names: names of the classes or of the targets; `None` for numbers.
        reading: `"softmax"`, `"sigmoid"` or `"values"`: what the outputs are.
    """
    labels, probabilities = np.asarray(labels), np.asarray(probabilities)
    shape = np.median([np.shape(image)[0] / np.shape(image)[1] for image in images])
    height = 1.8 * min(max(shape, 0.5), 2) + 0.6
    figure, grid = pairs_of_axes(len(images), width=4.4, height=height, title=0.5)
    errors = prediction_errors(labels, probabilities, reading)
    for i, ((left, right), image, attention) in enumerate(zip(grid, images, maps)):
        picture = as_picture(image)
        extent = extent_of(picture)
        for axes in (left, right):
            axes.imshow(picture, cmap="gray", extent=extent, vmin=0, vmax=1)
        low, high = np.nanmin(attention), np.nanmax(attention)
        scale = {"vmin": low, "vmax": high if high > low else low + 1e-9}
        drawn = right.imshow(attention, cmap="inferno", alpha=0.7, extent=extent, **scale)
        bar = figure.colorbar(drawn, ax=right, fraction=0.046, pad=0.04)
        bar.set_ticks([low, high], labels=[f"{low:.3g}", f"{high:.3g}"])
        bar.ax.tick_params(labelsize=7)
        guess, truth = _told(labels[i], probabilities[i], class_names, reading)
        color = "black" if reading == "values" else "crimson" if errors[i] else "darkgreen"
        left.set_title(f"{guess}\n{truth}", color=color, fontsize=9)
        right.set_title("attention", fontsize=9)
    title = "Predictions, and attention to each patch in the last block"
    figure.suptitle(title, fontsize=9 if len(images) == 1 else 12)
    return finish(figure, path, dpi=120)


def prediction_errors(labels, scores, reading):
    """How wrong each prediction is, (n,): 0 or 1, the wrong classes, or a mean distance.

    The arguments are those of `plot_predictions`.
    """
    labels, scores = np.asarray(labels), np.asarray(scores)
    if reading == "values":
        return np.abs(scores - labels.reshape(scores.shape)).mean(axis=1)
    if labels.ndim == 2 and labels.shape[1] == scores.shape[1] and reading == "sigmoid":
        return ((scores >= 0.5) != (labels >= 0.5)).sum(axis=1)
    labels = labels.argmax(axis=-1) if labels.ndim == 2 else labels
    return (_guesses(scores) != labels).astype(int)


def _guesses(scores):
    """The predicted classes; a single score is the probability of class 1."""
    return (scores[:, 0] >= 0.5).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=-1)


def _told(label, scores, names, reading, longest=18):
    """What was predicted for an image, and what is right, as two short texts."""

    def name(index):
        text = plain(str(index) if names is None else names[index])
        return text if len(text) <= longest else f"{text[: longest - 1]}…"

    def joined(indices):
        more = [f"{len(indices) - 3} more"] if len(indices) > 3 else []
        return textwrap.fill(", ".join([*map(name, indices[:3]), *more]), 22) or "none"

    label = np.asarray(label)
    if reading == "values":
        shown = [", ".join(f"{x:.4g}" for x in np.ravel(v)[:3]) for v in (scores, label)]
        return shown[0], f"truth: {shown[1]}"
    if label.ndim and reading == "sigmoid" and len(label) == len(scores):
        guesses, right = np.flatnonzero(scores >= 0.5), np.flatnonzero(label >= 0.5)
        return joined(guesses), f"truth: {joined(right)}"
    label = int(label.argmax()) if label.ndim else int(label)
    guess = int(_guesses(scores[None])[0])
    share = scores[guess] if len(scores) > 1 else scores[0] if guess else 1 - scores[0]
    if names is not None and len(names) == 1:  # of a single sigmoid
        names = (f"not {names[0]}", names[0])
    return f"{name(guess)} ({share:.0%})", f"truth: {name(label)}"
