"""The batches of an evaluation, on one device and on several."""

import pathlib

import keras
import numpy as np
import pytest

from keras_vit import distribution
from keras_vit.data import pipeline
from keras_vit.distribution import evaluating
from tests.data.pipeline_cases import class_folders, recipe
from tests.distribution.test_setup import load
from tests.support import every_backend, refuses

pytestmark = pytest.mark.any_backend
ROWS = (np.arange(70), -np.arange(70))


@pytest.mark.parametrize("batch_size, sizes", [(None, [32, 32, 6]), (40, [40, 30])])
def test_arrays_have_batches_of_the_size_that_is_asked_for(batch_size, sizes):
    batches = list(evaluating.evaluation_batches(ROWS, batch_size))
    assert [len(x) for x, _ in batches] == sizes
    shards = [list(evaluating.evaluation_shards(ROWS, i, 3, batch_size)) for i in range(3)]
    for i, (x, y) in enumerate(batches):
        assert np.array_equal(np.concatenate([shard[i][0] for shard in shards]), x)
        assert np.array_equal(x, -y)


def test_data_that_cannot_be_cut_are_told():
    generator = (batch for batch in ())
    refuses(
        "Received: generator", list, evaluating.evaluation_shards(generator, 0, 2), error=TypeError
    )


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


@every_backend
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_batch_that_cannot_be_read_is_left_out_of_evaluation(tmp_path, batch_size):
    """The first batch, and a last one of one image."""
    class_folders(tmp_path / "train", per_class=8)
    test = pipeline(tmp_path, recipe(batch_size), "train", training=False)
    for row in {*test.rows[:batch_size], test.rows[-1]}:
        pathlib.Path(test.source.place(row)).write_bytes(b"")
    with pytest.warns(UserWarning, match="is left out"):
        batches = list(test)
    sizes = [len(images) for images, _ in batches]
    assert sizes[0] == sizes[-1] == 0 and sum(sizes) == 16 - len(test.skipped)
    model = keras.Sequential([keras.layers.Input((4, 4, 3)), keras.layers.Flatten()])
    model.add(keras.layers.Dense(2))
    losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", losses, metrics=["accuracy"])
    images, labels = map(np.concatenate, zip(*batches))
    expected = model.evaluate(images, labels, verbose=0, return_dict=True)
    found = distribution.current().evaluate(model, test, verbose=0)  # Keras warns of the gap
    assert found == pytest.approx(expected, rel=1e-5)
    if keras.backend.backend() != "tensorflow":
        refuses(f"No image of batch 0 can be read.*batch_size={batch_size}", test.__getitem__, 0)
