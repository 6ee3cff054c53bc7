"""What all figures share: a canvas without a screen, a file, colour bars, pictures."""

import functools
import io

import numpy as np


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
