"""`Devices`: what a process trains on, and what differs between one device and many."""

import contextlib
import json
import re


class Devices:
    """What this process trains on; made by `setup`, and in force until `close`.

    This class itself is one process on one device, where nothing differs from Keras without
    distribution. `training.fit` calls `prepare` and `share` by itself.

        with keras_vit.distribution.setup("data_parallel") as devices:
            with devices.scope():
                model = recipe.compile(keras_vit.ViT_B16(**recipe.model_options()))
            keras_vit.training.fit(model, train, "output", steps=recipe.steps)

    Attributes:
        mode: `"single"`, `"data_parallel"`, `"model_parallel"` or `"fully_sharded"`.
        replicas: parts that a batch is cut into.
        processes, process: how many there are, and the number of this one.
        writes: whether this process writes files: one of all does.
        meeting: of several processes whose engine has no means of its own, a `Meeting`.
    """

    mode, replicas, processes, process = "single", 1, 1, 0
    meeting = None
    # Whether processes must do the same at the same update, also where only one of them writes.
    in_step = property(lambda self: self.processes > 1)
    writes = property(lambda self: self.process == 0)

    @contextlib.contextmanager
    def scope(self):
        """Within it models are made and compiled."""
        yield

    def check_model(self, model):
        """Raises a ValueError for a model that was not made within `scope`."""

    def prepare(self, model):
        """Makes a compiled model train on these devices; once or more.

        Raises:
            ValueError: what the model was compiled with means something else there, or its
                variables do not fit the layout.
        """

    def share(self, pipeline):
        """The part of a pipeline's batches that this process feeds to its devices."""
        self.check_batch(getattr(pipeline, "batch_size", None))
        return pipeline

    def feed(self, data):
        """What `model.fit` is given for the batches of `share`, where it is a dataset."""
        return data

    def share_evaluation(self, data):
        """The same for `validation_data` of `model.fit`."""
        return data

    def local_copy(self, model):
        """A trained model on one device of this process alone, uncompiled, for all but training.

        On a single device it is the model itself.
        """
        return model

    def check_batch(self, batch_size):
        """Raises a ValueError where the devices do not divide the batch of an update."""
        if batch_size is not None and batch_size % self.replicas:
            nearest = max(batch_size - batch_size % self.replicas, self.replicas)
            raise ValueError(
                "A batch must have the same number of images for each of the devices that share "
                f"it. Received: batch of {batch_size} images, {self.replicas} devices; the nearest "
                f"that fit are {nearest} and {nearest + self.replicas}."
            )

    def gather(self, text):
        """One text of each process, in every process, as a list by number of the process."""
        return [text] if self.meeting is None else self.meeting.gather(text)

    def agree(self, what, text):
        """Checks that all processes say the same.

        Raises:
            ValueError: they do not; the message tells which process says what.
        """
        texts = self.gather(text)
        if len(set(texts)) > 1:
            told = "".join(f"\n  process {i}: {each}" for i, each in enumerate(texts))
            raise ValueError(
                f"All processes must have the same {what}. Received:{told}\nStart every process "
                "with the same command, code and packages, and an output folder that all see."
            )

    def any_of(self, *flags):
        """For each flag, whether it is true in any process."""
        said = map(json.loads, self.gather(json.dumps([bool(flag) for flag in flags])))
        return [any(each) for each in zip(*said)]

    def explain(self, error):
        """The error to raise for one that came during training: another where a process is lost."""
        if self.meeting is None or isinstance(error, ConnectionError) or not _is_of_engine(error):
            return error
        return self.meeting.explain(error) or error

    def close(self):
        """Ends what `setup` began; what comes after is on one device again."""
        _CURRENT.clear()

    def __enter__(self):
        return self

    def __exit__(self, _, error, __):
        if self.meeting is not None:
            self.meeting.leave_on(error)
        self.close()

    def __repr__(self):
        return (
            f"{type(self).__name__}({self.mode!r}, replicas={self.replicas}, "
            f"process={self.process} of {self.processes})"
        )


def _is_of_engine(error):
    """Whether an error may be that of an operation for which another process was needed."""
    words = "gloo|nccl|collective|connection|peer|unavailable|socket|aborted|cancelled|deadline"
    return isinstance(error, Exception) and re.search(words, str(error), re.IGNORECASE)


def copied(model):
    """A model with the same architecture and weights."""
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    return copy


_CURRENT = []


def current():
    """The `Devices` in force: those of the last `setup`, or a single device."""
    return _CURRENT[-1] if _CURRENT else Devices()


def put_in_force(devices):
    """Makes `current` return what it is given."""
    _CURRENT[:] = [devices]
    return devices
