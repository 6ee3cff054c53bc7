"""Writes docs/studies/ from the results: a page for each study, and one that sums them up.

    python studies/pages.py

A page has the text of the study (its docstring), its figure, what was compared, and the means of
every arm. What follows the mark "by hand" on a page, a reading of the results, is kept. In the sum,
index.md, the table between the two marks is written, and headlines.png draws it. Verdicts are those
of docs/studies/protocol.md; runs of the earlier protocol, in results/earlier, serve a study until
those of this one are complete.
"""

import ast
import json
import pathlib
import statistics
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)

from studies.lab import Finding, holm  # noqa: E402

RESULTS, DOCS = HERE / "results", HERE.parent / "docs" / "studies"
SIGNS = {
    "above": "higher",
    "below": "lower",
    "tie": "equal within the margin",
    None: "the paper says nothing",
}
MEASURES = {
    "core_seconds": None,  # is not in the tables
    "rate": "learning rate",
    "held_out": "held out, %",
    "test": "test, %",
    "five_shot": "5-shot, %",
    "ten_shot": "10-shot, %",
    "tuned": "fine-tuned, %",
    "digits": "digits, 10-shot, %",
    "teacher": "teacher, test, %",
    "diverged": "share that diverged",
    "macs": "million MACs",
    "parameters": "thousand parameters",
    **{f"test_{count}": f"test with {count}, %" for count in (10, 100, 1000)},
}
FACTORS = {"macs": 1e-6, "parameters": 1e-3}
BY_HAND = "<!-- by hand -->"


def cells(*values):
    return "| " + " | ".join(map(str, values)) + " |"


def number(value):
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.3g}"
        if abs(value) < 1
        else f"{value:.1f}"
    )


def of(finding):
    return Finding(*(finding[key] for key in ("what", "values", "expected", "unit")))


def between(finding, level=0.05):
    ends = finding.interval(level)
    return "{:+.2f} to {:+.2f}".format(*ends) if ends else "one seed"


def beside(finding, verdict):
    """The paper's sign, and whether the verdict has it."""
    if verdict == "not resolved" or finding.expected is None:
        return SIGNS[finding.expected]
    agrees = verdict == SIGNS[finding.expected]
    return f"{SIGNS[finding.expected]} ({'agrees' if agrees else 'disagrees'})"


def table(report, level):
    """The findings; the headline with the level that Holm gives it among all headlines."""
    yield cells("compared", "verdict", "mean", "95 % interval", "margin", "in the paper")
    yield "|---|---|---|---|---|---|"
    for number_, each in enumerate(map(of, report["findings"])):
        verdict = each.verdict(0.05 if number_ else level)
        yield cells(each.what, f"**{verdict}**" if not number_ else verdict,
                    f"{each.mean:+.2f} {each.unit}", between(each), f"{each.margin:g}",
                    beside(each, verdict))  # fmt: skip


def arms(report):
    """The mean of each measure over the seeds."""
    found = dict.fromkeys(m for row in report["arms"].values() for m in row)
    measures = [measure for measure in found if MEASURES[measure]]
    if not (measures and report["core_minutes"]):  # those of another study are on its page
        return
    yield ""
    yield cells("arm, mean of the seeds", *(MEASURES[m] for m in measures))
    yield "|---" * (len(measures) + 1) + "|"
    for arm, row in report["arms"].items():
        means = [
            number(statistics.fmean(row[m]) * FACTORS.get(m, 1)) if m in row else ""
            for m in measures
        ]
        yield cells(arm, *means)


def status(study, report, level):
    """The paragraph that says what a reader may take from the page."""
    first = of(report["findings"][0])
    verdict, withdrawn = first.verdict(level), study.get("WITHDRAWN")
    if withdrawn:
        yield f"**Verdict: withdrawn.** {withdrawn}"
    else:
        yield (
            f"**Verdict: {verdict}.** The headline, {first.what}: {first.mean:+.2f} {first.unit}, "
            f"95 % interval {between(first)}, margin {first.margin:g}; among all headlines Holm "
            f"judges it at {100 * (1 - level):.2f} %. The paper's sign: {beside(first, verdict)}."
        )
    if report["earlier"]:
        yield ""
        done = report["progress"]
        yield (
            "*Runs of the earlier protocol: rates chosen on seed 0, the same test images for all "
            "seeds, so that the interval leaves out the draw of images."
            + (f" Of those of [this protocol](protocol.md) {done['done']} of at least "
               f"{done['of']} runs are done.*" if done else "*")
        )  # fmt: skip


def page(study, report, level, by_hand):
    question, body = study["__doc__"].split("\n", 1)
    name, seeds = report["study"], len(report["seeds"])
    folder = "results/earlier" if report["earlier"] else "results"
    caption = (
        "Dots are seeds, lines their means."
        if report["earlier"]
        else "Each dot is a seed with test images of its own; bars are means with 95 % t-intervals."
    )
    return "\n".join([
        f"# {question}",
        body.rstrip(),
        "",
        *status(study, report, level),
        "",
        *([f"**The paper.** {study['PAPER']}", ""] if "PAPER" in study else []),
        f"![{question} {caption}](../../studies/{folder}/{name}.png)",
        "",
        *table(report, level),
        "",
        "Only the headline is corrected for the number of comparisons; the others are explorative.",
        *arms(report),
        "",
        f"`python studies/run.py {name} --data-dir DIR`: {seeds} seeds, {report['core_minutes']} "
        f"core-minutes; {report['machine']}; {report['date']}; "
        f"{', '.join(f'{k} {v}' for k, v in report['versions'].items())}.",
        "",
        f"{BY_HAND}{by_hand}",
    ])  # fmt: skip


def summary(reports, levels):
    """The table of the first page, with the headline of each study."""
    # The verdict comes before what a narrow window hides.
    yield cells("study", "verdict", "mean (95 % interval)", "margin", "compared", "in the paper")
    yield "|---" * 6 + "|"
    for name, (study, report) in reports.items():
        first = of(report["findings"][0])
        verdict = first.verdict(levels[name])
        mean = f"{first.mean:+.2f} ({between(first)}) {first.unit}"
        link = f"[{study['__doc__'].splitlines()[0]}]({name}.md)"
        word = f"{verdict}{' *' if report['earlier'] else ''}"
        if "WITHDRAWN" in study:
            word, verdict = "withdrawn", "not resolved"
        yield cells(link, word, mean, f"{first.margin:g}", first.what, beside(first, verdict))
    going = [
        f"[{name}]({name}.md) {report['progress']['done']} of at least {report['progress']['of']}"
        for name, (_, report) in reports.items()
        if report["progress"]
    ]
    yield f"\n* Runs of the earlier protocol. Runs of this one: {', '.join(going) or 'none'}."
    yield (
        "\n![Mean and 95 % interval of each headline, in margins: the grey band is the margin of "
        "equivalence. The thick bar has 95 %, the thin one is what Holm judges by; "
        "a triangle shows the paper's sign, a square its tie; open circles are runs of the earlier "
        "protocol, grey ones are withdrawn.](../../studies/results/headlines.png)"
    )


def forest(reports, levels):
    """headlines.png: all of them, those that are withdrawn in grey."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.4 * len(levels) + 1), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(-1, 1, color="0.9")
    axes.axvline(0, color="0.5", linewidth=0.8)
    for row, (name, level) in enumerate(levels.items()):
        each = of(reports[name][1]["findings"][0])
        color = "0.6" if "WITHDRAWN" in reports[name][0] else "C0"
        for limit, width in ((level, 1), (0.05, 3)):
            axes.plot(np.array(each.interval(limit)) / each.margin, [row] * 2, color, lw=width)
        fill = "white" if reports[name][1]["earlier"] else color
        axes.plot(each.mean / each.margin, row, "o", color=color, markerfacecolor=fill)
        if each.expected == "tie":
            axes.plot(0, row, "C1s", zorder=0)
        elif each.expected:
            mark, place = {"above": (">", 0.985), "below": ("<", 0.015)}[each.expected]
            axes.plot(place, row, f"C1{mark}", transform=axes.get_yaxis_transform())
    axes.set_yticks(
        range(len(levels)), [f"{n}: {of(reports[n][1]['findings'][0]).what}" for n in levels]
    )
    axes.set_xscale("symlog", linthresh=3)
    axes.set(xlabel="mean difference, in margins", ylim=(len(levels) - 0.5, -0.5))
    axes.tick_params(axis="y", labelsize="x-small")
    figure.savefig(RESULTS / "headlines.png", dpi=110)


def constants(name):
    """The docstring of a study and its constants that are text."""
    module = ast.parse((HERE / f"{name}.py").read_text("utf-8"))
    found = {"__doc__": ast.get_docstring(module)}
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("PAPER", "WITHDRAWN"):
            found[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    return found


def stored(name):
    """The newest report that is complete, and how far the runs of this protocol are."""
    files = [RESULTS / f"{name}.json", RESULTS / "earlier" / f"{name}.json"]
    reports = [json.loads(file.read_text("utf-8")) if file.exists() else {} for file in files]
    complete = "findings" in reports[0]
    report = reports[0] if complete else reports[1]
    return report | {"earlier": not complete, "progress": {} if complete else reports[0]}


def main():
    names = {file.stem for file in RESULTS.glob("**/*.json")}
    reports = {}
    for name in sorted(names - {"rates"}):
        report = stored(name)
        if report.get("findings"):
            study = constants(name)
            if "fault" in report:
                study["WITHDRAWN"] = report["fault"]
            reports[name] = study, report
    # Those that are withdrawn were headlines too: without them the correction would be milder.
    first = [of(report["findings"][0]) for _, report in reports.values()]
    levels = dict(zip(reports, holm(first)))
    for name, (study, report) in reports.items():
        file = DOCS / f"{name}.md"
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        by_hand = old.partition(BY_HAND)[2] or "\n"
        file.write_text(page(study, report, levels[name], by_hand), encoding="utf-8")
    forest(reports, levels)
    index = DOCS / "index.md"
    lines = "\n".join(["<!-- summary -->", *summary(reports, levels), "<!-- end -->"])
    text = index.read_text("utf-8").partition("<!-- summary -->")
    index.write_text(text[0] + lines + text[2].partition("<!-- end -->")[2], encoding="utf-8")


if __name__ == "__main__":
    main()
