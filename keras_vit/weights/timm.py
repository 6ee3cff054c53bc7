"""State dicts of timm's Vision Transformers.

timm keeps q, k and v in one matrix and no axis for the heads, stores (out, in), and computes GELU
exactly. LayerScale, which some of its models have, is folded into the projection that precedes it.
"""

import re

import numpy as np

from keras_vit.weights.assumptions import (
    SQUARE,
    add_image_size,
    add_position,
    choose_heads,
    find_image_size,
    shape_of,
)
from keras_vit.weights.canonical import (
    POSITION,
    Canonical,
    architecture_of,
    channels_of,
    join_heads,
    split_heads,
)
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.tables import (
    SAME,
    TORCH_PATCHES,
    Table,
    torch_linear,
    torch_norm,
    torch_resnet,
)
from keras_vit.weights.timm_config import (
    arguments_of,
    choose_gelu,
    choose_pool,
    config,
    preprocessing_of,
    stem_of,
)

FAMILY = "timm"
BLOCK = "blocks.{i}."
BACKBONE = "patch_embed.backbone."
TABLE = Table(
    ("cls_token", "patch_encoder/class_token", SAME),
    ("reg_token", "patch_encoder/registers", SAME),
    ("pos_embed", POSITION, SAME),
    *torch_linear("patch_embed.proj", "patch_encoder/projection", TORCH_PATCHES),
    *torch_norm(BLOCK + "norm{n}", "block_{i}/norm_{n}"),
    *torch_linear(BLOCK + "attn.qkv", "block_{i}/attention/[query|key|value]"),
    *torch_linear(BLOCK + "attn.proj", "block_{i}/attention/out"),
    *torch_linear(BLOCK + "mlp.fc{n}", "block_{i}/mlp/dense_{n}"),
    (BLOCK + "ls{n}.gamma", "block_{i}/scale_{n}", SAME),
    *torch_norm("[|fc_]norm", "norm"),
    ("attn_pool.latent", "pool/probe", SAME),
    *torch_linear("attn_pool.q", "pool/attention/query"),
    *torch_linear("attn_pool.kv", "pool/attention/[key|value]"),
    *torch_linear("attn_pool.proj", "pool/attention/out"),
    *torch_norm("attn_pool.norm", "pool/norm"),
    *torch_linear("attn_pool.mlp.fc{n}", "pool/mlp/dense_{n}"),
    *torch_linear("head", "head"),
    # A stem without stages is the backbone itself.
    *torch_resnet(
        BACKBONE + "[stem.|]conv", BACKBONE + "[stem.|]norm", BACKBONE + "stages.{s}.blocks.{u}"
    ),
)
UNSUPPORTED = {
    r"dist_token|head_dist\..*": "a distillation token",
    r".*\.attn\.[qk]_norm\..*": "normalised queries and keys",
    r".*\.mlp\.(w12|w3|fc1_g|fc1_x|norm)\..*": "a gated MLP",
    r"norm_pre\..*": "a norm before the blocks",
}


__all__ = ["config", "impossible", "obstacles", "read", "recognises", "write"]


def recognises(arrays):
    """Whether these are the names of this family."""
    return "patch_embed.proj.weight" in arrays or any(n.startswith("blocks.") for n in arrays)


def read(contents, hints):
    """The `Canonical` of a state dict; arguments and errors as in `google.read`."""
    refuse(contents.arrays, UNSUPPORTED)
    arrays, origin, ignored = TABLE.read(contents.arrays, FAMILY, ignored=("mask_token",))
    found, assumed = architecture_of(arrays, FAMILY), {}
    _refuse_by_shape(arrays)
    config, settings = arguments_of(contents.config, found)
    _, patch_channels, *patch_size = contents.arrays["patch_embed.proj.weight"].shape
    found.update(
        patch_size=tuple(patch_size),
        channels=channels_of(arrays, patch_channels),
        interpolation="bicubic",
        epsilon=1e-6,
        norm_after_pool="fc_norm.weight" in contents.arrays,
        **({"stem_numerics": "timm"} if "stem" in found else {}),
    )
    choose_pool(found, assumed, config)
    choose_gelu(found, assumed, config)
    heads, source = choose_heads(config.get("num_heads"), hints, found)
    found["num_heads"], assumed["num_heads"] = heads, source
    _fold_layer_scale(arrays, origin)
    split_heads(arrays, heads)
    add_position(found, assumed, arrays, hints, {"none": "none"}.get(config.get("pos_embed")))
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
    lacks = lambda pattern: not any(re.fullmatch(pattern, name) for name in arrays)  # noqa: E731
    signs = (
        (second is not None and second.shape[0] * 2 == hidden, "a gated MLP"),
        (lacks(r"(norm|block_\d+/norm_[12])/beta"), "norms without a bias (RMSNorm)"),
        (lacks(r"block_\d+/(attention/out|mlp/dense_[12])/bias"), "layers without a bias"),
    )
    for is_so, what in signs:
        if is_so:
            raise CheckpointError(
                f"The file has {what}, which the Vision Transformer of this library has not."
            )


def _fold_layer_scale(arrays, origin):
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


def write(model, arrays):
    """The arrays of a state dict from canonical ones."""
    v = model.variant
    file = TABLE.write(join_heads(arrays), v)
    if v.norm_after_pool:
        file = {re.sub("^norm", "fc_norm", name): array for name, array in file.items()}
    if v.stem == ():
        file = {name.replace(BACKBONE + "stem.", BACKBONE): array for name, array in file.items()}
    return file


def impossible(model):
    """What of a model timm's Vision Transformer has no place for, as texts."""
    v = model.variant
    found = [
        (f"representation_size={v.representation_size}", v.representation_size),
        (f"stem={v.stem}, stem_width={v.stem_width}", v.stem is not None and stem_of(v) is None),
    ]
    return [text for text, is_so in found if is_so]


def obstacles(v):
    """What of a variant timm computes otherwise, as texts."""
    numerics = v.stem is not None and v.stem_numerics != "timm"
    found = [
        (f"epsilon={v.epsilon}", v.epsilon != 1e-6),
        (f"stem_numerics={v.stem_numerics!r}", numerics),
    ]
    return [text for text, is_so in found if is_so]
