"""`model.fit` for runs that may be stopped at any moment and go on as if nothing had been."""

import pathlib

from keras_vit.training.run import Run
from keras_vit.training.streams import as_pipeline

OPTIONS = ("validation_freq", "validation_batch_size", "validation_steps", "class_weight")


def fit(
    model,
    data,
    output,
    *,
    epochs=None,
    steps=None,
    validation=None,
    save_every="600s",
    keep=2,
    log_every=50,
    callbacks=(),
    settings=None,
    curves=True,
    tensorboard=True,
    **options,
):
    """Trains a compiled model, or continues the same run where it was stopped.

    `model.fit` does the training. If `output` has a checkpoint of a run with the same settings,
    the weights, the optimizer, the metrics, the random generators and the place in the data are
    as they were, in the middle of an epoch too: on a CPU, the final weights equal those of a run
    that nobody stopped bit for bit. Of `callbacks` only those go on that can say where they were.

    Ctrl-C and SIGTERM let the present batch end and save. After `kill -9`, an exception, or on a
    full disk, the last checkpoint is what the run goes on from; a damaged one is passed over.

    Args:
        model: a compiled `keras.Model`.
        data: what has `steps_per_epoch` and `from_step(step)`, the batches from an update on to
            the end of the epoch or without end; also `batch_size`, `indices(step)` (the images of
            a batch) and `settings` (a dict), where it has them.
        output: folder for `checkpoints/`, `log.jsonl`, `history.csv`, `history.png` and
            `tensorboard/`.
        epochs: passes through the data; or
        steps: updates in all; the last epoch may be incomplete.
        validation: `validation_data` of `model.fit`.
        save_every: updates between two checkpoints, or seconds as text such as "600s".
        keep: how many checkpoints stay.
        log_every: updates between two lines of the log.
        callbacks: more callbacks. What one remembers is saved with the run if it has a method
            `get_state()`, which returns what JSON can hold, and `set_state(state)`, which is
            called after its `on_train_begin` when the run goes on. Others begin anew then, also
            Keras's `EarlyStopping` and `ReduceLROnPlateau`.
        settings: a dict of whatever else makes this run what it is, such as the recipe: a run is
            continued only with the same.
        curves: whether to draw `history.png`, for which matplotlib is needed.
        tensorboard: whether to write events for TensorBoard.
        options: more arguments of `model.fit`: `validation_freq`, `validation_batch_size`,
            `validation_steps`, `class_weight`.

    Returns:
        A dict from column to its values, one per epoch, of the whole run.

    Raises:
        ValueError: arguments out of range, or `output` holds a run with other settings.
        TypeError: `data` or one of `options` is not what is described here.
        DivergenceError: the loss, the gradients or the weights are no longer finite.
        CheckpointError: a checkpoint cannot be written, or all are damaged.
        Interrupted: a signal stopped the run. It is a SystemExit with code 130 or 143.
    """
    unknown = set(options) - set(OPTIONS)
    if unknown:
        raise TypeError(f"Options of model.fit can be {OPTIONS}. Received: {sorted(unknown)}.")
    pipeline = as_pipeline(data)
    run = Run(
        model,
        pipeline,
        pathlib.Path(output),
        total=_updates(epochs, steps, pipeline.steps_per_epoch),
        save_every=save_every,
        keep=keep,
        settings=settings,
    )
    run.prepare(
        list(callbacks),
        log_every=_whole(log_every, "log_every"),
        curves=curves,
        tensorboard=tensorboard,
    )
    return run.train(validation, options)


def _updates(epochs, steps, per_epoch):
    """The updates of the whole run."""
    if (epochs is None) == (steps is None):
        raise ValueError(f"Give epochs or steps. Received: epochs={epochs!r}, steps={steps!r}.")
    return _whole(steps, "steps") if epochs is None else _whole(epochs, "epochs") * per_epoch


def _whole(value, name):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1. Received: {value!r}")
    return value
