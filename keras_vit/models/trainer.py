"""What models of images add to Keras's `fit`, `evaluate` and `predict`: a look at the data."""

import contextlib
import contextvars
import functools
import inspect
import itertools
import warnings

import keras
import numpy as np

from keras_vit.checks import warn_of_parts
from keras_vit.class_names import check_classes, record_classes
from keras_vit.layers import kernels
from keras_vit.models.compiled_loss import record_reading
from keras_vit.models.programs import compiled_by_block
from keras_vit.models.record import keep_size, records_in
from keras_vit.outputs import check_problem, reading_of_loss
from keras_vit.preprocessing import Preprocessing
from keras_vit.supervision import check_class_weight, check_labels, check_outputs, check_weights
from keras_vit.workarounds import keep_values_after_errors, new_train_function, one_at_a_time

STEPS = ("train", "test", "predict")
# What the present call has looked at: (id of a model, step). After a warning, all its steps.
_SEEN = contextvars.ContextVar("seen", default=None)


@contextlib.contextmanager
def one_look(seen=None):
    """Lets all calls within look at their images once, as if they were one call.

    `seen` is the set of what earlier parts of the same call have looked at.
    """
    if _SEEN.get() is not None:
        yield
        return
    token = _SEEN.set(set() if seen is None else seen)
    try:
        yield
    finally:
        _SEEN.reset(token)


def look(model, step, x, owner=None):
    """Warns of wrong values in arrays of images, unless this call has looked in this step before.

    `owner`, a network in the model, may have the `preprocessing` instead. Where neither has one, or
    `x`, such as an iterator, holds no arrays, nothing is warned of. In training a model of images
    of any size keeps theirs.
    """
    arrays = [each for each in keras.tree.flatten(x) if getattr(each, "ndim", 0) > 2]
    seen, preprocessing = _SEEN.get(), getattr(owner or model, "preprocessing", None)
    if not arrays or seen is None or (id(model), step) in seen:
        return
    if step == "train":
        keep_size(model, arrays[0])
    if preprocessing:
        warned = preprocessing.warn_of_values(arrays[0], model.name)
        seen.update((id(model), each) for each in (STEPS if warned else [step]))


def warn_of_order(model, step, data=None, labels=None):
    """Warns of labels that stand in an order, or of predictions that come in none.

    Keras's `validation_split` takes the last of the arrays, which may have all images of a class.
    """
    if step == "predict" and type(getattr(data, "sampler", None)).__name__ == "RandomSampler":
        warnings.warn(
            "Predictions come in the order of the images. Received: a DataLoader that shuffles "
            "them; make it with shuffle=False to know which prediction is of which image.",
            stacklevel=3,
        )
    is_here = getattr(labels, "ndim", 0) and getattr(labels, "is_fully_addressable", True)
    is_known = reading_of_loss(getattr(model, "loss", None))[0] in ("softmax", "sigmoid")
    labels = keras.ops.convert_to_numpy(labels) if is_here and is_known else np.zeros(0)
    if not labels.size or labels.dtype.kind not in "biuf":
        return
    labels = labels.reshape(len(labels), -1).astype("float64")
    numbers = labels.argmax(axis=1) if labels.shape[1] > 1 else labels[:, 0]
    steps, is_one_of = np.diff(numbers), labels.shape[1] == 1 or (labels.sum(axis=1) == 1).all()
    if is_one_of and steps.any() and ((steps >= 0).all() or (steps <= 0).all()):
        warnings.warn(
            "validation_split takes the last images, before they are shuffled. Received: sorted "
            "labels, whose last classes it would hold out; shuffle images and labels first, alike.",
            stacklevel=3,
        )


def compare_images(model, data, training=False, owner=None):
    """Warns of data whose images are normalised otherwise than the weights of a model want them.

    `owner`, a network in the model, may have the `preprocessing` instead.

    In training the model, or its part that is trained (`student`, `encoder`), gets the
    `preprocessing` of the data, because later images must be prepared in the same way. So do the
    networks in it that take these images: a model of Keras's own class saves it with them.

    Raises:
        ValueError: a `Distiller` would hand its teacher other images than the teacher wants.
    """
    given = getattr(data, "preprocessing", None)
    if not isinstance(given, Preprocessing):
        return
    owner = owner or model
    wanted = getattr(owner, "preprocessing", None)
    wanted = wanted if isinstance(wanted, Preprocessing) else given  # or a user's own attribute
    if wanted.differs(given):
        text = (
            f"The images of {getattr(data, 'name', 'the data')} are not normalised as {model.name} "
            f"wants them. Received: {given}; expected: {wanted}. "
        )
        if hasattr(model, "teacher_preprocessing"):
            raise ValueError(f"{text}Make the Distiller with preprocessing=data.preprocessing.")
        # The preprocessing of a new model says nothing yet.
        if getattr(owner, "weights_from", None) or wanted != Preprocessing():
            text += "Make the pipeline with model=model, or with recipe.for_weights(model)"
            if training:
                text += "; training goes on with the data's, which the model keeps."
            warnings.warn(text, stacklevel=3)
    if training:
        part = getattr(model, "student", None) or getattr(model, "encoder", None)
        trained = part if isinstance(part, keras.Model) else model
        before = getattr(trained, "preprocessing", None)
        for record in records_in(trained):
            if record.preprocessing == before or (before is None and owner is not trained):
                record.preprocessing = given
        if isinstance(before, Preprocessing | None):
            with contextlib.suppress(AttributeError):  # a property of a user's class
                trained.preprocessing = given


def begin_training(model, data, validation=None, owner=None):
    """Compares a model with the data that it is about to learn from, and records what they tell.

    That is how images are prepared and how large they are, which class has which number, and how
    outputs are read. `owner`, a network in the model, may have the `preprocessing` instead.

    Raises:
        ValueError: labels that the loss or the outputs are not for, or other classes.
    """
    check_problem(model, getattr(data, "problem", None))
    check_classes(model, data, validation, training=True)
    if isinstance(model, Trainer):  # what the outputs of another model are is its own affair
        check_outputs(model, data)
    warn_of_parts(data, validation)
    compare_images(model, data, training=True, owner=owner)
    keep_size(model, data)
    record_classes(model, data)
    record_reading(model)


class Trainer:
    """Keras's `fit`, `evaluate` and `predict` for a model of images with a `preprocessing`.

    Each call looks at its first images, and warns if their values are not as `preprocessing` has
    them: at arrays before anything runs, at other data as the first batch passes. The labels of
    that batch, or of the whole arrays, must be among the model's classes.

    `fit` takes the batches of a pipeline for training, whose images are shuffled, in their order,
    so that they are read ahead; `shuffle=True` lets Keras put them in another one.
    """

    def fit(self, x=None, y=None, *args, **kwargs):
        if hasattr(x, "from_step") and getattr(x, "training", False):
            given = inspect.signature(super().fit).bind(x, y, *args, **kwargs).arguments
            kwargs |= {} if "shuffle" in given else {"shuffle": False}
        check_class_weight(self, kwargs.get("class_weight"))
        begin_training(self, x, kwargs.get("validation_data"))
        if kwargs.get("validation_split") and kwargs.get("validation_data") is None:
            warn_of_order(self, "train", labels=y)
        with self._guarded("train", x, y, kwargs.get("sample_weight")):
            return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        check_classes(self, x)
        compare_images(self, x)
        if _SEEN.get() is None:  # else `fit` looks at them
            warn_of_parts(None, x)
        with self._guarded("test", x, y, kwargs.get("sample_weight")):
            return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        compare_images(getattr(self, "student", self), x)
        warn_of_parts(None, x)
        warn_of_order(self, "predict", x)
        with self._guarded("predict", x):
            return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        with self._guarded("train", x, y, sample_weight):
            return super().train_on_batch(x, y, sample_weight, *args, **kwargs)

    def test_on_batch(self, x, y=None, sample_weight=None, *args, **kwargs):
        with self._guarded("test", x, y, sample_weight):
            return super().test_on_batch(x, y, sample_weight, *args, **kwargs)

    def predict_on_batch(self, x):
        with self._guarded("predict", x):
            return super().predict_on_batch(x)

    def compile_from_config(self, config):  # Keras leaves out a `compile` that is overridden
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def train_step(self, *args, **kwargs):
        if kernels.BACKEND == "torch":
            self.zero_grad()  # Keras does so after the forward pass, with both in memory at its end
        return super().train_step(*args, **kwargs)

    @contextlib.contextmanager
    def _guarded(self, step, x, y=None, weights=None):
        with one_at_a_time(self, step), one_look(), keep_values_after_errors(self):
            look(self, step, x)
            check_labels(self, y)
            check_weights(self, weights)
            yield

    def make_train_function(self, force=False):
        self._make(super().make_train_function, force, step="train")

    def make_test_function(self, force=False):
        self._make(super().make_test_function, force, step="test")

    def make_predict_function(self, force=False):
        self._make(super().make_predict_function, force, step="predict")

    def _make(self, make, force, step):
        """Makes Keras's function of a step, with a look at its first batch."""
        name = f"{step}_function"
        before = getattr(self, name)
        with compiled_by_block(self) as by_block:
            make(force)
        made = getattr(self, name)
        if made is not before:
            setattr(self, name, functools.partial(self._look_and_run, step, by_block(made)))

    def _look_and_run(self, step, function, *arguments):
        *state, batches = arguments
        seen = _SEEN.get()
        if seen is not None and (id(self), step) not in seen:
            first, batches = _first_of(batches, self.steps_per_execution)
            x, y, weights = keras.utils.unpack_x_y_sample_weight(first)
            look(self, step, x)
            if step != "predict":
                check_labels(self, y)
                check_weights(self, weights)
            seen.add((id(self), step))
        return function(*state, batches)

    def train_next_batch_within(self, context, programs, key):
        """Lets `fit` train the next batch within a context, by a program that is traced within it.

        The dict `programs` keeps the programs, by the `key` of their context.
        """

        def train(*arguments):
            try:
                with context:
                    if key not in programs:
                        programs[key] = new_train_function(self)
                    return programs[key](*arguments)
            finally:
                self.train_function = None  # a batch without a context gets one of its own

        self.train_function = train


def _first_of(batches, count):
    """The first of some batches, and the next `count` with it, as a function of Keras takes them.

    On TensorFlow the first is `None` if the batches are spread over several devices.
    """
    if isinstance(batches, list):
        return batches[0], batches
    if kernels.BACKEND != "tensorflow":
        first = next(batches)
        return first, itertools.chain([first], batches)
    import tensorflow as tf

    if isinstance(batches, tf.distribute.DistributedIterator):
        return None, batches
    first = next(batches)
    again = itertools.chain([first], itertools.islice(batches, count - 1))
    spec = getattr(batches, "element_spec", None)
    if spec is None or not all(isinstance(x, tf.TensorSpec) for x in tf.nest.flatten(spec)):
        return first, again
    # Of the same specification, so that nothing is traced or compiled once more.
    return first, iter(tf.data.Dataset.from_generator(lambda: again, output_signature=spec))
