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
    batches = list(evaluating.evaluation_batches(ROWS, batch_size))
    assert [len(x) for x, _ in batches] == sizes
    shards = [list(evaluating.evaluation_shards(ROWS, i, 3, batch_size)) for i in range(3)]
    for i, (x, y) in enumerate(batches):
        assert np.array_equal(np.concatenate([shard[i][0] for shard in shards]), x)
        assert np.array_equal(x, -y)


@pytest.mark.any_backend
def test_data_that_cannot_be_cut_are_told():
    generator = (batch for batch in ())
    refuses(
        "Received: generator", list, evaluating.evaluation_shards(generator, 0, 2), error=TypeError
    )


@pytest.mark.any_backend
@pytest.mark.parametrize("processes", [1, 2, 4, 5])
def test_every_image_is_evaluated_once(processes):
    """26 images in batches of 12: the last one has 2, so that of four processes two have none."""
    whole = list(load("test"))
    shards = (evaluating.evaluation_shards(load("test"), i, processes) for i in range(processes))
    parts = list(map(list, shards))
    assert {len(part) for part in parts} == {len(whole)} == {3}
    for step, (images, _) in enumerate(whole):
        cuts = [part[step][0] for part in parts]
        np.testing.assert_array_equal(np.concatenate(cuts), images)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "batch_size, sizes",
    [(7, [4, 8, 8, 8, 4, 8, 8, 8, 4, 8, 2]), (2, [4] * 17 + [2]), (8, [8] * 8 + [4, 2])],
)
def test_rows_that_the_devices_do_not_divide_are_left_to_the_last_batch(batch_size, sizes):
    batches = evaluating.evaluation_batches(ROWS, batch_size)
    divisible = list(evaluating.divisible(batches, 4))
    assert [len(x) for x, _ in divisible] == sizes
    for i, side in enumerate(ROWS):
        np.testing.assert_array_equal(np.concatenate([batch[i] for batch in divisible]), side)
    assert not list(evaluating.divisible([], 4))
