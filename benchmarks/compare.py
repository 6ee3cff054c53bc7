"""keras_vit beside other libraries on the same backend: speed, memory, compile and import time.

    python benchmarks/compare.py --model S16 --task infer --backend torch --batch 4 8
    python benchmarks/compare.py --task train --backend tensorflow --peers kerashub,vitkeras,kimm
    python benchmarks/compare.py --backend jax --pin 0 --peers kerashub --python kerashub=PYTHON

Each implementation has one process. All are alive at once and take turns, every other time in
reverse order; ratios are taken turn by turn, so that what disturbs the machine disturbs both sides.
A library that is not installed is named and left out. On a machine that is not quiet, `--pin CORE`
gives every process the same single core and one thread and compares CPU time instead of wall clock.

Images and labels are the same fixed random numbers for all. Keras models run through
`predict_on_batch` and `train_on_batch` on NumPy arrays, the others as their users write it.
Training is AdamW on softmax cross-entropy. With `--dtype bfloat16`, Keras models have the policy
mixed_bfloat16; PyTorch's have bfloat16 weights for inference, and train under autocast.

`name[option=value,...]` asks for a variation, in --ours and in --peers: jit=true|false (XLA, or
torch.compile), remat=true, dtype=bfloat16; of keras_vit alone gelu=erf|tanh,
optimizer=keras|ours, memory=kept (`keras_vit.training.keep_memory()`) and, with bfloat16,
weights=bfloat16: the policy bfloat16, which holds them as PyTorch's other models do for inference.
"""

import argparse
import itertools
import re
import sys

import machine
import tables
from architecture import get_architecture
from compare_tables import markdown, measured
from peers import OURS, PEERS, get_peer, peers_on
from pool import Pool
from settings import BACKENDS, OF_OURS, OPTIONS, Settings, parse_spec
from worker import PRODUCTS


def parse(arguments=None):
    text = __doc__.splitlines()
    parser = argparse.ArgumentParser(
        description=text[0],
        epilog="\n".join(text[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backend", required=True, choices=BACKENDS)
    parser.add_argument("--task", default="infer", choices=("infer", "train"))
    parser.add_argument("--batch", type=int, nargs="+", default=[4], help="images of a step")
    parser.add_argument(
        "--peers", help=f"of {', '.join(p for p in PEERS if p != OURS)}; commas between; or none"
    )
    parser.add_argument("--ours", help="variations of keras_vit; commas between")
    parser.add_argument("--jit", choices=("auto", "true", "false", "both"))
    parser.add_argument(
        "--gelu", choices=("erf", "tanh", "both"), default="erf", help="of keras_vit; peers: erf"
    )
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=2, help="in a turn")
    add_common(parser)
    tables.add_outputs(parser)
    args = parser.parse_args(arguments)
    try:
        args.architecture = get_architecture(args.model, args.image_size, args.depth)
        args.cores, args.clock = chosen_cores(args), args.clock or clock_of(args)
        args.all_settings = [choose(args, batch) for batch in args.batch]
    except ValueError as error:
        parser.error(str(error))
    return args


def add_common(parser):
    """The arguments that other benchmarks of speed have too."""
    parser.add_argument("--model", default="S16", help="Ti16, S16, B16, L16, ...")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--depth", type=int, help="another number of blocks than the model's")
    parser.add_argument("--dtype", default="float32", choices=OPTIONS["dtype"])
    parser.add_argument("--warmup", type=int, default=2, help="steps after the first one")
    parser.add_argument("--pin", type=int, metavar="CORE", help="one core, one thread, for all")
    parser.add_argument("--threads", type=int, help="cores for each process; default: all")
    parser.add_argument("--clock", choices=("wall", "cpu"), help="default: cpu with --pin")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for an answer")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="[NAME,...=]PATH",
        help="interpreter for some implementations or for all; may be repeated",
    )


def chosen_cores(args):
    """The cores that --pin or --threads stand for; none for all."""
    mine = machine.cores()
    if args.pin is not None:
        if args.pin not in mine:
            raise ValueError(f"--pin must be one of the cores {mine}. Received: {args.pin}.")
        return (args.pin,)
    if args.threads and not 1 <= args.threads <= len(mine):
        raise ValueError(f"--threads must be 1 to {len(mine)} here. Received: {args.threads}.")
    return tuple(mine[: args.threads]) if args.threads else ()


def clock_of(args):
    return "cpu" if args.pin is not None else "wall"


def split_specs(text):
    """Splits at the commas that are not inside brackets."""
    return [part.strip() for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text) if part.strip()]


def choose(args, batch):
    """The `Settings` of every process for one batch size, ours first."""
    peers = split_specs(args.peers) if args.peers else peers_on(args.backend)
    usual = f"{OURS},{OURS}[optimizer=ours]" if args.task == "train" else OURS
    specs = split_specs(args.ours or usual) + ([] if peers == ["none"] else peers)
    base = Settings("", args.backend, args.architecture, args.task, batch, args.dtype)
    base = base.replace(warmup=args.warmup)
    found = []
    for spec in specs:
        name, options = parse_spec(spec)
        get_peer(name, args.backend)
        if name != OURS and set(options) & set(OF_OURS):
            raise ValueError(f"{', '.join(OF_OURS)} are options of {OURS} alone. Received: {spec}.")
        for jit, gelu in itertools.product(jits(name, options, args), gelus(name, options, args)):
            found.append(base.replace(name=name, **{**options, "jit": jit, "gelu": gelu}))
    return list(dict.fromkeys(found))


def gelus(name, options, args):
    """The forms of GELU to measure; that of a peer is its own."""
    if "gelu" in options or name != OURS:
        return [options.get("gelu", "erf")]
    return ["erf", "tanh"] if args.gelu == "both" else [args.gelu]


def jits(name, options, args):
    """How an implementation is compiled: KerasHub on TensorFlow in both ways."""
    if "jit" in options:
        return [options["jit"]]
    if args.backend == "jax":
        return ["auto"]
    both = args.jit == "both" or (
        args.jit is None and (name, args.backend) == ("kerashub", "tensorflow")
    )
    return ["false", "true"] if both else [args.jit or "auto"]


def interpreters(texts):
    """A function from the name of an implementation to its interpreter."""
    chosen = {}
    for text in texts:
        names, _, path = text.rpartition("=")
        chosen |= {name: path for name in names.split(",")}
    return lambda name: chosen.get(name) or chosen.get("") or sys.executable


def compare(all_settings, args, say=print):
    """Measures one batch size; what was found, as a dict."""
    options = {"cores": args.cores, "timeout": args.timeout}
    python = interpreters(args.python)
    with Pool(say) as pool:
        products = all_settings[0].replace(name=PRODUCTS)
        pool.start(products, python=python(OURS), **options)
        for settings in all_settings:
            pool.start(settings, python=python(settings.name), **options)
        if any(worker.settings.name != PRODUCTS for worker in pool.workers):
            pool.take_turns(args.turns, args.steps)
        return measured(pool, args)


def main():
    args = parse()
    report = {"machine": machine.describe(), "runs": []}
    texts = []
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        for all_settings in args.all_settings:
            report["runs"].append(compare(all_settings, args, say))
            texts.append(markdown(report["runs"][-1], report["machine"]))
            print(texts[-1] + "\n", flush=True)
            tables.write(report, "\n\n".join(texts), args.json, args.markdown)
    except KeyboardInterrupt:
        sys.exit("Interrupted; all processes are ended.")
    if not all(run["rows"] for run in report["runs"]):
        sys.exit("Nothing could be measured; the reasons are above.")


if __name__ == "__main__":
    main()
