"""Freezing parts of a model by pattern."""

import dataclasses
import difflib
import math
import re
from fnmatch import fnmatchcase

import keras


@dataclasses.dataclass(frozen=True)
class TrainableSummary:
    """What of a model is frozen and what is trained, in parameters; printing it shows a table.

    Attributes:
        layers: (name, frozen parameters, trained parameters) of each top-level layer.
        changed: paths of the variables that the call froze or unfroze.
        compiled: whether the model had been compiled before, and must be again.
    """

    layers: tuple[tuple[str, int, int], ...]
    changed: tuple[str, ...]
    compiled: bool

    @property
    def frozen(self):
        """Parameters that are not trained."""
        return sum(frozen for _, frozen, _ in self.layers)

    @property
    def trainable(self):
        """Parameters that are trained."""
        return sum(trained for _, _, trained in self.layers)

    def __str__(self):
        rows = [*self.layers, ("total", self.frozen, self.trainable)]
        name_width = max(len(name) for name, _, _ in rows)
        lines = [f"{'layer':<{name_width}} {'frozen':>14} {'trained':>14}"]
        lines += [f"{name:<{name_width}} {f:>14,} {t:>14,}" for name, f, t in rows]
        if self.compiled:
            lines.append("The model was compiled before this change: compile it again.")
        return "\n".join(lines)


def freeze(model, patterns):
    """Excludes from training the variables that the patterns select.

    A pattern is a shell glob (`fnmatch`) that selects everything below what it names: a layer or
    variable at any depth, such as `"patch_encoder"`, `"block_[0-8]"`, `"attention"`, `"bias"`, or
    a path from the top, such as `"block_*/attention/query"`, `"block_0/*"`. One that begins with
    `!` takes back what those before it selected: `["*", "!head"]`. A compiled regular expression
    (`re.compile`) is searched in the paths of the variables instead.

    Layers that are frozen as a whole also have `layer.trainable` False. A saved model of this
    library keeps what is frozen. Compile the model afterwards.

    Args:
        model: a built Keras model.
        patterns: a pattern or several.

    Returns:
        A `TrainableSummary`.

    Raises:
        ValueError: the model is not built, or a pattern selects nothing; names the nearest.
    """
    chosen = selected(model, patterns)
    return set_frozen(model, {*frozen_paths(model), *chosen})


def unfreeze(model, patterns="*"):
    """Returns to training what the patterns select; by default, everything.

    Arguments, return value and errors are those of `freeze`.
    """
    chosen = selected(model, patterns)
    return set_frozen(model, frozen_paths(model).difference(chosen))


def selected(model, patterns):
    """Paths of the variables that the patterns select, in the order of the model."""
    return select(paths(model), patterns, model.name)


def select(candidates, patterns, name):
    """Those of the paths `candidates` that at least one pattern selects.

    Args:
        candidates: paths of variables or layers.
        patterns: a pattern or several, as in `freeze`.
        name: of the model, for messages.

    Raises:
        ValueError: a pattern selects nothing.
    """
    if isinstance(patterns, (str, re.Pattern)):
        patterns = [patterns]
    candidates, chosen = list(candidates), set()
    for pattern in patterns:
        takes_back = isinstance(pattern, str) and pattern.startswith("!")
        pattern = pattern[1:] if takes_back else pattern
        found = [path for path in candidates if _selects(pattern, path)]
        if not found:
            raise ValueError(_nothing_found(pattern, candidates, name))
        chosen = chosen.difference(found) if takes_back else chosen.union(found)
    return [path for path in candidates if path in chosen]


def paths(model):
    """Path of each variable below the model -> the variable."""
    if not model.built:
        raise ValueError(
            f"The variables of {model.name!r} do not exist yet. Received: a model that is not "
            "built; call it on a batch, or build it, first."
        )
    return {_below(model, v.path): v for v in model.weights}


def layer_paths(model):
    """Path of each layer with weights, at any depth -> the layer."""
    layers = [layer for layer in nested_layers(model) if layer is not model]
    return {_below(model, layer.path): layer for layer in layers if layer.path and layer.weights}


def nested_layers(layer, seen=None):
    """A layer and all below it, each once."""
    seen = {} if seen is None else seen
    if id(layer) not in seen:
        seen[id(layer)] = layer
        for value in vars(layer).values():
            for each in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(each, keras.Layer):
                    nested_layers(each, seen)
    return list(seen.values())


def frozen_paths(model):
    """The paths of the variables that are not trained."""
    return {path for path, v in paths(model).items() if not v.trainable}


def set_frozen(model, frozen):
    """Freezes the variables with the paths `frozen` and trains all others that can be trained."""
    before, compiled = frozen_paths(model), model.compiled
    train_all(model)
    for path, variable in paths(model).items():
        if path in frozen and variable.trainable:
            variable.trainable = False
    for layer in layer_paths(model).values():
        if not any(v.trainable for v in layer.weights):
            layer.trainable = False
    after = frozen_paths(model)
    changed = tuple(path for path in paths(model) if (path in before) != (path in after))
    return TrainableSummary(_counts(model), changed, compiled and bool(changed))


def train_all(model):
    """Trains every variable that gradients can change, which moving averages are not."""
    # On TensorFlow, setting the value that a layer has already does not reach its variables.
    model.trainable = False
    model.trainable = True


def _counts(model):
    counts = {}
    for path, variable in paths(model).items():
        count = counts.setdefault(path.split("/")[0], [0, 0])
        count[variable.trainable] += math.prod(variable.shape)
    return tuple((name, *count) for name, count in counts.items())


def _below(model, path):
    return path.removeprefix(f"{model.name}/")


def _selects(pattern, path):
    if isinstance(pattern, re.Pattern):
        return bool(pattern.search(path))
    parts = path.split("/")
    names = parts + ["/".join(parts[:n]) for n in range(2, len(parts) + 1)]
    return any(fnmatchcase(name, pattern.strip("/")) for name in names)


def _nothing_found(pattern, candidates, name):
    text = getattr(pattern, "pattern", pattern)
    parts = [path.split("/") for path in candidates]
    names = {part for path in parts for part in path}
    names |= {"/".join(path[:n]) for path in parts for n in range(2, len(path) + 1)}
    near = difflib.get_close_matches(text, sorted(names), n=5, cutoff=0.5)
    near = near or list(dict.fromkeys(path[0] for path in parts))
    return (
        f"The pattern selects nothing in {name!r}. Received: {text!r}; the nearest names are "
        f"{near}. Without a slash, a pattern is a name at any depth; with one, a path from the "
        "top, such as 'block_0/attention/*'."
    )
