"""Which axis of each variable of a ViT, hybrid or BiT is cut over the devices of one model.

Attention is cut by heads and the MLP by hidden units, as in Megatron-LM (Shoeybi et al., 2019): a
block then needs two sums over the devices in each direction. Embeddings are cut by width, the head
by its input (the number of classes need not be divisible), convolutions by output channels.
"""

import math
import re

from keras_vit.heads import heads_of

MODEL = "model"  # the axis of the mesh over which a model is cut
BATCH = "batch"

_WITHIN = r"(block_\d+|pool)"

LAYOUT_RULES = {
    rf"{_WITHIN}/attention/(query|key|value)/kernel": (None, MODEL, None),
    rf"{_WITHIN}/attention/(query|key|value)/bias": (MODEL, None),
    rf"{_WITHIN}/attention/out/kernel": (MODEL, None, None),
    rf"{_WITHIN}/attention/out/bias": (),
    rf"{_WITHIN}/attention/norm/(gamma|beta)": (MODEL,),
    rf"{_WITHIN}/attention/(query|key)_norm/(gamma|beta)": (),
    rf"{_WITHIN}/mlp/(gate|dense_1)/kernel": (None, MODEL),
    rf"{_WITHIN}/mlp/(gate|dense_1)/bias": (MODEL,),
    rf"{_WITHIN}/mlp/norm/(gamma|beta)": (MODEL,),
    rf"{_WITHIN}/mlp/dense_2/kernel": (MODEL, None),
    rf"{_WITHIN}/mlp/dense_2/bias": (),
    rf"{_WITHIN}/layer_scale_\d/gamma": (),
    r"patch_encoder/projection/kernel": (None, MODEL),
    r"patch_encoder/projection/bias": (MODEL,),
    r"(patch_encoder/)?position/embedding": (None, None, MODEL),
    r"patch_encoder/position/(rows|columns)": (),
    r"patch_encoder/(class_token|distillation_token|registers)": (None, None, MODEL),
    r"position_\d+/(embedding|rows|columns)": (),
    r"position/(rows|columns)": (),
    r"position(_\d+)?/table": (None, MODEL),
    r"rotary_\d+/frequencies": (None, MODEL, None),
    r"pool/probe": (),
    r"pre_logits/kernel": (MODEL, None),
    r"pre_logits/bias": (),
    r"projection/kernel": (MODEL, None),
    r"head(_distillation)?/kernel": (MODEL, None),
    r"head(_distillation)?/bias": (),
    r"(root/conv|stage_\d+_unit_\d+/conv(\d|_proj))/kernel": (None, None, None, MODEL),
    r"(pre_norm|(.+/)?(?<!attention/)(?<!mlp/)norm(\d|_\d|_proj)?)/(gamma|beta)": (),
    r"(.+/)?seed_generator(_\d+)?/seed_generator_state": (),
}
"""Pattern of the whole path of a variable -> the mesh axis of each of its axes, None for not cut.

`()` leaves the variable whole on every device, whatever its rank.
"""

# Layers whose outputs every device of a model has whole, so that only the batch is cut. XLA would
# go on with the cut of the weights otherwise, and send more than twice as much.
_WHOLE = rf"patch_encoder|pre_norm|{_WITHIN}(/(attention/out|mlp/dense_2|norm_\d))?"
_WHOLE_FEATURES = {
    "data_parallel": None,  # where no weight is cut, XLA cuts the batch alone
    "model_parallel": _WHOLE,
    "fully_sharded": rf"{_WHOLE}|root(/.+)?|stage_\d+_unit_\d+(/.+)?",
}


def rules_of_heads(model):
    """Rules that leave the heads of a model with several whole: they are small, of any names."""
    return {rf"{re.escape(head)}/(kernel|bias)": () for head in heads_of(model)}


def has_whole_features(path, mode):
    """Whether only the batch is cut of what a layer returns, by the path of its output."""
    features = _WHOLE_FEATURES[mode]
    return bool(features and re.search(rf"(^|/)({features})/output$", path))


def batch_axes(shape, is_cut=True):
    """The mesh axis of each axis of a batch of this shape, of which the rows may be cut."""
    return (BATCH if is_cut else None, *(None for _ in shape[1:]))


def variable_axes(path, shape, mode, mesh, rules):
    """The mesh axis of each axis of a variable.

    Args:
        path, shape: those of the variable.
        mode: a mode of `setup`.
        mesh: the devices along the axes (batch, model) of the mesh.
        rules: dict like `LAYOUT_RULES`, for `"model_parallel"`.
    """
    replicas, model_devices = mesh
    if mode == "fully_sharded":
        axis = largest_axis(shape, replicas)
        return tuple(BATCH if i == axis else None for i in range(len(shape)))
    if mode == "model_parallel" and find_rule(rules, path):  # one without a rule is told later
        return split_axes(rules, path, shape, model_devices)
    return (None,) * len(shape)


def find_rule(rules, path):
    """The first pattern of `rules` that is the whole of a path, or None."""
    return next((pattern for pattern in rules if re.fullmatch(pattern, path)), None)


def split_axes(rules, path, shape, devices):
    """The mesh axis of each axis of a variable, if `devices` share a model, by `LAYOUT_RULES`.

    Raises:
        ValueError: no rule covers the variable; the rule has another number of axes; the devices
            do not divide the axis that is cut.
    """
    pattern = find_rule(rules, path)
    if pattern is None:
        raise ValueError(
            f"Every variable needs a layout rule. Received: {path!r} of shape {tuple(shape)}, "
            f"which none of the {len(rules)} rules covers; add one to rules=, such as "
            f"{{{re.escape(path)!r}: ()}} to leave it whole on every device."
        )
    axes = tuple(rules[pattern])
    # All heads share the table of relative positions, which has two axes.
    is_relative = path.endswith("position/embedding") and len(shape) == 2 and len(axes) == 3
    if not axes or is_relative:
        return (None,) * len(shape)
    if len(axes) != len(shape):
        raise ValueError(
            f"A layout rule must name one mesh axis, or None, for each axis of the variable. "
            f"Received: rule {pattern!r} with {axes} for {path!r} of shape {tuple(shape)}."
        )
    for side, axis in zip(shape, axes):
        if axis == MODEL and side % devices:
            fitting = [n for n in range(1, side + 1) if side % n == 0 and n <= 64]
            what = f"{side} heads" if "/attention/" in path else f"an axis of {side}"
            raise ValueError(
                "The devices that share a model must divide what is cut among them. Received: "
                f"{devices} devices for {path!r} of shape {tuple(shape)}, which has {what}; pass "
                f"one of {fitting} as model_devices=."
            )
    return axes


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


def largest_axis(shape, devices):
    """The axis that fully sharded training cuts: the longest that the devices divide, or None."""
    if math.prod(shape) < 2 * devices:
        return None
    fitting = [i for i, side in enumerate(shape) if side and side % devices == 0]
    return max(fitting, key=lambda i: (shape[i], -i), default=None)
