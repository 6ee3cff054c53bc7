"""keras_vit beside other libraries on the same backend: speed, memory, start-up.

    python benchmarks/compare.py --backend torch --model S16 --task infer train --batch 4 8
    python benchmarks/compare.py --backend jax --pin 0 --peers kerashub flax --python PYTHON
    python benchmarks/compare.py --backend tensorflow --peers none --ours keras_vit[remat=true]

Each implementation has one process. All are alive at once and take turns, every other time in
reverse order; ratios are taken turn by turn, so that what disturbs the machine disturbs both sides.
A library that is not installed is named and left out. On a machine that is not quiet, `--pin CORE`
gives every process the same core and one thread and compares CPU time instead of wall clock. With
`--alone` one process runs at a time and has the whole memory, and `--double` doubles the batch
until nothing fits; `gpu.py` does so for a whole GPU.

`name[option=value,...]` asks for a variation, in --ours and in --peers: jit=true|false|max|whole
(XLA, or torch.compile), remat=true, dtype=bfloat16; of keras_vit alone gelu=erf|tanh,
optimizer=keras|ours (`keras_vit.training.AdamW`) and, with bfloat16, weights=bfloat16 (the policy
bfloat16). With
--resident steps are waited for at the end of a turn only. Utilisation, with --peak-tflops, is the
operations of the model in parts of that peak. Training is AdamW on softmax cross-entropy.
`peers.py` says how a library is added, `steps.py` what a step is.
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
    """Takes turns; returns the workers that came through, and label -> why another did not."""
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
    columns += ("utilisation", "MiB", "first call s", "import s", "build s")
    columns += ("times as fast as the fastest peer",)
    lines = []
    for row in rows:
        ms = float(row["ms_median"])
        ratio = "{ratio} ({ratio_q1}-{ratio_q3})".format(**row) if row["peer"] else ""
        spread = "{ms_min} / {ms_q1}-{ms_q3} / {ms_median}".format(**row)
        rates = [f"{settings.batch / ms * 1e3:.2f}", f"{settings.operations / ms / 1e6:.0f}"]
        peak = args.peak_tflops and args.peak_tflops * 1e12
        rates.append(f"{settings.operations / ms * 1e3 / peak:.1%}" if peak else "-")
        seconds = [row[name] for name in ("first_call_s", "import_s", "build_s")]
        name = f"`{row['implementation']}`"
        lines.append((name, spread, *rates, row["peak_mib"], *seconds, ratio))
    a = settings.architecture
    title = f"### {a.name}, {a.image_size} px, {settings.task}, batch {settings.batch}, "
    dtype = "tf32" if settings.tf32 == "true" else settings.dtype
    title += f"{settings.backend}, {dtype}\n\n{args.turns} turns of {args.steps} steps, "
    core = "all cores" if args.pin is None else f"core {args.pin}"
    title += f"{clock(args)} time, {core}, {a.parameters:,} parameters."
    missing = [f"- `{label}`: {why}" for label, why in failed.items()]
    packages = ", ".join(sorted({p for row in rows for p in row["versions"].split(", ")}))
    parts = [title, tables.table(columns, lines), "\n".join(missing)]
    return "\n\n".join([*filter(None, parts), tables.machine_line(f"with {packages}")])


def make_parser(doc):
    """The parser of all arguments but --backend; `gpu.py` has the same with other defaults."""
    parser = tables.parser(doc)
    add = parser.add_argument
    add("--task", nargs="+", default=["infer"], choices=("infer", "train"))
    add("--batch", type=int, nargs="+", default=[4], help="images of a step")
    add("--model", nargs="+", default=["S16"], help="Ti16, S16, B16, L16, ...")
    add("--image-size", type=int, nargs="+", default=[224])
    add("--depth", type=int, help="another number of blocks than the model's")
    add("--dtype", nargs="+", default=["float32"], choices=DTYPES)
    add("--peers", nargs="+", help=f"of {', '.join(PEERS)}; or none")
    add("--ours", nargs="+", help="variations of keras_vit")
    add("--resident", action="store_true", help="data stay on the device")
    add("--double", type=int, default=0, metavar="MOST", help="batches, up to this")
    add("--peak-tflops", type=float, help="of the device, in that dtype")
    add_turns(parser, turns=6)
    add("--save", nargs="?", const=tables.FIGURES, metavar="CSV", help="add the figures to it")
    return parser


def comparisons(parser, args):
    """For each comparison that is asked for, the `Settings` of every process, ours first."""
    order = itertools.product(args.model, args.dtype, args.task, args.image_size, args.batch)
    try:
        return [
            choose(args, task, get_architecture(model, size, args.depth), batch, dtype)
            for model, dtype, task, size, batch in order
        ]
    except ValueError as error:
        parser.error(str(error))


def parse(arguments=None):
    parser = make_parser(__doc__)
    parser.add_argument("--backend", required=True, choices=BACKENDS)
    args = parser.parse_args(arguments)
    return args, comparisons(parser, args)


def choose(args, task, architecture, batch, dtype):
    """The `Settings` of one comparison."""
    usual = (OURS, f"{OURS}[optimizer=ours]") if task == "train" else (OURS,)
    peers = [] if args.peers == ["none"] else args.peers or USUAL[args.backend]
    base = Settings(OURS, args.backend, architecture, task, batch, resident=args.resident)
    base = base.replace(**{"tf32": "true"} if dtype == "tf32" else {"dtype": dtype})
    specs = (parse_spec(spec, args.backend) for spec in (*(args.ours or usual), *peers))
    return list(dict.fromkeys(base.replace(name=name, **options) for name, options in specs))


def measure(all_settings, args):
    """Measures, prints and saves one comparison, at every batch; returns its rows."""
    measured = []
    while all_settings:
        workers, failed = take_turns(all_settings, args)
        rows = figures(workers, clock(args))
        print(markdown(rows, failed, all_settings[0], args) + "\n", flush=True)
        if args.save and rows:
            tables.save(rows, args.save)
        measured += rows
        fitting = [w.settings for w in workers if 2 * w.settings.batch <= args.double]
        all_settings = [s.replace(batch=2 * s.batch) for s in fitting]
    return measured


def main():
    args, asked = parse()
    if not sum(len(measure(all_settings, args)) for all_settings in asked):
        sys.exit("Nothing could be measured; the reasons are above.")


if __name__ == "__main__":
    main()
