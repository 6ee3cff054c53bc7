"""Distillation: a student learns from labels and from a teacher (Hinton et al., 2015; DeiT)."""

import warnings
import zlib
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_vit.checks import pair, rate, require
from keras_vit.ends import end_of, known_of_end, networks_at_end
from keras_vit.layers import kernels
from keras_vit.models.backbone import owner_of_images
from keras_vit.models.trainer import Trainer
from keras_vit.outputs import reading_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.checkpoint import value_of
from keras_vit.training.losses import DistillationLoss, SoftmaxLoss

_MODELS, _PREPROCESSING = ("student", "teacher"), ("preprocessing", "teacher_preprocessing")
_OF_DISTANCE = ("hard", "temperature", "mean_over_classes")
_CROSSENTROPIES = (keras.losses.CategoricalCrossentropy, keras.losses.SparseCategoricalCrossentropy)


@keras.saving.register_keras_serializable("keras_vit")
class Distiller(Trainer, keras.Model):
    """Trains a student on labels and on what a teacher says of the same images.

    The loss is (1 - alpha) times the cross-entropy with the labels plus alpha times the distance
    from the teacher. A student with a distillation token (`distillation=True`) learns from the
    labels by its class token's head, and from the teacher by its distillation token's; any other by
    the one head that it has. The teacher takes part in training alone, which has a metric
    `agreement`, the share of the images in which both find the same class. Afterwards
    `distiller.student` is a model as any other, with the teacher's names of the classes if it had
    none, and is saved without the teacher.

    Shapes: (batch, height, width, channels) -> (batch, classes) logits of the student; in training
    a dict of these ("logits"), of what learns from the labels ("labelled") and from the teacher
    ("distilled"), and of the teacher ("teacher"), all (batch, classes).

    Args:
        student: a `keras_vit.VisionTransformer`, or another Functional model of images that gives
            logits; it is trained in place.
        teacher: any built Keras model of images with the same classes in the same order. It is
            frozen, in place, and runs as in inference.
        alpha: share of the teacher in the loss, in [0, 1].
        hard, temperature, mean_over_classes: see `DistillationLoss`.
        from_logits: whether the teacher gives logits of a softmax, or probabilities; `"auto"` asks
            the teacher, which may not be one of several labels or of values.
        preprocessing: the `keras_vit.preprocessing.Preprocessing` whose mean and standard deviation
            the images have that come in; by default the student's.
        teacher_preprocessing: the same of the images that the teacher wants, converted in the
            graph; by default its own, or that of the images, with a warning, where it has none.
        teacher_size: int or (height, width) in pixels of the images that the teacher gets, resized
            in the graph (bilinear, with antialiasing); by default what its input demands.

    Raises:
        TypeError: student or teacher is no Keras model.
        ValueError: a number is out of range, or the two do not fit together.
    """

    def __init__(
        self,
        student: keras.Model,
        teacher: keras.Model,
        alpha: float = 0.5,
        hard: bool = True,
        temperature: float = 1.0,
        mean_over_classes: bool = False,
        from_logits: bool | Literal["auto"] = "auto",
        preprocessing: Preprocessing | None = None,
        teacher_preprocessing: Preprocessing | None = None,
        teacher_size: int | tuple[int, int] | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        for role, model in (("student", student), ("teacher", teacher)):
            if not isinstance(model, keras.Model):
                raise TypeError(f"{role} must be a keras.Model. Received: {type(model).__name__}.")
        # Under a policy of half precision Keras would round the images.
        kwargs = {"dtype": student.dtype_policy, **kwargs, "autocast": False}
        super().__init__(name=name or f"distilled_{student.name}", **kwargs)
        self.alpha = rate(alpha, "alpha", within="[0, 1]")
        self.distance = DistillationLoss(
            hard, temperature, mean_over_classes, dtype=student.variable_dtype
        )
        owners = map(owner_of_images, (student, teacher))
        recorded = [getattr(owner, "preprocessing", None) for owner in owners]
        of_images = preprocessing or recorded[0] or Preprocessing()
        of_teacher = teacher_preprocessing or recorded[1] or of_images
        if not (teacher_preprocessing or recorded[1]):
            warnings.warn(
                f"{teacher.name} does not say how its images are prepared: it gets them as the "
                "student does. Set teacher.preprocessing, or pass teacher_preprocessing=...",
                stacklevel=2,
            )
        self.preprocessing, self.teacher_preprocessing = of_images, of_teacher
        if teacher_size is None:  # that of its input, unless it takes any
            sizes = (tuple(x.shape[1:3]) for x in getattr(teacher, "inputs", None) or ())
            self.teacher_size = next((size for size in sizes if None not in size), None)
        else:
            self.teacher_size = pair(teacher_size, "teacher_size")
        _check_fit(student, teacher, self.teacher_size)
        asked = None if from_logits == "auto" else "softmax"
        reading = reading_of(teacher, asked, from_logits, student.output_shape[-1])
        if reading.name != "softmax":
            raise ValueError(
                "The teacher's classes must exclude one another, as those of a softmax do. "
                f"Received: {teacher.name!r}, read as {reading.name!r}; say from_logits=True or "
                "False where its outputs are to be taken for those of a softmax all the same."
            )
        self.from_logits = not reading.applied
        self.student, self.teacher = student, teacher
        teacher.trainable = False
        self.agreement = keras.metrics.Mean(name="agreement")
        heads = None
        if getattr(getattr(student, "variant", None), "distillation", False):
            both = [student.get_layer(each).output for each in ("head", "head_distillation")]
            heads = keras.Model(student.inputs, both)
        self._get_heads = lambda: heads  # Keras does not look into a closure: layers count once
        self._change = _change_of_values(of_images, of_teacher, student.inputs[0].shape[-1])
        self.built = True

    @property
    def constant_variables(self):
        """Variables that training leaves as they are; they are no part of a checkpoint."""
        return self.teacher.variables

    @keras.Model.trainable.setter
    def trainable(self, value):
        keras.Model.trainable.fset(self, value)
        self.teacher.trainable = False

    def quantize(self, *args, **kwargs):
        text = "A teacher stays as it is. Received: {!r}; quantize its student, distiller.student."
        raise ValueError(text.format(self.name))

    @property
    def input_shape(self):
        return self.student.input_shape

    @property
    def output_shape(self):
        return self.student.output_shape

    @property
    def class_names(self):
        """Those of the teacher, or else of the student; classes of the data must be numbered so."""
        names = [known_of_end(model, "class_names") for model in (self.teacher, self.student)]
        return next(filter(None, names), None)

    def describe(self):
        """What makes two runs the same beside what `training.fit` sees; a dict for JSON."""
        digits = 0
        for variable in self.teacher.weights:
            digits = zlib.crc32(np.ascontiguousarray(value_of(variable)).data, digits)
        config = {k: v for k, v in self.get_config().items() if k not in (*_MODELS, "name")}
        return {**config, "teacher_weights": digits}

    def compile(self, optimizer="adam", loss=None, metrics=None, **kwargs):
        """As in Keras; metrics see labels and the student's logits.

        Args:
            loss: `keras_vit.training.SoftmaxLoss`, which is the default, or Keras's (sparse)
                categorical cross-entropy with `from_logits=True`; it may smooth labels.

        Raises:
            ValueError: another loss, such as a sigmoid's.
        """
        loss = SoftmaxLoss(dtype=self.distance.dtype) if loss is None else loss
        of_keras = isinstance(loss, _CROSSENTROPIES) and loss.get_config().get("from_logits")
        fits = of_keras or isinstance(loss, SoftmaxLoss)
        rule = "Distillation needs a softmax cross-entropy of logits, as the teacher's classes "
        rule += "exclude one another; take keras_vit.training.SoftmaxLoss(), or a recipe with "
        require(fits, f"{rule}loss='softmax'", received=loss)
        super().compile(optimizer, loss=loss, metrics=metrics, **kwargs)
        for network in (self.student, *networks_at_end(self.student)):
            if hasattr(type(network), "reading"):  # as if it were compiled with this loss
                network.reading, network.class_names = "softmax", self.class_names

    def call(self, images, training=False):
        if not training:
            return self.student(images, training=False)
        heads = self._get_heads()
        if heads is None:
            labelled = distilled = logits = self.student(images, training=True)
        else:
            labelled, distilled = heads(self.student.check_images(images), training=True)
            logits = (labelled + distilled) / 2
        outputs = {"logits": logits, "labelled": labelled, "distilled": distilled}
        return outputs | {"teacher": self.teach(images)}

    def teach(self, images):
        """The teacher's logits of images as the student takes them, without a gradient."""
        if self._change is not None:
            scale, shift = (constant.tensor(images, "float32") for constant in self._change)
            images = images * scale + shift
        size = self.teacher_size
        if size is not None and size != tuple(images.shape[1:3]):
            images = ops.image.resize(images, size, antialias=True, data_format="channels_last")
        logits = self.teacher(images, training=False)
        logits = ops.cast(logits, self.distance.dtype)
        return ops.stop_gradient(logits if self.from_logits else ops.log(logits + 1e-7))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not isinstance(y_pred, dict):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        loss = super().compute_loss(x, y, y_pred["labelled"], sample_weight, training)
        distance = self.distance(y_pred["teacher"], y_pred["distilled"], sample_weight)
        # Keras has added the penalties of the weights to the first; their factor stays 1.
        return (1 - self.alpha) * loss + self.alpha * (distance + sum(self.losses))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if not isinstance(y_pred, dict):
            results = super().compute_metrics(x, y, y_pred, sample_weight)
            return {name: value for name, value in results.items() if name != "agreement"}
        classes = [ops.argmax(y_pred[each], axis=-1) for each in ("logits", "teacher")]
        self.agreement.update_state(ops.equal(*classes))
        return super().compute_metrics(x, y, y_pred["logits"], sample_weight)

    def get_config(self):
        config = {name: getattr(self, name) for name in ("alpha", "from_logits", "teacher_size")}
        config |= {name: getattr(self.distance, name) for name in _OF_DISTANCE}
        config |= {name: getattr(self, name).to_config() for name in _PREPROCESSING}
        for role in _MODELS:
            config[role] = keras.saving.serialize_keras_object(getattr(self, role))
        return config | {"name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        made = dict(config)
        for role in _MODELS:
            made[role] = keras.saving.deserialize_keras_object(config[role], custom_objects)
        for name in _PREPROCESSING:
            made[name] = Preprocessing.from_config(config[name])
        return cls(**made)


def _check_fit(student, teacher, teacher_size):
    """Raises a ValueError where the two cannot learn from one another."""
    images = [tuple(x.shape) for x in getattr(student, "inputs", None) or ()]
    logits = [tuple(x.shape) for x in getattr(student, "outputs", None) or ()]
    is_logits, end = [len(shape) for shape in (*images, *logits)] == [4, 2], end_of(student)
    if not is_logits or end not in ("linear", None):
        what = f"the outputs of a {end}" if is_logits else logits
        raise ValueError(
            "The student must be a Functional model from images (batch, height, width, channels) "
            f"to logits (batch, classes). Received: {student.name!r}, {images} -> {what}; build it "
            "with num_classes, pool its tokens, and leave out an activation at its end."
        )
    sides, channels = images[0][1:3], images[0][-1]
    has_classes = getattr(student, "num_classes", True)
    require(has_classes, "The student must have classes", received=student.name)
    are_apart = {id(v) for v in student.variables}.isdisjoint(id(v) for v in teacher.variables)
    rule = "Student and teacher must share no weights; build two models"
    require(are_apart, rule, received=(student.name, teacher.name))
    wanted = [x.shape[-1] for x in getattr(teacher, "inputs", None) or ()]
    if wanted not in ([], [channels], [None]):
        raise ValueError(
            "Teacher and student must take images of as many channels. Received: "
            f"{wanted} and {channels}; build the student with channels={wanted[0]}."
        )
    example = keras.KerasTensor((2, *(teacher_size or sides), channels), "float32")
    outputs = keras.tree.flatten(teacher.compute_output_spec(example))
    outputs = [tuple(x.shape[1:]) for x in outputs]
    if outputs != [logits[0][1:]]:
        raise ValueError(
            "The teacher must give one value for each class of the student. Received: "
            f"{teacher.name!r} with outputs {outputs}, {student.name!r} with {logits[0][1:]}."
        )
    names = [known_of_end(model, "class_names") for model in (student, teacher)]
    if None not in names and tuple(names[0]) != tuple(names[1]):
        of_student, of_teacher = next(pair for pair in zip(*names) if pair[0] != pair[1])
        raise ValueError(
            "Teacher and student must have the same classes in the same order. Received: "
            f"{of_student!r} of the student where the teacher has {of_teacher!r}."
        )


def _change_of_values(of_images, of_teacher, channels):
    """Factor and term that give images the teacher's mean and deviation, or None if they have."""
    rows = [of_images.mean, of_images.std, of_teacher.mean, of_teacher.std]
    if rows[:2] == rows[2:]:
        return None
    rows = [values[:1] if len(set(values)) == 1 else values for values in rows]
    if wrong := [len(values) for values in rows if len(values) not in (1, channels)]:
        raise ValueError(
            "The preprocessing must have a mean and a standard deviation for each channel. "
            f"Received: {wrong[0]} for {channels} channels."
        )
    mean, std, teacher_mean, teacher_std = map(np.array, rows)
    change = std / teacher_std, (mean - teacher_mean) / teacher_std
    return tuple(map(kernels.Constant, change))
