"""Which examples make which batch: a function of (seed, step), and of nothing else."""

import dataclasses
import functools
import threading
import warnings

import numpy as np

from keras_vit.data.randomness import Purpose, bits

_LOST_AT_MOST = 4  # one example in so many may be unreadable
_LISTED = 10  # examples named in warnings and errors


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """The batches of a pipeline, by step.

    In training every epoch is a permutation of all rows of its own, cut into full batches; what
    remains of it is left out, a different rest each epoch. Otherwise the rows come in order, and
    the last batch holds the rest.

    Attributes:
        rows: int64, the numbers of the examples in the split.
        batch_size: examples per batch.
        training: see above.
        seed: decides the permutations.
        unreadable: see `Unreadable`.
    """

    rows: np.ndarray
    batch_size: int
    training: bool
    seed: int
    unreadable: "Unreadable"

    @property
    def steps_per_epoch(self):
        """Batches in an epoch."""
        full, rest = divmod(len(self.rows), self.batch_size)
        return full if self.training or not rest else full + 1

    def epoch(self, step):
        """The epoch that a step belongs to."""
        return step // self.steps_per_epoch

    def size(self, step):
        """The number of examples in the batch of a step."""
        start = (step % self.steps_per_epoch) * self.batch_size
        return min(self.batch_size, len(self.rows) - start)

    def batch(self, step):
        """The rows of a batch, int64, unreadable ones included."""
        epoch, index = divmod(step, self.steps_per_epoch)
        window = slice(index * self.batch_size, (index + 1) * self.batch_size)
        if not self.training:
            return self.rows[window]
        return self.rows[_permutation(self.seed, epoch, len(self.rows))[window]]

    def row(self, step, place):
        """One row of `batch(step)`, at less cost."""
        epoch, index = divmod(step, self.steps_per_epoch)
        position = index * self.batch_size + place
        if self.training:
            position = _permutation(self.seed, epoch, len(self.rows))[position]
        return int(self.rows[position])

    def readable(self, row, epoch):
        """A row to read in place of `row` in an epoch, and whether that is `row` itself.

        It is the next one of the split that can be read: which one does not depend on when it was
        noticed that the others cannot.
        """
        if (row, epoch) not in self.unreadable:
            return int(row), True
        position = int(np.flatnonzero(self.rows == row)[0])
        for offset in range(1, len(self.rows)):
            other = int(self.rows[(position + offset) % len(self.rows)])
            if (other, epoch) not in self.unreadable:
                return other, False
        raise ValueError(self.unreadable.described())


# Two, because one epoch is read ahead while another one ends.
@functools.lru_cache(maxsize=4)
def _permutation(seed, epoch, count):
    """A permutation of `count` rows: the order of hashes, which any version of NumPy agrees on."""
    return np.argsort(bits((seed, epoch), Purpose.ORDER, count), kind="stable")


class Unreadable:
    """The examples that turned out to be unreadable, by number, with the reasons.

    They are looked up by epoch: of a file that is cut off, a crop near its top can be read, and a
    run that begins later must not know more than the one that it continues.

    Args:
        place: row -> where it lies, text.
        total: number of examples in the split.
    """

    def __init__(self, place, total):
        self._place, self._total = place, total
        self._reasons, self._found, self._lock = {}, set(), threading.Lock()
        self._failure = None  # the message once too many were found

    def __contains__(self, row_and_epoch):
        return bool(self._found) and tuple(map(int, row_and_epoch)) in self._found

    def __len__(self):
        return len(self._found)

    @property
    def places(self):
        """Where the unreadable examples lie, sorted by their numbers."""
        return tuple(self._place(row) for row in sorted(self._reasons))

    def add(self, row, epoch, reason):
        """Takes an example out, with a warning for each of the first ones.

        Raises:
            ValueError: more than a quarter of the examples cannot be read.
        """
        row = int(row)
        with self._lock:
            known = row in self._reasons
            self._reasons.setdefault(row, str(reason))
            self._found.add((row, int(epoch)))
            count = len(self._reasons)
            # Threads read on while the error travels: all of them report the same first excess.
            if count > max(1, self._total // _LOST_AT_MOST) and self._failure is None:
                self._failure = self._described()
        if self._failure:
            raise ValueError(self._failure)
        if not known and count <= _LISTED:
            more = "; no more of them are reported, see `skipped`" * (count == _LISTED)
            warnings.warn(f"{self._place(row)} is left out: {reason}{more}", stacklevel=2)

    def described(self):
        """How many there are, and the first of them."""
        with self._lock:
            return self._failure or self._described()

    def _described(self):
        reasons = list(self._reasons.items())
        lines = [f"{len(reasons)} of {self._total} examples cannot be read. Received:"]
        lines += [f"  {self._place(row)}: {reason}" for row, reason in reasons[:_LISTED]]
        lines += [f"  and {len(reasons) - _LISTED} more"] * (len(reasons) > _LISTED)
        return "\n".join([*lines, "Repair or remove them."])
