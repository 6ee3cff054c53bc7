"""The batches of an evaluation on several devices."""

import numpy as np
import pytest

from keras_vit.distribution import evaluating
from tests.distribution.test_setup import load
from tests.support import refuses

ROWS = (np.arange(70), -np.arange(70))


@pytest.mark.any_backend
@pytest.mark.parametrize("batch_size, sizes", [(None, [32, 32, 6]), (40, [40, 30])])
def test_arrays_have_batches_of_the_size_that_is_asked_for(batch_size, sizes):
    batches = list(evaluating.batches_of(ROWS, batch_size))
    assert [len(x) for x, _ in batches] == sizes
    shards = [list(evaluating.shards(ROWS, i, 3, batch_size)) for i in range(3)]
    for i, (x, y) in enumerate(batches):
        assert np.array_equal(np.concatenate([shard[i][0] for shard in shards]), x)
        assert np.array_equal(x, -y)


@pytest.mark.any_backend
def test_data_that_cannot_be_cut_are_told():
    generator = (batch for batch in ())
    refuses("Received: generator", list, evaluating.shards(generator, 0, 2), error=TypeError)


@pytest.mark.any_backend
@pytest.mark.parametrize("processes", [1, 2, 4, 5])
def test_every_image_is_evaluated_once(processes):
    """26 images in batches of 12: the last one has 2, so that of four processes two have none."""
    whole = list(load("test"))
    parts = [list(evaluating.shards(load("test"), i, processes)) for i in range(processes)]
    assert {len(part) for part in parts} == {len(whole)} == {3}
    for step, (images, _) in enumerate(whole):
        cuts = [part[step][0] for part in parts]
        np.testing.assert_array_equal(np.concatenate(cuts), images)


@pytest.mark.any_backend
def test_rows_that_the_devices_do_not_divide_come_last_in_batches_of_the_usual_size():
    batches, remainders = evaluating.batches_of(ROWS, 7), []
    even = list(evaluating.even_shards(batches, 4, (0, 1), remainders))
    assert [len(x) for x, _ in even] == [4] * 10 and [len(x) for x, _ in remainders] == [3] * 10
    joined = list(evaluating.joined(remainders * 2))
    assert [len(x) for x, _ in joined] == [32, 28]
    seen = np.concatenate([x for x, _ in even + remainders])
    assert sorted(seen) == list(range(70))
    assert not list(evaluating.joined([]))
