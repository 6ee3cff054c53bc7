"""Random numbers as a function of their key: good ones, and the same in NumPy and TensorFlow."""

import numpy as np
import pytest

from keras_vit.data.randomness import Purpose, bits, uniform

pytestmark = pytest.mark.any_backend

MASK = 2**64 - 1
COUNT = 4096


def splitmix(state):
    """SplitMix64 as published, in Python's own integers: (number, next state)."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31), state


def defined(key, purpose, count):
    """The definition: each word is hashed into the state, which then seeds SplitMix64."""
    state = int(purpose)
    for word in key:
        state = splitmix(state ^ (word & MASK))[0]
    numbers = []
    for _ in range(count):
        number, state = splitmix(state)
        numbers.append(number)
    return numbers


def table(purpose=Purpose.CROP, count=8):
    """Numbers of many neighbouring examples: (COUNT, count)."""
    return np.stack([uniform((7, 0, index), purpose, count) for index in range(COUNT)])


def test_splitmix_is_the_published_one():
    assert splitmix(1234567)[0] == 6457827717110365317


@pytest.mark.parametrize("key", [(0,), (0, 0, 0), (5, 1, 2**40), (-1, 3, -(2**62))])
def test_bits_match_the_definition(key):
    assert bits(np.array(key), Purpose.FLIP, 5).tolist() == defined(key, Purpose.FLIP, 5)


@pytest.mark.parametrize("key", [(0, 0, 0), (5, 1, 2**40), (-1, 3), (9,)])
def test_tensorflow_gives_the_same_bits(key):
    tf = pytest.importorskip("tensorflow")
    expected = uniform(np.array(key), Purpose.MIXUP, 100)
    tensor = tf.constant(key, tf.int64)
    in_graph = tf.function(lambda key: uniform(key, Purpose.MIXUP, 100))
    np.testing.assert_array_equal(uniform(tensor, Purpose.MIXUP, 100), expected)
    np.testing.assert_array_equal(in_graph(tensor), expected)
    assert expected.dtype == np.float64 and (expected >= 0).all() and (expected < 1).all()


def test_numbers_of_neighbouring_keys_are_uniform():
    """Chi-square over 64 bins: mean 63, standard deviation 11."""
    for column in table().T:
        counts = np.bincount((column * 64).astype(int), minlength=64)
        statistic = ((counts - COUNT / 64) ** 2 / (COUNT / 64)).sum()
        assert 63 - 5 * 11.2 < statistic < 63 + 5 * 11.2


def test_each_bit_is_set_half_of_the_time():
    numbers = np.concatenate([bits((7, 0, index), Purpose.CROP, 4) for index in range(COUNT)])
    shares = ((numbers[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(0)
    assert abs(shares - 0.5).max() < 5 * 0.5 / len(numbers) ** 0.5


def test_neighbours_are_independent():
    """Examples next to each other, positions, purposes and seeds are not correlated."""
    numbers = table()
    pairs = [(numbers[:-1, 0], numbers[1:, 0]), (numbers[:, 0], numbers[:, 1])]
    pairs += [(numbers[:, 0], table(Purpose.FLIP)[:, 0])]
    seeds = np.stack([uniform((seed, 0, 0), Purpose.CROP, 2) for seed in range(COUNT)])
    pairs += [(seeds[:-1, 0], seeds[1:, 0]), (seeds[:, 0], numbers[:, 0])]
    for a, b in pairs:
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / COUNT**0.5


def test_one_changed_bit_of_the_key_changes_half_of_the_result():
    base = bits((3, 4, 5), Purpose.CROP, 1)[0]
    changed = [bits((3, 4, 5 ^ (1 << bit)), Purpose.CROP, 1)[0] for bit in range(63)]
    flips = [int(base ^ other).bit_count() for other in changed]
    assert 28 < np.mean(flips) < 36 and min(flips) > 10


def test_order_of_the_words_matters():
    keys = [(1, 2, 3), (3, 2, 1), (1, 3, 2), (1, 2), (0, 1, 2, 3)]
    assert len({float(uniform(key, Purpose.CROP, 1)[0]) for key in keys}) == len(keys)


def test_more_numbers_begin_with_the_same_ones():
    few, many = (uniform((1, 2), Purpose.CROP, count) for count in (3, 300))
    np.testing.assert_array_equal(few, many[:3])


@pytest.mark.parametrize("key", [1.5, (1.0, 2.0), 3, [], [[]], [[[1, 2]]]])
def test_a_key_that_is_no_vector_of_whole_numbers_is_refused(key):
    with pytest.raises(ValueError, match="key must be whole numbers"):
        uniform(key, Purpose.CROP, 1)


def test_several_keys_at_once():
    keys = np.array([(1, 2, 3), (1, 2, 4), (-1, 0, 2**40)])
    together = bits(keys, Purpose.FLIP, 5)
    np.testing.assert_array_equal(together, [bits(key, Purpose.FLIP, 5) for key in keys])
