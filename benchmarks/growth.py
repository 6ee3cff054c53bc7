"""How time and memory of keras_vit grow with the image, the batch and the depth.

    python benchmarks/growth.py --model S16 --backend torch --tasks infer train
    python benchmarks/growth.py --backend jax --curves image depth --remat both --memory 12

Every point has a fresh process, so that its peak memory is its own. Along `image`, the image size
grows at --batch; along `batch` and `depth` the others stay as they are. A point that needs more
memory than --memory, or than there is, is marked as not fitting, and the larger points of its
curve are not tried. `remat` computes each block again in the backward pass.
"""

import argparse
import sys

import machine
import tables
from architecture import get_architecture
from compare import add_common, chosen_cores, clock_of, interpreters
from peers import OURS
from pool import WorkerError, run_once
from settings import BACKENDS, Settings

CURVES = {
    "image": (224, 384, 512, 640, 768, 896, 1024),
    "batch": (1, 2, 4, 8, 16, 32),
    "depth": (1, 2, 4, 6, 8, 12, 16, 20, 24),
}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", required=True, choices=BACKENDS)
    parser.add_argument("--tasks", nargs="+", default=["infer", "train"])
    parser.add_argument("--curves", nargs="+", default=list(CURVES), choices=list(CURVES))
    for curve, points in CURVES.items():
        parser.add_argument(f"--{curve}-points", type=int, nargs="+", default=points)
    parser.add_argument("--batch", type=int, default=1, help="along image and depth")
    parser.add_argument("--remat", default="both", choices=("true", "false", "both"))
    parser.add_argument("--jit", default="auto", choices=("auto", "true", "false"))
    parser.add_argument("--name", default=OURS, help="another implementation than keras_vit")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--memory", type=float, help="GiB for a process; default: 85%% of the free")
    add_common(parser)
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    try:
        get_architecture(args.model, args.image_size, args.depth)
        args.cores, args.clock = chosen_cores(args), args.clock or clock_of(args)
        args.settings = [
            (c, list(series(args, c, *kind))) for c in args.curves for kind in kinds(args)
        ]
    except ValueError as error:
        parser.error(str(error))
    return args


def kinds(args):
    """(task, remat) of every curve; there is no backward pass to save memory for in inference."""
    remats = {"both": ("false", "true")}.get(args.remat, (args.remat,))
    return [(t, r) for t in args.tasks for r in (remats if t == "train" else ("false",))]


def series(args, curve, task, remat):
    """The `Settings` of the points of a curve."""
    for point in getattr(args, f"{curve}_points"):
        size = point if curve == "image" else args.image_size
        depth = point if curve == "depth" else args.depth
        yield Settings(
            args.name,
            args.backend,
            get_architecture(args.model, size, depth),
            task,
            point if curve == "batch" else args.batch,
            args.dtype,
            args.jit,
            remat=remat,
            warmup=args.warmup,
        )


def measure(settings, args):
    """A point: its figures, or why there are none."""
    limit = args.memory * 2**30 if args.memory else 0.85 * (machine.available_memory() or 0)
    options = {"python": interpreters(args.python)(settings.name), "cores": args.cores}
    options |= {"timeout": args.timeout, "memory_limit": limit or None}
    point = {"tokens": settings.architecture.tokens}
    try:
        facts, (turn,) = run_once(settings, args.steps, **options)
    except WorkerError as error:
        return {**point, "fits": not error.memory, "error": str(error)}
    ms = tables.summary(turn[args.clock])
    return {
        **point,
        "fits": True,
        "ms": ms,
        "gflops": settings.operations / ms["median"] / 1e6,
        "peak_memory": max(filter(None, (facts["peak_memory"], turn["step_memory"])), default=None),
        "step_memory": turn["step_memory"],
        "device_memory": turn["device_memory"],
        "versions": facts["versions"],
        "accelerator": facts["accelerator"],
        "first_s": facts["first_s"],
    }


def grow(args, say):
    """All points of all curves, in a list of dicts."""
    found = []
    for curve, settings in args.settings:
        for s in settings:
            point = measure(s, args)
            where = {"image": s.architecture.image_size, "batch": s.batch}
            where |= {"depth": s.architecture.depth}
            point |= {"curve": curve, "at": where[curve], "task": s.task, "remat": s.remat}
            found.append(point)
            say(f"{curve} {point['at']}, {kind(point)}: {cell(point)}")
            if not point["fits"]:
                break
    return found


def kind(point):
    return point["task"] + (", remat" if point["remat"] == "true" else "")


def cell(point):
    if not point["fits"]:
        return "does not fit"
    if "error" in point:
        return point["error"]
    memory = point["device_memory"] or point["peak_memory"]
    return (
        f"{point['ms']['median']:.0f} ms, {tables.mib(memory)} MiB, {point['gflops']:.0f} GFLOP/s"
    )


def markdown(points, args, described):
    """A table per curve: one row per point, one column per task and way."""
    mode = "CPU time" if args.clock == "cpu" else "wall clock"
    title = f"### {args.name} {args.model}, {args.backend}, {args.dtype}: growth\n\n"
    parts = [f"{title}Milliseconds per step ({mode}), peak memory of the process, GFLOP/s."]
    for curve in args.curves:
        mine = [point for point in points if point["curve"] == curve]
        columns = list(dict.fromkeys(map(kind, mine)))
        rows = {}
        for point in mine:
            rows.setdefault((point["at"], point["tokens"]), {})[kind(point)] = cell(point)
        named = f"{curve}, of batch {args.batch}" if curve != "batch" else curve
        table = [(*at, *(cells.get(c, "-") for c in columns)) for at, cells in rows.items()]
        parts.append(tables.table((named, "tokens", *columns), table))
    measured = [point for point in points if "versions" in point]
    versions = tables.merged_versions([point["versions"] for point in measured])
    accelerator = measured[0]["accelerator"] if measured else None
    parts.append(tables.machine_line(described, versions, accelerator))
    return "\n\n".join(parts)


def main():
    args, described = parse(), machine.describe()
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        points = grow(args, say)
    except KeyboardInterrupt:
        sys.exit("Interrupted; all processes are ended.")
    text = markdown(points, args, described)
    print(text)
    tables.write({"machine": described, "points": points}, text, args.json, args.markdown)


if __name__ == "__main__":
    main()
