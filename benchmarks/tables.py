"""Medians, ratios and Markdown tables of the speed benchmarks."""

import json
import pathlib
import statistics


def summary(values):
    """Least, quartiles and greatest of some numbers."""
    values = sorted(values)
    low, median, high = (
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    )
    return {"min": values[0], "low": low, "median": median, "high": high, "max": values[-1]}


def ratios(ours, peer):
    """How many times as fast ours is as a peer, from the times of each of the same turns.

    Args:
        ours, peer: for each turn, the times of its steps.

    Returns:
        `"median"`, the median over the turns of the ratio of their medians, with its quartiles
        `"low"` and `"high"`; `"min"`, the ratio of the shortest step of each.
    """
    found = [statistics.median(p) / statistics.median(o) for o, p in zip(ours, peer)]
    spread = summary(found)
    least = min(map(min, peer)) / min(map(min, ours))
    return {name: spread[name] for name in ("low", "median", "high")} | {"min": least}


def table(columns, rows):
    """Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def number(value, digits=1, unit=""):
    """A number as text, or a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def mib(value):
    """Bytes as MiB, or a dash for None."""
    return number(None if value is None else value / 2**20, 0)


def merged_versions(found):
    """Package -> version, or all versions where interpreters have different ones."""
    merged = {}
    for package, version in (item for versions in found for item in versions.items()):
        merged.setdefault(package, []).append(version)
    return {package: " and ".join(dict.fromkeys(each)) for package, each in merged.items()}


def machine_line(machine, versions, accelerator=None):
    """Where and when something was measured, in one line."""
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    parts = [f"{accelerator}; {where}" if accelerator else where]
    parts += [f"{name} {version}" for name, version in sorted(versions.items())]
    return ", ".join([*parts, f"Python {machine['python']}", machine["date"]]) + "."


def write(report, markdown, json_path=None, markdown_path=None):
    """Writes what was measured to the files that were asked for."""
    if json_path:
        pathlib.Path(json_path).write_text(json.dumps(report, indent=1) + "\n")
    if markdown_path:
        pathlib.Path(markdown_path).write_text(markdown + "\n")


def add_outputs(parser):
    """The arguments of `write`."""
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables to this file")
