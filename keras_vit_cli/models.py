"""Models and images of what stands on the command line."""

import os
import pathlib

MODEL = "a .keras file, the folder of a run, or a checkpoint: name, file, folder or URL"


def open_model(text):
    """The model of a .keras file, a folder that a run left, or a checkpoint of any kind.

    Raises:
        FileNotFoundError, ValueError: there is no such model, or it cannot be read.
    """
    import keras

    import keras_vit

    path = file_of(text)
    if not path.endswith(".keras"):
        return keras_vit.from_checkpoint(text)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no such model. Received: {text!r}")
    return keras.saving.load_model(path, compile=False)


def file_of(text):
    """The model.keras in the folder of a run; other texts as they are."""
    of_a_run = os.path.join(text, "model.keras")
    return of_a_run if os.path.isfile(of_a_run) else text


def list_files(paths):
    """The files among `paths`, each once, and the images in the folders among them, sorted.

    Raises:
        ValueError: a folder without images.
    """
    from keras_vit.data.files import EXTENSIONS, Folder

    files = []
    for path in paths:
        if not os.path.isdir(path):
            files.append(path)
            continue
        folder = Folder(pathlib.Path(path))
        inside = [n for n in folder.names if n.lower().endswith(EXTENSIONS)]
        if not inside:
            raise ValueError(
                f"The folder holds no image ({' '.join(EXTENSIONS)}). Received: {path!r}"
            )
        files += map(folder.place, inside)
    return list(dict.fromkeys(files))
