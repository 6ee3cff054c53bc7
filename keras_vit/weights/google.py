"""Names of google-research/vision_transformer checkpoints <-> canonical names.

Canonical names are the variable paths of `keras_vit.VisionTransformer`. The files exist in two
generations, which number the modules of a block differently; both are read.
"""

import re

import numpy as np

BLOCK = r"Transformer/encoderblock_(\d+)/"
ATTENTION = BLOCK + r"MultiHeadDotProductAttention_[01]/"

# (pattern of the name in the file, canonical name), the first match counts
NAMES = (
    (r"cls", "patch_encoder/class_token"),
    (r"embedding/(kernel|bias)", r"patch_encoder/projection/\1"),
    (r"Transformer/posembed_input/pos_embedding", "patch_encoder/position/embedding"),
    (BLOCK + r"LayerNorm_0/(scale|bias)", r"block_\1/norm_1/\2"),
    (ATTENTION + r"(query|key|value|out)/(kernel|bias)", r"block_\1/attention/\2/\3"),
    (BLOCK + r"LayerNorm_[12]/(scale|bias)", r"block_\1/norm_2/\2"),
    (BLOCK + r"MlpBlock_[03]/Dense_0/(kernel|bias)", r"block_\1/mlp/dense_1/\2"),
    (BLOCK + r"MlpBlock_[03]/Dense_1/(kernel|bias)", r"block_\1/mlp/dense_2/\2"),
    (r"Transformer/encoder_norm/(scale|bias)", r"norm/\1"),
    (r"(pre_logits|head)/(kernel|bias)", r"\1/\2"),
)


REQUIRED = (
    "patch_encoder/projection",
    "block_0/attention/query",
    "block_0/attention/out",
    "block_0/mlp/dense_1",
)


def to_canonical(arrays):
    """The arrays of a file under canonical names.

    Args:
        arrays: dict from name in the file to array.

    Returns:
        Two dicts from canonical name: to the array, and to the name that it had in the file.

    Raises:
        ValueError: a name is none of this format; lists all such names.
    """
    canonical, origin, unknown = {}, {}, []
    for name, array in arrays.items():
        target = _canonical_name(name)
        if target is None:
            unknown.append(name)
            continue
        if name == "embedding/kernel":  # (P, P, C, D); a patch is flattened in the same order
            array = array.reshape(-1, array.shape[-1])
        canonical[target], origin[target] = array, name
    if unknown:
        raise ValueError(
            "These arrays have no place in a Vision Transformer of google-research/"
            f"vision_transformer: {sorted(unknown)}. Checkpoints of hybrids and of other "
            "libraries are not read here."
        )
    return canonical, origin


def _canonical_name(name):
    for pattern, target in NAMES:
        match = re.fullmatch(pattern, name)
        if match:
            path = match.expand(target)
            if "/norm_" in path or path.startswith("norm/"):
                path = path.replace("/scale", "/gamma").replace("/bias", "/beta")
            return path
    return None


def architecture(arrays):
    """What the arrays of a file say about their model: arguments of `VisionTransformer`.

    The image is taken to be square, which a file cannot contradict. GELU and epsilon are the
    family's.

    Raises:
        ValueError: the arrays are no such model; names what is missing.
    """
    canonical, _ = to_canonical(arrays)
    blocks = {int(name.split("/")[0][6:]) for name in canonical if name.startswith("block_")}
    missing = {f"{name}/bias" for name in REQUIRED} - set(canonical)
    if missing or blocks != set(range(len(blocks))):
        raise ValueError(
            "This is no whole Vision Transformer of google-research/vision_transformer. "
            f"Received: {len(arrays)} arrays with the blocks {sorted(blocks)}; expected blocks "
            f"numbered from 0 without a gap, and also {sorted(missing)} (canonical names)."
        )
    one = {name: array.shape for name, array in canonical.items()}
    *patch_size, channels, width = arrays["embedding/kernel"].shape
    class_token = "cls" in arrays
    position = one.get("patch_encoder/position/embedding")
    options = {
        "patch_size": tuple(patch_size),
        "channels": channels,
        "width": width,
        "depth": len(blocks),
        "num_heads": one["block_0/attention/query/bias"][0],
        "mlp_dim": one["block_0/mlp/dense_1/bias"][0],
        "pool": "token" if class_token else "mean",
        "representation_size": one.get("pre_logits/bias", (None,))[0],
        "num_classes": one.get("head/bias", (0,))[0],
        "position": "none" if position is None else "learned_1d",
        "gelu": "tanh",
        "epsilon": 1e-6,
    }
    if position is not None:
        side = int(np.sqrt(position[1] - class_token))
        options["image_size"] = tuple(side * patch for patch in patch_size)
    return options
