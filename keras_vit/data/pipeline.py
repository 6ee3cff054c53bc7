"""`Pipeline`: what `model.fit`, `evaluate` and `predict` take, and what a run can resume from."""

import dataclasses

from keras_vit.checks import positive_int
from keras_vit.data.keras_passes import Passes


class Pipeline(Passes):
    """Batches of a split as a recipe wants them; made by `keras_vit.data.load`.

    The batch of a step is a function of (seed, step): it does not depend on the engine, on the
    number of threads or on where the run was interrupted. Steps are counted from the first batch
    of epoch 0, over all epochs.

        pipeline = keras_vit.data.load("cifar10", recipe)
        model.fit(pipeline, epochs=10)
        model.fit(pipeline.from_step(1234), epochs=3)   # as if steps 0 to 1233 had run

    In training, images are shuffled, augmented and mixed, an epoch has only full batches, and
    labels are one-hot float32; each further pass of `fit` continues where the last one ended.
    Otherwise images come in order, the last batch is smaller, nothing is left out, labels are
    int32, and every pass is the same. `for batch in pipeline` gives one pass and changes nothing.

    An example that cannot be read is replaced by the next one in training and left out in
    evaluation, with a warning, and listed in `skipped`; too many of them are an error.

    Attributes:
        name, split: what was loaded.
        num_examples: in the split, unreadable ones included.
        num_classes, class_names: of the dataset.
        steps_per_epoch: batches in an epoch.
        num_batches: batches in a pass of this object, `steps_per_epoch` unless told otherwise.
        batch_size, image_shape, seed, training: of the batches; the shape is (height, width,
            channels).
        engine: `"tensorflow"`, `"grain"` or `"numpy"`.
        start: the step at which this object begins.
    """

    def __init__(self, stream, engine, split, start=0, steps=None, parked=None):
        super().__init__(start)
        self.stream, self.engine, self.split, self.start = stream, engine, split, start
        self._steps = steps
        self._parked = {} if parked is None else parked  # step -> batches from there on
        self._iterator = None
        self._next = None  # the step of the iterator's next batch

    name = property(lambda self: self.stream.examples.name)
    class_names = property(lambda self: self.stream.examples.class_names)
    num_classes = property(lambda self: len(self.class_names))
    num_examples = property(lambda self: len(self.stream.schedule.rows))
    batch_size = property(lambda self: self.stream.schedule.batch_size)
    steps_per_epoch = property(lambda self: self.stream.schedule.steps_per_epoch)
    training = property(lambda self: self.stream.schedule.training)
    seed = property(lambda self: self.stream.schedule.seed)

    @property
    def image_shape(self):
        return (*self.stream.transform.image_size, self.stream.channels)

    @property
    def skipped(self):
        """Where the examples lie that could not be read so far, a tuple of text."""
        return self.stream.schedule.unreadable.places

    @property
    def num_batches(self):
        if self._steps is not None:
            return self._steps
        return self.steps_per_epoch if self.training else self.steps_per_epoch - self.start

    def __len__(self):
        return self.num_batches

    def from_step(self, step, steps=None):
        """The same batches from a step on, as if those before it had been seen.

        Args:
            step: the first one, a whole number >= 0; in evaluation below `steps_per_epoch`.
            steps: how many batches a pass has, where that is not a whole epoch: the rest of an
                epoch, for instance. None is `steps_per_epoch`, counted from `step`.

        Returns:
            A `Pipeline`. This one is not changed.

        Raises:
            ValueError: a step out of range.
        """
        if isinstance(step, bool) or int(step) != step or step < 0:
            raise ValueError(f"step must be a whole number >= 0. Received: step={step!r}")
        steps = None if steps is None else positive_int(steps, "steps")
        last = step + (steps or 1)
        if not self.training and last > self.steps_per_epoch:
            raise ValueError(
                f"A pass of {self.split!r} has {self.steps_per_epoch} batches. Received: "
                f"step={step}, steps={steps}"
            )
        return Pipeline(self.stream, self.engine, self.split, int(step), steps, self._parked)

    def epoch(self, number):
        """The batches from the beginning of an epoch, counted from 0, on."""
        return self.from_step(number * self.steps_per_epoch)

    def replace(self, **changes):
        """A copy with other attributes of its `Stream`, such as `transform` or `threads`."""
        stream = dataclasses.replace(self.stream, **changes)
        return Pipeline(stream, self.engine, self.split, self.start, self._steps)

    def __iter__(self):
        step, end = self.start, self.start + self.num_batches
        batches = self._parked.pop(step, None) or self.stream.batches(step, self.engine)
        while step < end:
            yield next(batches)
            step += 1
        if self.training:
            # Whoever goes on from here, in an epoch of few batches soon, need not begin anew.
            self._parked.clear()
            self._parked[step] = batches

    def batch(self, step):
        """The batch of a step; cheap in sequence, otherwise the stream begins anew there."""
        if self._next != step:
            self._iterator = self.stream.batches(step, self.engine)
        self._next = None  # unless the next line succeeds
        found = next(self._iterator)
        self._next = step + 1
        return found

    def after(self, served):
        return self._start + served if self.training else self.start

    def __repr__(self):
        height, width, channels = self.image_shape
        return (
            f"Pipeline({self.name!r}, {self.split!r}, examples={self.num_examples}, "
            f"batch={self.batch_size}, image={height}x{width}x{channels}, "
            f"classes={self.num_classes}, steps_per_epoch={self.steps_per_epoch}, "
            f"training={self.training}, engine={self.engine!r}, start={self.start}, "
            f"skipped={len(self.skipped)})"
        )
