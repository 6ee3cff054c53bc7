"""State dicts of timm's Vision Transformers, and the `config.json` beside them.

timm keeps q, k and v in one matrix and no axis for the heads, stores (out, in), and computes GELU
exactly. The arrays do not tell the heads, the activation, the order in a block, rotary positions,
nor what is pooled. A hub's config names the architecture and leaves to timm what that name means,
which `timm_models` knows. One table reads the names of all of timm's classes; `timm_writing` has
what each class writes.
"""

import re

import numpy as np

from keras_vit.preprocessing import TIMM
from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.formats.timm_models import ACTIVATIONS, PARTS, arguments_of, rotary_of
from keras_vit.weights.huggingface_images import preprocessing_of_timm
from keras_vit.weights.model_arguments import ARRAYS, CONFIG, CUSTOM, POSITION, find_image_size
from keras_vit.weights.safety import CheckpointError, unsupported
from keras_vit.weights.tables import CONV, SAME, TRANSPOSED, Table

BLOCK = "blocks.{i}."
BACKBONE = "patch_embed.backbone."
STAGES = BACKBONE + "stages.{s}.blocks.{u}"
PLAIN = (  # as many authors have them
    ("cls_token", "patch_encoder/class_token", SAME),
    ("pos_embed", POSITION, SAME),
    *tables.torch_linear("patch_embed.proj", "patch_encoder/projection", CONV),
    *tables.torch_norm(BLOCK + "norm{n}", "block_{i}/norm_{n}"),
    *tables.torch_linear(BLOCK + "attn.qkv", "block_{i}/attention/[query|key|value]"),
    *tables.torch_linear(BLOCK + "attn.proj", "block_{i}/attention/out"),
    *tables.torch_linear(BLOCK + "mlp.fc{n}", "block_{i}/mlp/dense_{n}"),
    (BLOCK + "ls{n}.gamma", "block_{i}/layer_scale_{n}/gamma", SAME),
    *tables.torch_linear("head", "head"),
)
ROWS = (
    *PLAIN,
    ("dist_token", "patch_encoder/distillation_token", SAME),
    ("reg_token", "patch_encoder/registers", SAME),
    *tables.torch_norm("patch_embed.norm", "patch_encoder/norm"),
    *tables.torch_norm("norm_pre", "pre_norm"),
    *tables.torch_norm(BLOCK + "attn.q_norm", "block_{i}/attention/query_norm"),
    *tables.torch_norm(BLOCK + "attn.k_norm", "block_{i}/attention/key_norm"),
    *tables.torch_norm(BLOCK + "attn.norm", "block_{i}/attention/norm"),
    *tables.torch_linear(BLOCK + "mlp.fc1_g", "block_{i}/mlp/gate"),
    *tables.torch_linear(BLOCK + "mlp.fc1_x", "block_{i}/mlp/dense_1"),
    *tables.torch_norm(BLOCK + "mlp.norm", "block_{i}/mlp/norm"),
    ("rope.freqs.{i}", "rotary_{i}/frequencies", SAME),
    *tables.torch_norm("[|fc_]norm", "norm"),
    ("attn_pool.latent", "pool/probe", SAME),
    *tables.torch_linear("attn_pool.q", "pool/attention/query"),
    *tables.torch_linear("attn_pool.kv", "pool/attention/[key|value]"),
    *tables.torch_linear("attn_pool.proj", "pool/attention/out"),
    *tables.torch_norm("attn_pool.norm", "pool/norm"),
    *tables.torch_linear("attn_pool.mlp.fc{n}", "pool/mlp/dense_{n}"),
    *tables.torch_linear("head_dist", "head_distillation"),
    ("projection.weight", "projection/kernel", TRANSPOSED),  # of OpenCLIP behind its trunk
    # A stem without stages is the backbone itself.
    *tables.torch_resnet(BACKBONE + "[stem.|]conv", BACKBONE + "[stem.|]norm", STAGES),
)
PARALLEL = (  # of the blocks of one branch
    *tables.torch_norm(BLOCK + "in_norm", "block_{i}/norm_1"),
    *tables.torch_linear(
        BLOCK + "in_proj", "block_{i}/[mlp/dense_1|attention/query|attention/key|attention/value]"
    ),
    *tables.torch_norm(BLOCK + "q_norm", "block_{i}/attention/query_norm"),
    *tables.torch_norm(BLOCK + "k_norm", "block_{i}/attention/key_norm"),
    *tables.torch_linear(BLOCK + "attn_out_proj", "block_{i}/attention/out"),
    *tables.torch_linear(BLOCK + "mlp_out_proj", "block_{i}/mlp/dense_2"),
    (BLOCK + "mlp_bias", "block_{i}/mlp/dense_1/bias", SAME),  # where queries have no bias
    (BLOCK + "ls.gamma", "block_{i}/layer_scale_1/gamma", SAME),
)
EVA = (  # of the classes Eva and Beit
    *tables.torch_attention(BLOCK + "attn.", "q_proj k_proj v_proj"),
    (BLOCK + "gamma_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
)
BEIT = (
    (BLOCK + "attn.q_bias", "block_{i}/attention/query/bias", SAME),
    (BLOCK + "attn.v_bias", "block_{i}/attention/value/bias", SAME),
    (BLOCK + "gamma_{n}", "block_{i}/layer_scale_{n}/gamma", SAME),
    (BLOCK + "attn.relative_position_bias_table", "position_{i}/table", SAME),
    ("rel_pos_bias.relative_position_bias_table", "position/table", SAME),
)
POOLS = {"token": "token", "avg": "mean", "map": "map", "": None}
NORMS = ("", "layernorm", "layernormfp32", "rmsnorm", "rmsnormfp32")


class Timm(Family):
    def flat_config(self, contents):
        """A config as one dict, empty for that of a model of transformers."""
        if contents.config.get("model_type", "timm_wrapper") != "timm_wrapper":
            return {}
        config, names = arguments_of(contents.config), contents.arrays
        if config.get("class") == "Eva" and {"mask_token", "norm.weight"} <= names.keys():
            # timm takes the last norm of EVA's masked pre-training for the one after the pooling.
            return {**config, "norm": True, "fc_norm": False, "norm_moves": bool(config["fc_norm"])}
        return config

    def single_layers(self, arrays):
        """The arrays of single layers, which timm joins here and there."""
        parts = (_parts(name, array, arrays) for name, array in arrays.items())
        return {name: array for part in parts for name, array in part.items()}

    def complete(self, weights, arguments, contents):
        config, arrays = arguments.config, weights.arrays
        infer_blocks(arguments)
        has_fc_norm = "fc_norm.weight" in contents.arrays or config.get("norm_moves", False)
        is_stated = arguments.source_of("pool") == CONFIG
        if arguments["class_token"] and arguments["pool"] != "map" and not is_stated:
            arguments.override(CUSTOM, pool="mean" if has_fc_norm else "token")
        # Of each token by itself it is the same before.
        pools = arguments.caller.get("pool", arguments["pool"]) is not None
        arguments["norm_after_pool"] = has_fc_norm and pools
        for text, is_there in obstacles(arrays, arguments).items():
            if is_there:
                raise unsupported(text)
        infer_rotary(arrays, arguments, contents.arrays)
        if arguments["pool"] == "map":
            infer_pooled_tokens(arguments)
        if POSITION in arrays:
            give_learned_tokens_positions(weights, arguments)
        elif config.get("class") and not arguments.get("position"):
            arguments.add(CONFIG, position="none")  # timm has no computed ones

    def images(self, arguments, contents):
        settings = arguments.config.get("pretrained_cfg", {})
        return *preprocessing_of_timm(settings), settings


def _parts(name, array, file):
    """The arrays of single layers in one of a file, under timm's names for single layers."""
    block, layer, part = re.match(r"(blocks\.\d+\.|)(.*?)(\.weight|\.bias|)$", name).groups()
    shape_of = lambda other: np.shape(file.get(f"{block}{other}.weight", ()))  # noqa: E731
    width = shape_of("in_proj")[-1]  # of a `ParallelScalingBlock`, and 0 of others
    if name == "rope.freqs":  # of all blocks (`RotaryEmbeddingMixed`)
        layers, arrays = [f"{name}.{i}" for i in range(array.shape[1])], np.moveaxis(array, 1, 0)
    elif layer == "mlp.fc1" and shape_of(layer)[0] == 2 * shape_of("mlp.fc2")[-1] > 0:  # `GluMlp`
        layers, arrays = ("mlp.fc1_g", "mlp.fc1_x"), np.split(array, 2)
    elif width and layer == "in_proj":
        layers, arrays = ("mlp.fc1", "attn.qkv"), np.split(array, [max(len(array) - 3 * width, 0)])
    elif width and layer == "out_proj":
        layers, both = ("attn_out_proj", "mlp_out_proj"), (array, np.zeros_like(array))
        # Its bias is that of the sum.
        arrays = both if part == ".bias" else np.split(array, [width], axis=1)
    else:
        return {name: array}
    return {f"{block}{layer}{part}": array for layer, array in zip(layers, arrays)}


def infer_blocks(arguments):
    """Sets the class of block and its activation."""
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


def obstacles(arrays, arguments):
    """Parts that show only in a shape, in what is missing, or in a config, and if there are any."""
    config, pool = arguments.config, arguments["pool"]
    keys = [name for name in arrays if re.match(r"block_\d+/attention/key/", name)]
    grouped = [n for n in keys if arrays[n].shape != arrays[n.replace("key", "query")].shape]
    lacks_scale = arguments["layer_scale"] and "block_0/layer_scale_2/gamma" not in arrays
    positions = arrays.keys() & {POSITION, "position_0/table", "position/table"}
    norms = {}
    for key, field in (("norm_layer", "norm"), ("embed_norm_layer", "patch_norm")):
        norm = "rms_norm" if config.get(key, "").startswith("rms") else "layer_norm"
        text = f"been built with {key}={config.get(key)!r} (its config) for {field}"
        norms[text] = config.get(key) and arguments[field] != norm
    epsilon = config.get("embed_epsilon", arguments["epsilon"])
    return {
        f"fewer heads of keys and values than of queries ({grouped[:1]})": grouped,
        "LayerScale after the attention and none after the MLP": lacks_scale
        and arguments["block"] != "parallel",
        "relative positions beside others": len(positions) > 1,
        "attention pooling without a LayerNorm": "pool/probe" in arrays
        and "pool/norm/beta" not in arrays,
        "registers beside a distillation token": arguments["distillation"]
        and arguments["registers"],
        **norms,
        f"norms with the epsilons {epsilon} and {arguments['epsilon']}": arguments["patch_norm"]
        and epsilon != arguments["epsilon"],
        "a head that pools also over its class token and registers": pool == "mean"
        and config.get("pool_include_prefix")
        and arguments.learned_tokens,
        "a norm after attention pooling": pool == "map" and arguments["norm_after_pool"],
    }


def infer_rotary(arrays, arguments, names):
    """Sets `rotary`, which only learned frequencies show in the arrays; `names` are the file's."""
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
    """Sets what attention pooling looks at."""
    config, caller = arguments.config, arguments.caller
    heads = config.get("attn_pool_num_heads")
    arguments["pool_heads"] = None if heads == config.get("num_heads") else heads
    if arguments.learned_tokens and config.get("class") != "Eva":
        if not config and "pool_patches" not in caller:
            raise CheckpointError(
                "The file has attention pooling, and does not say whether over its class token and "
                "registers too. Say pool_patches=True for the patches alone, timm's default, or "
                "False, or put its config.json beside it."
            )
        of_patches = not config.get("pool_include_prefix")
        arguments["pool_patches"] = of_patches if config else caller["pool_patches"]


def give_learned_tokens_positions(weights, arguments):
    """Pads the positions of models with `no_embed_class`, which are of the patches alone."""
    count = weights.arrays[POSITION].shape[1]
    learned, of_patches = arguments.learned_tokens, arguments.config.get("no_embed_class")
    if of_patches is None and learned:
        try:
            find_image_size(count - learned, arguments)
        except CheckpointError as error:
            size, source, _ = find_image_size(count, arguments)
            if source == ARRAYS and learned == 1:
                # 25 positions may be 5 x 5 patches, or a class token and 4 x 6
                raise CheckpointError(
                    f"{error} Or all {count} positions are of patches, none of the class token "
                    f"(timm's no_embed_class): then it is file_image_size={size}."
                ) from error
            of_patches = True
    if of_patches:
        weights.add_zero_positions(at=0, count=learned)


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
    signature=r"patch_embed\.proj\.weight$|blocks\.",
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
        "act_layer": (
            "gelu",
            {name: "tanh" if name == "gelu_tanh" else "erf" for name in ACTIVATIONS},
        ),
        "block_fn": (None, dict.fromkeys(("", "Block", "ResPostBlock", "ParallelScalingBlock"))),
        "norm_layer": (None, dict.fromkeys(NORMS)),
        "embed_norm_layer": (None, dict.fromkeys(NORMS)),
    },
    preprocessing=TIMM,
)
