"""A job: a recipe, the data and the model that it is run with, and what the run leaves."""

import dataclasses
import importlib.util
import itertools
import json
import math
import pathlib
import time

import keras
import numpy as np

from keras_vit import data, distribution, evaluation, inspection, recipes, training
from keras_vit.builders import build
from keras_vit.data.pixels import per_channel
from keras_vit.data.units import in_units, turn_head, units_of, units_told
from keras_vit.hub import model_card
from keras_vit.models import VisionTransformer
from keras_vit.outputs import reading_of
from keras_vit.text import visible
from keras_vit.weights import from_checkpoint
from keras_vit.writing import output_place, replacing_files, write_text

# What a run leaves beside the files of `training.fit`.
FILES = "model.keras settings.json evaluation.json metrics.json predictions.png README.md".split()


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
        weights: a checkpoint to begin from, for a `model`.
        freeze: patterns of layers that do not train, see `keras_vit.training.freeze`.
        teacher: a model of the same classes to learn from, too: a checkpoint of any format that
            `keras_vit.from_checkpoint` reads, or a `.keras` file that gives logits. Hard labels
            and half of the loss, as in `keras_vit.training.Distiller`.
        lora: rank of the changes of the weights that alone are trained, or `None`.
        save_every: see `keras_vit.training.fit`.
    """

    recipe: recipes.Recipe
    output: str
    dataset: str | None = None
    data_dir: str | None = None
    channels: int | None = None
    labels: str | None = None
    problem: str | None = None
    split: str | None = None
    test_split: str | None = None
    model: str | None = None
    weights: str | None = None
    freeze: tuple[str, ...] = ()
    lora: int | None = None
    teacher: str | None = None
    save_every: str | int = "600s"

    def load(self, split, batch_size=None):
        """A split of the data, in batches of `model.fit`."""
        source, size = self.dataset or self.recipe.dataset, self.recipe.micro_batch_size
        names = ("data_dir", "channels", "labels", "problem")
        options = {name: getattr(self, name) for name in names}
        return data.pipeline(source, self.recipe, split, batch_size or size, **options)

    def load_test(self):
        """The images to test on."""
        return self.load(self.test_split or self.recipe.test_split)

    def build(self, train):
        """The uncompiled model for the images and classes of a pipeline."""
        options = self.recipe.model_options()
        options |= {"channels": train.image_shape[-1], "num_classes": train.num_classes}
        variant = self.model or self.recipe.variant
        if variant is not None:
            model = build(variant, weights=self.weights, **options)
        elif self.weights:
            raise ValueError("weights need a model (--variant), the one whose weights they are.")
        else:
            model = VisionTransformer(**options, name="vit_mini")
        if self.weights:
            print(model.load_report)
        else:
            model.preprocessing = train.preprocessing
        model.class_names = train.class_names and tuple(train.class_names)
        if self.freeze:
            print(training.freeze(model, self.freeze))
        if self.lora is not None:
            print(training.enable_lora(model, self.lora))
        return model

    def for_weights(self, model):
        """The job whose recipe gives the images as the weights of its model want them.

        It is this job where there are no weights, or they want what a published recipe says.
        """
        contradicts = model.preprocessing.differs(self.recipe.eval.preprocessing)
        if not self.weights or not (contradicts or self.recipe.name.startswith("own")):
            return self
        return dataclasses.replace(self, recipe=self.recipe.for_weights(model))

    def with_teacher(self, model):
        """The model, or what trains it with the teacher."""
        if not self.teacher:
            return model
        if str(self.teacher).endswith(".keras"):
            teacher = keras.saving.load_model(self.teacher, compile=False)
        else:
            teacher = from_checkpoint(self.teacher)
        return training.Distiller(model, teacher)

    def run(self):
        """Trains, or goes on with an interrupted run, then saves and tests the model.

        The folder then has what `training.fit` leaves, and `model.keras`, `settings.json` (what
        `Job.read` reads), `evaluation.json`, `predictions.png` and `README.md`, the model card.

        Returns:
            The metrics as a dict; `None` in all but one of several processes.
        """
        output, devices = pathlib.Path(self.output), distribution.current()
        output_place(output, folder=True)
        for name in FILES if devices.writes else ():
            output_place(output / name)
        train = self.load(self.split)
        with devices.scope():
            model = self.build(train)
        if (job := self.for_weights(model)) is not self:
            train = job.load(job.split)
        return job._run(model, train)

    def _run(self, model, train):
        """`run` of a built model and its training data."""
        output, devices, recipe = pathlib.Path(self.output), distribution.current(), self.recipe
        test = self.load_test()
        if devices.writes:
            print(recipe, train, sep="\n")
        model.preprocessing = train.preprocessing
        units = units_of(train)
        if units is not None:
            print(units_told(units))
            turn_head(model, units, back=True)
        learned, validation = (in_units(each, units) for each in (train, test))
        with devices.scope():
            model = recipe.compile(self.with_teacher(model))
        start = time.perf_counter()
        history = training.fit(
            model,
            learned,
            output,
            steps=recipe.steps,
            validation=validation,
            save_every=self.save_every,
            callbacks=recipe.callbacks(),
            settings={"recipe": recipe.to_dict(), "weights": self.weights, "freeze": self.freeze},
        )
        seconds = time.perf_counter() - start
        model = devices.local_copy(model.student if self.teacher else model)
        devices.close()  # the rest is done by one process alone
        if not devices.writes:
            return None
        if self.lora is not None:
            model = training.merge_lora(model)
        if units is not None:
            turn_head(model, units)
        self._save(model)
        report = self.evaluate(model, test)
        draw_predictions(model, test, output / "predictions.png")
        try:
            model_card(model, output / "README.md", run=output)
        except ValueError as error:  # somebody has edited the one of an earlier run
            print(visible(error))
        return {
            **{f"test_{name}": value for name, value in report.to_dict()["figures"].items()},
            "train_loss": history["loss"][-1],
            "epochs": math.ceil(recipe.steps * recipe.accumulate / train.steps_per_epoch),
            "seconds_training": round(seconds, 1),
            "parameters": model.count_params(),
            "skipped_images": len(test.skipped),
            "backend": keras.backend.backend(),
            "keras": keras.__version__,
        }

    def _save(self, model):
        """Leaves the model without its optimizer, which only this backend could use."""
        output = pathlib.Path(self.output)
        portable = type(model).from_config(model.get_config())
        portable.set_weights(model.get_weights())
        fields = {**dataclasses.asdict(self), "recipe": self.recipe.to_dict()}
        for name in ("evaluation.json", "metrics.json"):  # of the model that was here before
            output_place(output / name).unlink(missing_ok=True)
        with replacing_files(output / "settings.json") as draft:
            portable.save(draft.with_name("model.keras"))
            write_text(draft, json.dumps(fields, indent=1))

    @classmethod
    def read(cls, output):
        """The job of a finished run, from the folder of its output."""
        settings = pathlib.Path(output) / "settings.json"
        if not settings.is_file():
            raise ValueError(f"There is no finished run in {output!r}: {settings.name} is missing.")
        fields = json.loads(settings.read_text())
        return cls(**{**fields, "recipe": recipes.Recipe.from_dict(fields["recipe"])})

    def evaluate(self, model=None, test=None):
        """Tests a model, by default the saved one, and prints and saves the report."""
        output = pathlib.Path(self.output)
        if model is None:
            model = keras.saving.load_model(output / "model.keras", compile=False)
        report = evaluation.evaluate(model, test or self.load_test())
        print(report)
        report.save(output / "evaluation.json")
        return report


def draw_predictions(model, test, path, count=12):
    """Draws test images and their attention maps, mistakes first, which teach most.

    A model without attention, labels of another kind than one class of several, and a machine
    without matplotlib, draw nothing.
    """
    if not isinstance(model, VisionTransformer) or not importlib.util.find_spec("matplotlib"):
        return
    if test.problem != "single_label":
        return
    batches = list(itertools.islice(test, 8))
    images, labels = (np.concatenate([np.asarray(b[i]) for b in batches]) for i in (0, 1))
    outputs = model.predict(images, batch_size=len(batches[0][1]), verbose=0)
    probabilities = reading_of(model).scores(outputs)
    mean, std = per_channel(test.preprocessing, images.shape[-1])
    chosen = np.argsort(probabilities.argmax(-1) == labels, kind="stable")[:count]
    inspection.plot_predictions(
        (images[chosen] * std + mean).clip(0, 1),
        inspection.attention_maps(model, images[chosen]),
        labels[chosen],
        probabilities[chosen],
        test.class_names,
        path,
    )
