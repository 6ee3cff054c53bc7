"""Models and images of what stands on the command line."""

import json
import os
import pathlib
import re
import sys


def open_model(text, reading=None, **settings):
    """The model of a .keras file, a folder that a run left, or a checkpoint.

    `reading` is how its outputs are read, `None` for what it says itself. `settings` are arguments
    of `keras_vit.from_checkpoint`, for what a checkpoint does not say.
    """
    path = file_of(text)
    use_precision(settings_of_run(text).get("recipe", {}).get("precision"))
    if not path.endswith(".keras"):
        import keras_vit

        try:
            model = keras_vit.from_checkpoint(text, **settings)
        except ValueError as error:
            if not re.search(r"\b[Ss]ay (\w+)=", str(error)):
                raise
            advice = "`keras-vit convert` takes such settings: --set NAME=VALUE."
            raise type(error)(f"{error} {advice}") from error
    elif settings:
        raise ValueError(f"A .keras file says all of its model. Received: {', '.join(settings)}")
    else:
        from keras_vit.models.record import open_saved

        model = open_saved(path)
    if reading:
        model.reading = reading
    return model


def file_of(text):
    """The model.keras in the folder of a run; other texts as they are."""
    of_a_run = os.path.join(text, "model.keras")
    return of_a_run if os.path.isfile(of_a_run) else text


def settings_of_run(text):
    """What `settings.json` says in the folder of a run, or beside its model; `{}` for others."""
    folder = text if os.path.isdir(text) else os.path.dirname(text)
    path = os.path.join(folder, "settings.json")
    if os.path.basename(file_of(text)) != "model.keras" or not os.path.isfile(path):
        return {}
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    is_of_run = isinstance(settings, dict) and isinstance(settings.get("recipe"), dict)
    return settings if is_of_run else {}


def use_precision(precision):
    """Lets this process compute in float64 where a run does: JAX must be told before it begins."""
    if precision != "float64":
        return
    os.environ["JAX_ENABLE_X64"] = "1"  # read when JAX is imported,
    if "jax" in sys.modules:  # as `python -m keras_vit` has done already
        sys.modules["jax"].config.update("jax_enable_x64", True)
    import keras

    keras.config.set_floatx("float64")


def read_names(file):
    """The names in a text, one a line; `None` without a file.

    An empty line before the last name is an error: those after it would get other numbers.
    """
    if file is None:
        return None
    try:
        with open(file, encoding="utf-8-sig") as stream:
            text = stream.read()
        if "\0" in text:
            raise ValueError("zeros between letters, as UTF-16 has them")
    except ValueError as error:
        raise ValueError(f"{file} must be saved as text in UTF-8. Received: {error}") from error
    names = [line.strip() for line in text.rstrip().split("\n")]
    if "" in names:
        raise ValueError(
            f"Each line of {file} must hold the name of a class. Received: line "
            f"{names.index('') + 1} without one; take it out, or name the class"
        )
    return names


def in_the_package(model):
    """The record of the weights that come with the package under a name; `None` for others."""
    from keras_vit.weights import catalog

    records = [] if os.path.exists(model) else catalog.lookup(model)
    return records[0] if [record.family for record in records] == ["keras_vit"] else None


def files_of(args):
    """The files of the images that a command names, or of those that come with the model."""
    from keras_vit.data import image_files
    from keras_vit.weights import fetch

    if args.images:
        return image_files(args.images)
    if (record := in_the_package(args.model)) is None:
        args.refuse("images: they are needed for any model but digits")
    files, here = sorted(fetch(record.url).parent.glob("*.png")), pathlib.Path.cwd()
    return [str(file.relative_to(here) if file.is_relative_to(here) else file) for file in files]
