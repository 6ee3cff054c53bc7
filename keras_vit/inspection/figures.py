"""What all figures share: places for pictures, a colour bar, and writing the file."""

import functools
import io
import os

import numpy as np

from keras_vit.checks import needs_extra
from keras_vit.text import visible
from keras_vit.writing import save_figure

FilePath = str | os.PathLike[str] | None  # where a figure is written; `None` for nowhere


def new_figure(size):
    """An empty figure of (width, height) inches that needs no screen."""
    with needs_extra("plot", "Figures are drawn with matplotlib"):
        from matplotlib.figure import Figure
    figure = Figure(figsize=size, layout="constrained")
    # Notebooks show figures by themselves only once matplotlib.pyplot has made one.
    figure._repr_png_ = functools.partial(_as_png, figure)
    return figure


def _as_png(figure):
    figure.savefig(file := io.BytesIO(), format="png", dpi=figure.dpi, bbox_inches="tight")
    return file.getvalue()


def places(figure, rows, columns, **options):
    """Axes for pictures, (rows, columns), of which nothing is drawn but the picture."""
    bare = {"frame_on": False, "xticks": (), "yticks": ()}
    return figure.subplots(rows, columns, squeeze=False, subplot_kw=bare, **options)


def pairs_of_places(count, width, height, title):
    """(figure, axes (count or more, 2)): up to four pairs of pictures in a row; sizes in inches."""
    columns = min(4, count)
    rows = -(-count // columns)
    figure = new_figure((width * columns, height * rows + title))
    return figure, places(figure, rows, 2 * columns).reshape(-1, 2)


def as_picture(image):
    """An image in [0, 1], (height, width, 3), or (height, width) of its first channel.

    Floats beyond [0, 1], as those of preprocessed images, are stretched to it.
    """
    image = np.asarray(image)
    image = (image / 255.0 if image.dtype == np.uint8 else image).astype("float32")
    low, high = float(image.min()), float(image.max())
    if low < 0 or high > 1:
        image = (image - low) / ((high - low) or 1.0)
    return image if image.shape[-1] == 3 else image[..., 0]


def show(axes, values, picture, **options):
    """Draws values over a picture by `imshow`, in its pixels; by default in grey from 0 to 1."""
    height, width = picture.shape[:2]
    options = {"cmap": "gray", "vmin": 0, "vmax": 1, "extent": (0, width, height, 0), **options}
    return axes.imshow(values, **options)


def plain(text):
    """Text that matplotlib draws as it is: a dollar begins no formula."""
    return visible(text).replace("$", r"\$")


def color_bar(figure, drawn, axes, label, **options):
    """A colour bar beside one or more axes, with what is drawn and its unit."""
    bar = figure.colorbar(drawn, ax=axes, fraction=0.046, pad=0.03, **options)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return bar


def finish(figure, path, **options):
    """Writes a figure by `savefig` and its options, unless `path` is `None`, and returns it."""
    if path is not None:
        options = options or {"dpi": 160, "bbox_inches": "tight", "pad_inches": 0.06}
        save_figure(figure, path, **options)
    return figure
