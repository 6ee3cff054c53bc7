"""What all figures share: an empty one, a colour bar, and writing it."""

import functools
import io

from keras_vit.text import visible
from keras_vit.writing import save_figure


def new_figure(size):
    """An empty figure of (width, height) inches that needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'Figures are drawn with matplotlib: pip install "keras3-vit[plot]"'
        ) from error
    figure = Figure(figsize=size, layout="constrained")
    # Notebooks show figures by themselves only once matplotlib.pyplot has made one.
    figure._repr_png_ = functools.partial(_as_png, figure)
    return figure


def pairs_of_axes(count, width, height, title):
    """(figure, axes of shape (count or more, 2)): up to four pairs in a row, without axes drawn.

    `width` and `height` of a pair, and the height of the figure's title, are in inches.
    """
    in_a_row = min(4, count)
    rows = -(-count // in_a_row)
    figure = new_figure((width * in_a_row, height * rows + title))
    axes = figure.subplots(rows, 2 * in_a_row, squeeze=False)
    for each in axes.ravel():
        each.set_axis_off()
    return figure, axes.reshape(-1, 2)


def _as_png(figure):
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=figure.dpi, bbox_inches="tight")
        return file.getvalue()


def finish(figure, path, **options):
    """Writes a figure by `savefig` and its options, unless `path` is `None`, and returns it."""
    if path is not None:
        options = options or {"dpi": 160, "bbox_inches": "tight", "pad_inches": 0.06}
        save_figure(figure, path, **options)
    return figure


def plain(text):
    """Text that matplotlib draws as it is: a dollar begins no formula."""
    return visible(text).replace("$", r"\$")


def color_bar(figure, drawn, axes, label, extend="neither", **options):
    """A colour bar beside one or more axes, with what is drawn and its unit."""
    bar = figure.colorbar(drawn, ax=axes, fraction=0.046, pad=0.03, extend=extend, **options)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return bar
