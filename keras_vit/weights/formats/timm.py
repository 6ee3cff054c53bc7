"""State dicts of timm's Vision Transformers, and the `config.json` beside them.

timm keeps q, k and v in one matrix and no axis for the heads, stores (out, in), and computes GELU
exactly. The arrays do not tell the heads, the activation, the order in a block, rotary positions,
nor what is pooled. A hub's config names the architecture and leaves to timm what that name means,
which `timm_models` knows. One table reads the names of all of timm's classes.
"""

import dataclasses
import re

from keras_vit.preprocessing import TIMM
from keras_vit.weights import model_arguments as sources
from keras_vit.weights.family import Family, reasons, unsupported
from keras_vit.weights.formats.timm_arrays import BEIT, EVA, PARALLEL, PARTS, ROWS, split
from keras_vit.weights.formats.timm_models import ACTIVATIONS, arguments_of, rotary_of
from keras_vit.weights.huggingface_images import config_of
from keras_vit.weights.model_arguments import POSITION
from keras_vit.weights.safety import CheckpointError
from keras_vit.weights.tables import Table, key_of

POOLS = {"token": "token", "avg": "mean", "map": "map", "": None}
NORMS = ("", "layernorm", "layernormfp32", "rmsnorm", "rmsnormfp32")
# timm's name of an activation -> `Variant.gelu` beside it.
GELUS = {name: "tanh" if name == "gelu_tanh" else "erf" for name in ACTIVATIONS}
# Key of `pretrained_cfg` -> field of a `Preprocessing`, and its values there where they are named.
PREPROCESSING = {
    "mean": ("mean", None),
    "std": ("std", None),
    "crop_pct": ("crop_fraction", None),
    "crop_mode": ("resize", {"center": "shortest", "squash": "squash"}),
    "interpolation": ("interpolation", {"bilinear": "bilinear", "bicubic": "bicubic"}),
}


class Timm(Family):
    def flat_config(self, contents):
        """A config as one dict."""
        config, names = arguments_of(contents.config), contents.arrays
        if config.get("class") == "Eva" and {"mask_token", "norm.weight"} <= names.keys():
            # timm takes the last norm of EVA's masked pre-training for the one after the pooling.
            return {**config, "norm": True, "fc_norm": False, "norm_moves": bool(config["fc_norm"])}
        return config

    def unstacked(self, tower):
        return split(tower)

    def complete(self, canonical, contents):
        arguments, config = canonical.arguments, canonical.arguments.config
        refuse_by_shape(canonical.arrays, arguments)
        infer_blocks(arguments)
        infer_rotary(canonical, contents.arrays)
        has_fc_norm = "fc_norm.weight" in contents.arrays or config.get("norm_moves", False)
        is_stated = arguments.source_of("pool") == sources.CONFIG
        if arguments["class_token"] and arguments["pool"] != "map" and not is_stated:
            arguments.override(sources.CUSTOM, pool="mean" if has_fc_norm else "token")
        # Of each token by itself it is the same before.
        pools = arguments.caller.get("pool", arguments["pool"]) is not None
        arguments["norm_after_pool"] = has_fc_norm and pools
        infer_pooled_tokens(arguments)
        if POSITION in canonical.arrays:
            give_learned_tokens_positions(canonical)
        elif config.get("class") and not arguments.get("position"):
            arguments.add(sources.CONFIG, position="none")  # timm has no computed ones
        settings = config.get("pretrained_cfg", {})
        canonical.set_preprocessing(*preprocessing_of(settings), settings)
        canonical.class_names = class_names_of(config, arguments["num_classes"])


def refuse_by_shape(arrays, arguments):
    """Raises a CheckpointError for a part that shows only in a shape, or in what is missing."""
    keys = [name for name in arrays if re.match(r"block_\d+/attention/key/", name)]
    grouped = [n for n in keys if arrays[n].shape != arrays[n.replace("key", "query")].shape]
    lacks_scale = arguments["layer_scale"] and "block_0/layer_scale_2/gamma" not in arrays
    positions = arrays.keys() & {POSITION, "position_0/table", "position/table"}
    rows = {
        f"fewer heads of keys and values than of queries ({grouped[:1]})": grouped,
        "LayerScale after the attention and none after the MLP": lacks_scale
        and arguments["block"] != "parallel",
        "relative positions beside others": len(positions) > 1,
        "attention pooling without a LayerNorm": "pool/probe" in arrays
        and "pool/norm/beta" not in arrays,
        "registers beside a distillation token": arguments["distillation"]
        and arguments["registers"],
    }
    for text in reasons(rows):
        raise unsupported(text)


def infer_blocks(arguments):
    """Sets the class of block and its activation, and compares its norms with the config."""
    config, has_gate = arguments.config, arguments["mlp"] == "swiglu"
    if config.get("block_fn") == "ResPostBlock":
        arguments["block"] = "post_norm"
    if arguments["layer_scale"] and config.get("init_values"):
        arguments["layer_scale"] = float(config["init_values"])
    # The activation of `Eva` and `Beit` is no argument of theirs.
    stated = config.get("class") not in ("Eva", "Beit") and config.get("act_layer")
    activation = ACTIVATIONS[stated or ("silu" if has_gate else "gelu")]
    usual = ("silu",) if has_gate else ("gelu_erf", "gelu_tanh")
    arguments["activation"] = None if activation in usual else activation
    if arguments["pool"] == "map" and stated and has_gate and not activation.startswith("gelu_"):
        raise unsupported(f"attention pooling with the activation {activation!r}")
    for key, field in (("norm_layer", "norm"), ("embed_norm_layer", "patch_norm")):
        norm = "rms_norm" if config.get(key, "").startswith("rms") else "layer_norm"
        if config.get(key) and arguments[field] != norm:
            raise unsupported(f"been built with {key}={config[key]!r} (its config) for {field}")
    epsilon = config.get("embed_epsilon", arguments["epsilon"])
    if arguments["patch_norm"] and epsilon != arguments["epsilon"]:
        raise unsupported(f"norms with the epsilons {epsilon} and {arguments['epsilon']}")


def infer_rotary(canonical, names):
    """Sets `rotary`, which only learned frequencies show in the arrays."""
    arguments, arrays = canonical.arguments, canonical.arrays
    if arguments.config.get("class"):
        arguments["rotary"] = rotary_of(arguments.config)
        return
    is_eva = any(re.search(r"\.(q_bias|q_proj\.weight|gamma_1)$", name) for name in names)
    is_relative = any(name.endswith("/table") for name in arrays)
    if arguments["rotary"] or is_relative or not (is_eva or arguments["pre_norm"]):
        return
    asked = ("rotary", "epsilon", *(("activation",) if arguments["pre_norm"] else ()))
    if missing := [f"{name}=..." for name in asked if name not in arguments.caller]:
        raise CheckpointError(
            "The file is of a model that may have rotary positions, another epsilon and other "
            "activations, which its arrays do not show. Put its config.json beside it, or say "
            f"{', '.join(missing)}; None is no rotary position and the usual activation."
        )
    arguments.update({name: arguments.caller[name] for name in asked})
    if arguments["rotary"]:
        arguments["position"] = "learned_1d" if POSITION in arrays else "none"


def infer_pooled_tokens(arguments):
    """Sets what attention pooling looks at; the mean is over patches alone."""
    config, learned = arguments.config, sources.learned_tokens(arguments)
    prefix = config.get("pool_include_prefix")
    if arguments["pool"] == "mean" and prefix and learned:
        raise unsupported("a head that pools also over its class token and registers")
    if arguments["pool"] != "map":
        return
    if arguments["norm_after_pool"]:
        raise unsupported("a norm after attention pooling")
    heads = config.get("attn_pool_num_heads")
    arguments["pool_heads"] = None if heads == config.get("num_heads") else heads
    if learned and config.get("class") != "Eva":
        if not config and "pool_patches" not in arguments.caller:
            raise CheckpointError(
                "The file has attention pooling, and does not say whether over its class token and "
                "registers too. Say pool_patches=True for the patches alone, timm's default, or "
                "False, or put its config.json beside it."
            )
        arguments["pool_patches"] = not prefix if config else arguments.caller["pool_patches"]


def give_learned_tokens_positions(canonical):
    """Pads the positions of models with `no_embed_class`, which are of the patches alone."""
    arguments, count = canonical.arguments, canonical.arrays[POSITION].shape[1]
    learned, of_patches = sources.learned_tokens(arguments), arguments.config.get("no_embed_class")
    if of_patches is None and learned:
        try:
            sources.find_image_size(count - learned, arguments)
        except CheckpointError as error:
            size, source, _ = sources.find_image_size(count, arguments)
            if source == sources.ARRAYS and learned == 1:
                # 25 positions may be 5 x 5 patches, or a class token and 4 x 6
                raise CheckpointError(
                    f"{error} Or all {count} positions are of patches, none of the class token "
                    f"(timm's no_embed_class): then it is file_image_size={size}."
                ) from error
            of_patches = True
    if of_patches:
        canonical.add_zero_positions(at=0, count=learned)


def class_names_of(config, num_classes):
    """What `config.json` calls the classes, or `None`; a single output may have two of them."""
    names, counts = config.get("label_names"), (num_classes, 2 if num_classes == 1 else num_classes)
    known = isinstance(names, list) and len(names) in counts
    return tuple(map(str, names)) if known and names else None


def preprocessing_of(settings, usual=TIMM):
    """The `Preprocessing` of a `pretrained_cfg`, and texts for what no recipe here can say."""
    fields, unsaid = {}, []
    for key, (field, meanings) in PREPROCESSING.items():
        value = settings.get(key)
        if value is not None and (meanings is None or value in meanings):
            fields[field] = value if meanings is None else meanings[value]
        elif value is not None:
            unsaid.append(f"{key}={value!r} of the preprocessing")
    return dataclasses.replace(usual, **fields), tuple(unsaid)


def hub_config(model, architecture, features, arguments):
    """`config.json` as timm's hub has it."""
    size = [model.channels, *model.image_size]
    images = {"input_size": size, "num_classes": model.num_classes}
    for key, (field, meanings) in PREPROCESSING.items():
        value = getattr(model.preprocessing, field)
        images[key] = value if meanings is None else key_of(meanings, value)
    return {
        "architecture": architecture,
        "num_classes": model.num_classes,
        "num_features": features,
        "model_args": arguments,
        "pretrained_cfg": images,
        **({"label_names": list(model.class_names)} if model.class_names else {}),
        **config_of(model),
    }


KEYS = {
    "img_size": "image_size",
    "patch_size": "patch_size",
    "in_chans": "channels",
    "embed_dim": "width",
    "depth": "depth",
    "num_heads": "num_heads",
    "qkv_bias": "qkv_bias",
    "global_pool": ("pool", POOLS),
}
FAMILY = Timm(
    name="timm",
    sign=r"patch_embed\.proj\.weight$|blocks\.",
    table=Table(*ROWS, *PARALLEL, *EVA, *BEIT),
    ignored=("mask_token", r".*\.relative_position_index"),
    unsupported={
        r".*\.mlp\.(w12|w3)\..*": "a gated MLP under names that are not timm's",
        r".*\.lambda_\w+|.*\.sub_norm\..*": "differential attention",
        r".*\.attn\.gate\..*": "a gate after its attention",
        r".*\.(attns|ffns)\..*": "several attentions in one block",
    },
    optional=("norm/gamma",),
    arrays_by_key=PARTS,
    needs_config=True,
    joined_heads=True,
    defaults={"interpolation": "bicubic", "gelu": "erf", "epsilon": 1e-6, "stem_numerics": "timm"},
    config={
        **KEYS,
        "class_token": "class_token",
        "reg_tokens": "registers",
        "epsilon": "epsilon",
        "pos_embed": ("position", {"learn": None, "none": "none", "": None}),
        "act_layer": ("gelu", GELUS),
        "block_fn": (None, dict.fromkeys(("", "Block", "ResPostBlock", "ParallelScalingBlock"))),
        "norm_layer": (None, dict.fromkeys(NORMS)),
        "embed_norm_layer": (None, dict.fromkeys(NORMS)),
    },
    preprocessing=TIMM,
)
