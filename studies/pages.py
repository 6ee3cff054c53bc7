"""Writes docs/studies/ from the results: a page for each study, and one that sums them up.

    python studies/pages.py

A page has the text of the study (its docstring), its figure, what was compared, and the means of
every arm. What follows the mark "by hand" on a page, a reading of the results, is kept. In the sum,
index.md, the table between the two marks is written.
"""

import ast
import json
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)

RESULTS, DOCS = HERE / "results", HERE.parent / "docs" / "studies"
SIGNS = {"above": "above 0", "below": "below 0", "tie": "0, within 1", None: "open"}
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


def between(finding):
    low, high = finding["interval"] or (None, None)
    return f"{low:+.2f} to {high:+.2f}" if finding["interval"] else "one seed"


def findings(report):
    yield cells("compared", "in the paper", "mean", "95 % interval", "verdict")
    yield "|---|---|---|---|---|"
    for each in report["findings"]:
        mean = f"{each['mean']:+.2f} {each['unit']}"
        yield cells(
            each["what"], SIGNS[each["expected"]], mean, between(each), f"**{each['verdict']}**"
        )


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


def page(name, text, paper, report, by_hand):
    question, body = text.split("\n", 1)
    seeds = f"{len(report['seeds'])} seeds, {report['core_minutes']} core-minutes"
    first = report["findings"][0]
    return "\n".join([
        f"# {question}",
        body.rstrip(),
        "",
        f"**Verdict: {report['verdict']}.** The headline, {first['what']}: {first['mean']:+.2f} "
        f"{first['unit']}, 95 % interval {between(first)}; the paper's sign: "
        f"{SIGNS[first['expected']]}.",
        "",
        *([f"**The paper.** {paper}", ""] if paper else []),
        f"![What was measured: every seed is a dot](../../studies/results/{name}.png)",
        "",
        *findings(report),
        *arms(report),
        "",
        f"`python studies/run.py {name} --data-dir DIR`: {seeds}; {report['machine']}; "
        f"{report['date']}; {', '.join(f'{k} {v}' for k, v in report['versions'].items())}.",
        "",
        f"{BY_HAND}{by_hand}",
    ])  # fmt: skip


def summary(reports):
    """The table of the first page, with the headline of each study."""
    # The verdict comes before what a narrow window hides.
    yield cells("study", "verdict", "found", "compared", "its sign", "the paper")
    yield "|---" * 6 + "|"
    for name, (text, paper, report) in reports.items():
        first = report["findings"][0]
        found = f"{first['mean']:+.2f} ({between(first)}) {first['unit']}"
        link = f"[{text.splitlines()[0]}]({name}.md)"
        sign = SIGNS[first["expected"]]
        yield cells(link, first["verdict"], found, first["what"], sign, paper or "-")
    rates = json.loads((RESULTS / "rates.json").read_text("utf-8"))["core_minutes"]
    total = rates + sum(report["core_minutes"] for *_, report in reports.values())
    yield f"\nAll took {total:.0f} core-minutes, {rates:.0f} of them for the learning rates."


def said(name):
    """The docstring of a study and its `PAPER`."""
    module = ast.parse((HERE / f"{name}.py").read_text("utf-8"))
    paper = [
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PAPER"
    ]
    return ast.get_docstring(module), *(paper or [None])


def main():
    reports = {}
    for file in sorted(RESULTS.glob("*.json")):
        report = json.loads(file.read_text(encoding="utf-8"))
        if "findings" in report and file.stem != "rates":
            reports[file.stem] = *said(file.stem), report
    for name, (text, paper, report) in reports.items():
        file = DOCS / f"{name}.md"
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        by_hand = old.partition(BY_HAND)[2] or "\n"
        file.write_text(page(name, text, paper, report, by_hand), encoding="utf-8")
    index = DOCS / "index.md"
    table = "\n".join(["<!-- summary -->", *summary(reports), "<!-- end -->"])
    text = re.sub("<!-- summary -->.*<!-- end -->", table, index.read_text("utf-8"), flags=re.S)
    index.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
