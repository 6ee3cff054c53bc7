"""Values that processes exchange, and values that are sharded over several processes."""

import json
import random

import keras
import numpy as np

from keras_vit.workarounds import set_random_seed


class Gathering:
    """The exchange of values between processes; all of them must call each method.

    Every backend with several processes overrides `stack`; all others follow from it.
    """

    def stack(self, array):
        """The int32 arrays of all processes, of one shape, along a new first axis."""
        return array[None]

    def gather(self, text):
        """A list of the texts of all processes, in the order of their numbers."""
        data = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        lengths = self.stack(np.array([len(data)], np.int32))[:, 0]
        rows = self.stack(np.pad(data, (0, max(lengths) - len(data))))
        return [bytes(row[:n].astype(np.uint8)).decode() for row, n in zip(rows, lengths)]

    def agree(self, subject, values):
        """Raises a ValueError where the values, a dict for JSON, differ between the processes."""
        by_process = [json.loads(text) for text in self.gather(json.dumps(values))]
        names = dict.fromkeys(name for values in by_process for name in values)
        lines = [
            f"\n  {name} is {values.get(name)!r} in process {process}"
            for name in names
            for process, values in enumerate(by_process)
            if any(other.get(name) != values.get(name) for other in by_process)
        ]
        if lines:
            raise ValueError(
                f"All processes must have the same {subject}. Received:{''.join(lines)}\n"
                "Start all with the same command, code, packages and output folder."
            )

    def any_of(self, *flags):
        """For each flag, whether it is true in any process."""
        return [bool(flag) for flag in self.stack(np.array(flags, np.int32)).any(0)]

    def seed_alike(self):
        """Gives all processes the random state of the first, so that they make the same model."""
        # Keras draws the seeds of layers from Python's generator.
        seeds = self.gather(str(random.Random(str(random.getstate())).randrange(2**31)))
        if len(set(seeds)) > 1:
            set_random_seed(int(seeds[0]))


def to_numpy(value: object) -> np.ndarray:
    """A variable or tensor as an array; all processes must call it for a value that they share."""
    if isinstance(value, keras.Variable):
        value = value.value
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def add_up(values, before=None):
    """Sums over processes the increase of each tensor of PyTorch since `before`, or since zero."""
    import torch

    if not values:
        return
    before = before or [torch.zeros_like(value) for value in values]
    gained = torch.cat([(new - old).double().flatten() for new, old in zip(values, before)])
    torch.distributed.all_reduce(gained)
    parts = gained.split([value.numel() for value in values])
    for value, old, part in zip(values, before, parts):
        value.copy_(old + part.view(old.shape).to(old.dtype))
