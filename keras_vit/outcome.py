"""What a training came to: for `settings.json`, the card and the metrics of a run."""

import json
import pathlib

import keras

from keras_vit import training
from keras_vit.text import visible


def outcome_of(recipe, history, seconds, train, validation, test):
    """Epochs, the best of them, and how many images were read and how many could not be: a dict.

    `history` is what `keras_vit.training.fit` returned, `validation` may be the pipeline `test`.
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
