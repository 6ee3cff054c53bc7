"""A picture of a run: each metric against the epoch."""

import os
import pathlib


def plot_curves(rows, path):
    """Draws every metric, with its validation, and the learning rate and the gradient norm.

    Args:
        rows: dicts with `epoch`, counted from 0, and the values of that epoch.
        path: the picture to write; its ending decides the format.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "The curves need matplotlib: pip install keras3-vit[plot], or pass curves=False."
        ) from error
    names = _panels(rows)
    figure = Figure(figsize=(4.5 * min(len(names), 3), 3.4 * -(-len(names) // 3)), layout="tight")
    for i, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 3), min(len(names), 3), i + 1)
        for column, label in ((name, "training"), (f"val_{name}", "validation")):
            points = [(row["epoch"] + 1, row[column]) for row in rows if column in row]
            if points:
                axes.plot(*zip(*points), marker=".", label=f"{label}, last {points[-1][1]:.3g}")
        axes.set(title=name.replace("_", " "), xlabel="epoch")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    path = pathlib.Path(path)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    figure.savefig(partial, dpi=110)
    os.replace(partial, path)


_NOT_DRAWN = ("epoch", "step", "images_per_second", "updates_per_second", "peak_memory", "seconds")


def _panels(rows):
    names = dict.fromkeys(name.removeprefix("val_") for row in rows for name in row)
    names = [name for name in names if name not in _NOT_DRAWN]
    last = [name for name in ("learning_rate", "gradient_norm") if name in names]
    return [name for name in names if name not in last] + last
