"""The runner of the studies: what it plans, what it concludes, and every study's form."""

import ast
import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from studies import run
from studies.lab import Finding, Part, Results, draw
from tests.support import ROOT

pytestmark = pytest.mark.any_backend
ARMS = {"one": {"rate": (0.1, 0.2)}, "two": {"rate": 0.3}, "three": {}}


def row(arm, seed, rate, held_out=0.0, **measures):
    return {"arm": arm, "seed": seed, "rate": rate, "held_out": held_out, **measures}


def test_seed_0_tries_every_rate_and_the_others_the_best():
    todo = run.planned(ARMS, 2, [])
    assert todo == [
        *[("one", 0, 0.1), ("one", 0, 0.2)],
        *[("two", 0, 0.3), ("two", 1, 0.3), ("three", 0, None), ("three", 1, None)],
    ]
    rows = [row("one", 0, 0.1, 50), row("one", 0, 0.2, 60), row("two", 0, 0.3)]
    assert run.planned({"one": ARMS["one"]}, 2, rows) == [("one", 1, 0.2)]
    rows.append(row("one", 1, 0.2, 10))
    assert run.planned({"one": ARMS["one"]}, 2, rows) == []
    assert [r["held_out"] for r in run.kept({"one": ARMS["one"]}, 2, rows)] == [60, 10]
    assert len(run.kept({"one": ARMS["one"]}, 1, rows)) == 1


def test_a_rehearsal_and_the_study_never_share_a_folder(tmp_path):
    for output in (None, tmp_path):
        assert run.folder(output, quick=True) != run.folder(output, quick=False)
    assert run.folder(None, quick=False) == run.RESULTS


@pytest.mark.parametrize(
    "values, expected, verdict",
    [
        ([1.0, 1.1, 1.2], "above", "as in the paper"),
        ([1.0, 1.1, 1.2], "below", "opposite"),
        ([-1.0, 1.1, 1.2], "above", "not resolved"),
        ([0.1, 0.2, 0.1], "tie", "as in the paper"),
        ([0.1, 2.2, 0.1], "tie", "not resolved"),
        ([3.0, 3.1, 3.2], "tie", "opposite"),
        ([1.0, 1.1, 1.2], None, "above zero"),
        ([-1.0, -1.1, -1.2], None, "below zero"),
        ([1.0], "above", "one seed"),
    ],
)
def test_verdicts(values, expected, verdict):
    assert Finding("what", values, expected).verdict == verdict


def test_the_interval_is_students():
    values = [0.3, 1.2, -0.4, 2.2]
    finding = Finding("what", values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(finding.interval, expected)
    assert json.loads(json.dumps(Finding("what", [1.0]).as_dict()))["interval"] is None


def test_results_pair_the_seeds_that_every_arm_has():
    rows = [row("a", seed, None, test=seed) for seed in (2, 0, 1)]
    results = Results([*rows, row("b", 1, None, test=5), row("b", 0, None, test=4)])
    assert results.seeds == [0, 1]
    np.testing.assert_array_equal(results["b", "test"] - results["a", "test"], [4, 4])
    np.testing.assert_allclose(results.slope("test", ["a", "b"], [0, 2]), [2, 2])
    assert results.measures()["a"]["test"] == [0, 1]


def test_draws_are_five_and_five_classes_and_parts_are_numbered_anew():
    first, others = draw(3)
    assert sorted([*first, *others]) == list(range(10)) and len(first) == 5
    labels = np.arange(40) % 10
    part = Part(np.arange(40, dtype="uint8").reshape(-1, 1, 1, 1), labels)
    some = part.of(others)
    np.testing.assert_array_equal(others[some.labels], some.images.ravel() % 10)
    assert len(some.per_class(2, 0).labels) == 10 and some.classes == 5
    moved = Part(np.arange(8, dtype="uint8").reshape(1, 2, 4, 1), labels[:1]).moved(3)
    np.testing.assert_array_equal(moved.images[0, :, :, 0], [[0, 0, 0, 0], [0, 0, 0, 4]])


@pytest.mark.parametrize("name", run.names())
def test_every_study_is_short_and_says_what_it_does_not_show(name):
    text = (ROOT / "studies" / f"{name}.py").read_text()
    doc = ast.get_docstring(ast.parse(text))
    assert len(text.splitlines()) <= 200
    assert "?" in doc.splitlines()[0]
    study = importlib.import_module(f"studies.{name}")
    assert callable(study.findings) and callable(study.figure)
    assert not study.ARMS or callable(study.run)
    assert study.ARMS or study.USES
    assert name == "rates" or "does not show" in doc


def test_unknown_studies_and_missing_runs_are_named(tmp_path):
    def command(*arguments):
        how = {"capture_output": True, "text": True, "cwd": ROOT}
        return subprocess.run([sys.executable, "studies/run.py", *arguments], **how)

    listed = command("--list")
    assert "How should a Vision Transformer grow?" in listed.stdout and listed.returncode == 0
    wrong = command("shapes")
    assert wrong.returncode == 2 and "'shape'" in wrong.stderr
    alone = command("size_or_patch", "--quick", "--output", str(tmp_path))
    assert alone.returncode == 1 and "run.py shape --quick" in alone.stderr
