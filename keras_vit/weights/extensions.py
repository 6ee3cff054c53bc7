"""What canonical arrays tell of the parts that a plain Vision Transformer lacks.

These are `keras_vit.extensions.Extensions`, other poolings, and the ResNet of hybrids and of BiT.
"""

import re

from keras_vit.extensions import BIASES
from keras_vit.layers.resnet import ROOT_FILTERS
from keras_vit.weights.reading import CheckpointError, expect

ROOT = "root/conv/kernel"
FRESH_SCALE = 1e-5  # of a LayerScale whose first value no config says
QKV = {"query", "key", "value"}  # of which `qkv_bias` takes the biases away


def extensions_of(arrays):
    """The fields of `Extensions` that canonical arrays tell; others are left to be refused."""
    has_bias = lambda name: f"block_0/{name}/bias" in arrays  # noqa: E731
    biased = {part for part in ("query", "key", "value", "out") if has_bias(f"attention/{part}")}
    biased |= {"mlp"} if has_bias("mlp/dense_1") or has_bias("mlp/dense_2") else set()
    if biased and "query" not in biased:
        biased |= QKV
    biases = next((name for name, row in BIASES.items() if set(row) == biased), "all")
    pre_norm = norm_of(arrays, "pre_norm")
    return {
        "norm": norm_of(arrays, "block_0/norm_1") or "layer_norm",
        "block": "pre_norm" if "block_0/norm_2/gamma" in arrays else "parallel",
        "mlp": "swiglu" if "block_0/mlp/gate/kernel" in arrays else "mlp",
        "layer_scale": FRESH_SCALE if "block_0/layer_scale_1/gamma" in arrays else None,
        "qk_norm": norm_of(arrays, "block_0/attention/query_norm"),
        "mlp_norm": norm_of(arrays, "block_0/mlp/norm"),
        "attention_norm": norm_of(arrays, "block_0/attention/norm"),
        "patch_norm": norm_of(arrays, "patch_encoder/norm"),
        "pre_norm": pre_norm,
        "final_norm": "norm/gamma" in arrays,
        "biases": biases,
        # A norm that follows takes a bias away again, and only then authors leave it out.
        "patch_bias": "patch_encoder/projection/bias" in arrays or pre_norm is None,
        "distillation": "patch_encoder/distillation_token" in arrays,
        "rotary": "mixed" if "rotary_0/frequencies" in arrays else None,
    }


def smallest_fitting(names):
    """The (biases, qkv_bias) of `Extensions` with fewest biases beside those that are named."""
    rows = [
        (biases, qkv_bias, set(parts) - (set() if qkv_bias else QKV))
        for biases, parts in BIASES.items()
        for qkv_bias in (True, False)
    ]
    fitting = [row for row in rows if names <= row[2]]
    biases, qkv_bias, _ = min(fitting, key=lambda row: len(row[2]))
    return biases, qkv_bias and bool(names)


def norm_of(arrays, layer):
    """The name of a norm, or `None` where there is none."""
    if f"{layer}/gamma" not in arrays:
        return None
    return "layer_norm" if f"{layer}/beta" in arrays else "rms_norm"


def pooling_of(arrays, width, units):
    """How canonical arrays are pooled, and how many units of it a head of the file sees.

    `units` are those of one token behind the pre-logits and the projection.
    """
    has_class_token = "patch_encoder/class_token" in arrays
    inputs_of_head = arrays["head/kernel"].shape[:1] if "head/kernel" in arrays else None
    sees_token_and_mean = inputs_of_head == (2 * width,) and units != 2 * width
    if has_class_token and sees_token_and_mean:
        return "token_mean", 2 * width
    if "pool/probe" in arrays:
        return "map" if "pool/attention/query/kernel" in arrays else "probe", units
    return "token" if has_class_token else "mean", units


def resnet_of(arrays, what):
    """(units of each stage, width factor, channels of the images) of a ResNet."""
    matches = (re.match(r"stage_(\d+)_unit_(\d+)/", name) for name in arrays)
    units = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    stages = range(1, 1 + max((stage for stage, _ in units), default=0))
    counts = tuple(sum(stage == s for s, _ in units) for stage in stages)
    whole = [(stage, unit) for stage in stages for unit in range(1, counts[stage - 1] + 1)]
    if units != whole or 0 in counts:
        raise CheckpointError(
            f"The {what} has gaps. Received: units (stage, unit) {units[:20]}; expected stages and "
            "units that are numbered from 1 without one. Check that the file is whole."
        )
    shape = arrays[ROOT].shape
    expect(len(shape) == 4 and shape[3], ROOT, arrays[ROOT], "4 axes")
    return counts, shape[3] / ROOT_FILTERS, shape[2]


def fold_layer_scale(checkpoint):
    """For a model without LayerScale: the last matrix of a branch is multiplied by its scale."""
    arrays, origin = checkpoint.arrays, checkpoint.origin
    for name in [n for n in arrays if re.fullmatch(r"block_\d+/layer_scale_[12]/gamma", n)]:
        scale, name_in_file = arrays.pop(name), origin.pop(name)
        block, branch = name.removesuffix("/gamma").split("/layer_scale_")
        last = f"{block}/attention/out" if branch == "1" else f"{block}/mlp/dense_2"
        for part in (f"{last}/kernel", f"{last}/bias"):
            if part in arrays:
                if scale.shape != arrays[part].shape[-1:]:
                    raise CheckpointError(
                        f"{name_in_file!r} and {origin[part]!r} are of different width."
                    )
                arrays[part] = arrays[part] * scale
                origin[part] += f" * {name_in_file}"
