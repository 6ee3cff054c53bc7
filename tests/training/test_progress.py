"""The numbers of a run, at each of its batches."""

import json

import pytest

from keras_vit.training.checkpoint import SaveEvery
from keras_vit.training.progress import Progress
from tests.support import refuses

pytestmark = pytest.mark.any_backend


def test_epochs_and_updates_follow_from_the_batches():
    """Two epochs of five batches and a part of a third, an update for each two batches."""
    progress = Progress(total=12, per_epoch=5, accumulate=2)
    assert (progress.epochs, progress.total_updates, progress.next_epoch) == (3, 6, (0, 5))
    seen = []
    for progress.batch in range(1, 13):
        seen.append((progress.epoch, progress.updates, progress.ends_epoch))
    assert [epoch for epoch, *_ in seen] == [0] * 5 + [1] * 5 + [2] * 2
    assert [updates for _, updates, _ in seen] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert [batch for batch, (*_, ends) in enumerate(seen, 1) if ends] == [5, 10, 12]
    progress.batch = 10
    assert progress.next_epoch == (2, 2)


def test_a_checkpoint_gives_back_what_it_was_given():
    length = {"total": 12, "per_epoch": 5, "accumulate": 2}
    rows = [{"epoch": 0, "loss": 2.0}, {"epoch": 1, "loss": 1.0, "val_loss": 3.0}]
    progress = Progress(**length, batch=12, seed=3, rows=rows, epoch_logs={"loss": 1.0})
    meta = json.loads(json.dumps(progress.to_meta()))
    fresh = Progress(**length)
    assert fresh.restored({**meta, "settings": {}}) == progress and fresh.restored({}) == fresh
    assert progress.history() == {"epoch": [0, 1], "loss": [2.0, 1.0], "val_loss": [None, 3.0]}
    progress.finished = True
    assert not progress.ended  # the last validation is still to come
    progress.epoch_logs = None
    assert progress.ended


def test_a_checkpoint_is_due_after_updates_or_seconds():
    every = SaveEvery(4)
    assert [n for n in range(9) if every.due_by_updates(n)] == [4, 5, 6, 7, 8]
    every.saved(5)
    assert [n for n in range(10) if every.due_by_updates(n)] == [8, 9] and not every.due_by_clock()
    assert SaveEvery("4").due_by_updates(4) and not SaveEvery("4").due_by_updates(3)
    assert SaveEvery("0s").due_by_clock() and not SaveEvery("600.5s").due_by_clock()
    assert not SaveEvery("0s").due_by_updates(1000)
    for wrong in (0, "0", "often", 1.5, -3, None, "5 s"):
        refuses(r"save_every must be .*Received", SaveEvery, wrong)
