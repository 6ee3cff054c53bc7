"""keras_vit and other libraries on one accelerator: speed, utilisation, memory, compile time.

    python benchmarks/gpu.py --models Ti16 L16 H14 --tasks train infer --batches 64 128 256 512
    python benchmarks/gpu.py --backends jax --peers none --ours keras_vit keras_vit[remat=true]
    python benchmarks/gpu.py --models Ti16 --depth 1 --image-size 32 --batches 1 2    # on a CPU

First, each implementation alone in a fresh process with growing batches until memory does not
suffice: milliseconds, images/s, memory, seconds of the first call (compilation). Then all of a
backend in turns at one batch (--turns-batch), whose ratios are those to compare. Data lie on the
device, and steps are waited for at the end of a turn.

Model FLOP utilisation is operations / (time x peak): a multiplication and an addition count as two
operations, a training step as three forward passes, and what is computed again does not count. The
peak in bfloat16 is that of the device's name, or --peak-tflops. Products in float32 may be TF32 on
an NVIDIA GPU, by each framework's own default (PyTorch: not; JAX, TensorFlow: yes); --no-tf32
forbids it to all. Beside the model, a product of matrices as large as those of an MLP is timed in
the same precision.
"""

import argparse
import itertools
import os
import statistics
import sys

import tables
from compare import USUAL, add_process_arguments, figures, interpreters, take_turns
from peers import BACKENDS, PEERS
from settings import OURS, Settings, get_architecture, parse_spec
from worker import Worker, WorkerError

# 10^12 operations per second of dense bfloat16 products, as the makers state them. A name is looked
# up by the longest entry that it contains.
PEAKS = {
    **{"B200": 2250, "H200": 989.4, "H100": 989.4, "H100 NVL": 835.5, "H100 PCIe": 756},
    **{"A100": 312, "A10": 125, "A10G": 70, "A30": 165, "L4": 121, "L40S": 362, "T4": 65},
    **{"V100": 125, "RTX 3090": 71, "RTX 4090": 165.2, "MI250X": 191.5, "MI300X": 1307.4},
    **{"TPU v4": 275, "TPU v5 lite": 197, "TPU v5p": 459, "TPU v6 lite": 918},
}
OURS_ON = {
    "jax": (OURS,),
    "torch": (OURS, f"{OURS}[jit=true]"),
    "tensorflow": (f"{OURS}[jit=true]",),
}


def peak_of(device):
    """Operations per second in bfloat16, or None; a slice of a GPU (MIG) has a part of it."""
    if not device or "MIG" in device:
        return None
    words = f" {device} ".replace("-", " ")
    found = [name for name in PEAKS if f" {name} " in words]
    return PEAKS[max(found, key=len)] * 1e12 if found else None


def parse(arguments=None):
    text = __doc__.splitlines()
    parser = argparse.ArgumentParser(
        description=text[0],
        epilog="\n".join(text[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", default=["B16"])
    parser.add_argument("--backends", nargs="+", default=["jax", "torch"], choices=BACKENDS)
    parser.add_argument("--tasks", nargs="+", default=["train"], choices=("infer", "train"))
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--turns-batch", type=int, help="default: the smallest of --batches")
    parser.add_argument("--ours", nargs="+", help="variations of keras_vit")
    parser.add_argument("--peers", nargs="+", help="or none; default: those of compare.py")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--depth", type=int, help="another number of blocks than the model's")
    parser.add_argument("--steps", type=int, default=20, help="in a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, help="of the device in bfloat16")
    parser.add_argument("--no-tf32", action="store_true", help="products in full float32")
    add_process_arguments(parser)
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    args.cores, args.clock = (), "wall"
    try:
        for model, backend in itertools.product(args.models, args.backends):
            get_architecture(model, args.image_size, args.depth)
            chosen(args, backend)
    except ValueError as error:
        parser.error(str(error))
    return args


def chosen(args, backend):
    """(name, options) of every implementation that computes on a backend, ours first."""
    peers = [] if args.peers == ["none"] else args.peers or USUAL[backend]
    found = [*(args.ours or OURS_ON[backend]), *peers]
    elsewhere = [name for name, peer in PEERS.items() if backend not in peer.backends]
    return [parse_spec(spec, backend) for spec in found if spec.partition("[")[0] not in elsewhere]


def measure_alone(settings, args):
    """The figures of an implementation in a process of its own, as a dict.

    Raises:
        WorkerError: it does not run; the text says why.
    """
    worker = Worker(settings, interpreters(args.python)(settings.name), timeout=args.timeout)
    try:
        for _ in range(args.turns):
            worker.turn(args.steps)
    finally:
        worker.end()
    ms = tables.summary(itertools.chain(*(turn["wall"] for turn in worker.turns)))
    accelerator = worker.facts["accelerator"]
    rate = settings.operations / ms["median"] * 1e3
    peak = args.peak_tflops * 1e12 if args.peak_tflops else peak_of(accelerator)
    return {
        "ms": ms,
        "images_per_second": settings.batch / ms["median"] * 1e3,
        "tflops": rate / 1e12,
        "utilisation": rate / peak if peak and settings.dtype == "bfloat16" else None,
        "memory_mib": worker.turns[-1]["memory"] and worker.turns[-1]["memory"] / 2**20,
        "first_call_s": worker.facts["first_call_s"],
        "device": accelerator,
        "versions": worker.facts["versions"],
    }


def measure_product(settings, args):
    """TFLOP/s of one product of matrices on a backend, in the precision of `settings`."""
    worker = Worker(settings.replace(name="product"), interpreters(args.python)(OURS))
    try:
        for _ in range(args.turns):
            worker.turn(args.steps)
    finally:
        worker.end()
    ms = statistics.median(itertools.chain(*(turn["wall"] for turn in worker.turns)))
    return worker.facts["operations"] / ms / 1e9


def sweep(base, args, say):
    """All points of one model, task, precision and backend: a list of dicts."""
    points = []
    try:
        product = measure_product(base.replace(batch=args.batches[-1]), args)
    except WorkerError as error:
        say(f"product of matrices: {error}")
        product = None
    for name, options in chosen(args, base.backend):
        for batch in args.batches:
            s = base.replace(name=name, batch=batch, **options)
            point = {"label": s.replace(dtype="float32").label, "model": s.architecture.name}
            point |= {name: getattr(s, name) for name in ("backend", "task", "dtype", "batch")}
            point["product_tflops"] = product
            try:
                point |= measure_alone(s, args)
            except WorkerError as error:
                point["error"] = str(error)
            points.append(point)
            rate = point.get("error") or f"{point['images_per_second']:.1f} images/s"
            say(f"{point['label']} on {s.backend}, {s.task}, batch {batch}: {rate}")
            if "error" in point:
                break
    return points


def in_turns(base, args, say):
    """The rows of the comparison in turns, as `compare.figures` gives them."""
    settings = [base.replace(name=name, **options) for name, options in chosen(args, base.backend)]
    workers, _ = take_turns(settings, args, say)
    return figures(workers, args.clock)


def points_table(points):
    columns = ("implementation", "backend", "dtype", "batch", "ms: min / median", "images/s")
    columns += ("TFLOP/s", "utilisation", "of a product", "MiB", "first call s")
    lines = []
    for p in points:
        line = [f"`{p['label']}`", p["backend"], p["dtype"], p["batch"]]
        if "error" in p:
            lines.append((*line, p["error"].replace("|", "/"), *["-"] * 6))
            continue
        share, product = p["utilisation"], p["product_tflops"]
        line += [f"{p['ms']['min']:.1f} / {p['ms']['median']:.1f}"]
        line += [f"{p['images_per_second']:.1f}", f"{p['tflops']:.3g}"]
        line += [tables.number(share and 100 * share, 1, "%")]
        line += [tables.number(product and 100 * p["tflops"] / product, 0, "%")]
        lines.append((*line, tables.number(p["memory_mib"], 0), f"{p['first_call_s']:.1f}"))
    return tables.table(columns, lines)


def main():
    args = parse()
    # Several processes share the device in turns, so that none may take its memory in advance.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if args.no_tf32:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    report, texts = {"machine": tables.describe(), "points": [], "turns": []}, []
    for model, task in itertools.product(args.models, args.tasks):
        points, turns = [], []
        for backend, dtype in itertools.product(args.backends, args.dtypes):
            a = get_architecture(model, args.image_size, args.depth)
            base = Settings(OURS, backend, a, task, args.turns_batch or args.batches[0], dtype)
            base = base.replace(resident=True)
            points += sweep(base, args, say)
            turns += in_turns(base, args, say)
        report["points"] += points
        report["turns"] += turns
        device = next((p["device"] for p in points if "device" in p), None)
        versions = dict(itertools.chain(*(p.get("versions", {}).items() for p in points)))
        texts += [f"### {model}, {args.image_size} px, {task}", points_table(points)]
        texts += ["In turns:", tables.compared(turns)]
        texts += [tables.machine_line(report["machine"], versions, device)]
        print("\n\n".join(texts[-5:]) + "\n", flush=True)
        tables.write(report, "\n\n".join(texts), args.json, args.markdown)
    if all("error" in point for point in report["points"]):
        sys.exit("Nothing could be measured; the reasons are above.")


if __name__ == "__main__":
    main()
