"""Figures of images: maps laid over them, where single tokens look, and predictions.

Functions return the matplotlib figure, and write it to `path` if that is given.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.checks import check_choice
from keras_vit.inspection import figures
from keras_vit.inspection.attention import upsample
from keras_vit.inspection.components import PatchComponents, component_colors
from keras_vit.inspection.figures import FilePath, as_picture, finish, places, show
from keras_vit.inspection.forward import Layout, shape_error


def plot_maps(
    images: ArrayLike,
    maps: ArrayLike,
    path: FilePath = None,
    titles: Sequence[str] | None = None,
    unit: str = "value of the patch",
    style: str = "overlay",
) -> Any:
    """Draws each image, and its maps laid over it: attention, rollout (Fig. 6), relevance.

    Args:
        images: (n, height, width, channels), uint8, or floats, which are stretched to be visible;
            of files, what `keras_vit.preprocess` makes of them, to which the maps belong.
        maps: (n, rows, columns) for one map of each image, or (n, k, rows, columns) for several,
            drawn on one scale for each image.
        path: the picture to write, whose ending decides the format; `None` for none.
        titles: k names of the maps.
        unit: what the maps hold, such as `"attention"` or `"relevance"`, for the colour bar.
        style: `"overlay"` in colours; `"spotlight"`: the image itself, dark where the map is low,
            as in the paper's Fig. 6, with the highest 3 % of the values equally bright.

    Raises:
        ValueError: other numbers of images, maps or titles.
    """
    check_choice("style", style, ("overlay", "spotlight"))
    images, maps = list(images), np.asarray(maps, "float64")
    if not images or any(np.ndim(image) != 3 for image in images):
        raise ValueError(
            "images must be arrays (height, width, channels), as keras_vit.preprocess(files, "
            f"model) makes them of files. Received: {type(images[0]).__name__ if images else []}."
        )
    maps = maps[:, None] if maps.ndim == 3 else maps
    if maps.ndim != 4 or len(maps) != len(images):
        expected = "(n, rows, columns) or (n, k, rows, columns)"
        raise shape_error(f"maps of n={len(images)} images", expected, maps)
    titles = [textwrap.fill(title, 24) for title in titles or [""] * maps.shape[1]]
    if len(titles) != maps.shape[1]:
        raise ValueError(
            f"There must be a title for each of the {maps.shape[1]} maps of an image. Received: "
            f"{len(titles)} titles."
        )
    count = 1 + maps.shape[1]
    columns = count if count <= 5 else min(5, int(np.ceil(np.sqrt(1.6 * count))))
    rows, lines = -(-count // columns), 1 + max(title.count("\n") for title in titles)
    shapes = [np.clip(image.shape[0] / image.shape[1], 0.3, 3) for image in images]
    heights = [(1.9 * shape + 0.16 * lines + 0.1) * rows for shape in shapes]
    figure = figures.new_figure((2.1 * columns + 0.9, sum(heights)))
    # One grid for all images, or a longer number at a colour bar would shift the columns of one.
    grids = places(figure, rows * len(images), columns, height_ratios=np.repeat(heights, rows))
    grids = grids.reshape(len(images), rows, columns)
    for grid, picture, of_image in zip(grids, map(as_picture, images), maps):
        first, *others = grid.ravel()
        show(first, picture, picture)
        first.set_title("image", fontsize=9)
        # The value that is drawn brightest: in rollout few patches stand far above all others.
        largest = of_image.max() if style == "overlay" else np.percentile(of_image, 97)
        for axes, values, title in zip(others, of_image, titles):
            drawn = _lay_over(axes, picture, values, float(largest) or 1.0, style)
            axes.set_title(title, fontsize=9)
        options = {"extend": "max"} if style == "spotlight" else {}
        last = grid[:, -1].tolist()
        figures.color_bar(figure, drawn, last, unit, panchor=False, aspect=20 * rows, **options)
    return finish(figure, path)


def _lay_over(axes, picture, values, largest, style):
    """Lays one map over a picture, and returns what a colour bar can be made of."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    fine = upsample(values, picture.shape[:2])
    share = (fine / largest).clip(0, 1)
    if style == "spotlight":
        light = 0.06 + 0.94 * share
        show(axes, picture * (light if picture.ndim == 2 else light[..., None]), picture)
        return ScalarMappable(Normalize(0, largest), "gray")
    show(axes, picture if picture.ndim == 2 else picture @ [0.299, 0.587, 0.114], picture)
    # Little attention lets the image through, much covers it.
    alpha = 0.25 + 0.6 * np.sqrt(share)
    return show(axes, fine, picture, cmap="inferno", alpha=alpha, vmax=largest)


def plot_queries(
    image: ArrayLike,
    matrix: ArrayLike,
    layout: Layout,
    queries: Sequence[Any],
    path: FilePath = None,
    unit: str = "attention",
) -> Any:
    """Draws where chosen tokens look: the map of each, with a frame around the patch that asks.

    Args:
        image: (height, width, channels).
        matrix: (tokens, tokens): one head, a mean of heads, or a rollout.
        layout: `keras_vit.inspection.layout_of(model)`.
        queries: list of what `attention_maps` takes as `query`.
        path, unit: as in `plot_maps`.

    Raises:
        ValueError: a matrix of another size, or tokens that do not exist.
    """
    usual = "class" if layout.class_token else "mean"
    queries = [usual if query is None else query for query in queries]
    maps = np.stack([layout.query_rows(matrix, query) for query in queries])
    names = [f"row {q[0]}, column {q[1]}" if isinstance(q, tuple) else str(q) for q in queries]
    figure = plot_maps([image], maps[None], None, names, unit)
    from matplotlib.patches import Rectangle

    panels = [axes for axes in figure.axes if axes.get_images()][1:]
    for axes, query in zip(panels, queries):
        token = layout.token(query) - layout.learned if query != "mean" else -1
        if token >= 0:
            row, column = divmod(token, layout.grid[1])
            height, width = (side / n for side, n in zip(image.shape[:2], layout.grid))
            place = column * width, row * height
            axes.add_patch(Rectangle(place, width, height, fill=False, color="cyan", linewidth=1.6))
    return finish(figure, path)


def plot_components(images: ArrayLike, components: PatchComponents, path: FilePath = None) -> Any:
    """Draws each image beside its patches, coloured by their first three components.

    These are red, green and blue, each from the lowest to the highest hundredth of its values in
    all images; the background is black. `components` are the `PatchComponents` of these images,
    three or more, else a ValueError; `images` and `path` are as in `plot_maps`.
    """
    values = np.asarray(components.values)
    if len(images) != len(values) or values.shape[-1] < 3:
        raise shape_error("components", f"({len(images)}, rows, columns, 3 or more)", values)
    figure, pairs = figures.pairs_of_places(len(images), width=4.2, height=2.2, title=0.3)
    colors = component_colors(components)
    for (left, right), picture, color in zip(pairs, map(as_picture, images), colors):
        show(left, picture, picture)
        show(right, color, picture, interpolation="nearest")
    shares = ", ".join(f"{share:.0%}" for share in components.explained[:3])
    figure.suptitle(f"Principal components of the patches: {shares} of the variance", fontsize=10)
    return finish(figure, path)


def plot_reconstructions(
    images: ArrayLike, reconstructions: ArrayLike, hidden: ArrayLike, path: FilePath = None
) -> Any:
    """Draws each image, what a masked autoencoder saw of it, and what it made of the rest.

    Args:
        images: (n, height, width, channels) of numbers, as the model takes them.
        reconstructions, hidden: what `MaskedAutoencoder.reconstruct` returns for these images: the
            predicted images, and (n, height, width), true where a pixel was hidden. Arrays of other
            shapes are a ValueError.
        path: as in `plot_maps`.
    """
    images, made = (np.asarray(x, "float32") for x in (images, reconstructions))
    if not images.size or images.ndim != 4 or made.shape != images.shape:
        raise shape_error("reconstructions", f"{images.shape}, as the images", made)
    if np.shape(hidden) != images.shape[:3]:
        raise shape_error("hidden", f"{images.shape[:3]}, as the images", np.asarray(hidden))
    low, high = images.min(), max(images.max(), images.min() + 1e-6)
    images, made = ((x.clip(low, high) - low) / (high - low) for x in (images, made))
    hidden = np.asarray(hidden)[..., None]
    figure = figures.new_figure((3.3, 1.15 * len(images) + 0.3))
    titles = "image", "visible", "filled in"
    columns = images, np.where(hidden, 0.5, images), np.where(hidden, made, images)
    for column, title, pictures in zip(places(figure, len(images), 3).T, titles, columns):
        for axes, picture in zip(column, map(as_picture, pictures)):
            show(axes, picture, picture)
        column[0].set_title(title, fontsize=9)
    return finish(figure, path)
