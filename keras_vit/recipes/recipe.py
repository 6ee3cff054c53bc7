"""A recipe: everything that decides a training run, as a value."""

import dataclasses
import math
import re

from keras_vit.checks import pair
from keras_vit.data.transform import Transform
from keras_vit.recipes import checks, making, scaling, table
from keras_vit.recipes.names import no_field


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run but the machine, with where it is written.

        recipe = keras_vit.recipes.finetune("cifar100")
        model = keras_vit.ViT_B16(weights="...", **recipe.model_options())
        recipe.compile(model)
        model.fit(...)

    A recipe never changes: `replace` and `scale` return another one. `print(recipe)` shows it.

    Attributes:
        name, source, notes: what it is called, where it is written, and what is not written there.
        dataset, train_split, validation_split, test_split: names and splits as in TFDS.
        variant, architecture: a published model, and pairs of arguments of the model beside it.
        examples, num_classes: images in the training split, and classes; `None` where unknown.
        batch_size, steps: images per update, and updates in the whole run.
        train, eval: `keras_vit.data.Transform` of training and of evaluation images.
        mixup, cutmix: parameter of the Beta distribution of the mixing weight; 0 for none.
        loss, label_smoothing: `"softmax"` or `"sigmoid"`, and its smoothing.
        head_bias, representation_size, pool, position, dropout, stochastic_depth, remat: arguments
            of the model; `None` leaves the variant's.
        optimizer: `"adam"` (`keras_vit.training.AdamW`) or `"sgdm"` (`SGDM`).
        learning_rate, learning_rates: the highest learning rate, and those of the authors' sweep.
        schedule, warmup_steps, end_learning_rate, boundaries, timescale, cooldown_steps: see
            `keras_vit.training`'s schedules.
        beta1, beta2, epsilon, momentum: of the optimizer.
        weight_decay, decayed: share per update, times the learning rate, of the variables whose
            path ends so.
        clip_norm: limit of the norm of all gradients together, or `None`.
        layer_decay: factor of the learning rate from one layer to the one before it, or `None`.
        ema: momentum of the averaged weights that are evaluated, or `None`.
        accumulate: parts that a batch is computed in, one after the other; `batch_size` images
            still make one update.
        precision: dtype policy of the model.
        seed: of everything random.

    Raises:
        ValueError: a value is out of range.
    """

    name: str
    source: str
    dataset: str
    variant: str | None
    batch_size: int
    steps: int
    train: Transform
    eval: Transform
    learning_rate: float
    examples: int | None = None
    num_classes: int | None = None
    train_split: str = "train"
    validation_split: str | None = None
    test_split: str = "test"
    notes: tuple[str, ...] = ()
    architecture: tuple = ()
    mixup: float = 0.0
    cutmix: float = 0.0
    loss: str = "softmax"
    label_smoothing: float = 0.0
    head_bias: float = 0.0
    representation_size: int | None = None
    pool: str | None = None
    position: str | None = None
    dropout: float = 0.0
    stochastic_depth: float = 0.0
    remat: bool = False
    optimizer: str = "adam"
    learning_rates: tuple[float, ...] = ()
    schedule: str = "cosine"
    warmup_steps: int = 0
    end_learning_rate: float = 0.0
    boundaries: tuple[int, ...] = ()
    timescale: int = 10_000
    cooldown_steps: int = 0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    momentum: float = 0.9
    weight_decay: float = 0.0
    decayed: tuple[str, ...] = ("kernel",)
    clip_norm: float | None = None
    layer_decay: float | None = None
    ema: float | None = None
    accumulate: int = 1
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self):
        checks.check_fields(self)

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
        passes = self.passes
        return passes and math.ceil(round(passes, 2))

    @property
    def passes(self):
        """Passes through the training images as a float, or `None` for unknown images."""
        return self.examples and self.steps * self.batch_size / self.examples

    @property
    def micro_batch_size(self):
        """Images in one batch of `model.fit`: those of an update, or a part with `accumulate`."""
        return self.batch_size // self.accumulate

    def replace(self, **changes):
        """A copy with the named fields changed, and nothing else: see `scale` for what follows.

        `image_size` changes that of both transforms, and the sizes around them in proportion.

        Raises:
            ValueError: a name that is no field, or a value out of range.
        """
        known = [*(field.name for field in dataclasses.fields(self)), "image_size"]
        for name, value in changes.items():
            if name not in known:
                raise no_field(name, value, known)
        changes = dict(changes)
        if "image_size" in changes:
            size = pair(changes.pop("image_size"), "image_size")
            for field in ("train", "eval"):
                changes[field] = scaling.resized(changes.get(field, getattr(self, field)), size)
        return dataclasses.replace(self, **changes)

    def scale(self, batch_size=None, steps=None, epochs=None):
        """A copy for another batch size or length of the run; see `scaling.scale` for the rules."""
        return scaling.scale(self, batch_size, steps, epochs)

    def model_options(self):
        """Arguments for the builder of `variant`, or for its class, as a dict.

        What the recipe leaves as it is in the model (no dropout, say) is not among them.
        """
        options = {"image_size": self.image_size, "num_classes": self.num_classes}
        if self.precision != "float32":
            options["dtype"] = self.precision
        for name in ("head_bias", *(() if self.is_bit else checks.OF_A_VIT)):
            options[name] = getattr(self, name) or None
        options = {name: value for name, value in options.items() if value is not None}
        return {**options, **dict(self.architecture)}

    def make_schedule(self):
        """The learning rate: a `LearningRateSchedule`, or a number if it is constant."""
        return making.schedule(self)

    def make_optimizer(self, model=None):
        """A `keras_vit.training` optimizer; a `model` tells `layer_decay` of frozen blocks."""
        return making.optimizer(self, model)

    def make_loss(self):
        """A `SoftmaxLoss` or `SigmoidLoss`, for one-hot or integer labels."""
        return making.loss(self)

    def metrics(self):
        """A list of metrics for one-hot or integer labels: accuracy, with many classes top-5."""
        return making.metrics(self)

    def callbacks(self):
        """A list of the callbacks that the recipe itself needs: evaluation of the averages."""
        return making.callbacks(self)

    def compile(self, model, **options):
        """Compiles a model with the optimizer, loss and metrics of the recipe, and returns it.

        Args:
            model: any Keras model that gives logits.
            **options: of `keras.Model.compile`, to change or to add, such as `jit_compile`.

        Raises:
            TypeError: `model` is no Keras model.
        """
        return making.compile_model(self, model, options)

    def to_dict(self):
        """All fields as a dict that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields):
        """The recipe of a dict as `to_dict` returns it, also after JSON.

        Raises:
            ValueError: a name that is no field, a field that is missing, or a value out of range.
        """
        scaling.check_names(fields, cls, "a recipe")
        transforms = {name: scaling.transform_of(fields[name], name) for name in ("train", "eval")}
        return cls(**{**fields, **transforms})

    def table(self):
        """The settings as a list of (setting, value), both strings, in the order of reading."""
        return table.rows(self)

    def __str__(self):
        return table.text(self)
