"""Which axis of each variable of a ViT, hybrid or BiT is split over the devices of one model.

Attention is split by heads and the MLP by hidden units, as in Megatron-LM (Shoeybi et al., 2019): a
block then needs two sums over the devices in each direction. Embeddings are split by width, the
head by its input (the number of classes need not be divisible), convolutions by output channels.
"""

import math
import re

from keras_vit.heads import heads_of

MODEL = "model"  # the axis of the mesh over which a model is split
BATCH = "batch"

LAYOUT_RULES = {
    # Attention: each device has some of the heads.
    r".+/attention/(query|key|value)/kernel": (None, MODEL, None),
    r".+/attention/(query|key|value)/bias": (MODEL, None),
    r".+/attention/out/kernel": (MODEL, None, None),
    r"rotary_\d+/frequencies": (None, MODEL, None),
    r"position(_\d+)?/table": (None, MODEL),
    # MLP: each device has some of the hidden units.
    r".+/mlp/(gate|dense_1)/kernel": (None, MODEL),
    r".+/mlp/(gate|dense_1)/bias": (MODEL,),
    r".+/mlp/dense_2/kernel": (MODEL, None),
    # Norms of what the heads give and of the hidden units.
    r".+/(attention|mlp)/norm/(gamma|beta)": (MODEL,),
    # Embeddings: each device has a part of the width.
    r"patch_encoder/projection/kernel": (None, MODEL),
    r"patch_encoder/projection/bias": (MODEL,),
    r"patch_encoder/position/embedding": (None, None, MODEL),
    r"patch_encoder/(class_token|distillation_token|registers)": (None, None, MODEL),
    # After the blocks: each device reads a part of the width.
    r"(pre_logits|projection|head|head_distillation)/kernel": (MODEL, None),
    # ResNets: each device has some of the output channels.
    r"(root|stage_\d+_unit_\d+)/conv(\d|_proj)?/kernel": (None, None, None, MODEL),
    # What is small is replicated: other biases and norms, positions added within the blocks, seeds.
    r".+/(bias|gamma|beta|rows|columns|probe|seed_generator_state)": (),
    r"position(_\d+)?/embedding": (),
}
"""Pattern of the whole path of a variable -> the mesh axis of each of its axes, None for not split.

The first pattern that matches decides. `()` replicates the variable, whatever its rank.
"""

# The paths of layers, such as `block_3/mlp/dense_2`, whose whole output is held by each of the
# devices that share a model: left alone, XLA splits it as the weights and sends more than twice as
# much. The names are part of the interface; a layer that is not here costs speed alone.
_TOKENS = r"patch_encoder|pre_norm|(block_\d+|pool)(/(attention/out|mlp/dense_2|norm_\d))?"
REPLICATED_OUTPUTS = {
    "data_parallel": None,  # no weight is split, so that XLA splits the batch alone
    "model_parallel": _TOKENS,
    "fully_sharded": rf"{_TOKENS}|root(/.+)?|stage_\d+_unit_\d+(/.+)?",
}


def variable_axes(path, shape, mode, rules, mesh_shape):
    """The mesh axis of each axis of a variable, in a mesh of (replicas, devices of a model)."""
    replicas, model_devices = mesh_shape
    if mode == "fully_sharded":
        return shard_longest_axis(shape, replicas)
    if mode == "model_parallel" and find_rule(rules, path):
        return split_axes(rules, path, shape, model_devices)
    return (None,) * len(shape)  # also of a metric, say, which no rule covers


def has_replicated_output(path, mode):
    """Whether the output of a layer, by its path, is split along the batch alone."""
    layers = REPLICATED_OUTPUTS[mode]
    return bool(layers and re.search(rf"(^|/)({layers})/output$", path))


def find_rule(rules, path):
    """The first pattern of `rules` that is the whole of a path, or None."""
    return next((pattern for pattern in rules if re.fullmatch(pattern, path)), None)


def split_axes(rules, path, shape, devices):
    """The mesh axis of each axis of a variable, by `rules`, where `devices` share a model."""
    pattern = find_rule(rules, path)
    if pattern is None:
        raise ValueError(
            f"Every variable needs a layout rule. Received: {path!r} of shape {tuple(shape)}, "
            f"which none of the {len(rules)} rules covers; add one to rules=, such as "
            f"{{{re.escape(path)!r}: ()}} to leave it whole on every device."
        )
    axes = tuple(rules[pattern]) or (None,) * len(shape)
    if len(axes) != len(shape):
        raise ValueError(
            f"A layout rule must name one mesh axis, or None, for each axis of the variable. "
            f"Received: rule {pattern!r} with {axes} for {path!r} of shape {tuple(shape)}."
        )
    for side, axis in zip(shape, axes):
        if axis == MODEL and side % devices:
            fitting = [n for n in range(1, side + 1) if side % n == 0 and n <= 64]
            of_heads = re.search("/attention/(query|key|value|out)/", path)
            units = f"{side} heads" if of_heads else f"an axis of {side}"
            raise ValueError(
                "The devices that share a model must divide what is split among them. Received: "
                f"{devices} devices for {path!r} of shape {tuple(shape)}, which has {units}; pass "
                f"one of {fitting} as model_devices=."
            )
    return axes


def check_shapes(rules, model, devices):
    """Raises a ValueError unless each variable of a model has a rule that fits its shape.

    The kernels of several heads need no rule: they are small, of any names, and stay whole.
    """
    whole = {f"{head}/kernel" for head in heads_of(model)}
    for v in model.variables:
        if v.path not in whole:
            split_axes(rules, v.path, v.shape, devices)


def check_rules(rules, paths):
    """Raises a ValueError where a pattern matches none of the paths of variables."""
    for pattern in rules:
        if not any(re.fullmatch(pattern, path) for path in paths):
            last = pattern.split("/")[-1]
            near = [path for path in paths if path.split("/")[-1] == last] or list(paths)
            raise ValueError(
                "A layout rule must match the whole path of a variable. Received: "
                f"{pattern!r}, which matches none of {len(paths)}, such as {near[:5]}."
            )


def shard_longest_axis(shape, devices):
    """The mesh axis of each axis of a variable in `"fully_sharded"`: the longest that fits."""
    fitting = [i for i, side in enumerate(shape) if side % devices == 0]
    longest = max(fitting, key=lambda i: (shape[i], -i), default=None)
    is_small = math.prod(shape) < 2 * devices
    return tuple(BATCH if i == longest and not is_small else None for i in range(len(shape)))
