"""What `compare.py` makes of the turns of its processes: rows, ratios, Markdown."""

import itertools

import tables
from peers import OURS, PEERS
from worker import PRODUCTS


def measured(pool, args):
    """Everything about one batch size that goes into the report."""
    products = [w for w in pool.workers if w.settings.name == PRODUCTS]
    workers = [w for w in pool.workers if w.settings.name != PRODUCTS]
    rates = _rates(products[0], args.clock) if products and products[0].turns else {}
    peak = max(rates.values(), default=None)
    versions = tables.merged_versions([w.facts["versions"] for w in workers])
    accelerators = [w.facts["accelerator"] for w in workers]
    a = args.architecture
    return {
        "model": a.name,
        "depth": a.depth,
        "image_size": a.image_size,
        "task": args.task,
        "batch": (workers or products)[0].settings.batch if pool.workers else None,
        "backend": args.backend,
        "dtype": args.dtype,
        "clock": args.clock,
        "cores": list(args.cores),
        "turns": args.turns,
        "steps": args.steps,
        "versions": versions,
        "accelerator": accelerators[0] if accelerators else None,
        "products": rates,
        "peak_gflops": peak,
        "expected_parameters": a.parameters,
        "rows": [_row(worker, args.clock, peak) for worker in workers],
        "ratios": _ratios(workers, args.clock),
        "failed": pool.failed,
    }


def _rates(worker, clock):
    """GFLOP/s of each way and shape: the median of the turns."""
    names = worker.turns[0][clock]
    return {
        name: tables.summary([t[clock][name] for t in worker.turns])["median"] for name in names
    }


def _row(worker, clock, peak):
    s, facts = worker.settings, worker.facts
    turns = [turn[clock] for turn in worker.turns]
    ms = tables.summary(list(itertools.chain(*turns)))
    gflops = s.operations / ms["median"] / 1e6
    parameters = facts["parameters"]
    return {
        "implementation": s.label,
        "gelu": PEERS[s.name].gelu or s.gelu,
        "ms": ms,
        "images_per_second": s.batch / ms["median"] * 1e3,
        "gflops": gflops,
        "share_of_peak": gflops / peak if peak else None,
        "step_memory": worker.turns[-1]["step_memory"],
        "peak_memory": facts["peak_memory"],
        "device_memory": worker.turns[-1]["device_memory"],
        **{name: facts[name] for name in ("first_s", "import_s", "build_s")},
        "parameters": parameters,
        "parameters_more": parameters - s.architecture.parameters,
        "turns": turns,
    }


def _ratios(workers, clock):
    """Ours against every peer that computes the same GELU, or says that it does not."""
    found = []
    ours = [w for w in workers if w.settings.name == OURS]
    for mine, peer in itertools.product(ours, (w for w in workers if w not in ours)):
        times = [[turn[clock] for turn in worker.turns] for worker in (mine, peer)]
        same = (PEERS[peer.settings.name].gelu or peer.settings.gelu) == mine.settings.gelu
        found.append(
            {"ours": mine.label, "peer": peer.label, "same_gelu": same, **tables.ratios(*times)}
        )
    return found


def markdown(run, machine):
    """The tables of one batch size."""
    mode = "CPU time" if run["clock"] == "cpu" else "wall clock"
    cores = f"cores {', '.join(map(str, run['cores']))}" if run["cores"] else "all cores"
    title = (
        f"### {run['model']}, {run['image_size']} px, {run['task']}, batch {run['batch']}, "
        f"{run['backend']}, {run['dtype']}"
    )
    if not run["rows"]:
        return "\n".join([title, "", "Nothing could be measured.", *_failed(run)])
    parts = [title, "", f"{run['turns']} turns of {run['steps']} steps, {mode}, {cores}."]
    if run["peak_gflops"]:
        best = max(run["products"], key=run["products"].get)
        parts[-1] += f" Load before: {machine['load_average']}."
        parts[-1] += f" Products of matrices reach {run['peak_gflops']:.0f} GFLOP/s ({best})."
    parts += ["", _times(run), *_differences(run)]
    if run["ratios"]:
        parts += ["", _ratio_table(run), "", *_best(run)]
    line = tables.machine_line(machine, run["versions"], run["accelerator"])
    return "\n".join([*parts, *_failed(run), "", line])


def _times(run):
    columns = ("implementation", "GELU", "ms: min / quartiles / median", "images/s", "GFLOP/s")
    columns += ("of peak", "MiB: steps / ever", "first call s", "import s", "build s")
    rows = []
    for row in sorted(run["rows"], key=lambda row: row["ms"]["median"]):
        ms = row["ms"]
        spread = f"{ms['min']:.1f} / {ms['low']:.1f}-{ms['high']:.1f} / {ms['median']:.1f}"
        memory = f"{tables.mib(row['step_memory'])} / {tables.mib(row['peak_memory'])}"
        share = row["share_of_peak"]
        seconds = [tables.number(row[name], 2) for name in ("first_s", "import_s", "build_s")]
        rate = tables.number(row["images_per_second"], 2)
        share = tables.number(share and 100 * share, 0, "%")
        flops = tables.number(row["gflops"], 0)
        rows.append((f"`{row['implementation']}`", row["gelu"], spread, rate, flops))
        rows[-1] += (share, memory, *seconds)
    return tables.table(columns, rows)


def _differences(run):
    """Which implementations have another number of parameters than the model."""
    found = [
        f"`{row['implementation']}` {row['parameters_more']:+,}"
        for row in run["rows"]
        if row["parameters_more"]
    ]
    text = f"Parameters: {run['expected_parameters']:,}"
    return ["", f"{text}, but {', '.join(found)}." if found else f"{text} in all of them."]


def _ratio_table(run):
    columns = ("ours", "peer", "times as fast: median of turns", "quartiles", "shortest steps")
    rows = [
        (
            f"`{r['ours']}`",
            f"`{r['peer']}`" + ("" if r["same_gelu"] else " (another GELU)"),
            f"{r['median']:.3f}",
            f"{r['low']:.3f}-{r['high']:.3f}",
            f"{r['min']:.3f}",
        )
        for r in run["ratios"]
    ]
    return tables.table(columns, rows)


def _best(run):
    """One line per implementation of ours: its ratio to the best peer that computes the same."""
    for ours in dict.fromkeys(ratio["ours"] for ratio in run["ratios"]):
        mine = [ratio for ratio in run["ratios"] if ratio["ours"] == ours]
        alike = [ratio for ratio in mine if ratio["same_gelu"]] or mine
        best = min(alike, key=lambda ratio: ratio["median"])
        yield (
            f"`{ours}` is {best['median']:.2f} times as fast as the best peer"
            f"{' with its GELU' if len(alike) < len(mine) else ''}, `{best['peer']}` "
            f"({best['min']:.2f} by the shortest steps)."
        )


def _failed(run):
    lines = [f"- `{label}`: {reason}" for label, reason in run["failed"].items()]
    return ["", "Left out:", "", *lines] if lines else []
