"""Runs that an earlier version was stopped in: they go on, and end with the weights of that one."""

import csv
import json
import shutil

import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.checkpoint import Checkpoints
from tests.oracles import make_before_run as before
from tests.support import BACKEND, ORACLES, refuses, to_numpy

RUNS = ORACLES / "before" / "run" / BACKEND
NAMES = sorted(path.stem for path in RUNS.glob("*.npz"))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_before_goes_on(name, tmp_path, capsys):
    """The last bits may differ from one processor to another, the weights may not."""
    pytest.importorskip("sklearn")  # the digits
    output, (run, stopped) = tmp_path / name, before.RUNS[name]
    shutil.copytree(RUNS / name, output)
    model = run(output)
    printed = capsys.readouterr().out
    assert f"step-{stopped:010d}.npz: continuing after update" in printed
    with np.load(RUNS / f"{name}.npz") as expected:
        for weight, (path, value) in zip(model.weights, expected.items(), strict=True):
            if not path.endswith("key/bias"):  # softmax has no gradient for it but rounding
                np.testing.assert_allclose(to_numpy(weight), value, 1e-5, 1e-5, err_msg=path)
    rows = list(csv.DictReader((output / "history.csv").open()))
    assert [int(row["epoch"]) for row in rows] == list(range(len(rows)))
    stored = list(csv.DictReader((RUNS / name / "history.csv").open()))
    assert rows[: len(stored)] == stored and len(rows) > len(stored)


def test_an_ended_run_of_before_is_not_trained_again(tmp_path):
    """Of it a small file is left when its checkpoints were removed."""
    _, meta, _ = Checkpoints(RUNS / "fit" / "checkpoints").latest()
    del meta["callbacks"]
    (tmp_path / "run.json").write_text(json.dumps({**meta, "finished": True}))
    with pytest.raises(training.RunEnded) as error:
        before.fit(tmp_path)
    assert error.value.history["epoch"] == [0]
    (tmp_path / "run.json").write_text(json.dumps({**meta, "settings": {"steps": 9}}))
    refuses("steps: 9 there, 10 here", before.fit, tmp_path)
