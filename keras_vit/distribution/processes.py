"""What the processes of a run do together: a function that takes `devices` waits for all of them.

A run of one process may call each function, too, and waits for nothing.
"""

import itertools
import json
import os
import random

import numpy as np

from keras_vit.workarounds import set_random_seed


def environment(names):
    """Dict of the environment variables `names`, which are set together; {} if none is set."""
    given = {name: os.environ[name] for name in names if os.environ.get(name)}
    missing = [name for name in names if name not in given]
    if given and missing:
        raise ValueError(
            f"Several processes need the environment variables {names}. Received: no {missing}; "
            "set them in every process, or none of them."
        )
    return given


def gather_texts(devices, text):
    """A list of the texts of all processes, in the order of their numbers."""
    data = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    lengths = devices.gather(np.array([len(data)], np.int32))[:, 0]
    rows = devices.gather(np.pad(data, (0, max(lengths) - len(data))))
    return [bytes(row[:n].astype(np.uint8)).decode() for row, n in zip(rows, lengths)]


def agree(devices, subject, values):
    """Raises a ValueError where the values, a dict for JSON, differ between the processes."""
    by_process = [json.loads(text) for text in gather_texts(devices, json.dumps(values))]
    differences = [
        f"\n  {name} is {each.get(name)!r} in process {process}"
        for name in dict.fromkeys(itertools.chain(*by_process))
        if any(other.get(name) != by_process[0].get(name) for other in by_process)
        for process, each in enumerate(by_process)
    ]
    if differences:
        raise ValueError(
            f"All processes must have the same {subject}. Received:{''.join(differences)}\n"
            "Start all with the same command, code, packages and output folder."
        )


def any_of(devices, *flags):
    """For each flag, whether it is true in any process."""
    return [bool(flag) for flag in devices.gather(np.array(flags, np.int32)).any(0)]


def seed_alike(devices):
    """Gives all processes the random state of the first, so that they make the same model."""
    state = random.getstate()  # from which Keras draws the seeds of layers
    # The state itself is long; a number that follows from it is enough.
    seeds = gather_texts(devices, str(random.Random(str(state)).randrange(2**31)))
    if len(set(seeds)) > 1:
        set_random_seed(int(seeds[0]))
