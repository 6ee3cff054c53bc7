"""The training of a job: what its model gets for that alone, and what came of it."""

import json
import pathlib

import keras

from keras_vit import training
from keras_vit.data import units
from keras_vit.heads import check_one_head
from keras_vit.text import visible
from keras_vit.weights import from_checkpoint


def adapt(job, model):
    """Lets some layers of a model, or changes of low rank, train alone, as the job says."""
    if job.freeze:
        print(training.freeze(model, job.freeze))
    if job.lora is not None:
        print(training.enable_lora(model, job.lora))


class Learner:
    """What becomes of the model of a job while it trains: in units near 1, taught by a teacher."""

    def __init__(self, job, train):
        self.job, self.units = job, units.units_of(train)

    def data(self, pipeline):
        """A pipeline with its labels in the units of the training."""
        return units.in_units(pipeline, self.units)

    def turn_head(self, model):
        """The model, with its head in the units of the training."""
        units.turn_head(model, self.units, back=True)
        return model

    def finish(self, model):
        """The model to save: with its head in the units of the labels, and without LoRA."""
        finished = model if self.job.lora is None else training.merge_lora(model)
        units.turn_head(finished, self.units)
        return finished

    def compile(self, model):
        """The compiled model that `fit` trains: a `Distiller` around it, if there is a teacher."""
        if teacher := self.job.teacher:
            check_one_head(model, "Learning from a teacher")
            if str(teacher).endswith(".keras"):
                teacher = keras.saving.load_model(teacher, compile=False)
            else:
                teacher = from_checkpoint(teacher)
            model = training.Distiller(model, teacher)
        return self.job.recipe.compile(model)

    def tell_units(self):
        """Prints the units, if they are not those of the labels."""
        if self.units is not None:
            print(units.units_told(self.units))


def outcome_of(recipe, history, seconds, train, validation, test):
    """Epochs, the best of them, and how many images were read and how many could not be: a dict."""
    skipped = {"training": len(train.skipped)}
    if validation is not test:
        skipped["validation"] = len(validation.skipped)
    outcome = {"epochs": history["epoch"][-1] + 1, "train_loss": history["loss"][-1]}
    keeps_best = recipe.keep_best or recipe.early_stopping
    if keeps_best and (best := training.best_epoch(history, recipe.monitor)) is not None:
        value = history[recipe.monitor][history["epoch"].index(best)]
        outcome |= {"best_epoch": best + 1, f"best_{recipe.monitor}": value}
        outcome |= {"chosen_on": "test" if validation is test else "validation"}
    outcome["training_images"] = train.num_examples - len(train.skipped)
    return outcome | {"seconds_training": round(seconds, 1), "skipped": skipped}


def outcome_of_ended(output):
    """What `outcome_of` has told of the run in a folder that has ended, if its model is there."""
    output = pathlib.Path(output)
    if missing := [n for n in ("model.keras", "settings.json") if not (output / n).is_file()]:
        raise ValueError(
            f"The run in {str(output)!r} has ended, but its {missing[0]} is missing. Delete "
            "run.json there to train anew, or choose another output folder."
        )
    print(f"{visible(output)} has this run already, which has ended: nothing is left to train.")
    return json.loads((output / "settings.json").read_text())["training"]


def metrics_of(outcome, report, model):
    """The metrics of a run, of its outcome and the report of its test: a flat dict for JSON."""
    skipped = {**outcome["skipped"], "test": report.skipped}
    return {
        **{f"test_{name}": value for name, value in report.to_dict()["figures"].items()},
        **{name: value for name, value in outcome.items() if name != "skipped"},
        "parameters": model.count_params(),
        "test_images": report.examples,
        "skipped_images": sum(skipped.values()),
        **{f"skipped_{part}_images": count for part, count in skipped.items()},
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
    }
