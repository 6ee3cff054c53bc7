"""The first table of docs/performance.md: every ratio to the best peer, read from the tables."""

import re

import tables

_TABLE = re.compile(r"^### ", re.MULTILINE)
_TITLE = re.compile(r"(\S+), (\d+) px, (infer|train), batch (\d+), (\w+), (\w+)")
_RATIO = re.compile(
    r"`([^`]+)` is ([\d.]+) times as fast as the best peer(?: with its GELU)?, `([^`]+)`"
)
_MACHINE = re.compile(r"(.+?), \d+ cores, [\d.]+ GiB, .*, (\d{4}-\d\d-\d\d)\.")
_COLUMNS = ("backend", "task", "model", "batch", "dtype", "ours", "times as fast")
_COLUMNS += ("as the best peer", "MiB of a step: ours / least of the peers", "machine, date")


def summary(pages, backends):
    """A table with one row for each of ours in each table of `compare.py`.

    Args:
        pages: the texts of the pages.
        backends: their order.

    Returns:
        Markdown.
    """
    found = [row for page in pages for text in _TABLE.split(page)[1:] for row in _rows(text)]
    found.sort(key=lambda row: (backends.index(row[0]), row[1], row[4] != "float32"))
    return tables.table(_COLUMNS, found)


def _rows(text):
    title, lines = _TITLE.match(text), text.splitlines()
    ratios = [ratio for line in lines if (ratio := _RATIO.match(line))]
    if not title or not ratios:
        return
    model, _, task, batch, backend, dtype = title.groups()
    machine = next(", ".join(found.groups()) for line in lines if (found := _MACHINE.match(line)))
    memory = _memory(lines)
    least = min((size for name, size in memory.items() if not _ours(name)), key=int)
    for ours, times, peer in map(re.Match.groups, ratios):
        if dtype == "float32" or f"dtype={dtype}" in ours:
            row = (backend, task, model, batch, dtype, _label(ours), times, _label(peer))
            yield (*row, f"{memory[ours]} / {least}", machine)


def _memory(lines):
    """Implementation -> MiB while the steps ran."""
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return {row[0].strip("`"): row[6].split(" / ")[0] for row in cells if len(row) == 10}


def _ours(name):
    return name.split("[")[0] == "keras_vit"


def _label(name):
    """Without the dtype, which has a column."""
    return f"`{re.sub(r'dtype=[^],]+,?', '', name).replace(',]', ']').replace('[]', '')}`"
