"""From a file to a model: read -> canonical names -> strict assignment -> a report."""

import dataclasses

from keras_vit.models.vit import VisionTransformer
from keras_vit.weights import google
from keras_vit.weights.files import read_npz

HEAD = ("head/kernel", "head/bias")


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What became of a checkpoint. Every variable and every array is in one of the three lists.

    Attributes:
        loaded: canonical names of the variables that took their value from the file.
        initial: variables left at their initial value: a fresh head, if anything.
        ignored: arrays of the file that the model has no use for: its head, if anything.
    """

    loaded: tuple[str, ...]
    initial: tuple[str, ...]
    ignored: tuple[str, ...]

    def __str__(self):
        rows = [("loaded", f"{len(self.loaded)} variables")]
        rows += [("left at initial value", ", ".join(self.initial))] * bool(self.initial)
        rows += [("ignored", ", ".join(self.ignored))] * bool(self.ignored)
        return "\n".join(f"{what:<22} {which}" for what, which in rows)


def load_weights(model, path):
    """Gives `model` the weights of a checkpoint of google-research/vision_transformer (npz).

    Everything must fit, with one exception, as in the authors' fine-tuning: a head for another
    number of classes is left out, and the model keeps its fresh head.

    Args:
        model: a `VisionTransformer`.
        path: the npz file.

    Returns:
        A `LoadReport`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: file and model do not fit; lists both sides. The model is then unchanged.
    """
    return _assign(model, read_npz(path), path)


def from_checkpoint(path, **overrides):
    """A `VisionTransformer` with the architecture and the weights of a checkpoint.

    Args:
        path: npz file of google-research/vision_transformer.
        overrides: arguments of `VisionTransformer` for what the file cannot say, such as an
            `image_size` that is not square, or should be otherwise, such as `pool=None`.

    Returns:
        The model; what was loaded is in `model.load_report`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no such checkpoint or contradicts `overrides`.
    """
    arrays = read_npz(path)
    found = google.architecture(arrays, overrides.get("image_size"))
    model = VisionTransformer(**{**found, **overrides})
    model.load_report = _assign(model, arrays, path)
    return model


def _assign(model, arrays, path):
    canonical, origin = google.to_canonical(arrays)
    variables = {v.path: v for v in model.weights if "seed_generator" not in v.path}
    in_file, in_model = ({name for name in HEAD if name in side} for side in (canonical, variables))
    fits = all(_same_shape(canonical, variables, name) for name in HEAD)
    # Half a head is damage, and belongs to the errors below.
    fresh_head = HEAD if not fits and len(in_file) != 1 and len(in_model) != 1 else ()
    assigned = [name for name in variables if name not in fresh_head]
    wrong_shape = [
        f"{name}: {canonical[name].shape} in the file, {tuple(variables[name].shape)} in the model"
        for name in assigned
        if name in canonical and not _same_shape(canonical, variables, name)
    ]
    missing = [name for name in assigned if name not in canonical]
    unused = [origin[n] for n in canonical if n not in variables and n not in fresh_head]
    if missing or unused or wrong_shape:
        raise ValueError(
            f"The checkpoint {str(path)!r} does not fit the model {model.name!r}; nothing was "
            f"loaded.\n  In the model only: {missing}\n  In the file only: {unused}\n"
            f"  Of another shape: {wrong_shape}\nBuild the model with the architecture and "
            "image size of the file, which keras_vit.from_checkpoint finds out."
        )
    for name in assigned:
        variables[name].assign(canonical[name])
    return LoadReport(
        loaded=tuple(assigned),
        initial=tuple(name for name in fresh_head if name in variables),
        ignored=tuple(origin[name] for name in fresh_head if name in canonical),
    )


def _same_shape(canonical, variables, name):
    return (
        name in canonical
        and name in variables
        and canonical[name].shape == tuple(variables[name].shape)
    )
