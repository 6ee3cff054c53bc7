"""Freezing parts of a model by pattern."""

import collections
import dataclasses
import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

import keras

from keras_vit.models.backbone import backbones
from keras_vit.text import nearest, table


@dataclasses.dataclass(frozen=True)
class TrainableSummary:
    """What of a model is frozen and what is trained; printing it shows a table.

    Attributes:
        layers: (name, frozen parameters, trained parameters) of each top-level layer.
        changed: paths of the variables that the call froze or unfroze.
        compiled: whether the model had been compiled before, and must be again.
        frozen, trainable: parameters that are not trained, and those that are.
    """

    layers: tuple[tuple[str, int, int], ...]
    changed: tuple[str, ...]
    compiled: bool

    frozen = property(lambda self: sum(frozen for _, frozen, _ in self.layers))
    trainable = property(lambda self: sum(trained for _, _, trained in self.layers))

    def __str__(self):
        rows = [*self.layers, ("total", self.frozen, self.trainable)]
        shown = table([(n, f"{f:,}", f"{t:,}") for n, f, t in rows], ("layer", "frozen", "trained"))
        if self.compiled:
            shown += "\nThe model was compiled before this change: compile it again."
        return shown


def freeze(model: keras.Model, patterns: str | Sequence[str]) -> TrainableSummary:
    """Excludes from training the variables that the patterns select.

    A pattern is a shell glob (`fnmatch`) that selects everything below what it names: a layer or
    variable at any depth, such as `"patch_encoder"`, `"block_[0-8]"`, `"attention"`, `"bias"`, or
    a path from the top, such as `"block_*/attention/query"`, `"block_0/*"`. The top is that of a
    network inside of the model, too; where two have equal paths, these begin with the name of each.
    A pattern that begins with `!` takes back what those before it selected: `["*", "!head"]`.

    Layers that are frozen as a whole also have `layer.trainable` False. A saved or cloned model
    keeps what of this library's layers is frozen. Compile the model afterwards.

    Raises:
        ValueError: the model is not built or a `Distiller`, whose student it is that learns, or a
            pattern selects nothing; names the nearest.
    """
    return set_frozen(model, frozen_paths(model).union(select(paths(model), patterns)))


def unfreeze(model: keras.Model, patterns: str | Sequence[str] = "*") -> TrainableSummary:
    """Returns to training what the patterns select, by default everything; otherwise `freeze`."""
    return set_frozen(model, frozen_paths(model).difference(select(paths(model), patterns)))


def select(candidates, patterns):
    """Those of the paths `candidates`, of variables or layers, that the patterns select."""
    names = {}
    for path in candidates:
        parts = path.split("/")
        names[path] = parts + ["/".join(parts[:n]) for n in range(2, len(parts) + 1)]
    chosen = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        glob = pattern.removeprefix("!").strip("/")
        matched = {path for path, each in names.items() if any(fnmatchcase(n, glob) for n in each)}
        if not matched:
            known = dict.fromkeys(name for each in names.values() for name in each)
            raise ValueError(
                f"The pattern selects nothing. Received: {pattern!r}; the nearest names are "
                f"{nearest(glob, known)}. With a slash, it is a path from the top."
            )
        chosen = chosen - matched if pattern.startswith("!") else chosen | matched
    return [path for path in candidates if path in chosen]


def paths(model):
    """Path of each variable below the model -> the variable."""
    if not model.built:
        raise ValueError(f"The model is not built. Received: {model.name!r}; call it on a batch.")
    if getattr(model, "constant_variables", ()):
        raise ValueError(
            f"A teacher learns nothing. Received: {type(model).__name__} {model.name!r}, which has "
            "one inside; pass its student, distiller.student."
        )
    return _by_path(model, model.weights, lambda network: network.weights)


def layer_paths(model):
    """Path of each layer with weights, at any depth -> the layer."""
    layers = [layer for layer in nested_layers(model) if layer is not model and layer.weights]
    return _by_path(model, [layer for layer in layers if layer.path], nested_layers)


def _by_path(model, items, below):
    """Path of each variable or layer -> the item, after the name of its network where two agree."""
    paths = [item.path.removeprefix(f"{model.name}/") for item in items]
    counts, owners = collections.Counter(paths), {}
    if len(counts) < len(paths):
        networks = backbones(model).values()
        owners = {id(item): network.name for network in networks for item in below(network)}
    return {
        f"{owners[id(x)]}/{path}" if counts[path] > 1 and id(x) in owners else path: x
        for path, x in zip(paths, items)
    }


def nested_layers(layer):
    """A layer and all below it, each once; in the order in which Keras has tracked them."""
    below = (each for child in layer._layers for each in nested_layers(child))
    return [*dict.fromkeys([layer, *below])]


def frozen_paths(model):
    return {path for path, v in paths(model).items() if not v.trainable}


def set_frozen(model, frozen):
    """Freezes the variables with the paths `frozen` and trains all others.

    Those that gradients cannot change, such as moving averages, are never trained.
    """
    before, compiled, counts = frozen_paths(model), model.compiled, {}
    layers = {layer: layer.trainable for layer in layer_paths(model).values()}
    # On TensorFlow, setting the value that a layer has already does not reach its variables.
    model.trainable = False
    model.trainable = True
    learning = {layer for layer in layers if any(v.trainable for v in layer.weights)}
    for path, variable in paths(model).items():
        if path in frozen and variable.trainable:
            variable.trainable = False
        count = counts.setdefault(path.split("/")[0], [0, 0])
        count[variable.trainable] += math.prod(variable.shape)
    for layer in learning:
        if not any(v.trainable for v in layer.weights):
            layer.trainable = False
    for layer in layers.keys() - learning:  # of moving averages alone, with nothing to freeze
        layer.trainable = layers[layer]
    changed = before ^ frozen_paths(model)
    layers = tuple((name, *count) for name, count in counts.items())
    ordered = tuple(path for path in paths(model) if path in changed)
    return TrainableSummary(layers, ordered, compiled and bool(changed))
