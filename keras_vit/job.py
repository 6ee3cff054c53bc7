"""A job: a recipe, the data and the model that it is run with, and what the run leaves."""

import dataclasses
import json
import pathlib
import time

import keras
import numpy as np

from keras_vit import data, distribution, evaluation, recipes, results, training
from keras_vit.builders import build, builder_name, name_of
from keras_vit.checks import warn_of_parts
from keras_vit.class_names import class_map
from keras_vit.data import units
from keras_vit.heads import check_one_head, map_heads
from keras_vit.models import VisionTransformer
from keras_vit.models.multitask import add_heads
from keras_vit.models.record import open_saved
from keras_vit.outputs import PROBLEMS
from keras_vit.plan import header
from keras_vit.weights import from_checkpoint
from keras_vit.writing import output_place


def configure(recipe):
    """Sets the seed and the precision of this process to those of a recipe."""
    training.set_random_seed(recipe.seed)
    keras.config.set_floatx("float64" if recipe.precision == "float64" else "float32")
    keras.config.set_dtype_policy(recipe.precision)


@dataclasses.dataclass(frozen=True)
class Job:
    """A training run from data to a tested, saved model; call `configure` before it.

    Attributes:
        recipe: a `keras_vit.recipes.Recipe`.
        output: the folder for everything the run leaves.
        dataset, data_dir, channels: see `keras_vit.data.pipeline`; by default the recipe's.
        labels, problem: see `keras_vit.data.load`; the recipe is one for that problem.
        split, test_split: images to train and to test on; by default the recipe's.
        model: a published variant instead of the recipe's, such as `"B/16"`.
        weights: a checkpoint to begin from. Without a `model` or a variant of the recipe it
            decides the architecture.
        freeze: patterns of layers that do not train, see `keras_vit.training.freeze`; with `lora`
            also those that it would train, such as the head.
        teacher: a model of the same classes to learn from, too: a checkpoint of any format that
            `keras_vit.from_checkpoint` reads, or a `.keras` file that gives logits. Hard labels
            and half of the loss, as in `keras_vit.training.Distiller`.
        lora: rank of the changes of the weights that alone are trained, or `None`.
        save_every: see `keras_vit.training.fit`.
        keep_checkpoints: whether they stay after the end, several times as large as the model.
    """

    recipe: recipes.Recipe
    output: str
    dataset: str | None = None
    data_dir: str | None = None
    channels: int | None = None
    labels: str | None = None
    problem: str | dict[str, str] | None = None
    split: str | None = None
    test_split: str | None = None
    model: str | None = None
    weights: str | None = None
    freeze: tuple[str, ...] = ()
    lora: int | None = None
    teacher: str | None = None
    save_every: str | int = "600s"
    keep_checkpoints: bool = False

    def load(self, split, *, training, batch_size=None):
        """A split of the data, in batches of `model.fit`, to train on or to test on."""
        source, size = self.dataset or self.recipe.dataset, self.recipe.micro_batch_size
        names = ("data_dir", "channels", "labels", "problem")
        options = {name: getattr(self, name) for name in names}
        options |= {"training": training, "batch_size": batch_size or size}
        return data.pipeline(source, self.recipe, split, **options)

    def load_train(self, batch_size=None):
        return self.load(self.split, training=True, batch_size=batch_size)

    def load_test(self):
        return self.load(self.test_split or self.recipe.test_split, training=False)

    def load_validation(self, train, test):
        """The images that each epoch is measured on: those to test on.

        Where the run ends with its best epoch these would choose it. Then they are the part for
        validation, if the data has one that is neither trained nor tested on.
        """
        chooses_epoch = self.recipe.keep_best or self.recipe.early_stopping
        has_part = train.source.has_part("validation") or self.recipe.validation_split
        if not (chooses_epoch and has_part):
            return test
        validation = self.load("validation", training=False)
        overlaps = np.isin(validation.rows, np.union1d(train.rows, test.rows)).any()
        return test if overlaps else validation

    def build(self, train):
        """The uncompiled model for the images and classes of a pipeline."""
        options = self.recipe.model_options()
        has_heads = isinstance(train.problem, dict)
        classes = 0 if has_heads else train.num_classes
        options |= {"channels": train.image_shape[-1], "num_classes": classes}
        variant = self.model or self.recipe.variant
        if variant is not None:
            model = build(variant, weights=self.weights, **options)
        elif self.weights:
            model = from_checkpoint(self.weights, **options)
        else:
            model = VisionTransformer(**options)
        if variant is None:  # reports and cards name a model after what it is
            variant = name_of(model)
            model.name = builder_name(variant).lower() if variant else "vit_mini"
        if not self.weights:
            model.preprocessing = train.preprocessing
        if has_heads:
            model = add_heads(model, train.num_classes, self.recipe.head_bias)
            model.reading = {head: PROBLEMS[each] for head, each in train.problem.items()}
        elif self.weights:
            _fit_head(model, train.class_names, self.recipe.head_bias)
        model.class_names = map_heads(lambda names: names and tuple(names), train.class_names)
        if self.lora is not None:
            print(training.enable_lora(model, self.lora))
        if self.freeze:
            print(training.freeze(model, self.freeze))
        return model

    def compile(self, model):
        """The compiled model that `fit` trains, see `with_teacher`."""
        return self.recipe.compile(self.with_teacher(model))

    def with_teacher(self, model):
        """The model, or a `Distiller` around it, if there is a teacher."""
        if teacher := self.teacher:
            check_one_head(model, "Learning from a teacher")
            if str(teacher).endswith(".keras"):
                teacher = open_saved(teacher)
            else:
                teacher = from_checkpoint(teacher)
            model = training.Distiller(model, teacher)
        return model

    def for_weights(self, model):
        """The job, with the preprocessing of its weights in the recipe where weights are loaded."""
        contradicts = model.preprocessing.differs(self.recipe.eval.preprocessing)
        if not self.weights or not (contradicts or self.recipe.name.startswith("own")):
            return self
        return dataclasses.replace(self, recipe=self.recipe.for_weights(model))

    def run(self):
        """Trains, or goes on with an interrupted run, then saves and tests the model.

        The folder then has what `training.fit` leaves, and `model.keras`, `settings.json` (what
        `Job.read` reads), `evaluation.json`, `predictions.png` and `README.md`, the model card.

        Returns:
            The metrics as a dict; `None` in all but one of several processes.
        """
        devices = distribution.current()
        output_place(self.output, folder=True)
        for name in results.FILES if devices.writes else ():
            output_place(pathlib.Path(self.output) / name)
        train = self.load_train()
        with devices.scope():
            model = self.build(train)
        job = self.for_weights(model)
        if job is not self:
            train = job.load_train()
        return job._train(model, train)

    def _train(self, model, train):
        """Trains a built model on a pipeline, then saves and tests it."""
        devices, recipe = distribution.current(), self.recipe
        test = self.load_test()
        validation, label_units = self.load_validation(train, test), units.units_of(train)
        if validation is not test:  # which `fit` looks at
            warn_of_parts(train, test)
        if devices.writes:
            print(header(self, model, train, test))
        told = None if label_units is None else units.units_told(label_units)
        if told:
            print(told)
        model.preprocessing = train.preprocessing
        with devices.scope():
            units.turn_head(model, label_units, back=True)
            trainer = self.compile(model)
        settings = {name: getattr(self, name) for name in ("weights", "freeze", "lora")}
        begun = time.perf_counter()
        try:
            history = training.fit(
                trainer,
                units.in_units(train, label_units),
                self.output,
                steps=recipe.steps,
                validation=units.in_units(validation, label_units),
                save_every=self.save_every,
                callbacks=recipe.callbacks(),
                settings={"recipe": recipe.to_dict(), **settings},
            )
        except training.RunEnded:
            history = None
        seconds = time.perf_counter() - begun
        if history is not None:
            model = devices.local_copy(model)
        devices.close()  # one process alone saves and tests
        if not devices.writes:
            return None
        if history is None:
            return results.conclude(self, test, results.outcome_of_ended(self.output))
        outcome = results.outcome_of(recipe, history, seconds, train, validation, test, told)
        finished = model if self.lora is None else training.merge_lora(model)
        units.turn_head(finished, label_units)
        results.save(self, finished, outcome)
        return results.conclude(self, test, outcome, trained=finished)

    @classmethod
    def read(cls, output):
        """The job of a finished run, from the folder of its output."""
        settings = pathlib.Path(output) / "settings.json"
        if not settings.is_file():
            raise ValueError(f"There is no finished run in {output!r}: {settings.name} is missing.")
        fields = json.loads(settings.read_text())
        fields.pop("training", None)  # its outcome
        recipe = recipes.Recipe.from_dict(fields["recipe"])
        return cls(**{**fields, "recipe": recipe, "output": str(output)})  # it may have been moved

    def evaluate(self, model=None, test=None):
        """Tests a model, by default the saved one, and prints and saves the report."""
        output = pathlib.Path(self.output)
        if model is None:
            model = keras.saving.load_model(output / "model.keras", compile=False)
        test = test or self.load_test()
        results.compare_test(output, test.source, test.rows)
        report = evaluation.evaluate(model, test)
        print(report)
        report.save(output / "evaluation.json")
        return report


def _fit_head(model, names, bias):
    """Puts a head that came with weights into the order of the data's classes, by their names.

    A head of other classes begins fresh, with this bias.
    """
    known = list(map(str, model.class_names or names or ()))
    names = list(map(str, names or known))
    if names == known or len(names) != model.num_classes:
        return
    is_known = sorted(names) == sorted(known)
    numbers = class_map("single_label", known, names, (len(known),)) if is_known else None
    for layer in model.layers:
        if layer.name in ("head", "head_distillation"):
            kernel, offset = layer.get_weights()
            fresh = np.zeros_like(kernel), np.full_like(offset, bias)
            layer.set_weights([kernel[:, numbers], offset[numbers]] if is_known else fresh)
    fate = "its classes in the order of the data's" if is_known else "fresh, as its classes differ"
    model.load_report = dataclasses.replace(model.load_report, head=fate)
