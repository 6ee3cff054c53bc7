"""Figures of a model as a whole: the three parts of Fig. 7, CKA and token norms.

Blocks, heads, rows and columns count from 0, as in the arguments and in `block_0`. Functions return
the matplotlib figure, and write it to `path` if that is given.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from keras_vit.inspection.components import FilterComponents
from keras_vit.inspection.figures import FilePath, color_bar, finish, new_figure, places
from keras_vit.inspection.forward import shape_error
from keras_vit.inspection.similarity import TokenNorms


def plot_distances(
    distances: ArrayLike, path: FilePath = None, title: str = "Mean attention distance"
) -> Any:
    """Draws the distance of each head against the depth of its block (Fig. 7 right, Fig. 11).

    `distances` in pixels are (blocks, heads), or (blocks, images, heads) from
    `attention_distances`, of which the mean over the images is drawn; another shape is a
    ValueError. `path` is as in `plot_maps`.
    """
    distances = np.asarray(distances, "float64")
    if distances.ndim not in (2, 3):
        raise shape_error("distances", "(blocks, heads) or (blocks, images, heads)", distances)
    if distances.ndim == 3:
        images = distances.shape[1]
        title += f" ({images} images)" if images > 1 else " (1 image)"
        distances = distances.mean(axis=1)
    heads = distances.shape[1]
    figure = new_figure((5.4, 4.0))
    axes = figure.add_subplot()
    axes.plot(distances.mean(axis=1), color="0.75", zorder=1, label="mean of the heads")
    # Sorted, so that a colour means a rank: the heads of different blocks are unrelated.
    depth, ranks = np.indices(distances.shape)
    drawn = axes.scatter(
        depth, np.sort(distances, axis=1), c=ranks + 1, cmap="viridis", vmin=1,
        vmax=max(heads, 2), s=26, edgecolor="white", linewidth=0.4, zorder=2,
    )  # fmt: skip
    axes.set(xlabel="block (network depth)", ylabel="mean attention distance (pixels)", title=title)
    axes.locator_params(axis="x", integer=True, nbins=16)
    axes.set_ylim(0, None)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    if heads > 1:
        bar = color_bar(figure, drawn, axes, "head, by rank within its block")
        bar.set_ticks(np.unique(np.linspace(1, heads, min(heads, 6)).round()))
    return finish(figure, path)


def plot_position_similarity(
    similarity: ArrayLike, path: FilePath = None, title: str = "Position embedding similarity"
) -> Any:
    """Draws a grid of maps, one for each patch (Fig. 7 centre, Fig. 10).

    `similarity` is what `position_similarity` returns, (rows, columns, rows, columns); another
    shape is a ValueError. `path` is as in `plot_maps`.
    """
    similarity = np.asarray(similarity, "float64")
    if similarity.ndim != 4 or similarity.shape[:2] != similarity.shape[2:]:
        raise shape_error("similarity", "(rows, columns, rows, columns)", similarity)
    rows, columns = similarity.shape[:2]
    # One image for all: hundreds of axes would take a minute.
    gap = max(1, round(max(rows, columns) * 0.08))
    tiles = np.pad(similarity, ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    canvas = tiles.swapaxes(1, 2).reshape(rows * (rows + gap), -1)[:-gap, :-gap]
    height = 4.7 * canvas.shape[0] / canvas.shape[1] + 0.8
    figure = new_figure((6.2, min(max(height, 2.2), 9)))
    axes = figure.add_subplot(xlabel="input patch column", ylabel="input patch row", title=title)
    drawn = axes.imshow(canvas, cmap="viridis", vmin=-1, vmax=1, interpolation="nearest")
    for axis, count in ((axes.xaxis, columns), (axes.yaxis, rows)):
        shown = np.arange(0, count, -(-count // 14))
        axis.set_ticks(shown * (count + gap) + (count - 1) / 2, shown)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    color_bar(figure, drawn, axes, "cosine similarity")
    return finish(figure, path)


def plot_filters(
    components: FilterComponents,
    path: FilePath = None,
    title: str = "Principal components of the patch filters",
) -> Any:
    """Draws `FilterComponents` side by side, grey for 0, each on its own scale (Fig. 7 left).

    Above each stands its share of the variance. Unless channels are three, the first is drawn.
    `components` are from `filter_components`, and `path` is as in `plot_maps`.
    """
    filters, shares = np.asarray(components.components, "float64"), components.explained
    count, height, width, channels = filters.shape
    columns = min(7, count)
    rows = -(-count // columns)
    figure = new_figure((columns + 3.0, (height / width + 0.22) * rows + 0.5))
    left, right = figure.subfigures(1, 2, width_ratios=(columns, 3.0))
    for i, (axes, filter_) in enumerate(zip(places(left, rows, columns).ravel(), filters)):
        # Grey is 0, and one scale for the three channels keeps the colours.
        filter_ = filter_ / (np.percentile(np.abs(filter_), 99.5) or 1.0)
        picture = filter_ if channels == 3 else filter_[..., 0]
        axes.imshow((0.5 + 0.5 * picture).clip(0, 1), cmap="gray", vmin=0, vmax=1)
        axes.set_title(f"{i}: {shares[i]:.1%}", fontsize=7, pad=2)
    axes = right.add_subplot()
    axes.plot(np.arange(1, count + 1), 100 * np.cumsum(shares), ".-", markersize=4)
    axes.set_xlabel("number of components", fontsize=8)
    axes.set_ylabel("variance of the filters explained (%)", fontsize=8)
    axes.set_ylim(0, None)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25)
    left.suptitle(title, fontsize=10)
    return finish(figure, path)


def plot_layer_similarity(
    similarity: ArrayLike,
    path: FilePath = None,
    names: Sequence[str] | None = None,
    other_names: Sequence[str] | None = None,
) -> Any:
    """Draws linear CKA between layers, the first in the lower left corner.

    Args:
        similarity: (layers, other layers) from `layer_similarity`.
        path: as in `plot_maps`.
        names, other_names: of the layers, by default numbers; of the others, by default `names`.

    Raises:
        ValueError: an array of another shape, or other than a name for each layer.
    """
    similarity = np.asarray(similarity, "float64")
    if similarity.ndim != 2:
        raise shape_error("similarity", "(layers, layers)", similarity)
    figure, title = new_figure((5.4, 4.6)), "Similarity of representations"
    axes = figure.add_subplot(xlabel="layer", ylabel="layer", title=title)
    drawn = axes.imshow(similarity, origin="lower", cmap="magma", vmin=0, vmax=1, aspect="auto")
    columns = other_names or (names if len(similarity) == similarity.shape[1] else None)
    for axis, count, given in zip((axes.yaxis, axes.xaxis), similarity.shape, (names, columns)):
        given = list(given or range(count))
        if len(given) != count:
            raise ValueError(
                f"There must be a name for each of the {count} layers. Received: {given}."
            )
        step = -(-count // 20)
        axis.set_ticks(range(0, count, step), given[::step])
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="x", rotation=90 if names or other_names else 0)
    color_bar(figure, drawn, axes, "linear CKA")
    return finish(figure, path)


def plot_token_norms(
    norms: TokenNorms, path: FilePath = None, image: int = 0, block: int = -1
) -> Any:
    """Draws the `TokenNorms` of each block, and the map of one `image` and `block`.

    `norms` are from `token_norms`, and `path` is as in `plot_maps`.
    """
    blocks = len(norms.patches)
    figure = new_figure((9.4, 3.8))
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    flat, depth = norms.patches.reshape(blocks, -1), np.arange(blocks)
    low, quarter, median, three, high = np.percentile(flat, (0, 25, 50, 75, 100), axis=1)
    area = {"color": "C0", "linewidth": 0}
    left.fill_between(depth, low, high, alpha=0.15, label="patches: all", **area)
    left.fill_between(depth, quarter, three, alpha=0.4, label="middle half", **area)
    left.plot(median, color="C0", marker=".", label="median")
    for i, mean in enumerate(norms.learned.mean(axis=1).T):
        label = f"token {i}, learned" if i < 5 else None
        left.plot(mean, "--", color=f"C{i % 9 + 1}", label=label)
    left.set(xlabel="block (network depth)", ylabel="length of a token (L2 norm)", yscale="log")
    left.locator_params(axis="x", integer=True, nbins=16)
    left.grid(alpha=0.25, which="both")
    left.legend(frameon=False, fontsize=8)
    left.set_title("Token lengths after each block")
    drawn = right.imshow(norms.patches[block, image], cmap="cividis")
    right.set(xlabel="patch column", ylabel="patch row")
    right.set_title(f"image {image}, block {range(blocks)[block]}")
    color_bar(figure, drawn, right, "length of a token (L2 norm)")
    return finish(figure, path)
