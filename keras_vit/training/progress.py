"""How far a run of `training.fit` has come."""

import dataclasses
from typing import Any

import keras
import numpy as np

_SAVED = ("batch", "seed", "rows", "epoch_logs", "finished")  # in a checkpoint


@dataclasses.dataclass
class Progress:
    """How many batches and epochs are done, and what follows from that; epochs count from 0.

    Args:
        total, per_epoch, accumulate: batches of the whole run, of an epoch and of an update.
        batch: batches that are done.
        seed: on PyTorch, the noise of a batch is a function of it and of the batch's number.
        rows: the history, a dict of numbers for each epoch that has ended.
        epoch_logs: the metrics of an epoch that awaits its validation, or `None`.
        finished: whether no more batches are trained; the last validation may still be to come.
    """

    total: int
    per_epoch: int
    accumulate: int = 1
    batch: int = 0
    seed: int | None = None
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    epoch_logs: dict[str, float] | None = None
    finished: bool = False

    def restored(self, meta: dict[str, Any]):
        """The progress that the `meta` of a checkpoint has kept."""
        return dataclasses.replace(self, **{name: meta[name] for name in _SAVED if name in meta})

    def draw_seed(self):
        """Draws the `seed` of a run that begins, on PyTorch."""
        if self.seed is None and keras.backend.backend() == "torch":
            import torch

            self.seed = int(torch.randint(2**31, ()))

    def seed_batch(self, process):
        """Seeds the next batch in a process on PyTorch, whose layers share one generator."""
        if keras.backend.backend() == "torch":
            import torch

            seeds = np.random.SeedSequence((self.seed, self.batch, process))
            torch.manual_seed(int(seeds.generate_state(1)[0]))

    def to_meta(self):
        """What a checkpoint keeps, a dict for JSON."""
        return {name: getattr(self, name) for name in _SAVED}

    @property
    def ended(self):
        """Whether the run is over, its last validation included."""
        return self.finished and self.epoch_logs is None

    @property
    def epoch(self):
        """The epoch of the last batch."""
        return max(self.batch - 1, 0) // self.per_epoch

    @property
    def epochs(self):
        """Epochs of the whole run; the last one may be incomplete."""
        return -(-self.total // self.per_epoch)

    @property
    def updates(self):
        return self.batch // self.accumulate

    @property
    def total_updates(self):
        return self.total // self.accumulate

    @property
    def ends_epoch(self):
        """Whether the last batch was the last one of its epoch, or of the run."""
        return self.batch == self.total or self.batch % self.per_epoch == 0

    @property
    def next_epoch(self):
        """The epoch of the next batch, and how many batches are left in it."""
        epoch, done = divmod(self.batch, self.per_epoch)
        return epoch, min(self.per_epoch - done, self.total - self.batch)

    def history(self):
        """The rows as columns: a dict from a name to its values, one per epoch."""
        columns = dict.fromkeys(name for row in self.rows for name in row)
        return {name: [row.get(name) for row in self.rows] for name in columns}
