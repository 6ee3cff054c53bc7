"""The pages of the studies: what is written from invented results, and that none is out of date."""

import json
import re

import pytest
from scipy import stats

from studies import pages

pytestmark = pytest.mark.any_backend
CLEAR, FAIR, NOTHING = [3.1, 2.4, 2.9, 3.3], [0.8, 2.0, 1.2, 1.5], [-2.0, 3.0, 0.5, -0.4]


def report(name, *values):
    findings = [
        {"what": f"what {place}", "expected": "above", "unit": "points", "values": each}
        for place, each in enumerate(values)
    ]
    measures = {"protocol": [2.0] * 4, "rate": [0.001] * 4, "test": [70.0, 80.0, 90.0, 80.0]}
    return {
        "study": name,
        "findings": findings,
        "arms": {"one": measures | {"log_odds": [1.0] * 4, "macs": [3e6] * 4}},
        "seeds": [0, 1, 2, 3],
        "core_minutes": 1.5,
        "date": "2026-01-02",
        "machine": "a machine",
        "versions": {"keras": "3"},
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three studies: one complete, one of the earlier protocol that goes on, one that has begun."""
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    (tmp_path / "earlier").mkdir()
    (tmp_path / "index.md").write_text("Head\n<!-- summary -->\nold\n<!-- end -->\nTail\n")
    files = {
        "pooling": report("pooling", FAIR, FAIR, NOTHING),
        "earlier/axial": report("axial", CLEAR),
        "axial": {"study": "axial", "done": 7, "of": 96},
        "norm": {"study": "norm", "done": 1, "of": 64},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def ends(values, together):
    test = stats.ttest_1samp(values, 0)
    return "{:+.2f} to {:+.2f}".format(*test.confidence_interval(1 - 0.05 / together))


def test_the_headline_is_judged_with_all_others_and_the_other_findings_alone(folder):
    pages.main()
    text = (folder / "pooling.md").read_text()
    assert stats.ttest_1samp(FAIR, 0).pvalue < 0.025  # half of the 5 %, for two headlines
    assert text.startswith("# Class token or mean")
    assert f"95 % interval {ends(FAIR, 1)}; with all 2 headlines together" in text
    assert f"as it is judged, {ends(FAIR, 2)}; margin 1" in text
    assert "**Verdict: higher.**" in text and "The paper's sign: higher (agrees)." in text
    assert (
        f"| what 2 | not resolved | +0.28 points | {ends(NOTHING, 1)} | 1 | higher |"
        in text.splitlines()
    )
    assert "| one | 0.001 | 80.0 | 1.0 | 3.0 |" in text
    assert (folder / "headlines.png").stat().st_size > 1000


def test_more_headlines_make_the_verdict_harder(folder):
    for name in ("masked", "mosaics", "positions"):
        (folder / f"{name}.json").write_text(json.dumps(report(name, NOTHING)))
    pages.main()
    assert stats.ttest_1samp(FAIR, 0).pvalue > 0.05 / 5
    lines = (folder / "pooling.md").read_text().splitlines()
    assert any("**Verdict: not resolved.**" in line for line in lines)
    assert any(line.startswith("| what 0 | **not resolved** |") for line in lines)
    assert any(line.startswith("| what 1 | higher |") for line in lines)


def test_runs_that_are_not_complete_give_no_verdict(folder):
    pages.main()
    assert not (folder / "norm.md").exists()
    text = (folder / "axial.md").read_text()
    assert "Runs of the earlier protocol" in text and "7 of at least 96 are done" in text
    index = (folder / "index.md").read_text()
    assert index.startswith("Head\n") and index.endswith("\nTail\n") and "old" not in index
    assert re.findall(r"\((\w+).md\) \| ([\w *]+) \|", index) == [
        ("axial", "higher *"),
        ("pooling", "higher"),
    ]
    assert "[axial](axial.md) 7 of at least 96" in index


def test_a_study_with_a_fault_has_no_verdict_in_any_line(folder):
    fault = {"fault": "The rates were at an end."}
    (folder / "pooling.json").write_text(json.dumps(report("pooling", CLEAR, FAIR) | fault))
    pages.main()
    text = (folder / "pooling.md").read_text()
    assert "**Verdict: withdrawn.** The rates were at an end." in text
    rows = [line for line in text.splitlines() if line.startswith("| what")]
    assert all("withdrawn" in row and "agrees" not in row for row in rows) and len(rows) == 2


def test_a_reading_is_kept_and_reported_when_the_runs_are_others(folder, capsys):
    pages.main()
    file = folder / "pooling.md"
    file.write_text(file.read_text() + "\n## How to read it\n\nWith care.\n")
    before = file.read_text()
    pages.main()
    assert file.read_text() == before and capsys.readouterr().out == ""
    later = report("pooling", FAIR) | {"date": "2026-03-04"}
    (folder / "pooling.json").write_text(json.dumps(later))
    pages.main()
    assert file.read_text().endswith("With care.\n")
    assert "pooling.md" in capsys.readouterr().out


def test_every_page_is_what_the_results_give_and_its_reading_is_of_these_runs():
    """`python studies/pages.py` writes them; whoever reads the runs puts their date in the mark."""
    reports = pages.read()
    stale = [
        file.name
        for file, text in pages.written(reports).items()
        if file.read_text("utf-8") != text
    ]
    assert stale == []
    assert pages.unread(reports) == []
