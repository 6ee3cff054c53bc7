"""Figures, drawn without a screen and written to a file."""

import functools
import io

import numpy as np


def plot_history(history, path):
    """Draws loss and accuracy against the epoch, for training and validation.

    Args:
        history: dict from column to values per epoch, with the columns `epoch`, `loss`,
            `val_loss`, `accuracy` and `val_accuracy`; epochs count from 0, as in Keras.
        path: the picture to write; its ending decides the format.
    """
    figure = new_figure((9, 3.6))
    epochs = np.asarray(history["epoch"], "float64") + 1
    for i, (metric, unit) in enumerate((("loss", "cross-entropy, nats"), ("accuracy", "%"))):
        axes = figure.add_subplot(1, 2, i + 1)
        scale = 100 if metric == "accuracy" else 1
        for column, label in ((metric, "training"), (f"val_{metric}", "test")):
            values = scale * np.asarray(history[column], "float64")
            axes.plot(epochs, values, label=f"{label}, last {values[-1]:.3g}", marker=".")
        axes.set(xlabel="epoch", ylabel=f"{metric} ({unit})", title=metric.capitalize())
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def plot_predictions(images, maps, labels, probabilities, class_names, path):
    """Draws each image beside its attention map, under what the model says it is.

    Args:
        images: (n, height, width, channels), uint8 or floats in [0, 1]; 1 or 3 channels are
            drawn as they are, of any other number the first.
        maps: (n, rows, columns), what `attention_maps` returns.
        labels: (n,) true classes.
        probabilities: (n, classes) of the model.
        class_names: names of the classes.
        path: the picture to write; its ending decides the format.
    """
    pairs_in_a_row = min(4, len(images))
    rows = -(-len(images) // pairs_in_a_row)
    figure = new_figure((4.2 * pairs_in_a_row, 2.3 * rows + 0.6))
    grid = figure.subplots(rows, 2 * pairs_in_a_row, squeeze=False).reshape(-1, 2)
    for axes in grid.ravel():
        axes.set_axis_off()
    for (left, right), image, attention, label, p in zip(grid, images, maps, labels, probabilities):
        guess, extent = int(np.argmax(p)), (-0.5, image.shape[1] - 0.5, image.shape[0] - 0.5, -0.5)
        picture = image if image.shape[-1] == 3 else image[..., 0]
        for axes in (left, right):
            axes.imshow(picture, cmap="gray", extent=extent)
        drawn = right.imshow(attention, cmap="inferno", alpha=0.7, extent=extent, vmin=0)
        figure.colorbar(drawn, ax=right, fraction=0.046, pad=0.04).ax.tick_params(labelsize=7)
        right_or_wrong = "darkgreen" if guess == label else "crimson"
        left.set_title(
            f"{class_names[guess]} ({p[guess]:.0%})\ntruth: {class_names[label]}",
            color=right_or_wrong,
            fontsize=9,
        )
        right.set_title("attention", fontsize=9)
    figure.suptitle("Predictions, and attention to each patch in the last block")
    figure.savefig(path, dpi=120)


def new_figure(size):
    """An empty figure of (width, height) inches that needs no screen.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Figures are drawn with matplotlib: pip install "keras3-vit[plot]"'
        ) from error
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    # Notebooks show figures by themselves only once matplotlib.pyplot has made one.
    figure._repr_png_ = functools.partial(_as_png, figure)
    return figure


def _as_png(figure):
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=figure.dpi, bbox_inches="tight")
        return file.getvalue()


def finish(figure, path):
    """Writes a figure, if there is somewhere to, and returns it."""
    if path is not None:
        figure.savefig(path, dpi=160, bbox_inches="tight", pad_inches=0.06)
    return figure


def color_bar(figure, drawn, axes, label, extend="neither"):
    """A colour bar beside one or more axes, that says what is drawn in which unit."""
    bar = figure.colorbar(drawn, ax=axes, fraction=0.046, pad=0.03, extend=extend)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return bar


def as_picture(image):
    """An image with values in [0, 1] of three channels, or of one without the axis for it.

    Args:
        image: (height, width, channels); uint8, or floats, which are drawn from their smallest
            value to their largest where these leave [0, 1], as those of preprocessed images do.
    """
    image = np.asarray(image)
    if image.dtype == np.uint8:
        image = image / 255.0
    image = image.astype("float32")
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        image = (image - low) / (high - low)
    return (
        image
        if image.ndim == 3 and image.shape[-1] == 3
        else image.reshape(*image.shape[:2], -1)[..., 0]
    )


def extent_of(image):
    """Where matplotlib puts an image so that its axes count pixels."""
    return (0, image.shape[1], image.shape[0], 0)
