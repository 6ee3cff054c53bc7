"""How time and memory of a training step grow with image size, batch, depth and width.

    python benchmarks/growth.py [--backend jax] [--pin 0] [--output docs/images/growth.png]

One quantity at a time is varied around Ti/16 (12 blocks of width 192, 224 px, one image), in one
process for each point, with Keras's AdamW in float32. Besides: `remat=True`, and batches whose
gradients are accumulated over updates of one image. An exponent is the slope between the two
largest values in logarithms. That of time stands beside the slope of the operations, that of memory
beside the slope of a count: four numbers for each weight (itself, its gradient, two averages), and
for each token of each block the 14 widths that a backward pass needs (both normalised inputs,
query, key, value, what attention returns, and the MLP's four widths twice), with the scores besides
where a backend keeps them. What a process holds before it has a model is subtracted.
"""

import dataclasses
import itertools
import json
import math
import statistics
import sys

import tables
from compare import add_turns, clock, take_turns
from peers import BACKENDS, OURS, Settings, get_architecture

AXES = {
    "image size": (224, 320, 448, 640),
    "batch": (1, 2, 4, 8, 16),
    "depth": (3, 6, 12, 24),
    "width": (192, 384, 768, 1152),
}
FORMS = ("kept", "remat", "accumulated")
KEEPS_SCORES = {"jax": 362, "tensorflow": math.inf, "torch": 0}  # up to so many tokens


def settings(backend, axis, value, form):
    """The `Settings` of a point."""
    sizes = {"image size": 224, "batch": 1, "depth": 12, "width": 192, axis: value}
    width, batch = sizes["width"], sizes["batch"]
    a = get_architecture("Ti16", sizes["image size"], sizes["depth"])
    a = dataclasses.replace(a, width=width, num_heads=width // 64, mlp_dim=4 * width)
    s = Settings(OURS, backend, a, "train", batch, remat=str(form == "remat").lower())
    return s.replace(parts=str(batch)) if form == "accumulated" else s


def counted(s):
    """Bytes by the count of this file's first lines."""
    a = s.architecture
    scores = 2 * a.num_heads * a.tokens if a.tokens <= KEEPS_SCORES[s.backend] else 0
    block = a.tokens * (14 * a.width + scores)
    blocks = (a.depth * a.tokens * a.width + block) if s.remat == "true" else a.depth * block
    return 4 * (4 * a.parameters + s.batch // int(s.parts) * blocks)


def measure(s, args):
    """Seconds of a step, and bytes of the process beyond those that it had before its model."""
    workers, failed = take_turns([s], args)
    if failed:
        sys.exit(f"{failed}")
    (worker,) = workers
    seconds = statistics.median(ms for turn in worker.turns for ms in turn[clock(args)]) / 1e3
    start = worker.report["memory_before"]
    return seconds, (max(turn["memory"] for turn in worker.turns) - start) if start else None


def exponent(points, column):
    """The slope between the two largest values."""
    (x0, y0), (x1, y1) = ((p["value"], p[column]) for p in points[-2:])
    return math.log(y1 / y0) / math.log(x1 / x0)


def table(points):
    """Markdown: the exponents of each backend, axis and form."""
    columns = ("backend", "by", "form", "time", "operations", "memory", "counted")
    rows = []
    for key in dict.fromkeys((p["backend"], p["axis"], p["form"]) for p in points):
        curve = [p for p in points if (p["backend"], p["axis"], p["form"]) == key]
        names = ("seconds", "operations", "bytes", "counted")
        rows.append((*key, *(f"{exponent(curve, name):.2f}" for name in names)))
    return tables.table(columns, rows)


def figure(points, path):
    from matplotlib import figure as figures
    from matplotlib import ticker

    colours = dict(zip(BACKENDS, ("tab:red", "tab:orange", "tab:blue")))
    styles = dict(zip(FORMS, ("-", "--", ":")))
    measured = ("seconds", "seconds of a step", 1), ("bytes", "MiB for model and step", 2**20)
    drawn = figures.Figure(figsize=(14, 6.5), layout="constrained")
    for column, axis in enumerate(AXES):
        for row, (name, label, unit) in enumerate(measured):
            ax = drawn.add_subplot(2, 4, 1 + column + 4 * row)
            for key in dict.fromkeys((p["backend"], p["form"]) for p in points):
                mine = [p for p in points if p["axis"] == axis and (p["backend"], p["form"]) == key]
                style = {"color": colours[key[0]], "linestyle": styles[key[1]], "marker": "o"}
                x, y = [p["value"] for p in mine], [p[name] / unit for p in mine]
                ax.plot(x, y, **style, markersize=3, label=", ".join(key))
            ax.set(xscale="log", yscale="log", xlabel=axis, ylabel=label if column == 0 else None)
            ax.set_xticks(AXES[axis], AXES[axis])
            ax.xaxis.set_minor_locator(ticker.NullLocator())
            if (column, row) == (1, 0):
                ax.legend(fontsize="x-small")
    drawn.savefig(path, dpi=100)


def main():
    parser = tables.parser(__doc__)
    add = parser.add_argument
    add("--backend", nargs="+", default=BACKENDS, choices=BACKENDS)
    add_turns(parser, turns=2)
    add("--output", default="docs/images/growth.png", help="the figure")
    args = parser.parse_args()
    points = []
    for backend, axis, form in itertools.product(args.backend, AXES, FORMS):
        for value in AXES[axis] if axis == "batch" or form != "accumulated" else ():
            s = settings(backend, axis, value, form)
            seconds, size = measure(s, args)
            point = {"backend": backend, "axis": axis, "form": form, "value": value}
            point |= {"operations": s.operations, "counted": counted(s)}
            points.append({**point, "seconds": seconds, "bytes": size})
            print(json.dumps(points[-1]), file=sys.stderr, flush=True)
    print(table(points))
    print("\n" + tables.machine_line())
    figure(points, args.output)


if __name__ == "__main__":
    main()
