"""Names of google-research/vision_transformer checkpoints <-> canonical names.

Canonical names are the variable paths of `keras_vit.VisionTransformer`. The files exist in two
generations, which number the modules of a block differently; both are read.
"""

import math
import re

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
        ValueError: names that are none of this format, all listed, or two for one variable.
    """
    canonical, origin, unknown = {}, {}, []
    for name, array in arrays.items():
        target = _canonical_name(name)
        if target is None:
            unknown.append(name)
            continue
        if target in canonical:
            raise ValueError(f"Two arrays for one variable: {origin[target]!r} and {name!r}.")
        if name == "embedding/kernel":  # (P, P, C, D); a patch is flattened in the same order
            _check_rank(name, array, 4)
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


def architecture(arrays, image_size=None):
    """What the arrays of a file say about their model: arguments of `VisionTransformer`.

    GELU and epsilon are the family's.

    Args:
        arrays: dict from name in the file to array.
        image_size: int or (height, width), needed where the grid of patches is not square, which
            the file does not say.

    Raises:
        ValueError: the arrays are no such model; names what is missing.
    """
    canonical, _ = to_canonical(arrays)
    blocks = {int(name.split("/")[0][6:]) for name in canonical if name.startswith("block_")}
    missing = [f"{n}/{part}" for n in REQUIRED for part in ("kernel", "bias")]
    missing = sorted(set(missing) - set(canonical))
    if missing or blocks != set(range(len(blocks))):
        raise ValueError(
            "This is no whole Vision Transformer of google-research/vision_transformer. "
            f"Received: {len(arrays)} arrays with the blocks {sorted(blocks)}; expected blocks "
            f"numbered from 0 without a gap, and also {missing} (canonical names)."
        )
    shape = {name: array.shape for name, array in canonical.items()}
    *patch_size, channels, width = arrays["embedding/kernel"].shape
    class_token = "cls" in arrays
    position = canonical.get("patch_encoder/position/embedding")
    if image_size is None and position is not None:
        image_size = _square_image(position, patch_size, class_token)
    return {
        **({} if image_size is None else {"image_size": image_size}),
        "patch_size": tuple(patch_size),
        "channels": channels,
        "width": width,
        "depth": len(blocks),
        "num_heads": shape["block_0/attention/query/bias"][0],
        "mlp_dim": shape["block_0/mlp/dense_1/bias"][0],
        "pool": "token" if class_token else "mean",
        "representation_size": shape.get("pre_logits/bias", (None,))[0],
        "num_classes": shape.get("head/kernel", (0,))[-1],
        "position": "none" if position is None else "learned_1d",
        "gelu": "tanh",
        "epsilon": 1e-6,
    }


def _square_image(position, patch_size, class_token):
    _check_rank("Transformer/posembed_input/pos_embedding", position, 3)
    patches = position.shape[1] - class_token
    side = math.isqrt(max(patches, 0))
    if side * side != patches or not side:
        raise ValueError(
            f"The file has positions for {patches} patches, which make no square. Its image was "
            "not square: say so with image_size=(height, width)."
        )
    return tuple(side * patch for patch in patch_size)


def _check_rank(name, array, rank):
    if array.ndim != rank:
        raise ValueError(
            f"{name!r} must have {rank} axes. Received: shape {array.shape}; the file is damaged "
            "or of another format."
        )
