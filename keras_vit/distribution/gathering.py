"""What processes tell one another, and values that are cut over several of them."""

import json
import random

import keras
import numpy as np

from keras_vit.workarounds import set_random_seed


class Gathering:
    """What processes tell one another; each method must be called by all of them.

    Every backend with several processes overrides `stack`; all others follow from it.
    """

    def stack(self, array):
        """An int32 array of each process, of the same shape in all, along a new first axis."""
        return array[None]

    def gather(self, text):
        """One text of each process, in every process, as a list by number of the process."""
        data = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        lengths = self.stack(np.array([len(data)], np.int32))[:, 0]
        rows = self.stack(np.pad(data, (0, max(lengths) - len(data))))
        return [bytes(row[:n].astype(np.uint8)).decode() for row, n in zip(rows, lengths)]

    def agree(self, subject, values):
        """Raises a ValueError where the values, a dict for JSON, differ between the processes."""
        of_all = [json.loads(text) for text in self.gather(json.dumps(values))]
        names = dict.fromkeys(name for each in of_all for name in each)
        lines = [
            f"\n  {name} is {each.get(name)!r} in process {process}"
            for name in names
            for process, each in enumerate(of_all)
            if any(other.get(name) != each.get(name) for other in of_all)
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
    """A variable or tensor as an array; of one that processes share, all of them must call it."""
    if isinstance(value, keras.Variable):
        value = value.value
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return keras.ops.convert_to_numpy(value)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def add_up(values, before=None):
    """Adds to tensors of PyTorch what they gained in other processes since `before`, or zero."""
    import torch

    if not values:
        return
    before = before or [torch.zeros_like(value) for value in values]
    gained = torch.cat([(new - old).double().flatten() for new, old in zip(values, before)])
    torch.distributed.all_reduce(gained)
    parts = gained.split([value.numel() for value in values])
    for value, old, part in zip(values, before, parts):
        value.copy_(old + part.view(old.shape).to(old.dtype))
