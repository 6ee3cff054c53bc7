"""Measures what `docs/performance.md` and `docs/distribution.md` state, and writes the tables.

    python benchmarks/report.py [SECTION ...] [--list] -- [arguments of every command]
    python benchmarks/report.py torch-infer jax-train -- --pin 0 --python kerashub=PYTHON

A section is what one command prints. It stands in the file between two comments with its name, is
replaced when it is measured again, and is left as it was where the command fails. Without names,
all sections are measured, one after the other: about an hour and a half on two cores. The section
`summary` of docs/performance.md is made of the others, and of those of other machines' pages beside
it (docs/performance_*.md, written with --file); `--summary` does that alone.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from report_summary import summary

HERE = pathlib.Path(__file__).parent
DOCS = HERE.parent / "docs"
# Scripts whose tables stand on another page than docs/performance.md.
OF_DISTRIBUTION = ("plan.py", "plan_check.py", "distribution_cost.py")
BARE = ("input_cost.py", *OF_DISTRIBUTION)  # those that take none of the common arguments
PEERS = {"torch": "timm", "tensorflow": "kerashub,vitkeras,kimm", "jax": "kerashub"}


def commands():
    """Section -> script and its arguments, in the order of the file."""
    found = {}
    for backend, peers in PEERS.items():
        for task in ("infer", "train"):
            rest = f"--backend {backend} --task {task} --peers {peers}"
            found[f"{backend}-{task}"] = f"compare.py --model S16 --batch 4 8 {rest}"
            found[f"{backend}-{task}-B16"] = f"compare.py --model B16 --batch 4 --turns 4 {rest}"
    for backend in ("torch", "tensorflow"):
        for task in ("infer", "train"):
            peers = "timm" if backend == "torch" else "kerashub"
            more = "keras_vit[weights=bfloat16]" if task == "infer" else "keras_vit[optimizer=ours]"
            found[f"{backend}-{task}-bfloat16"] = (
                f"compare.py --model S16 --batch 4 --backend {backend} --task {task} --dtype "
                f"bfloat16 --ours keras_vit,{more},keras_vit[dtype=float32] --peers {peers}"
            )
    found["jax-infer-bfloat16"] = (
        "compare.py --model S16 --backend jax --ours keras_vit,keras_vit[dtype=bfloat16] "
        "--peers none"
    )
    found["jax-train-memory"] = (
        "compare.py --model S16 --backend jax --task train --peers none "
        "--ours keras_vit,keras_vit[memory=kept]"
    )
    for backend in PEERS:
        found[f"{backend}-startup"] = f"startup.py --backend {backend}"
        found[f"{backend}-growth"] = f"growth.py --model S16 --backend {backend}"
        few = "--batch 4 --turns 6 --steps 8"
        found[f"{backend}-input"] = f"KERAS_BACKEND={backend} input_cost.py --model S16 {few}"
        found[f"{backend}-input-224"] = found[f"{backend}-input"] + " --jpeg 224x224"
    for variant in ("H/14", "g/14"):
        found[f"plan-{variant.replace('/', '')}"] = (
            f"plan.py --variant {variant} --devices 256 --hbm 32GB --batch 4096 --ema "
            "--model-devices 2 8 --backend jax"
        )
    for backend in ("jax", "torch"):
        found[f"plan-check-{backend}"] = f"KERAS_BACKEND={backend} plan_check.py"
    found["distribution-cost"] = "distribution_cost.py"
    return found


def page(command):
    """The file that a command's tables stand in."""
    script = split(command)[1]
    return DOCS / ("distribution.md" if script in OF_DISTRIBUTION else "performance.md")


def split(command):
    """Variables of the environment, the script, and its arguments."""
    words = shlex.split(command)
    place = next(index for index, word in enumerate(words) if word.endswith(".py"))
    return words[:place], words[place], words[place + 1 :]


def measure(command, extra):
    """What a command writes as Markdown, or None where it fails."""
    variables, script, arguments = split(command)
    environment = os.environ | dict(variable.split("=", 1) for variable in variables)
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "tables.md"
        run = [sys.executable, HERE / script, *arguments, *extra, "--markdown", output]
        done = subprocess.run(run, check=False, env=environment)
        return output.read_text().strip() if done.returncode == 0 else None


def shown(command, extra):
    """The command as a reader types it, without interpreters, which are of this machine alone."""
    variables, script, arguments = split(command)
    extra = re.sub(r"--python \S+ ?", "", " ".join(extra)).split()
    return " ".join([*variables, "python", f"benchmarks/{script}", *arguments, *extra])


def put(report, name, text):
    """The report with a section replaced, or added at its end."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{text}\n{end}"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(report):
        return pattern.sub(lambda _: section, report)
    return f"{report.rstrip()}\n\n{section}\n"


def summarise(folder):
    """Writes the summary of a folder's pages, where performance.md has a place for it."""
    pages = {file.name: file.read_text() for file in sorted(folder.glob("performance*.md"))}
    text = pages.get("performance.md", "")
    if "<!-- summary -->" in text:
        text = put(text, "summary", summary(pages.values(), list(PEERS)))
        (folder / "performance.md").write_text(text)


def parse(arguments):
    mine, extra = arguments, []
    if "--" in arguments:
        cut = arguments.index("--")
        mine, extra = arguments[:cut], arguments[cut + 1 :]
    text = __doc__.splitlines()
    parser = argparse.ArgumentParser(
        description=text[0],
        epilog="\n".join(text[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--list", action="store_true", help="print the sections and end")
    parser.add_argument("--summary", action="store_true", help="measure nothing")
    parser.add_argument("--file", type=pathlib.Path, help="default: the page of each section")
    args = parser.parse_args(mine)
    unknown = sorted(set(args.sections) - set(commands()))
    if unknown:
        parser.error(f"unknown sections {unknown}; expected some of {list(commands())}")
    return args, extra


def main():
    args, extra = parse(sys.argv[1:])
    if args.list:
        return print("\n".join(f"{name}: {script}" for name, script in commands().items()))
    failed = []
    for name in () if args.summary else args.sections or commands():
        command = commands()[name]
        more = [] if split(command)[1] in BARE else extra
        print(f"== {name}: {shown(command, more)}", file=sys.stderr, flush=True)
        text = measure(command, more)
        if text is None:
            failed.append(name)
            continue
        made = "Computed" if split(command)[1] == "plan.py" else "Measured"
        text = f"{text}\n\n{made} by `{shown(command, more)}`."
        file = args.file or page(command)
        file.write_text(put(file.read_text(), name, text))
    summarise(args.file.parent if args.file else DOCS)
    if failed:
        sys.exit(f"Not measured, and left as they were: {', '.join(failed)}")


if __name__ == "__main__":
    main()
