"""What arrays of timm do not show of a model: from its config, the caller, or refused."""

import re

import numpy as np

from keras_vit.weights.canonical import POSITION
from keras_vit.weights.evidence import ARRAYS
from keras_vit.weights.family import unsupported
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.formats.timm_architectures import ACTIVATIONS, rotary_of
from keras_vit.weights.settle import find_image_size, learned_tokens, relative_table, shape_of


def refuse_by_shape(arrays, found):
    """Raises a CheckpointError for a part that shows only in a shape, or in what is missing."""
    for name, array in arrays.items():
        query = arrays.get(name.replace("/key/", "/query/"))
        if query is not None and array.shape != query.shape and name.startswith("block_"):
            raise unsupported(f"fewer heads of keys and values than of queries ({name!r})")
    lacks_scale = found["layer_scale"] and "block_0/layer_scale_2/gamma" not in arrays
    if lacks_scale and found["block"] != "parallel":
        raise unsupported("LayerScale after the attention and none after the MLP")
    if relative_table(arrays) is not None and (
        POSITION in arrays or {"position_0/table", "position/table"} <= set(arrays)
    ):
        raise unsupported("relative positions beside others")
    if "pool/probe" in arrays and "pool/norm/beta" not in arrays:
        raise unsupported("attention pooling without a LayerNorm")
    if found["distillation"] and found["registers"]:
        raise unsupported("registers beside a distillation token")


def with_moved_norm(config, names):
    """timm takes the last norm of EVA's masked pre-training for the one after the pooling."""
    if config.get("kind") == "Eva" and {"mask_token", "norm.weight"} <= names.keys():
        return {**config, "norm": True, "fc_norm": False, "norm_moves": bool(config["fc_norm"])}
    return config


def class_names_of(config, num_classes):
    """What `config.json` calls the classes, or `None`; a single output may have two of them."""
    names, counts = config.get("label_names"), (num_classes, 2 if num_classes == 1 else num_classes)
    known = isinstance(names, list) and len(names) in counts
    return tuple(map(str, names)) if known and names else None


def settle_blocks(found):
    """Sets the class of block and its activation, and compares its norms with the config."""
    config = found.config
    if config.get("block_fn") == "ResPostBlock":
        found["block"] = "post_norm"
    if found["layer_scale"] and config.get("init_values"):
        found["layer_scale"] = float(config["init_values"])
    has_gate, own = found["mlp"] == "swiglu", config.get("kind") in ("Eva", "Beit")
    told = not own and config.get("act_layer")
    activation = ACTIVATIONS[told or ("silu" if has_gate else "gelu")]
    usual = ("silu",) if has_gate else ("gelu_erf", "gelu_tanh")
    found["activation"] = None if activation in usual else activation
    if found["pool"] == "map" and told and has_gate and not activation.startswith("gelu_"):
        raise unsupported(f"attention pooling with the activation {activation!r}")
    for key, field in (("norm_layer", "norm"), ("embed_norm_layer", "patch_norm")):
        kind = "rms_norm" if config.get(key, "").startswith("rms") else "layer_norm"
        if config.get(key) and found[field] != kind:
            raise unsupported(f"been built with {key}={config[key]!r} (its config) for {field}")
    epsilon = config.get("embed_epsilon", found["epsilon"])
    if found["patch_norm"] and epsilon != found["epsilon"]:
        raise unsupported(f"norms with the epsilons {epsilon} and {found['epsilon']}")


def settle_rotary(canonical, names):
    """Sets `rotary`, which only learned frequencies show in the arrays."""
    found, hints = canonical.evidence, canonical.evidence.caller
    learned = found["rotary"] is not None
    if found.config.get("kind"):
        found["rotary"] = rotary_of(found.config)
        return
    of_eva = any(re.search(r"\.(q_bias|q_proj\.weight|gamma_1)$", name) for name in names)
    unknown = (of_eva or found["pre_norm"]) and relative_table(canonical.arrays) is None
    if learned or not unknown:
        return
    asked = ("rotary", "epsilon") + ("activation",) * (found["pre_norm"] is not None)
    if missing := [f"{name}=..." for name in asked if name not in hints]:
        raise CheckpointError(
            "The file is of a model that may have rotary positions, another epsilon and other "
            "activations, which its arrays do not show. Put its config.json beside it, or say "
            f"{', '.join(missing)}; None is no rotary position and the usual activation."
        )
    found.update({name: hints[name] for name in asked})
    if found["rotary"]:
        found["position"] = "learned_1d" if POSITION in canonical.arrays else "none"


def settle_pooled_tokens(found):
    """Sets what attention pooling looks at; the mean is over patches alone."""
    config, hints = found.config, found.caller
    prefix, learned = config.get("pool_include_prefix"), learned_tokens(found)
    if found["pool"] == "mean" and prefix and learned:
        raise unsupported("a head that pools also over its class token and registers")
    if found["pool"] != "map":
        return
    if found["norm_after_pool"]:
        raise unsupported("a norm after attention pooling")
    heads = config.get("attn_pool_num_heads")
    found["pool_heads"] = None if heads == config.get("num_heads") else heads
    if not learned or config.get("kind") == "Eva":
        return
    if not config and "pool_patches" not in hints:
        raise CheckpointError(
            "The file has attention pooling, and does not say whether over its class token and "
            "registers too. Say pool_patches=True for the patches alone, timm's default, or False, "
            "or put its config.json beside it."
        )
    found["pool_patches"] = not prefix if config else hints["pool_patches"]


def give_learned_tokens_positions(canonical):
    """In models with `no_embed_class` positions are added before the learned tokens come."""
    found, arrays = canonical.evidence, canonical.arrays
    hints, configured = found.caller, found.from_config("image_size")
    learned, shape = learned_tokens(found), shape_of(found)
    if POSITION not in arrays or not learned:
        return
    if (apart := found.config.get("no_embed_class")) is not None:
        if apart:
            arrays[POSITION] = np.pad(arrays[POSITION], ((0, 0), (learned, 0), (0, 0)))
        return
    positions = arrays[POSITION].shape[1]
    try:
        find_image_size(positions - learned, shape, hints, configured)
    except CheckpointError as error:
        size, source, _ = find_image_size(positions, shape, hints, configured)
        if source == ARRAYS and learned == 1:
            # 25 positions may be 5 x 5 patches, or a class token and 4 x 6
            raise CheckpointError(
                f"{error} Or all {positions} positions are of patches, none of the class token "
                f"(timm's no_embed_class): then it is file_image_size={size}."
            ) from error
        arrays[POSITION] = np.pad(arrays[POSITION], ((0, 0), (learned, 0), (0, 0)))
