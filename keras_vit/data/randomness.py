"""Random numbers that are a function of what they are for, and of nothing else.

A generator that is advanced from call to call makes an image depend on how many threads read
before it. Here a number is a hash of (seed, epoch, example, purpose, position): it is the same in
any order, on any number of workers, after any interruption, in NumPy and in a TensorFlow graph.
"""

import enum

import numpy as np

from keras_vit.data.arrays import is_tensorflow, namespace


def _uint64(value):
    """A constant of one element: NumPy warns where a scalar overflows, which is meant here."""
    return np.full(1, value, np.uint64)


# SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
# the shifts and multipliers are David Stafford's "Mix13". A division by 2^n shifts by n bits.
_STEP = _uint64(0x9E3779B97F4A7C15)
_SHIFTS = _uint64(2**30), _uint64(2**27), _uint64(2**31)
_FACTORS = _uint64(0xBF58476D1CE4E5B9), _uint64(0x94D049BB133111EB)
_TO_53_BITS = _uint64(2**11)


class Purpose(enum.IntEnum):
    """What random numbers are drawn for: those of two purposes are independent."""

    CROP = 1
    FLIP = 2
    RANDAUGMENT = 3
    MIXUP = 4
    CUTMIX = 5
    ORDER = 6
    OTHER = 7
    AFFINE = 8


def bits(key, purpose, count):
    """Hashes a key to `count` whole numbers.

    Args:
        key: what the numbers belong to, int64 of shape (words,): (seed, epoch, index) for an
            example, (seed, step) for a batch. A NumPy array, a sequence, or a TensorFlow tensor;
            an array may also be (keys, words), one key in each row.
        purpose: a `Purpose`, or another int.
        count: how many numbers, an int.

    Returns:
        uint64 of shape (count,), uniform over all 2^64 values, or (keys, count); a tensor where
        the key is one.
    """
    key = _checked(key)
    xp = namespace(key)
    state = xp.cast(np.full(1, int(purpose), np.int64), "uint64")
    key = xp.cast(key, "uint64")
    for word in xp.unstack(key) if len(key.shape) == 1 else key.T[..., None]:
        state = _mix((state ^ word) + _STEP)
    steps = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    return _mix(state + steps)


def uniform(key, purpose, count):
    """Hashes a key to `count` numbers in [0, 1).

    Args:
        key, purpose, count: as in `bits`.

    Returns:
        float64 of shape (count,) or (keys, count), whole multiples of 2^-53; a tensor where the
        key is one. Both libraries give the same bits.
    """
    numbers = bits(key, purpose, count) // _TO_53_BITS
    return namespace(numbers).cast(numbers, "float64") * 2.0**-53


def _mix(z):
    z = (z ^ (z // _SHIFTS[0])) * _FACTORS[0]
    z = (z ^ (z // _SHIFTS[1])) * _FACTORS[1]
    return z ^ (z // _SHIFTS[2])


def _checked(key):
    if is_tensorflow(key):
        return key
    array = np.asarray(key)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or not array.shape[-1]:
        raise ValueError(
            "key must be whole numbers of shape (words,), such as (seed, epoch, index), or (keys, "
            f"words). Received: {key!r}"
        )
    return array
