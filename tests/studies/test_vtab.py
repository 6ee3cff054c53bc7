"""VTAB-1k beside the paper."""

import json
import sys

import pytest

from keras_vit import evaluation, recipes
from studies import vtab

pytestmark = pytest.mark.any_backend
TASKS = [task for tasks in evaluation.VTAB_GROUPS.values() for task in tasks]


def test_the_means_of_table_9_are_those_of_table_2():
    means = {name: 100 * score.mean for name, score in vtab.paper(TASKS).items()}
    table_2 = {"H/14, JFT": 77.63, "L/16, JFT": 76.28, "L/16, I21k": 72.72}
    assert means == pytest.approx(table_2, abs=0.02)


def test_finished_runs_of_a_group_are_read_and_set_beside_the_paper(tmp_path, monkeypatch, capsys):
    for i, task in enumerate(evaluation.VTAB_GROUPS["specialized"]):
        (tmp_path / task).mkdir()
        (tmp_path / task / "evaluation.json").write_text(json.dumps({"top1": 0.5 + i / 10}))
        settings = {"recipe": recipes.vtab(task, "L/16").to_dict(), "output": str(tmp_path / task)}
        settings |= {"model": "L/16", "weights": "w"}
        (tmp_path / task / "settings.json").write_text(json.dumps(settings))
    arguments = "vtab.py --variant L/16 --data-dir . --group specialized --output".split()
    arguments += [str(tmp_path), "--weights"]
    monkeypatch.setattr(sys, "argv", [*arguments, "w"])
    vtab.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["patch_camelyon", "50.0", "83.3", "83.6", "82.5"]
    assert lines[-1][:4] == ["mean,", "specialized", "65.0", "87.0"]
    assert json.loads((tmp_path / "vtab.json").read_text())["groups"]["specialized"] == 0.65
    for other in (["others"], ["w", "--variant", "B/16"], ["w", "--batch-size", "64"]):
        monkeypatch.setattr(sys, "argv", [*arguments, *other])
        with pytest.raises(ValueError, match="another --output"):
            vtab.main()


def test_unknown_groups_are_named(monkeypatch, capsys):
    arguments = "--variant L/16 --weights w --data-dir . --group medical"
    monkeypatch.setattr(sys, "argv", ["vtab.py", *arguments.split()])
    with pytest.raises(SystemExit):
        vtab.main()
    assert "'natural', 'specialized', 'structured'" in capsys.readouterr().err
