"""A model of what stands on the command line."""

import os

MODEL = "a .keras file, the folder of a run, or a checkpoint: name, file, folder or URL"


def open_model(text):
    """The model of a .keras file, a folder that a run left, or a checkpoint of any kind.

    Raises:
        FileNotFoundError, ValueError: there is no such model, or it cannot be read.
    """
    import keras

    import keras_vit

    of_a_run = os.path.join(text, "model.keras")
    path = of_a_run if os.path.isfile(of_a_run) else text
    if not path.endswith(".keras"):
        return keras_vit.from_checkpoint(text)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no such model. Received: {text!r}")
    return keras.saving.load_model(path, compile=False)
