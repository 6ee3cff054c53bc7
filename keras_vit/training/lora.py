"""Low-rank adaptation, LoRA (Hu et al., 2022): a frozen model and small trained products."""

import json
import math
import os
import warnings
from collections.abc import Sequence
from typing import TypeVar

import keras
import numpy as np
from keras import ops
from keras.backend import is_float_dtype

from keras_vit.checks import positive_int
from keras_vit.models.backbone import backbones, outside
from keras_vit.models.record import CAME_WITH_WEIGHTS, came_with_weights, records_in
from keras_vit.training.freeze import (
    TrainableSummary,
    frozen_paths,
    layer_paths,
    paths,
    select,
    set_frozen,
)
from keras_vit.weights.files import read_npz
from keras_vit.weights.save import write_npz

Model = TypeVar("Model", bound=keras.Model)

_DENSE = (keras.layers.Dense, keras.layers.EinsumDense)
_RANKS, _RECORDS, _BASE = "lora", "records", "base"  # entries of a file that are no variables
# What each network says of its images and outputs.
_RECORDED = ("preprocessing", "reading", "class_names", "label_set")


def enable_lora(
    model: keras.Model,
    rank: int,
    patterns: str | Sequence[str] = ("attention", "mlp"),
    alpha: float | None = None,
    train: Sequence[str] | None = None,
) -> TrainableSummary:
    """Adds a trained product of two small matrices to kernels that stay as they are.

    A kernel W becomes W + (alpha / rank) A B with B zero at first, so that the model computes
    what it did. A has the shape of W with `rank` in place of the last axis; query, key and value,
    whose last axis is the width of a head, have one product per head with the same B. Everything
    else is frozen, biases included, but for what `train` selects. Compile the model afterwards.

    A saved model keeps the parts of this library's layers, and opens with LoRA. Of other layers,
    Keras saves the sum, which it rounds to half precision under a mixed dtype policy.

    Args:
        model: a built Keras model; it is changed in place.
        rank: columns of A and rows of B.
        patterns: which layers, as in `keras_vit.training.freeze`; of those, the dense ones.
        alpha: strength of the product, `rank` if not given, so that the factor is 1.
        train: patterns of variables that are trained as well; `None` for those of the heads, and
            what a user's model has around its `keras_vit.backbone`.

    Raises:
        ValueError: a pattern selects no dense layer, the rank exceeds a kernel's, or LoRA is on.
    """
    rank, dense = positive_int(rank, "rank"), _dense_layers(model)
    also_trained = _trained_beside(model) if train is None else select(paths(model), train)
    chosen = {path: dense[path] for path in select(dense, patterns)}
    for path, layer in chosen.items():
        *into, out = layer.kernel.shape
        if layer.lora_enabled:
            raise ValueError(
                f"LoRA can be enabled once. Received: {path!r} has it, with rank "
                f"{layer.lora_rank}; merge_lora gives a model without."
            )
        if rank > (largest := min(math.prod(into), out)):
            raise ValueError(
                f"rank must not exceed that of the kernels. Received: rank={rank}, and {path!r} of "
                f"shape {tuple(layer.kernel.shape)}; choose at most {largest}, or other patterns."
            )
    for layer in chosen.values():
        layer.enable_lora(rank, lora_alpha=alpha)
    adapted, variables = adapted_layers(model), set(paths(model))
    trained = {path for path in also_trained if path.removesuffix("/kernel") not in adapted}
    trained |= {path for path in variables if path.endswith(("/lora_kernel_a", "/lora_kernel_b"))}
    return set_frozen(model, variables - trained)


def _trained_beside(model):
    """The paths of the heads, and of all that stands around the networks of a model."""
    known = paths(model)
    around = {id(v) for v in outside(model)} if backbones(model) else set()
    chosen = [path for path, v in known.items() if id(v) in around]
    is_head = any(name.startswith("head") for path in known for name in path.split("/"))
    return chosen + (select(known, "head*") if is_head or not chosen else [])


def _dense_layers(model):
    return {path: layer for path, layer in layer_paths(model).items() if isinstance(layer, _DENSE)}


def adapted_layers(model, required=False):
    """Path of each layer with LoRA -> the layer; if `required`, there must be one."""
    adapted = {path: layer for path, layer in _dense_layers(model).items() if layer.lora_enabled}
    if required and not adapted:
        raise ValueError(f"The model has no LoRA. Received: {model.name!r}; enable_lora first.")
    return adapted


def _ranks(model, required=False):
    adapted = adapted_layers(model, required)
    return {path: [layer.lora_rank, layer.lora_alpha] for path, layer in adapted.items()}


def merge_lora(model: Model) -> Model:
    """A new model without LoRA that computes the same, everything in it trainable.

    The sums are taken in the precision of the variables; those of quantised kernels are quantised.
    The model itself stays as it is.

    Raises:
        ValueError: the model has no LoRA.
    """
    adapted = adapted_layers(model, required=True)
    merged = type(model).from_config(_without_lora(model.get_config()))
    set_frozen(merged, ())
    for name in ("load_report", "loss", "preprocessing", *CAME_WITH_WEIGHTS):
        if name in vars(model):  # by which its images are prepared and its outputs are read
            setattr(merged, name, getattr(model, name))
    values, twins = paths(model), layer_paths(merged)
    for path, variable in paths(merged).items():
        variable.assign(ops.copy(values[path]))  # JAX lets `predict` of one use up what both hold
    for path, layer in adapted.items():
        twin = twins[path]
        if layer.quantization_mode:  # Keras quantises the sum
            store, keras_class = {}, next(each for each in _DENSE if isinstance(layer, each))
            keras_class.save_own_variables(layer, store)
            twin.load_own_variables(store)
        else:
            product = ops.matmul(layer.lora_kernel_a, layer.lora_kernel_b)
            product = ops.cast(product, twin.kernel.dtype) * (layer.lora_alpha / layer.lora_rank)
            twin.kernel.assign_add(product)
    return merged


def _without_lora(config):
    if isinstance(config, dict):
        kept = config.keys() - {"lora_rank", "lora_alpha"}
        return {key: _without_lora(value) for key, value in config.items() if key in kept}
    if isinstance(config, (list, tuple)):
        return type(config)(_without_lora(value) for value in config)
    return config


def save_lora(model: keras.Model, path: str | os.PathLike[str]) -> None:
    """Writes what LoRA adds to a model, and all else that is trained, to a small npz file.

    Moving averages, such as those of a BatchNormalization in a user's head, are written, too, what
    the networks in the model say of images and outputs (`preprocessing`, `reading` and names), and
    some values of the other weights, by which `load_lora` knows them.

    Raises:
        ValueError: the model has no LoRA.
    """
    ranks, frozen = _ranks(model, required=True), frozen_paths(model)
    set_frozen(model, ())
    averages = frozen_paths(model)  # which cannot be trained by gradients
    set_frozen(model, frozen)
    kept = {p: v for p, v in paths(model).items() if v.trainable or p in averages}
    arrays = {path: ops.convert_to_numpy(variable) for path, variable in kept.items()}
    configs = [record.get_config() for record in records_in(model)]
    records = [{name: config[name] for name in _RECORDED} for config in configs]
    base = {p: v for p, v in paths(model).items() if p not in kept and is_float_dtype(v.dtype)}
    base = {path: _some_values(variable) for path, variable in base.items()}
    texts = {_RANKS: json.dumps(ranks), _RECORDS: json.dumps(records), _BASE: json.dumps(base)}
    write_npz(path, {**{name: np.array(text) for name, text in texts.items()}, **arrays})


def load_lora(model: keras.Model, path: str | os.PathLike[str]) -> TrainableSummary:
    """Reads a file of `save_lora` into a model with the weights that LoRA was enabled on.

    The model gets LoRA where it has none, freezes what the saved model had frozen, and prepares
    images and reads outputs as that did. Other weights than those give a warning: what was learned
    beside some means nothing beside others.

    Raises:
        ValueError: the file is none of `save_lora`, or belongs to another architecture.
    """
    arrays = dict(read_npz(path))
    if _RANKS not in arrays:
        raise ValueError(f"Expected a file that save_lora wrote. Received: {str(path)!r}.")
    ranks = json.loads(str(arrays.pop(_RANKS)))
    # Earlier versions wrote none of these two.
    records, base = (
        json.loads(str(arrays.pop(*each))) for each in ((_RECORDS, "[]"), (_BASE, "{}"))
    )
    dense, variables = _dense_layers(model), paths(model)
    shapes = {name: tuple(v.shape) for name, v in variables.items()}
    for name, (rank, _) in ranks.items():
        *into, out = shapes.get(f"{name}/kernel", (None,))
        shapes |= {f"{name}/lora_kernel_a": (*into, rank), f"{name}/lora_kernel_b": (rank, out)}
    wrong = [name for name, value in arrays.items() if shapes.get(name) != value.shape]
    wrong += [name for name in ranks if name not in dense]
    wrong += [name for name, rank in _ranks(model).items() if ranks.get(name) != rank]
    if wrong:
        raise ValueError(
            f"The file does not fit {model.name!r}: other layers, shapes or ranks in {wrong[:5]}. "
            f"Received: {str(path)!r}; load it into the architecture that it was saved from."
        )
    if others := [
        path for path in base if path in variables and _differ(variables[path], base[path])
    ]:
        warnings.warn(
            f"{model.name!r} has other weights than those that LoRA was trained beside, such as "
            f"{others[0]!r}. Received: {str(path)!r}; load the weights first that enable_lora had.",
            stacklevel=2,
        )
    for name, (rank, alpha) in ranks.items():
        if not dense[name].lora_enabled:
            dense[name].enable_lora(rank, lora_alpha=alpha)
    variables = paths(model)
    for name, value in arrays.items():
        variables[name].assign(value)
    for record, config in zip(records_in(model), records):
        attributes = came_with_weights(config)[1]
        for name in _RECORDED:
            setattr(record, name, attributes[name])
    return set_frozen(model, set(variables) - set(arrays))


def _some_values(variable):
    """[size, eight values from one end to the other] of a variable."""
    flat = np.ravel(ops.convert_to_numpy(variable))
    rows = np.linspace(0, flat.size - 1, 8).astype(int)
    return [flat.size, *map(float, flat[rows])]


def _differ(variable, values):
    """Whether a variable of the same size has other values than `_some_values` of it were.

    A grid of positions for other images has another size, a quantised kernel another precision.
    """
    now = np.array(_some_values(variable))
    is_other = now[0] == values[0] and is_float_dtype(variable.dtype)
    return is_other and not np.allclose(now, values, rtol=0.02, atol=0.02 * np.abs(now[1:]).max())
