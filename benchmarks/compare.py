"""keras_vit beside other libraries on the same backend: speed, memory, start-up.

    python benchmarks/compare.py --backend torch --model S16 --task infer train --batch 4 8
    python benchmarks/compare.py --backend jax --pin 0 --peers kerashub flax --python PYTHON
    python benchmarks/compare.py --backend tensorflow --image-size 224 384 512 --peers none \\
        --ours keras_vit keras_vit[remat=true] --save
    python benchmarks/compare.py --backend jax --model Ti16 S16 B16 L16 H14 --task train infer \\
        --dtype bfloat16 tf32 --batch 16 --double 4096 --resident --alone --steps 20   # one GPU

Each implementation has one process. All are alive at once and take turns, every other time in
reverse order; ratios are taken turn by turn, so that what disturbs the machine disturbs both sides.
A library that is not installed is named and left out. On a machine that is not quiet, `--pin CORE`
gives every process the same core and one thread and compares CPU time instead of wall clock. With
`--alone` one process runs at a time and has the whole memory; `--double MOST` doubles the batch,
until nothing fits or it would exceed MOST.

`name[option=value,...]` asks for a variation, in --ours and in --peers: jit=true|false (XLA, or
torch.compile), remat=true, dtype=bfloat16; of keras_vit alone gelu=erf|tanh, optimizer=keras|ours
(`keras_vit.training.AdamW`) and, with bfloat16, weights=bfloat16 (the policy bfloat16). With
--resident the data stay on the device, and steps are waited for at the end of a turn only. With
--peak-tflops, the peak of the device, the table has the utilisation: the operations of the model in
parts of it. Training is AdamW on softmax cross-entropy. `peers.py` says how a library is added,
`steps.py` what a step is; --save adds the figures to docs/performance_tables.csv.
"""

import itertools
import statistics
import sys

import tables
from peers import BACKENDS, OPTIONS, OURS, PEERS, Settings, get_architecture, parse_spec
from worker import Worker, WorkerError

USUAL = {  # what is compared without being asked for
    "torch": ("timm", "timm[jit=true]"),
    "tensorflow": ("kerashub[jit=true]", "kerashub[jit=false]", "kimm", "vitkeras"),
    "jax": ("kerashub", "flax"),
}
DTYPES = (*OPTIONS["dtype"], "tf32")  # in tf32, products of float32 are those of tensor cores


def add_turns(parser, turns):
    """Adds the arguments of `take_turns` to a parser."""
    add = parser.add_argument
    add("--turns", type=int, default=turns)
    add("--steps", type=int, default=2, help="in a turn")
    add("--pin", type=int, choices=tables.cores(), help="one core, one thread, CPU time")
    add("--alone", action="store_true", help="one process at a time")
    add("--timeout", type=float, default=900, help="seconds for an answer")
    interpreter = "interpreter for one implementation or for all; may be repeated"
    add("--python", action="append", default=[], metavar="[NAME=]PATH", help=interpreter)


def clock(args):
    """What is compared: wall clock, or CPU time where a core is shared."""
    return "wall" if args.pin is None else "cpu"


def take_turns(all_settings, args):
    """Lets the implementations take turns.

    Returns:
        The workers that came through, and label -> why another did not.
    """
    pythons, failed = dict(text.rpartition("=")[::2] for text in args.python), {}
    usual, cores = pythons.get("", sys.executable), () if args.pin is None else (args.pin,)
    workers = [Worker(s, pythons.get(s.name, usual), cores, args.timeout) for s in all_settings]
    try:
        for turn in range(args.turns):
            for worker in [w for w in workers if w.settings.label not in failed][:: (-1) ** turn]:
                label = worker.settings.label
                try:
                    worker.turn(args.steps)
                    print(f"{label}: turn {turn + 1}", file=sys.stderr, flush=True)
                except WorkerError as error:
                    failed[label] = str(error)
                if args.alone:
                    worker.end()
        return [w for w in workers if w.settings.label not in failed], failed
    finally:
        for worker in workers:
            worker.end()


def figures(workers, clock):
    """The rows of one comparison, fastest first, with `tables.COLUMNS` as names.

    A row of keras_vit has the ratio to the fastest peer: the median, over the turns, of the ratio
    of the medians of a turn, with its quartiles.
    """
    middle = {id(w): [statistics.median(turn[clock]) for turn in w.turns] for w in workers}
    workers = sorted(workers, key=lambda w: statistics.median(middle[id(w)]))
    peer = next((w for w in workers if w.settings.name != OURS), None)
    machine, rows = tables.describe(), []
    for worker in workers:
        s, report = worker.settings, worker.report
        ms = tables.summary(itertools.chain(*(turn[clock] for turn in worker.turns)))
        memory = worker.turns[-1]["memory"]
        row = dict.fromkeys(tables.COLUMNS, "")
        row |= {"date": machine["date"], "processor": report["accelerator"] or machine["processor"]}
        row |= {name: getattr(s, name) for name in ("backend", "task", "batch", "dtype")}
        row |= {"dtype": "tf32"} if s.tf32 == "true" else {}
        row |= {"model": s.architecture.name, "image_size": s.architecture.image_size}
        row |= {"implementation": plain(s), "clock": clock}
        columns = ("ms_min", "ms_q1", "ms_median", "ms_q3")
        row |= {name: f"{value:.1f}" for name, value in zip(columns, ms.values())}
        row |= {name: f"{report[name]:.2f}" for name in ("first_call_s", "import_s", "build_s")}
        row["peak_mib"] = memory and round(memory / 2**20)
        row["versions"] = ", ".join(f"{k} {v}" for k, v in sorted(report["versions"].items()))
        if peer and s.name == OURS and s.dtype == peer.settings.dtype:
            ratio = tables.summary(b / a for a, b in zip(middle[id(worker)], middle[id(peer)]))
            names = dict(zip(("ratio", "ratio_q1", "ratio_q3"), ("median", "low", "high")))
            row |= {name: f"{ratio[of]:.3f}" for name, of in names.items()}
            row["peer"] = plain(peer.settings)
        rows.append(row)
    return rows


def plain(settings):
    """The label without the precision, which has a column of its own."""
    return settings.replace(dtype="float32", tf32="false").label


def markdown(rows, failed, settings, args):
    """The table of one comparison."""
    columns = ("implementation", "ms: min / quartiles / median", "images/s", "GFLOP/s")
    columns += ("utilisation", "MiB")
    columns += ("first call s", "import s", "build s", "times as fast as the fastest peer")
    lines = []
    for row in rows:
        ms = float(row["ms_median"])
        ratio = "{ratio} ({ratio_q1}-{ratio_q3})".format(**row) if row["peer"] else ""
        spread = "{ms_min} / {ms_q1}-{ms_q3} / {ms_median}".format(**row)
        rates = [f"{settings.batch / ms * 1e3:.2f}", f"{settings.operations / ms / 1e6:.0f}"]
        peak = args.peak_tflops and args.peak_tflops * 1e12
        rates.append(f"{settings.operations / ms * 1e3 / peak:.1%}" if peak else "-")
        seconds = [row[name] for name in ("first_call_s", "import_s", "build_s")]
        lines.append(
            (f"`{row['implementation']}`", spread, *rates, row["peak_mib"], *seconds, ratio)
        )
    a = settings.architecture
    title = f"### {a.name}, {a.image_size} px, {settings.task}, batch {settings.batch}, "
    title += f"{settings.backend}, {settings.dtype}\n\n{args.turns} turns of {args.steps} steps, "
    core = "all cores" if args.pin is None else f"core {args.pin}"
    title += f"{clock(args)} time, {core}, {a.parameters:,} parameters."
    missing = [f"- `{label}`: {why}" for label, why in failed.items()]
    packages = ", ".join(sorted({p for row in rows for p in row["versions"].split(", ")}))
    line = tables.machine_line(f"with {packages}")
    return "\n\n".join(
        filter(None, [title, tables.table(columns, lines), "\n".join(missing), line])
    )


def parse(arguments=None):
    parser = tables.parser(__doc__)
    parser.add_argument("--backend", required=True, choices=BACKENDS)
    parser.add_argument("--task", nargs="+", default=["infer"], choices=("infer", "train"))
    parser.add_argument("--batch", type=int, nargs="+", default=[4], help="images of a step")
    parser.add_argument("--model", nargs="+", default=["S16"], help="Ti16, S16, B16, L16, ...")
    parser.add_argument("--image-size", type=int, nargs="+", default=[224])
    parser.add_argument("--depth", type=int, help="another number of blocks than the model's")
    parser.add_argument("--dtype", nargs="+", default=["float32"], choices=DTYPES)
    parser.add_argument("--peers", nargs="+", help=f"of {', '.join(PEERS)}; or none")
    parser.add_argument("--ours", nargs="+", help="variations of keras_vit")
    parser.add_argument("--resident", action="store_true", help="data stay on the device")
    parser.add_argument("--double", type=int, default=0, metavar="MOST", help="batches, up to this")
    parser.add_argument("--peak-tflops", type=float, help="of the device, in that dtype")
    add_turns(parser, turns=6)
    parser.add_argument("--save", nargs="?", const=tables.FIGURES, metavar="CSV")
    args = parser.parse_args(arguments)
    try:
        args.comparisons = [
            choose(args, task, get_architecture(model, size, args.depth), batch, dtype)
            for model, dtype, task, size, batch in itertools.product(
                args.model, args.dtype, args.task, args.image_size, args.batch
            )
        ]
    except ValueError as error:
        parser.error(str(error))
    return args


def choose(args, task, architecture, batch, dtype):
    """The `Settings` of every process of one comparison, ours first."""
    usual = (OURS, f"{OURS}[optimizer=ours]") if task == "train" else (OURS,)
    peers = [] if args.peers == ["none"] else args.peers or USUAL[args.backend]
    base = Settings(OURS, args.backend, architecture, task, batch, resident=args.resident)
    base = base.replace(**{"tf32": "true"} if dtype == "tf32" else {"dtype": dtype})
    specs = (parse_spec(spec, args.backend) for spec in (*(args.ours or usual), *peers))
    return list(dict.fromkeys(base.replace(name=name, **options) for name, options in specs))


def main():
    args = parse()
    measured = 0
    for all_settings in args.comparisons:
        while all_settings:
            workers, failed = take_turns(all_settings, args)
            rows = figures(workers, clock(args))
            print(markdown(rows, failed, all_settings[0], args) + "\n", flush=True)
            if args.save and rows:
                tables.save(rows, args.save)
            measured += len(rows)
            fitting = [w.settings for w in workers if 2 * w.settings.batch <= args.double]
            all_settings = [s.replace(batch=2 * s.batch) for s in fitting]
    if not measured:
        sys.exit("Nothing could be measured; the reasons are above.")


if __name__ == "__main__":
    main()
