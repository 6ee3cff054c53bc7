"""The progress bar of an evaluation."""

import sys

import keras


def with_progress(items, total=None, shown=None, unit="batch"):
    """Yields the items while Keras's progress bar follows.

    Args:
        items: an iterable.
        total: how many there are, or None if nobody knows.
        shown: True or False; None shows it on a terminal and in a notebook only.
        unit: what the bar counts.
    """
    if shown is None:
        # In a notebook, not in a program that happens to have imported what runs notebooks.
        in_notebook = type(sys.stdout).__module__.startswith("ipykernel")
        shown = in_notebook or (sys.stdout is not None and sys.stdout.isatty())
    if not shown:
        yield from items
        return
    bar = keras.utils.Progbar(total, unit_name=unit)
    done = 0
    for item in items:
        yield item
        done += 1
        # Keras ends the line by itself only where it knew the total.
        bar.update(done, finalize=done == total)
    if done and done != total:
        bar.update(done, finalize=True)
