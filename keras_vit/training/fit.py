"""`model.fit` for runs that may be stopped at any moment and go on as if nothing had been."""

import contextlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import keras

from keras_vit import distribution
from keras_vit.checks import positive_int
from keras_vit.models.backbone import owner_of_images
from keras_vit.models.trainer import begin_training, one_look
from keras_vit.training.best import BestWeights
from keras_vit.training.checkpoint import SaveEvery, inner_optimizer
from keras_vit.training.run import Run
from keras_vit.training.stop import only_run_in
from keras_vit.writing import output_place

FILES = ("log.jsonl", "history.csv", "history.png", "nan_batch.npz")  # beside the checkpoints


def fit(
    model: keras.Model,
    data: Any,
    output: str | os.PathLike[str],
    *,
    epochs: int | None = None,
    steps: int | None = None,
    validation: Any = None,
    validation_freq: int = 1,
    save_every: int | str = "600s",
    keep: int = 2,
    log_every: int = 50,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    settings: dict[str, Any] | None = None,
    curves: bool = True,
) -> dict[str, list[Any]]:
    """Trains a compiled model, or continues the same run where it was stopped.

    `model.fit` does the training, an epoch at a time. If `output` has a checkpoint of a run with
    the same settings, the weights, the optimizer, the metrics, the random numbers and the place in
    the data are as they were, in the middle of an epoch too: on a CPU, the final weights equal
    those of a run that nobody stopped bit for bit.

    Ctrl-C and SIGTERM let the present batch end and save. After `kill -9`, an exception, or on a
    full disk, the last checkpoint that is whole is what the run goes on from. It stays after the
    end, until the model is saved and `remove_checkpoints(output)` is called.

    Args:
        model: a compiled `keras.Model`. Keras's own `use_ema` is refused, as it replaces the
            weights at the end of each `model.fit`; the optimizers of `keras_vit.training` do not.
        data: an object with `steps_per_epoch`, the batches of an epoch, and `from_step(step)`,
            the batches from one on, to the end of the epoch or without end; it may have a
            `batch_size`, a `preprocessing`, which becomes that of the model, and `class_names`,
            which a model without names gets.
        output: folder for `checkpoints/`, `log.jsonl`, `history.csv` and `history.png`, of one
            run at a time.
        epochs: passes through the data; or
        steps: updates in all; the last epoch may be incomplete. With an optimizer that
            accumulates the gradients of n batches, an update takes n of them.
        validation: data for `model.evaluate`, or (images, labels), every `validation_freq` epochs.
        save_every: updates between two checkpoints, or seconds as text such as "600s".
        keep, log_every: how many checkpoints stay; updates between two lines of the log.
        callbacks: more callbacks, which see one training, whatever was stopped in between. What
            one remembers, or `data`, is saved with the run by its method `get_state()`, which
            returns what JSON can hold and NumPy arrays, and given to `set_state(state)`, of a
            callback after its `on_train_begin`. With a `BestWeights` the run ends with the weights
            that were best on `validation`, and early.
        settings: a dict of what else makes this run what it is, such as the recipe.
        curves: whether to draw `history.png`, which needs matplotlib.

    Returns:
        A dict from column to its values, one per epoch, of the whole run.

    Raises:
        TypeError: `data` is not what is described here.
        ValueError: the model is not compiled, arguments out of range, labels that the model has no
            class for or that its loss is not for, classes that the model (or for validation, the
            data) names otherwise, or an `output` that another run has, or a run with other
            settings or callbacks.
        DivergenceError: the loss or the weights are no longer finite.
        CheckpointError: a checkpoint cannot be written, or all are damaged.
        RunEnded: `output` has this run, which has ended, and whose checkpoints were removed.
        Interrupted: a signal stopped the run. It is a SystemExit with code 130 or 143.
    """
    if not (hasattr(data, "from_step") and hasattr(data, "steps_per_epoch")):
        raise TypeError(
            "The data must have `steps_per_epoch` and `from_step(step)`, as a pipeline of "
            f"keras_vit.data has them. Received: {type(data).__name__}."
        )
    if (epochs is None) == (steps is None):
        raise ValueError(f"Give epochs or steps. Received: epochs={epochs!r}, steps={steps!r}.")
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"The model must be compiled first. Received: {model.name!r}.")
    begin_training(model, data, validation, owner=owner_of_images(model))
    optimizer = inner_optimizer(model)
    if optimizer.use_ema:
        raise ValueError(
            "Keras's use_ema replaces the weights at the end of each model.fit. Received: "
            f"{type(optimizer).__name__}(use_ema=True); take keras_vit.training.AdamW(use_ema=True)"
            " or another optimizer from there, whose averages stay apart."
        )
    if epochs is None:
        total = positive_int(steps, "steps") * (optimizer.gradient_accumulation_steps or 1)
    else:
        total = positive_int(epochs, "epochs") * data.steps_per_epoch
    counts = {"keep": keep, "log_every": log_every, "validation_freq": validation_freq}
    counts = {name: positive_int(count, name) for name, count in counts.items()}
    saves = SaveEvery(save_every)
    output, callbacks = pathlib.Path(output), list(callbacks)
    if validation is None and any(isinstance(callback, BestWeights) for callback in callbacks):
        raise ValueError(
            "The best weights are found on images for validation. Received: BestWeights in "
            "callbacks and validation=None; give validation=..., or leave the callback out."
        )
    if any(isinstance(each, keras.callbacks.BackupAndRestore) for each in callbacks):
        raise ValueError(
            "Checkpoints of the run are what is gone on from. Received: BackupAndRestore in "
            "callbacks, which would put older weights in their place; leave it out."
        )
    writes = distribution.current().writes
    output_place(output, folder=True)
    for name in FILES if writes else ():
        output_place(output / name)
    alone = only_run_in(output) if writes else contextlib.nullcontext()
    options = {"total": total, "validation": validation, "save_every": saves, "curves": curves}
    options |= {"callbacks": callbacks, "settings": settings or {}}
    with alone, one_look():
        return Run(model, data, output, **options, **counts).train()
