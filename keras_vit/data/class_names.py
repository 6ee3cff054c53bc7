"""What to call the classes of a model."""

import functools
import json
import os
import warnings

from keras_vit.weights.fetch import DownloadError, fetch

IMAGENET_1K = "imagenet-1k"
IMAGENET_FILE = "KERAS_VIT_IMAGENET_CLASSES"  # environment variable: a local file of the names

# The file behind keras.applications' decode_predictions.
_URL = "https://storage.googleapis.com/download.tensorflow.org/data/imagenet_class_index.json"
_SECONDS = 20  # without an answer; a firewall that drops packets never says no


def resolve_class_names(model, num_classes, class_names=None):
    """The names of a model's classes: those given, its own, those of its label set, or numbers.

    Args:
        model: its `class_names`, a sequence of text, and its `label_set`, such as
            `"imagenet-1k"`, are looked up, if it has them.
        num_classes: how many names there must be.
        class_names: sequence of text in the order of the logits, instead of the model's.

    Returns:
        tuple of text, one for each class. The names of ImageNet are read from the file that the
        environment variable KERAS_VIT_IMAGENET_CLASSES names, or else downloaded once. If that
        fails, a warning says so and the names are "0", "1", and so on.

    Raises:
        ValueError: another number of names than classes.
        FileNotFoundError: the file in the environment variable does not exist.
    """
    if class_names is not None:
        return _checked(class_names, num_classes, "class_names")
    if getattr(model, "class_names", None) is not None:
        return _checked(model.class_names, num_classes, "model.class_names")
    if getattr(model, "label_set", None) == IMAGENET_1K:
        names = imagenet_class_names(os.environ.get(IMAGENET_FILE))
        if names is not None:
            return _checked(names, num_classes, f"the names of {IMAGENET_1K}")
    return tuple(str(index) for index in range(num_classes))


@functools.cache
def imagenet_class_names(path=None):
    """The English names of the ImageNet-1k classes, in the order of the logits.

    Args:
        path: JSON file `{"0": ["n01440764", "tench"], ...}`; None downloads Keras's, once.

    Returns:
        tuple of text; None, after a warning, if the download failed. It is not tried again in
        the same process.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file has another structure.
    """
    downloaded = path is None
    if downloaded:
        path = _download()
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
        return tuple(index[str(i)][1].replace("_", " ") for i in range(len(index)))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"The class names file does not exist. Received: {IMAGENET_FILE}={path}"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            'The class names file must be JSON such as {"0": ["n01440764", "tench"], ...}. '
            f"Received: {path} ({type(error).__name__}: {error})"
        ) from error


def _download():
    try:
        return fetch(_URL, timeout=_SECONDS, retries=0)
    except DownloadError as error:
        warnings.warn(
            "The names of the ImageNet classes cannot be downloaded, so predictions show the "
            "number of the class instead. Pass class_names=..., or set the environment variable "
            f"{IMAGENET_FILE} to a copy of {_URL}. Received: {error}",
            stacklevel=2,
        )
        return None


def _checked(names, num_classes, source):
    if isinstance(names, str):
        raise ValueError(f"{source} must be a sequence of names. Received: {names!r}")
    names = tuple(str(name) for name in names)
    if len(names) != num_classes:
        raise ValueError(
            f"There must be one name for each of the {num_classes} classes of the model, in the "
            f"order of its logits. Received: {len(names)} names from {source}; pass "
            "class_names=[...]"
        )
    return names
