"""What models of images add to Keras's `fit`, `evaluate` and `predict`: a look at the data."""

import contextlib
import contextvars
import functools
import inspect
import itertools
import warnings

import keras

from keras_vit.checks import warn_of_parts
from keras_vit.class_names import check_class_weight, check_classes, check_labels, check_outputs
from keras_vit.ends import networks_at_end
from keras_vit.heads import heads_of
from keras_vit.layers import kernels
from keras_vit.models.programs import compiled_by_block
from keras_vit.models.record import records_in
from keras_vit.outputs import check_problem, is_of_keras, reading_of_loss
from keras_vit.preprocessing import Preprocessing
from keras_vit.workarounds import keep_values_after_errors, new_train_function, one_at_a_time

STEPS = ("train", "test", "predict")
# What the present call has looked at: (id of a model, step). After a warning, all its steps.
_SEEN = contextvars.ContextVar("seen", default=None)
# Keras's metrics by their names in `compile`, in lower case without underscores.
_METRICS = {name.lower(): x for name, x in vars(keras.metrics).items() if inspect.isclass(x)}


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
    `x`, such as an iterator, holds no arrays, nothing happens.
    """
    arrays = [each for each in keras.tree.flatten(x) if getattr(each, "ndim", 0) > 2]
    seen, preprocessing = _SEEN.get(), getattr(owner or model, "preprocessing", None)
    if arrays and preprocessing and seen is not None and (id(model), step) not in seen:
        warned = preprocessing.warn_of_values(arrays[0], model.name)
        seen.update((id(model), each) for each in (STEPS if warned else [step]))


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
    wanted = getattr(owner, "preprocessing", None) or given
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
        trained.preprocessing = given


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
        check_problem(self, getattr(x, "problem", None))
        check_classes(self, x, kwargs.get("validation_data"))
        warn_of_parts(x, kwargs.get("validation_data"))
        check_outputs(self, x)
        check_class_weight(self, kwargs.get("class_weight"))
        compare_images(self, x, training=True)
        with self._guarded("train", x, y):
            return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        check_classes(self, x)
        compare_images(self, x)
        with self._guarded("test", x, y):
            return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        with self._guarded("predict", x):
            return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x, y=None, *args, **kwargs):
        with self._guarded("train", x, y):
            return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(self, x, y=None, *args, **kwargs):
        with self._guarded("test", x, y):
            return super().test_on_batch(x, y, *args, **kwargs)

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
    def _guarded(self, step, x, y=None):
        with one_at_a_time(self, step), one_look(), keep_values_after_errors(self):
            look(self, step, x)
            check_labels(self, y)
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
            x, y, _ = keras.utils.unpack_x_y_sample_weight(first)
            look(self, step, x)
            if step != "predict":
                check_labels(self, y)
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


def record_reading(model):
    """Records how the loss of a model reads the networks inside it whose outputs it gives."""
    for one in list(heads_of(model).values()) or [model]:
        if reading := reading_of_loss(one.loss)[0]:
            for network in networks_at_end(one):
                network.reading = reading


def record_loss(model, metrics=()):
    """Records how the compiled loss of a model, or of one of its heads, reads the logits.

    Warns of a loss or metrics that take logits for probabilities. A softmax of a single output is
    a ValueError.
    """
    head, loss, outputs = getattr(model, "head_name", None), model.loss, model.outputs[0].shape[-1]
    name = model.name if head is None else f"Head {head!r} of {model.name}"
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):  # Keras chooses which
        loss = "binary_crossentropy" if outputs == 1 else "categorical_crossentropy"
    reading, takes_logits = reading_of_loss(loss)
    if reading == "softmax" and outputs == 1:
        raise ValueError(
            "A softmax of one output is always 1, so nothing is learned. Received: loss="
            f"{loss!r} for {model.name!r}; take 'mse' for values, "
            "BinaryCrossentropy(from_logits=True), or a model of two classes."
        )
    model.reading = reading or model.reading
    wrong = [model.loss] if reading in ("softmax", "sigmoid") and not takes_logits else []
    wrong += [each for each in keras.tree.flatten(metrics) if _of_probabilities(each, reading)]
    if wrong:
        warnings.warn(
            f"{name} gives logits, and what it is compiled with takes its outputs for "
            f"probabilities. Received: {wrong}; pass objects with from_logits=True or, of a "
            "sigmoid, with threshold=0. What has neither option needs "
            f"keras.layers.Activation({reading or 'sigmoid'!r}) behind the outputs.",
            stacklevel=3,
        )


def _of_probabilities(metric, reading):
    """Whether a metric, as `compile` takes it, asks for probabilities of a sigmoid or softmax.

    Metrics and functions that are not Keras's are unknown: they may take logits.
    """
    if reading == "values":
        return False
    if isinstance(metric, str):
        if metric.lower() in ("accuracy", "acc"):
            return reading == "sigmoid"
        metric = _METRICS.get(metric.lower().replace("_", ""), metric)
    options = {}
    if isinstance(metric, keras.metrics.Metric):
        # Its config would give a function's name alone, which one of the user's may have, too.
        update, function = type(metric).update_state, getattr(metric, "_fn", None)
        if not is_of_keras(update):
            return False
        options = metric.get_config() if function is None else metric._fn_kwargs
        metric = function or update
    if not isinstance(metric, str):
        if not is_of_keras(metric):
            return False
        parameters = inspect.signature(metric).parameters.items()
        options = {option: each.default for option, each in parameters} | options
    of_loss, takes_logits = reading_of_loss(metric)
    if "from_logits" in options or of_loss in ("softmax", "sigmoid"):
        return not (takes_logits or options.get("from_logits"))
    if "thresholds" in options and options["thresholds"] is None and not options.get("top_k"):
        options["thresholds"] = 0.5  # as Keras takes it
    limits = [options.get("threshold"), options.get("thresholds")]
    # Metrics such as `PrecisionAtRecall` look for a threshold from 0 to 1.
    is_within = [0 < limit < 1 for limit in keras.tree.flatten(limits) if limit is not None]
    return reading is not None and (any(is_within) or "num_thresholds" in options)
