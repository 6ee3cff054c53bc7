"""Writes docs/studies/ from the results: a page for each study, and one that sums them up.

    python studies/pages.py

A page has the text of the study (its docstring), its figure, what was compared, and the means of
every arm. What follows the mark "by hand", a reading of the results, is kept; the mark names the
date of the runs that were read, and a reading of other runs is reported. In the sum, index.md, the
table between the two marks is written, and headlines.png draws it. Verdicts are those of
docs/studies/protocol.md. Runs of the earlier protocol, in results/earlier, serve a study until
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

from studies.lab import Finding  # noqa: E402

RESULTS, DOCS = HERE / "results", HERE.parent / "docs" / "studies"
SIGNS = {
    "above": "higher",
    "below": "lower",
    "tie": "equal within the margin",
    None: "not said",
}
MEASURES = {
    "core_seconds": None,  # not in the tables
    "protocol": None,
    "rate": "learning rate",
    "held_out": "held out, %",
    "test": "test, %",
    "five_shot": "5-shot, %",
    "ten_shot": "10-shot, %",
    "tuned": "fine-tuned, %",
    "digits": "digits, 10-shot, %",
    "teacher": "teacher, test, %",
    "diverged": "share that diverged",
    "log_odds": "log-odds",
    "macs": "million MACs",
    "parameters": "thousand parameters",
    **{f"test_{count}": f"test with {count}, %" for count in (10, 100, 1000)},
}
FACTORS = {"macs": 1e-6, "parameters": 1e-3}
BY_HAND = "<!-- by hand, of the runs of "


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


def between(finding, together=1):
    ends = finding.interval(together)
    return "{:+.2f} to {:+.2f}".format(*ends) if ends else "one seed"


def beside(finding, verdict):
    """The paper's sign, and whether the verdict has it."""
    if verdict in ("not resolved", "withdrawn") or finding.expected is None:
        return SIGNS[finding.expected]
    agrees = verdict == SIGNS[finding.expected]
    return f"{SIGNS[finding.expected]} ({'agrees' if agrees else 'disagrees'})"


def judged(study, finding, together=1):
    """The verdict; that of a headline is from its interval with all headlines `together`."""
    return "withdrawn" if "WITHDRAWN" in study else finding.verdict(together)


def table(study, report, together):
    """The findings, the headline first."""
    yield cells("compared", "verdict", "mean", "95 % interval", "margin", "in the paper")
    yield "|---" * 6 + "|"
    for place, each in enumerate(map(of, report["findings"])):
        verdict = judged(study, each, 1 if place else together)
        yield cells(each.what, verdict if place else f"**{verdict}**",
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


def status(study, report, together):
    """The paragraph that says what a reader may take from the page."""
    first = of(report["findings"][0])
    verdict = judged(study, first, together)
    if verdict == "withdrawn":
        yield f"**Verdict: withdrawn.** {study['WITHDRAWN']}"
    else:
        yield (
            f"**Verdict: {verdict}.** The headline, {first.what}: {first.mean:+.2f} {first.unit}, "
            f"95 % interval {between(first)}; with all {together} headlines together, as it is "
            f"judged, {between(first, together)}; margin {first.margin:g}. "
            f"The paper's sign: {beside(first, verdict)}."
        )
    if report["earlier"]:
        progress = report["progress"] or {"done": "none"}
        of_how_many = f" of at least {progress['of']}" if "of" in progress else ""
        yield ""
        yield (
            "*Runs of the earlier protocol: rates chosen on seed 0, the same test images for all "
            "seeds, so that the interval leaves out the draw of images. Of the runs of "
            f"[this protocol](protocol.md) {progress['done']}{of_how_many} are done.*"
        )


def page(study, report, together, reading):
    question, body = study["__doc__"].split("\n", 1)
    name, seeds = report["study"], len(report["seeds"])
    folder = "results/earlier" if report["earlier"] else "results"
    caption = study.get("CAPTION", "Each dot is a seed; bars are means with 95 % t-intervals.")
    return "\n".join([
        f"# {question}",
        body.rstrip(),
        "",
        *status(study, report, together),
        "",
        *([f"**The paper.** {study['PAPER']}", ""] if "PAPER" in study else []),
        f"![{question} {caption}](../../studies/{folder}/{name}.png)",
        "",
        *table(study, report, together),
        "",
        "The headline's verdict takes all headlines together; the others are explorative, and no "
        "correction is made for their number.",
        *arms(report),
        "",
        f"`python studies/run.py {name} --data-dir DIR`: {seeds} seeds, {report['core_minutes']} "
        f"core-minutes; {report['machine']}; {report['date']}; "
        f"{', '.join(f'{k} {v}' for k, v in report['versions'].items())}.",
        "",
        reading,
    ])  # fmt: skip


def summary(reports):
    """The table of the first page, with the headline of each study."""
    # The verdict comes before what a narrow window hides.
    yield cells("study", "verdict", "mean (95 % interval)", "margin", "compared", "in the paper")
    yield "|---" * 6 + "|"
    for name, (study, report) in reports.items():
        first = of(report["findings"][0])
        verdict = judged(study, first, len(reports))
        mean = f"{first.mean:+.2f} ({between(first)}) {first.unit}"
        link = f"[{study['__doc__'].splitlines()[0]}]({name}.md)"
        star = " *" if report["earlier"] else ""
        yield cells(
            link, verdict + star, mean, f"{first.margin:g}", first.what, beside(first, verdict)
        )
    going = [
        f"[{name}]({name}.md) {report['progress']['done']} of at least {report['progress']['of']}"
        for name, (_, report) in reports.items()
        if report["progress"]
    ]
    yield f"\n* Runs of the earlier protocol. Runs of this one: {', '.join(going) or 'none'}."
    yield (
        "\n![Mean and 95 % interval of each headline, in margins: the grey band is the margin of "
        "equivalence. The thick bar has 95 %, the thin one has it with all headlines together and "
        "gives the verdict; a triangle shows the paper's sign, a square its tie; open circles are "
        "runs of the earlier protocol, grey ones are withdrawn.]"
        "(../../studies/results/headlines.png)"
    )


def forest(reports):
    """headlines.png: all of them, those that are withdrawn in grey."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.4 * len(reports) + 1), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(-1, 1, color="0.9")
    axes.axvline(0, color="0.5", linewidth=0.8)
    headlines = {name: of(report["findings"][0]) for name, (_, report) in reports.items()}
    for row, (name, each) in enumerate(headlines.items()):
        color = "0.6" if "WITHDRAWN" in reports[name][0] else "C0"
        for together, width in ((len(reports), 1), (1, 3)):
            ends = np.array(each.interval(together)) / each.margin
            axes.plot(ends, [row] * 2, color, lw=width)
        fill = "white" if reports[name][1]["earlier"] else color
        axes.plot(each.mean / each.margin, row, "o", color=color, markerfacecolor=fill)
        if each.expected == "tie":
            axes.plot(0, row, "C1s", zorder=1.5)
        elif each.expected:
            mark, place = {"above": (">", 0.985), "below": ("<", 0.015)}[each.expected]
            axes.plot(place, row, f"C1{mark}", transform=axes.get_yaxis_transform())
    labels = [f"{name}: {each.what}" for name, each in headlines.items()]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xscale("symlog", linthresh=3)
    axes.set(xlabel="mean difference, in margins", ylim=(len(labels) - 0.5, -0.5))
    axes.tick_params(axis="y", labelsize="x-small")
    figure.savefig(RESULTS / "headlines.png", dpi=110)


def constants(name):
    """The docstring of a study and its constants that are text."""
    module = ast.parse((HERE / f"{name}.py").read_text("utf-8"))
    texts = {"__doc__": ast.get_docstring(module)}
    for node in module.body:
        constant = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else None
        if constant in ("PAPER", "WITHDRAWN", "CAPTION"):
            texts[constant] = ast.literal_eval(node.value)
    return texts


def stored(name):
    """The newest report that is complete, and how far the runs of this protocol are."""
    files = [RESULTS / f"{name}.json", RESULTS / "earlier" / f"{name}.json"]
    reports = [json.loads(file.read_text("utf-8")) if file.exists() else {} for file in files]
    complete = "findings" in reports[0]
    report = reports[0] if complete else reports[1]
    return report | {"earlier": not complete, "progress": {} if complete else reports[0]}


def read():
    """{name: (its texts, its report)} of each study that has findings.

    Those that are withdrawn were headlines too: without them the correction would be milder.
    """
    reports = {}
    for name in sorted({file.stem for file in RESULTS.glob("**/*.json")} - {"rates"}):
        report = stored(name)
        if report.get("findings"):
            texts = constants(name)
            if "fault" in report:
                texts["WITHDRAWN"] = report["fault"]
            reports[name] = texts, report
    return reports


def written(reports):
    """{file: text} of all pages."""
    pages = {}
    for name, (texts, report) in reports.items():
        file = DOCS / f"{name}.md"
        new = f"{BY_HAND}{report['date']} -->"
        _, mark, reading = file.read_text("utf-8").partition(BY_HAND) if file.exists() else [""] * 3
        pages[file] = page(texts, report, len(reports), mark + reading or f"{new}\n")
    index = DOCS / "index.md"
    lines = "\n".join(["<!-- summary -->", *summary(reports), "<!-- end -->"])
    head, _, tail = index.read_text("utf-8").partition("<!-- summary -->")
    pages[index] = head + lines + tail.partition("<!-- end -->")[2]
    return pages


def unread(reports):
    """The studies whose reading is of other runs than those of their report."""
    marks = {name: f"{BY_HAND}{report['date']} -->" for name, (_, report) in reports.items()}
    return [n for n, mark in marks.items() if mark not in (DOCS / f"{n}.md").read_text("utf-8")]


def main():
    reports = read()
    for file, text in written(reports).items():
        file.write_text(text, encoding="utf-8")
    forest(reports)
    for name in unread(reports):
        print(f"{name}.md: the reading below the mark is of other runs than the page.")


if __name__ == "__main__":
    main()
