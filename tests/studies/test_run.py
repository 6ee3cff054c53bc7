"""The runner of the studies: what it plans, what it concludes, and every study's form."""

import ast
import importlib
import json
import subprocess
import sys
import types

import numpy as np
import pytest
from scipy import stats

from studies import lab, run
from studies.lab import Finding, Part, Results, draw
from tests.support import ROOT

pytestmark = pytest.mark.any_backend
ARMS = {"one": {"rate": (0.1, 0.2)}, "two": {"rate": 0.3}, "three": {}}


def row(arm, seed, rate, held_out=0.0, **measures):
    return {"arm": arm, "seed": seed, "rate": rate, "held_out": held_out, **measures}


def test_tuning_seeds_grow_the_grid_until_the_best_rate_has_worse_ones_on_both_sides():
    arms, tuning = {"one": ARMS["one"]}, (1000, 1001)
    rows, tried = [], []
    while todo := run.planned(arms, range(2), rows, tuning):
        for arm, seed, rate in todo:
            assert (seed in tuning) == (len(tried) < 8)
            tried.append((seed, rate))
            rows.append(row(arm, seed, rate, -abs(rate - 0.4)))
    assert sorted({rate for _, rate in tried}) == [0.1, 0.2, 0.4, 0.8]
    assert tried[8:] == [(0, 0.4), (1, 0.4)]
    assert [(r["seed"], r["rate"]) for r in run.kept(arms, range(2), rows, tuning)] == tried[8:]


def test_the_grid_grows_downwards_too_and_what_is_done_is_not_done_again():
    rows = [row("one", seed, rate, -rate) for seed in run.TUNING for rate in (0.1, 0.2)]
    assert run.planned({"one": ARMS["one"]}, range(2), rows) == [
        ("one", seed, 0.05) for seed in run.TUNING
    ]


def test_a_rehearsal_takes_the_middle_rate_and_arms_without_a_choice_take_theirs():
    todo = run.planned(ARMS, range(2), [], ())
    assert [(arm, rate) for arm, _, rate in todo] == [
        *[("one", 0.2)] * 2,
        *[("two", 0.3)] * 2,
        *[("three", None)] * 2,
    ]


def test_rows_of_another_protocol_and_half_a_line_are_not_read(tmp_path):
    file = tmp_path / "study.jsonl"
    rows = [{"arm": "old"}, {"arm": "new", "protocol": lab.PROTOCOL}]
    file.write_text("\n".join([*map(json.dumps, rows), '{"arm": "cu']))
    assert [each["arm"] for each in lab.read(file)] == ["new"]


def test_a_study_that_goes_on_says_how_far_it_is():
    study = types.SimpleNamespace(ARMS=ARMS, SECONDS=3600)
    rows = [row("three", 0, None, core_seconds=1800)]
    said = run.estimate(study, range(2), rows, (9,))
    assert said == "1 of 8 runs done; 3.50 core-hours left"
    assert run.progress(study, range(2), rows, (9,)) == {"done": 1, "of": 8}


def test_a_rehearsal_and_the_study_never_share_a_folder(tmp_path):
    for output in (None, tmp_path):
        assert run.folder(output, quick=True) != run.folder(output, quick=False)
    assert run.folder(None, quick=False) == run.RESULTS


@pytest.mark.parametrize(
    "values, verdict",
    [
        ([2.0, 2.1, 2.2], "higher"),
        ([-2.0, -2.1, -2.2], "lower"),
        ([-1.0, 1.1, 1.2], "not resolved"),
        ([0.1, 0.2, 0.1], "equal within the margin"),
        ([0.1, 2.2, 0.1], "not resolved"),
        ([0.0, 0.0, 0.0], "equal within the margin"),
        ([1.0], "not resolved"),
    ],
)
def test_verdicts(values, verdict):
    finding = Finding("what", values)
    assert finding.verdict() == verdict


def test_the_interval_is_students_and_with_others_together_bonferronis():
    values = [0.3, 1.2, -0.4, 2.2]
    for together in (1, 19):
        level = 1 - 0.05 / together
        expected = stats.ttest_1samp(values, 0).confidence_interval(level)
        np.testing.assert_allclose(Finding("what", values).interval(together), expected)


@pytest.mark.parametrize("mean, wrong", [(0, ("higher", "lower")), (1, ("lower", "equal"))])
def test_a_false_verdict_among_nineteen_headlines_is_rare(mean, wrong):
    """Where each true mean is zero, or the margin, with errors of a fifth of the margin.

    By Holm's procedure a right verdict of one headline would make the interval of the next
    narrower, and at the margin 17 % of all such sets of headlines would have a false one.
    """
    draws = np.random.default_rng(0).normal(mean, 0.2 * 10**0.5, (200, 19, 10))
    found = [[Finding("", values).verdict(19) for values in headlines] for headlines in draws]
    false = [any(verdict.startswith(wrong) for verdict in verdicts) for verdicts in found]
    assert np.mean(false) < 0.05


def test_ten_seeds_share_the_test_images_and_none_is_trained_on():
    bench = lab.Lab(quick=True)
    whole, parts = bench.part("test"), [bench.part("test", seed=seed) for seed in range(10)]
    assert sum(len(part.labels) for part in parts) == len(whole.labels)
    images = lambda part: {image.tobytes() for image in part.images}  # noqa: E731
    for seed in (0, 3):
        train, test = bench.digits(8, seed)
        assert len(train.labels) + len(test.labels) == 1797
        assert len(images(train) & images(test)) < 3  # two digits of the set are the same image
    assert not images(bench.digits(8, 0)[1]) & images(bench.digits(8, 3)[1])


def test_results_pair_the_seeds_that_every_arm_has():
    rows = [row("a", seed, None, test=seed) for seed in (2, 0, 1)]
    results = Results([*rows, row("b", 1, None, test=5), row("b", 0, None, test=4)])
    assert results.seeds == [0, 1]
    np.testing.assert_array_equal(results["b", "test"] - results["a", "test"], [4, 4])
    np.testing.assert_allclose(results.slope("test", ["a", "b"], [0, 2]), [2, 2])
    assert results.measures()["a"]["test"] == [0, 1]


def test_levelled_intervals_of_two_arms_are_those_of_their_difference():
    one, other = np.random.default_rng(0).normal([80, 82], 5, (6, 2)).T
    draw = np.array([0, 30, -20, 10, 5, -7])  # of classes, which both arms share
    moved = lab.levelled({"one": one + draw, "other": other + draw})
    half = np.diff(Finding("", list(one - other)).interval()) / 2
    for arm, mean in {"one": (one + draw).mean(), "other": (other + draw).mean()}.items():
        low, high = Finding("", list(moved[arm])).interval()
        np.testing.assert_allclose([low, high], mean + np.array([-1, 1]) * half / 2**0.5)


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
