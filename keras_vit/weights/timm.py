"""Names of timm's ViT state dicts <-> canonical names.

timm keeps q, k and v in one matrix and no axis for the heads, stores (out, in), and computes GELU
exactly. LayerScale, which some of its models have, is folded into the projection that precedes it.
"""

import re

import numpy as np

from keras_vit.weights import torch_stem
from keras_vit.weights.canonical import (
    POSITION,
    PROJECTION,
    Canonical,
    architecture_of,
    check_position,
    choose_heads,
    rename,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.image_size import SQUARE, add_image_size, find_image_size, shape_of
from keras_vit.weights.timm_config import (
    choose_gelu,
    choose_pool,
    preprocessing_of,
    settings_of,
)

FAMILY = "timm"
BLOCK = r"blocks\.(\d+)\."


def transposed(matrix):
    """(out, in) -> (in, out)."""
    if matrix.ndim != 2:
        raise ValueError("a matrix has 2 axes")
    return matrix.T


def flat_patches(kernel):
    """(D, C, P, P) -> (P²·C, D)."""
    if kernel.ndim != 4:
        raise ValueError("a patch kernel has 4 axes")
    return kernel.transpose(2, 3, 1, 0).reshape(-1, kernel.shape[0])


TABLE = (
    (r"cls_token", "patch_encoder/class_token", None),
    (r"reg_token", "patch_encoder/registers", None),
    (r"pos_embed", POSITION, None),
    (r"patch_embed\.proj\.weight", PROJECTION, flat_patches),
    (r"patch_embed\.proj\.bias", "patch_encoder/projection/bias", None),
    (BLOCK + r"norm([12])\.weight", r"block_\1/norm_\2/gamma", None),
    (BLOCK + r"norm([12])\.bias", r"block_\1/norm_\2/beta", None),
    (BLOCK + r"attn\.qkv\.weight", r"block_\1/attention/qkv/kernel", transposed),
    (BLOCK + r"attn\.qkv\.bias", r"block_\1/attention/qkv/bias", None),
    (BLOCK + r"attn\.proj\.weight", r"block_\1/attention/out/kernel", transposed),
    (BLOCK + r"attn\.proj\.bias", r"block_\1/attention/out/bias", None),
    (BLOCK + r"mlp\.fc([12])\.weight", r"block_\1/mlp/dense_\2/kernel", transposed),
    (BLOCK + r"mlp\.fc([12])\.bias", r"block_\1/mlp/dense_\2/bias", None),
    (BLOCK + r"ls([12])\.gamma", r"block_\1/scale_\2", None),
    (r"(?:fc_)?norm\.weight", "norm/gamma", None),
    (r"(?:fc_)?norm\.bias", "norm/beta", None),
    (r"attn_pool\.latent", "pool/probe", None),
    (r"attn_pool\.q\.weight", "pool/attention/query/kernel", transposed),
    (r"attn_pool\.q\.bias", "pool/attention/query/bias", None),
    (r"attn_pool\.kv\.weight", "pool/attention/kv/kernel", transposed),
    (r"attn_pool\.kv\.bias", "pool/attention/kv/bias", None),
    (r"attn_pool\.proj\.weight", "pool/attention/out/kernel", transposed),
    (r"attn_pool\.proj\.bias", "pool/attention/out/bias", None),
    (r"attn_pool\.norm\.weight", "pool/norm/gamma", None),
    (r"attn_pool\.norm\.bias", "pool/norm/beta", None),
    (r"attn_pool\.mlp\.fc([12])\.weight", r"pool/mlp/dense_\1/kernel", transposed),
    (r"attn_pool\.mlp\.fc([12])\.bias", r"pool/mlp/dense_\1/bias", None),
    (r"head\.weight", "head/kernel", transposed),
    (r"head\.bias", "head/bias", None),
    *torch_stem.table(
        # A stem without stages is the backbone itself.
        r"patch_embed\.backbone\.(?:stem\.)?conv",
        r"patch_embed\.backbone\.(?:stem\.)?norm",
        r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\.",
    ),
)
UNSUPPORTED = {
    r"dist_token|head_dist\..*": "a distillation token",
    r".*\.attn\.[qk]_norm\..*": "normalised queries and keys",
    r".*\.mlp\.(w12|w3|fc1_g|fc1_x|norm)\..*": "a gated MLP",
    r"norm_pre\..*": "a norm before the blocks",
}


def recognises(arrays):
    """Whether these are the names of this family."""
    return "patch_embed.proj.weight" in arrays or any(n.startswith("blocks.") for n in arrays)


def read(contents, hints):
    """The `Canonical` of a state dict; arguments and errors as in `google.read`."""
    refuse(contents.arrays, UNSUPPORTED)
    arrays, origin, ignored = rename(contents.arrays, TABLE, FAMILY, ignored=("mask_token",))
    split(arrays, origin)
    check_position(arrays)
    found = {**architecture_of(arrays, FAMILY), "epsilon": 1e-6}
    _refuse_by_shape(arrays)
    config, settings = settings_of(contents.config, found)
    patch = contents.arrays["patch_embed.proj.weight"].shape
    found.update(
        patch_size=patch[2:],
        channels=patch[1] if "stem" not in found else arrays["root/conv/kernel"].shape[2],
        interpolation="bicubic",
        norm_after_pool="fc_norm.weight" in contents.arrays,
    )
    if "stem" in found:
        found["stem_numerics"] = "timm"
    assumed = {}
    choose_pool(found, assumed, config)
    choose_gelu(found, assumed, config)
    heads, source = choose_heads(config.get("num_heads"), hints, found)
    found["num_heads"], assumed["num_heads"] = heads, source
    fold_layer_scale(arrays, origin)
    add_heads(arrays, found["num_heads"])
    _give_learned_tokens_positions(found, arrays, hints, config.get("img_size"))
    add_image_size(found, assumed, arrays, hints, config.get("img_size"))
    preprocessing, unsaid = preprocessing_of(settings)
    return Canonical(
        FAMILY, arrays, origin, found, assumed, (*unsaid, *ignored), preprocessing=preprocessing
    )


def refuse(arrays, unsupported):
    """Raises a CheckpointError that names the part which no model here has."""
    for pattern, what in unsupported.items():
        names = [name for name in arrays if re.fullmatch(pattern, name)]
        if names:
            raise CheckpointError(
                f"The file has {what} ({names[0]!r} and {len(names) - 1} more), which the Vision "
                "Transformer of this library has not."
            )


def _refuse_by_shape(arrays):
    """Raises a CheckpointError for parts that show only in what is not there, or half as large."""
    hidden = arrays["block_0/mlp/dense_1/kernel"].shape[-1]
    second = arrays.get("block_0/mlp/dense_2/kernel")
    signs = (
        (second is not None and second.shape[0] * 2 == hidden, "a gated MLP"),
        (_lacks(arrays, r"(norm|block_\d+/norm_[12])/beta"), "norms without a bias (RMSNorm)"),
        (_lacks(arrays, r"block_\d+/(attention/out|mlp/dense_[12])/bias"), "layers without a bias"),
    )
    for is_so, what in signs:
        if is_so:
            raise CheckpointError(
                f"The file has {what}, which the Vision Transformer of this library has not."
            )


def _lacks(arrays, pattern):
    return not any(re.fullmatch(pattern, name) for name in arrays)


def split(arrays, origin):
    """q, k and v, and k and v of attention pooling, out of the matrix that they share."""
    for name in [n for n in arrays if re.search(r"/attention/(qkv|kv)/", n)]:
        parts = ("query", "key", "value")[-2 if "/kv/" in name else 0 :]
        joined, where = arrays.pop(name), origin.pop(name)
        if joined.shape[-1] % len(parts):
            raise CheckpointError(
                f"{where!r} does not hold {parts} of one size. Received: shape {joined.shape}."
            )
        for part, array in zip(parts, np.split(joined, len(parts), axis=-1)):
            target = re.sub(r"/(qkv|kv)/", f"/{part}/", name)
            arrays[target], origin[target] = array, where


def fold_layer_scale(arrays, origin):
    """LayerScale multiplies what a branch adds: so can the last matrix of the branch."""
    for name in [n for n in arrays if re.fullmatch(r"block_\d+/scale_[12]", n)]:
        scale, where = arrays.pop(name), origin.pop(name)
        block, which = name.split("/scale_")
        last = f"{block}/attention/out" if which == "1" else f"{block}/mlp/dense_2"
        for part in (f"{last}/kernel", f"{last}/bias"):
            if part in arrays:
                if scale.shape != arrays[part].shape[-1:]:
                    raise CheckpointError(f"{where!r} and {origin[part]!r} are of different width.")
                arrays[part] = arrays[part] * scale
                origin[part] += f" * {where}"


def add_heads(arrays, num_heads):
    """Gives the matrices of the attention their axis of heads."""
    for name in [n for n in arrays if "/attention/" in n]:
        array, (part, kind) = arrays[name], name.split("/")[-2:]
        if part == "out" and kind == "bias":
            continue
        axis = 0 if part == "out" else array.ndim - 1
        if array.shape[axis] % num_heads:
            raise CheckpointError(
                f"{num_heads} heads do not divide the {array.shape[axis]} units of {name!r}. "
                "Say num_heads=... as the model was built."
            )
        halves = (num_heads, array.shape[axis] // num_heads)
        arrays[name] = array.reshape(*array.shape[:axis], *halves, *array.shape[axis + 1 :])


def _give_learned_tokens_positions(found, arrays, hints, configured):
    """In models with `no_embed_class` positions are added before the learned tokens come."""
    learned, shape = int(found["class_token"]) + found["registers"], shape_of(found)
    if POSITION not in arrays or not learned:
        return
    positions = arrays[POSITION].shape[1]
    try:
        find_image_size(positions - learned, shape, hints, configured)
    except CheckpointError as error:
        size, source = find_image_size(positions, shape, hints, configured)
        if source == SQUARE and learned == 1:
            # 25 positions may be 5 x 5 patches, or a class token and 4 x 6
            raise CheckpointError(
                f"{error} Or all {positions} positions are of patches, none of the class token "
                f"(timm's no_embed_class): then it is file_image_size={size}."
            ) from error
        arrays[POSITION] = np.pad(arrays[POSITION], ((0, 0), (learned, 0), (0, 0)))
