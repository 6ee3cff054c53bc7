"""A recipe: everything that decides a training run, as a value."""

import dataclasses
import math
import re
from typing import Any

import keras

from keras_vit import training
from keras_vit.checks import pair, positive_float, positive_int, rate, whole
from keras_vit.data.transform import Transform
from keras_vit.models.backbone import count_blocks
from keras_vit.outputs import PROBLEMS
from keras_vit.recipes import fields
from keras_vit.recipes.fields import OF_A_VIT, checked, optional, tuple_of
from keras_vit.recipes.heads import by_head, check_outputs, for_problem
from keras_vit.recipes.scaling import resized, scale
from keras_vit.text import table
from keras_vit.variant import POOLS, POSITIONS

# Fields that recipes and transforms got after the first version, whose runs can be continued.
LATER = {"problem": "single_label", "draft": True, "augment_layers": ()}
LATER |= {"keep_best": False, "early_stopping": None, "class_weights": (), "loss_weights": ()}
LATER |= {"library": "tensorflow", "mean": None, "std": None, "crop_fraction": None}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run but the machine, with its source.

    A recipe never changes: `replace` and `scale` return another one. `print(recipe)` shows it.

    Attributes:
        name, source, notes: its name, where it is published, and what is not published.
        dataset, train_split, validation_split, test_split: names and splits as in TFDS.
        variant, architecture: a published model, and pairs of arguments of the model beside it.
        examples, num_classes: images in the training split, and classes; `None` if unknown.
        batch_size, steps: images per update, and updates in the whole run.
        accumulate: parts that the batch of an update is computed in, one after the other.
        train, eval: `keras_vit.data.Transform` of training and of evaluation images.
        mixup, cutmix: parameter of the Beta distribution of the mixing weight; 0 for none.
        augment_layers: layers of Keras or KerasCV for training batches of 0..255, before `mixup`.
        problem: what the labels are: `"single_label"`, one class of several for each image;
            `"multi_label"`, any number of them; `"regression"`, numbers. See `for_problem`. Of
            several heads {head: problem}; then `loss`, `num_classes`, `label_smoothing` and
            `class_weights` are dicts by head too, or one value of all heads.
        loss, label_smoothing: `"softmax"`, `"sigmoid"` or, of a regression, `"squared"`, and its
            smoothing; `"own"` for the loss of the model itself, which learns without labels.
        class_weights: of the loss, one for each class, or none; see `SoftmaxLoss`, and
            `Pipeline.balanced_class_weights`.
        loss_weights: of the sum of the losses of several heads, {head: weight}; 1 by default.
        head_bias, representation_size, pool, position, dropout, stochastic_depth, remat: arguments
            of the model; `None` leaves the variant's.
        optimizer: `"adam"` (`keras_vit.training.AdamW`) or `"sgdm"` (`SGDM`).
        beta1, beta2, epsilon, momentum: of the optimizer.
        learning_rate, learning_rates: the highest learning rate, and those of the authors' sweep.
        schedule, warmup_steps, end_learning_rate, boundaries, timescale, cooldown_steps: see
            `keras_vit.training`'s schedules.
        weight_decay, decayed: share per update, times the learning rate, of the variables whose
            path ends so.
        patch_sizes: sizes of which each batch has one (`keras_vit.training.FlexiblePatches`).
        clip_norm: limit of the norm of all gradients together, or `None`.
        layer_decay: factor of the learning rate from one layer to the one before it, or `None`.
        ema: momentum of the averaged weights that are evaluated, or `None`.
        precision, seed: dtype policy of the model, and seed of everything random.
        keep_best: whether the run ends with the weights of its best epoch on validation, by
            `monitor`, or the figure that tells the best one, such as `"val_breed_accuracy"`.
        early_stopping: epochs without a better one after which it ends (with the best), or `None`.

    Raises:
        ValueError: a value is out of range.
    """

    name: str = checked(fields.text)
    source: str = checked(fields.text)
    dataset: str = checked(fields.text)
    variant: str | None = checked(optional(fields.text))
    batch_size: int = checked(positive_int)
    steps: int = checked(fields.updates)
    train: Transform = checked(fields.transform)  # noqa: RUF009
    eval: Transform = checked(fields.transform)  # noqa: RUF009
    learning_rate: float = checked(positive_float)
    examples: int | None = checked(optional(positive_int), None)
    num_classes: int | dict[str, int] | None = checked(by_head(optional(positive_int)), None)  # noqa: RUF009
    train_split: str = checked(fields.text, "train")
    validation_split: str | None = checked(optional(fields.text), None)
    test_split: str = checked(fields.text, "test")
    notes: tuple[str, ...] = checked(tuple_of(fields.text), ())
    architecture: tuple = checked(fields.pairs, ())
    mixup: float = checked(fields.not_negative, 0.0)
    cutmix: float = checked(fields.not_negative, 0.0)
    augment_layers: tuple = checked(fields.keras_layers.layer_configs, ())
    problem: str | dict[str, str] = checked(by_head(fields.choice(*PROBLEMS)), "single_label")  # noqa: RUF009
    loss: str | dict[str, str] = checked(  # noqa: RUF009
        by_head(fields.choice("softmax", "sigmoid", "squared", "own")), "softmax"
    )
    label_smoothing: float | dict[str, float] = checked(by_head(rate), 0.0)  # noqa: RUF009
    head_bias: float = checked(fields.number, 0.0)
    representation_size: int | None = checked(optional(positive_int), None)
    pool: str | None = checked(fields.choice(*POOLS), None)
    position: str | None = checked(fields.choice(*POSITIONS, None), None)
    dropout: float = checked(rate, 0.0)
    stochastic_depth: float = checked(rate, 0.0)
    remat: bool = checked(fields.choice(False, True), False)
    optimizer: str = checked(fields.choice("adam", "sgdm"), "adam")
    learning_rates: tuple[float, ...] = checked(tuple_of(positive_float), ())
    schedule: str = checked(
        fields.choice("cosine", "linear", "rsqrt", "stairs", "constant"), "cosine"
    )
    warmup_steps: int = checked(whole, 0)
    end_learning_rate: float = checked(fields.not_negative, 0.0)
    boundaries: tuple[int, ...] = checked(tuple_of(whole), ())
    timescale: int = checked(positive_int, 10_000)
    cooldown_steps: int = checked(whole, 0)
    beta1: float = checked(rate, 0.9)
    beta2: float = checked(rate, 0.999)
    epsilon: float = checked(positive_float, 1e-8)
    momentum: float = checked(rate, 0.9)
    weight_decay: float = checked(fields.not_negative, 0.0)
    decayed: tuple[str, ...] = checked(tuple_of(fields.text), ("kernel",))
    patch_sizes: tuple[int, ...] = checked(tuple_of(positive_int), ())
    clip_norm: float | None = checked(optional(positive_float), None)
    layer_decay: float | None = checked(optional(positive_float), None)
    ema: float | None = checked(optional(positive_float), None)
    accumulate: int = checked(positive_int, 1)
    precision: str = checked(
        fields.choice("float32", "mixed_bfloat16", "mixed_float16", "float64"), "float32"
    )
    seed: int = checked(whole, 0)
    keep_best: bool | str = checked(fields.best, False)
    early_stopping: int | None = checked(optional(positive_int), None)
    class_weights: tuple[float, ...] | dict[str, tuple[float, ...]] = checked(  # noqa: RUF009
        by_head(tuple_of(positive_float)), ()
    )
    loss_weights: dict[str, float] | tuple = checked(by_head(positive_float, fields.no_weights), ())  # noqa: RUF009

    def __post_init__(self):
        fields.check_fields(self)

    @property
    def image_size(self):
        """(height, width) of the images that the model sees, in pixels."""
        return self.train.image_size

    @property
    def is_bit(self):
        """Whether the model is a BiT ResNet, which takes none of a ViT's options."""
        return bool(self.variant and re.fullmatch(r"R\d+x\d+", self.variant))

    @property
    def epochs(self):
        """Passes through the training images, the last one begun; `None` for unknown images."""
        return self.passes and math.ceil(round(self.passes, 2))

    @property
    def passes(self):
        """Passes through the training images as a float, or `None` for unknown images."""
        return self.examples and self.steps * self.batch_size / self.examples

    @property
    def micro_batch_size(self):
        """Images in one batch of `model.fit`: those of an update, or a part with `accumulate`."""
        return self.batch_size // self.accumulate

    def replace(self, **changes: Any) -> "Recipe":
        """A copy with the named fields changed, and nothing else: see `scale` for what follows.

        `image_size` changes that of both transforms, and the sizes around them in proportion.

        Raises:
            ValueError: a name that is no field, or a value out of range.
        """
        known = [*(field.name for field in dataclasses.fields(self)), "image_size"]
        for name in changes:
            fields.check_known("field of a recipe", name, known, "field")
        if "image_size" in changes:
            size = pair(changes.pop("image_size"), "image_size")
            for name in ("train", "eval"):
                value = fields.transform(changes.get(name, getattr(self, name)), name)
                changes[name] = resized(value, size)
        return dataclasses.replace(self, **changes)

    scale = scale
    for_problem = for_problem
    make_schedule = fields.make_schedule
    make_loss = fields.make_loss
    metrics = fields.metrics
    monitor = property(fields.monitor)
    for_weights = fields.for_weights

    def model_options(self) -> dict[str, Any]:
        """Arguments for the builder of `variant`, or for its class, as a dict.

        What the recipe leaves as it is in the model (no dropout, say) is not among them.
        """
        names = ("head_bias", *(() if self.is_bit else OF_A_VIT))
        options = {
            "image_size": self.image_size,
            "num_classes": self.num_classes,
            "dtype": self.precision if self.precision != "float32" else None,
            **{name: getattr(self, name) for name in names},
            "variable_size": bool(self.patch_sizes),
        }
        return {name: value for name, value in options.items() if value} | dict(self.architecture)

    def make_optimizer(self, model: keras.Model | None = None) -> keras.optimizers.Optimizer:
        """A `keras_vit.training` optimizer; `layer_decay` counts the blocks of `model`."""
        counted = getattr(model, "student", model)
        shared = {
            "weight_decay": self.weight_decay,
            "decayed": self.decayed,
            "global_clipnorm": self.clip_norm,
            "layer_decay": self.layer_decay,
            "num_blocks": count_blocks(counted) if self.layer_decay else None,
            "use_ema": self.ema is not None,
            "ema_momentum": self.ema or 0.99,
            "gradient_accumulation_steps": self.accumulate if self.accumulate > 1 else None,
        }
        schedule = self.make_schedule()
        if self.optimizer == "sgdm":
            return training.SGDM(schedule, self.momentum, **shared)
        return training.AdamW(schedule, self.beta1, self.beta2, self.epsilon, **shared)

    def callbacks(self) -> list[keras.callbacks.Callback]:
        """A list of what the recipe needs: patch sizes, evaluated averages, the best weights."""
        callbacks = []
        if self.patch_sizes:
            callbacks.append(training.FlexiblePatches(self.patch_sizes, self.seed))
        if self.ema is not None:
            callbacks.append(training.EvaluateAverages())
        if self.keep_best or self.early_stopping:
            callbacks.append(training.BestWeights(self.monitor, self.early_stopping))
        return callbacks

    def compile(self, model: keras.Model, **options: Any) -> keras.Model:
        """Compiles a model with the optimizer, loss and metrics of the recipe, and returns it.

        Args:
            model: any Keras model that gives logits, or has a loss of its own.
            **options: of `keras.Model.compile`, to change or to add, such as `jit_compile`.

        Raises:
            TypeError: `model` is no Keras model.
            ValueError: the outputs of the model are not the heads of the recipe.
        """
        if not isinstance(model, keras.Model):
            raise TypeError(f"model must be a keras.Model. Received: model={model!r}.")
        made = {"optimizer": self.make_optimizer(model), "loss": self.make_loss()}
        if isinstance(self.problem, dict):
            check_outputs(self, model)
            # Weighted ones leave out what has no label. All heads are named, as Keras asks for.
            made["weighted_metrics"] = self.metrics()
            made["loss_weights"] = dict.fromkeys(self.problem, 1.0) | dict(self.loss_weights)
        else:
            made["metrics"] = self.metrics()
        model.compile(**{**made, **options})
        return model

    def to_dict(self) -> dict[str, Any]:
        """All fields as a dict that JSON can hold; those of `LATER` where they are not as ever."""
        values = dataclasses.asdict(self)
        for fields_of in (values, values["train"], values["eval"]):
            for name, as_ever in LATER.items():
                if fields_of.get(name, ...) == as_ever:
                    del fields_of[name]
        return values

    @classmethod
    def from_dict(cls, values):
        """The recipe of a dict as `to_dict` returns it, also after JSON.

        Raises:
            TypeError: a name that is no field, or a field that is missing.
            ValueError: a value out of range.
        """
        made = dict(values)
        for name in {"train", "eval"} & made.keys():
            if isinstance(made[name], dict):
                fields_of = dict(keras.tree.lists_to_tuples(made[name]))
                # Earlier versions had this name, and `None` for TensorFlow's.
                library = "tensorflow_uint8" if fields_of.pop("round_to_uint8", 0) else "tensorflow"
                if fields_of.get("library") is None:
                    fields_of["library"] = library
                made[name] = Transform(**fields_of)
        return cls(**made)

    table = fields.settings

    def __str__(self):
        return table(self.table(), left=2)
