"""The Visual Task Adaptation Benchmark in one number: VTAB-1k (Zhai et al., 2019)."""

import dataclasses
import numbers

import numpy as np

from keras_vit.evaluation.result import Result
from keras_vit.recipes.datasets import VTAB_GROUPS
from keras_vit.text import percent, table, unknown


@dataclasses.dataclass(frozen=True)
class VTABScore(Result):
    """Accuracies of the tasks and their means.

    Attributes:
        tasks: task -> accuracy, in the order of `VTAB_GROUPS`.
        groups: group -> mean accuracy of its tasks, without the groups that have none.
        mean: mean over all tasks, each counting alike: the VTAB score.
        missing: tasks without an accuracy.
    """

    tasks: dict
    groups: dict
    mean: float
    missing: tuple

    def __str__(self):
        rows = []
        for group, tasks in VTAB_GROUPS.items():
            done = [task for task in tasks if task in self.tasks]
            rows += [(f"  {tasks[task]}", percent(self.tasks[task])) for task in done]
            if done:
                rows.append((f"{group}, mean of {len(done)}", percent(self.groups[group])))
        rows.append((f"all, mean of {len(self.tasks)}", percent(self.mean)))
        missing = f"\nmissing: {', '.join(self.missing)}" if self.missing else ""
        return table(rows) + missing


def vtab_mean(results, allow_missing=False):
    """The mean accuracy on VTAB, for each group of tasks and for all 19.

    Args:
        results: dict task -> accuracy from 0 to 1. A task goes by its name in `VTAB_GROUPS` or in
            the tables of the papers ("Clevr-Count"), in any case, with or without "vtab/".
        allow_missing: whether to give means of the tasks that are there.

    Returns:
        A `VTABScore`.

    Raises:
        TypeError: `results` is no dict.
        ValueError: an unknown task or one given twice, an accuracy outside 0..1, or missing tasks.

    Source: "A Large-scale Study of Representation Learning with the Visual Task Adaptation
    Benchmark", section 2 and table 1; the score is the plain mean over the tasks.
    """
    if not isinstance(results, dict):
        raise TypeError(f"results must be a dict task -> accuracy. Received: {results!r}")
    given = {}
    for name, accuracy in results.items():
        task = _task(name)
        if task in given:
            raise ValueError(f"Each VTAB task must be given once. Received: {task} twice")
        given[task] = _share(name, accuracy)
    order = [task for tasks in VTAB_GROUPS.values() for task in tasks]
    missing = tuple(task for task in order if task not in given)
    if not given or (missing and not allow_missing):
        raise ValueError(
            f"The VTAB score is the mean over {len(order)} tasks. Received: {len(given)}; missing: "
            f"{', '.join(missing)}. Pass allow_missing=True for a mean of the others"
        )
    groups = {
        group: float(np.mean([given[task] for task in tasks if task in given]))
        for group, tasks in VTAB_GROUPS.items()
        if any(task in given for task in tasks)
    }
    tasks = {task: given[task] for task in order if task in given}
    return VTABScore(tasks, groups, float(np.mean(list(tasks.values()))), missing)


def _task(name):
    """The task that a name stands for."""
    known = {}
    for tasks in VTAB_GROUPS.values():
        for task, in_papers in tasks.items():
            known[task] = known[in_papers.lower()] = task
    key = str(name).lower().removeprefix("vtab/")
    if key in known:
        return known[key]
    raise unknown("VTAB task", name, dict.fromkeys(known.values()))


def _share(name, accuracy):
    if not isinstance(accuracy, numbers.Real) or not 0 <= accuracy <= 1:
        raise ValueError(f"Accuracies lie in 0..1. Received: {accuracy!r} for {name!r}")
    return float(accuracy)
