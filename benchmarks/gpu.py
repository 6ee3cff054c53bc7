"""keras_vit on one GPU beside timm, KerasHub and Flax, from Ti/16 to H/14, up to its memory.

    python benchmarks/gpu.py --save                        # everything: hours
    python benchmarks/gpu.py --model L16 --task train --dtype bfloat16 --backend torch jax
    python benchmarks/gpu.py --model Ti16 --depth 1 --image-size 32 --batch 2 --most 4 --steps 2

For each model, task and dtype: ours on JAX, TensorFlow and PyTorch (as it is, and compiled), and
the peers, on data that stay on the device, with the batch doubled until nothing fits any more. One
process runs at a time, so that each has the whole memory; there are --rounds rounds, every other
one in reverse order, and ratios to the fastest peer of a backend are taken round by round. In
float32 products are exact, in tf32 they are those of tensor cores.

Utilisation counts every product of the model once, with two operations for a multiplication and an
addition and a backward pass of two forward passes, whatever is computed besides or again. It is in
parts of what the device reaches here in a plain product of two matrices of that dtype, which is
measured first, and of the maker's figure for bfloat16.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time

import tables
from compare import figures, peak_of
from peers import BACKENDS, OURS, Settings, get_architecture, parse_spec
from steps import set_precision
from worker import Worker, WorkerError, environment

COMPARED = {
    "jax": (OURS, "kerashub", "flax"),
    "torch": (OURS, f"{OURS}[jit=true]", "timm", "timm[jit=true]", "timm[jit=max]"),
    "tensorflow": (f"{OURS}[jit=true]", "kerashub[jit=true]"),
}
MODELS = {"Ti16": 256, "S16": 128, "B16": 64, "L16": 32, "H14": 16}  # the first batch
DTYPES = ("bfloat16", "tf32", "float32")


def product(backend, dtype, size):
    """Operations per second of a plain product of two matrices; runs in a process of its own."""
    from keras import ops, random

    if dtype != "bfloat16":
        set_precision(backend, dtype)
    x = random.uniform((size, size), dtype="bfloat16" if dtype == "bfloat16" else "float32")
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(10):
            y = ops.matmul(x, x)
        ops.convert_to_numpy(y[0, :1])  # waits for it
        best = min(best, time.perf_counter() - start)
    return 10 * 2 * size**3 / best


def run_rounds(all_settings, args, refused):
    """Workers with their turns of every round; why others do not run goes into `refused`."""
    workers = {}
    for number in range(args.rounds):
        for s in all_settings[:: -1 if number % 2 else 1]:
            if s in refused:
                continue
            try:
                worker = Worker(s, timeout=args.timeout)
                try:
                    worker.turn(args.steps)
                finally:
                    worker.end()
                workers.setdefault(s, worker).turns.extend(worker.turns if s in workers else [])
                print(f"{s.backend} {s.label}, batch {s.batch}", file=sys.stderr, flush=True)
            except WorkerError as error:
                refused[s] = str(error)
    return [worker for s, worker in workers.items() if s not in refused]


def compare(all_settings, args, peak):
    """Prints the table of one batch; returns its rows, and the settings that came through."""
    refused = {}
    workers = run_rounds(all_settings, args, refused)
    rows, lines = [], []
    for backend in args.backend:
        rows += figures([w for w in workers if w.settings.backend == backend], "wall")
    for row in rows:
        s, ms = all_settings[0], float(row["ms_median"])
        rate = s.operations / ms * 1e3
        makers = peak_of(row["processor"]) if args.precision == "bfloat16" else None
        ratio = "{ratio} ({ratio_q1}-{ratio_q3})".format(**row) if row["peer"] else ""
        lines.append((
            row["backend"], f"`{row['implementation']}`", row["ms_median"],
            f"{s.batch / ms * 1e3:,.0f}", f"{rate / 1e12:.3g}", f"{rate / peak:.1%}",
            f"{rate / makers:.1%}" if makers else "-", row["peak_mib"], row["first_call_s"], ratio,
        ))  # fmt: skip
    if rows:
        s = all_settings[0]
        print(f"\n### {s.architecture.name}, {s.task}, {args.precision}, batch {s.batch}\n")
        print(tables.table(COLUMNS, lines))
    for s, why in refused.items():
        print(f"\n- {s.backend} `{s.label}`, batch {s.batch}: {why}", flush=True)
    return rows, [s for s in all_settings if s not in refused]


COLUMNS = ("backend", "implementation", "ms", "images/s", "TFLOP/s", "of the product's")
COLUMNS += ("of the maker's", "MiB", "first call s", "times as fast as the fastest peer")


def chosen(args, model, task, batch):
    """The settings of everything that is compared."""
    architecture = get_architecture(model, args.image_size, args.depth)
    for backend in args.backend:
        for spec in COMPARED[backend]:
            name, options = parse_spec(spec, backend)
            options |= {"optimizer": "ours"} if name == OURS and task == "train" else {}
            dtype = "bfloat16" if args.precision == "bfloat16" else "float32"
            common = {"resident": True, "tf32": str(args.precision == "tf32").lower()}
            yield Settings(
                name, backend, architecture, task, batch, dtype, **common
            ).replace(**options)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", nargs="+", default=list(MODELS), choices=MODELS)
    add("--task", nargs="+", default=["train", "infer"], choices=("train", "infer"))
    add("--dtype", nargs="+", default=DTYPES, choices=DTYPES)
    add("--backend", nargs="+", default=BACKENDS, choices=BACKENDS)
    add("--batch", type=int, help="the first one (default: by model)")
    add("--most", type=int, default=4096, help="images of a batch")
    add("--image-size", type=int, default=224)
    add("--depth", type=int, help="another number of blocks than the model's")
    add("--steps", type=int, default=20, help="in a round")
    add("--rounds", type=int, default=2)
    add("--product", type=int, default=8192, metavar="SIZE", help="of the plain product")
    add("--timeout", type=float, default=1800, help="seconds for an answer")
    add("--save", nargs="?", const=tables.FIGURES, metavar="CSV")
    add("--only-product", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only_product:
        print(json.dumps(product(args.backend[0], args.only_product, args.product)))
        return
    for precision in args.dtype:
        args.precision = precision
        command = [sys.executable, __file__, "--backend", args.backend[0], "--product"]
        command += [str(args.product), "--only-product", precision]
        found = subprocess.check_output(command, env=environment(args.backend[0], 0), text=True)
        peak = json.loads(found.splitlines()[-1])
        print(f"\n{precision}: a plain product reaches {peak / 1e12:.2f} TFLOP/s.", flush=True)
        for model, task in itertools.product(args.model, args.task):
            batch = args.batch or MODELS[model]
            left = list(chosen(args, model, task, batch))
            while left and left[0].batch <= args.most:
                rows, left = compare(left, args, peak)
                if args.save and rows:
                    tables.save(rows, args.save)
                left = [s.replace(batch=2 * s.batch) for s in left]


if __name__ == "__main__":
    main()
