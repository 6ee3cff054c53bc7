"""What a job leaves when its training has ended: the saved model, its test, its card."""

import dataclasses
import json
import pathlib
import warnings

import keras

from keras_vit import training
from keras_vit.hub import model_card
from keras_vit.inspection.predictions import draw_predictions
from keras_vit.text import visible
from keras_vit.writing import output_place, replacing_files, write_text

# Beside the files of `training.fit`.
FIGURES = ("evaluation.json", "metrics.json")
FILES = ("model.keras", "settings.json", "predictions.png", "README.md", *FIGURES)


def outcome_of(recipe, history, seconds, train, validation, test, units=None):
    """Epochs, the best of them, and how many images were read and how many could not be: a dict.

    `units` tells those of the figures of training, where they are not those of the labels.
    """
    skipped = {"training": len(train.skipped)}
    if validation is not test:
        skipped["validation"] = len(validation.skipped)
    outcome = {"epochs": history["epoch"][-1] + 1, "train_loss": history["loss"][-1]}
    keeps_best = recipe.keep_best or recipe.early_stopping
    if keeps_best and (best := training.best_epoch(history, recipe.monitor)) is not None:
        value = history[recipe.monitor][history["epoch"].index(best)]
        outcome |= {"best_epoch": best + 1, f"best_{recipe.monitor}": value}
        outcome |= {"chosen_on": "test" if validation is test else "validation"}
    outcome |= {"units": units} if units else {}
    outcome["test_digest"] = test.source.digest(test.rows)
    outcome["training_images"] = train.num_examples - len(train.skipped)
    return outcome | {"seconds_training": round(seconds, 1), "skipped": skipped}


def compare_test(output, source, rows):
    """Warns if a finished run in `output` was tested on other images than these rows of a source.

    A folder without parts is split by its files: with some more or fewer, images that the run has
    trained on are among those to test on.
    """
    settings = pathlib.Path(output) / "settings.json"
    fields = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    now = source.digest(rows)
    if (fields.get("training") or {}).get("test_digest", now) != now:
        warnings.warn(
            f"These images are not those that the run in {output} was tested on, and it may have "
            f"trained on some of them. Received: {len(rows)} images of {source.name}, where files "
            "or labels have changed; put images to test on into a folder of their own.",
            stacklevel=3,
        )


def outcome_of_ended(output):
    """The saved result of `outcome_of` of a run that has ended, if its model is there."""
    output = pathlib.Path(output)
    if missing := [n for n in ("model.keras", "settings.json") if not (output / n).is_file()]:
        raise ValueError(
            f"The run in {str(output)!r} has ended, but its {missing[0]} is missing. Delete "
            "run.json there to train anew, or choose another output folder."
        )
    print(f"{visible(output)} has this run already, which has ended: nothing is left to train.")
    return json.loads((output / "settings.json").read_text())["training"]


def save(job, model, outcome=None):
    """Saves a model and the settings of its job; the optimizer would be of this backend only."""
    output = pathlib.Path(job.output)
    portable = type(model).from_config(model.get_config())
    portable.set_weights(model.get_weights())
    fields = {**dataclasses.asdict(job), "recipe": job.recipe.to_dict(), "training": outcome}
    for name in FIGURES:  # of the model that was here before
        output_place(output / name).unlink(missing_ok=True)
    with replacing_files(output / "settings.json") as draft:
        portable.save(draft.with_name("model.keras"))
        write_text(draft, json.dumps(fields, indent=1))


def conclude(job, test, outcome, trained=None):
    """Tests the saved model as whoever opens it does, and writes its card; returns the metrics.

    Args:
        trained: the model, where this process has trained it.
    """
    output = pathlib.Path(job.output)
    saved = keras.saving.load_model(output / "model.keras", compile=False)
    report = job.evaluate(saved, test)
    draw_predictions(saved, test, output / "predictions.png")
    if trained is not None or not (output / "README.md").exists():
        try:
            model_card(trained or saved, output / "README.md", run=output)
        except ValueError as error:  # somebody has edited the one of an earlier run
            print(visible(error))
    if not job.keep_checkpoints:
        training.remove_checkpoints(output)
    skipped = {**outcome["skipped"], "test": report.skipped}
    return {
        **{f"test_{name}": value for name, value in report.to_dict()["figures"].items()},
        **{n: value for n, value in outcome.items() if n not in ("skipped", "test_digest")},
        "parameters": saved.count_params(),
        "test_images": report.examples,
        "skipped_images": sum(skipped.values()),
        **{f"skipped_{part}_images": count for part, count in skipped.items()},
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
    }
