"""Import, build and first call of each implementation, in processes that live for nothing else.

    python benchmarks/startup.py --model B16 --backend jax --peers kerashub --repeats 5

The implementations take turns, one process at a time, each fresh; medians count. "All" is what a
user waits for: from starting Python to the end of the first step. The first round is not counted,
because it fills the file cache for whoever comes after it.
"""

import argparse
import sys

import machine
import tables
from architecture import get_architecture
from compare import add_common, choose, chosen_cores, interpreters
from pool import Worker, WorkerError
from settings import BACKENDS

PHASES = ("import_s", "build_s", "first_s", "until_ready_s")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", required=True, choices=BACKENDS)
    parser.add_argument("--task", default="infer", choices=("infer", "train"))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--peers", help="commas between; default: all on this backend; or none")
    parser.add_argument("--ours", default="keras_vit", help="variations; commas between")
    parser.add_argument("--jit", choices=("auto", "true", "false", "both"), default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    add_common(parser)
    tables.add_outputs(parser)
    parser.set_defaults(model="B16", warmup=0, gelu="erf")
    args = parser.parse_args(arguments)
    try:
        args.architecture = get_architecture(args.model, args.image_size, args.depth)
        args.cores, args.chosen = chosen_cores(args), choose(args, args.batch)
    except ValueError as error:
        parser.error(str(error))
    return args


def measure(args, say):
    """Label -> the facts of each round, and label -> why it was left out."""
    python = interpreters(args.python)
    rounds, failed = {settings.label: [] for settings in args.chosen}, {}
    for number in range(args.repeats + 1):
        order = args.chosen if number % 2 == 0 else args.chosen[::-1]
        for settings in order:
            if settings.label in failed:
                continue
            worker = Worker(settings, python(settings.name), args.cores, args.timeout)
            try:
                facts = worker.ready().facts
                rounds[settings.label] += [facts] if number else []
            except WorkerError as error:
                failed[settings.label] = str(error)
                say(f"{settings.label}: {error}")
            finally:
                worker.end()
        say(f"round {number} of {args.repeats} done")
    return {label: found for label, found in rounds.items() if found}, failed


def markdown(args, rounds, failed, described):
    columns = ("implementation", "import s", "build s", "first call s", "all s: min / median")
    rows = []
    for label, found in rounds.items():
        each = {phase: tables.summary([facts[phase] for facts in found]) for phase in PHASES}
        medians = [tables.number(each[phase]["median"], 2) for phase in PHASES[:3]]
        total = each["until_ready_s"]
        rows.append((f"`{label}`", *medians, f"{total['min']:.2f} / {total['median']:.2f}"))
    versions = tables.merged_versions([found[-1]["versions"] for found in rounds.values()])
    title = f"### {args.architecture.name}, {args.task}, batch {args.batch}, {args.backend}: "
    title += f"first call ({args.repeats} rounds)"
    lost = [f"- `{label}`: {reason}" for label, reason in failed.items()]
    parts = [title, "", tables.table(columns, rows), *lost]
    return "\n".join([*parts, "", tables.machine_line(described, versions)])


def main():
    args, described = parse(), machine.describe()
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    try:
        rounds, failed = measure(args, say)
    except KeyboardInterrupt:
        sys.exit("Interrupted; all processes are ended.")
    text = markdown(args, rounds, failed, described)
    print(text)
    tables.write(
        {"machine": described, "rounds": rounds, "failed": failed}, text, args.json, args.markdown
    )


if __name__ == "__main__":
    main()
