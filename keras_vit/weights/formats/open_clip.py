"""Files of OpenAI's CLIP, of OpenCLIP and of Meta's Perception Encoder, which share their names.

`open_clip_config.json` says what the arrays of OpenCLIP do not. Without it, files that have the
numbers which OpenAI's have (such as `input_resolution`) compute quick GELU, and others exact GELU.
The Perception Encoder has rotary positions beside learned ones, and attention pooling of 8 heads,
or nothing after its last block. OpenCLIP's trunks of timm are read as files of timm.
"""

import dataclasses

from keras_vit.extensions import Rotary
from keras_vit.preprocessing import CLIP, Preprocessing
from keras_vit.weights import tables
from keras_vit.weights.family import Family
from keras_vit.weights.formats import timm, vision_towers
from keras_vit.weights.huggingface_images import preprocessing_of_timm
from keras_vit.weights.model_arguments import CUSTOM, POSITION
from keras_vit.weights.safety import unsupported
from keras_vit.weights.tables import CONV, ROWS, SAME, TRANSPOSED, Table

BLOCK = "transformer.resblocks.{i}."
VISUAL, TRUNK, TRUNK_HEAD = "visual.", "visual.trunk.", "visual.head.proj."
OF_OPENAI = ("input_resolution", "context_length", "vocab_size")


class OpenClip(Family):
    def plain_name(self, name, file):
        """Of the tower of images; whatever stands beside it is of texts."""
        has_texts = VISUAL + "conv1.weight" in file and not name.startswith(VISUAL)
        return f"text.{name}" if has_texts else name.removeprefix(VISUAL)

    def flat_config(self, contents):
        """The arguments of OpenCLIP's tower of images."""
        model = contents.config.get("model_cfg", {})
        vision = {"head_width": 64, "pool_type": "tok", **model.get("vision_cfg", {})}
        if not model or "width" not in vision:
            return {}
        options = vision.get("act_kwargs") or {}
        if options not in ({}, {"approximate": "tanh"}):
            raise unsupported(f"been built with act_kwargs={options} (its config)")
        exact = "gelu_tanh" if options else "gelu_erf"
        vision["activation"] = "quick_gelu" if model.get("quick_gelu") else exact
        vision["eps"] = (vision.get("norm_kwargs") or {}).get("eps", 1e-5)
        return {**vision, "heads": vision["width"] // vision["head_width"]}

    def complete(self, weights, arguments, contents):
        arguments["patch_bias"], is_map = False, arguments["pool"] == "map"
        if any(name in contents.arrays for name in OF_OPENAI):
            arguments.add(CUSTOM, activation="quick_gelu")
        if is_map or not arguments["final_norm"]:  # of the Perception Encoder
            offset = 1.0 if arguments["class_token"] else 0.0  # the class token has the place 0
            arguments["rotary"] = Rotary(offset=offset, order="columns")
            arguments["interpolation"] = "bilinear"
            arguments["pool_heads"] = (arguments.caller.get("pool_heads") or 8) if is_map else None
        if not arguments["final_norm"]:
            arguments.override(CUSTOM, pool="mean")
        after = arguments.config.get("final_ln_after_pool", False) and arguments["pool"] == "mean"
        arguments["norm_after_pool"] = bool(after)

    def images(self, arguments, contents):
        recipe, beyond = preprocessing_of_timm(images_of(contents.config), self.preprocessing)
        is_meta = arguments["rotary"] is not None  # a Perception Encoder, as `complete` tells it
        return Preprocessing(library="pillow") if is_meta else recipe, beyond, True


class Trunk(timm.Timm):
    """OpenCLIP's models around one of timm."""

    def arrays_of(self, file):
        trunk = {n.removeprefix(TRUNK): array for n, array in file.items() if n.startswith(TRUNK)}
        return timm.FAMILY.arrays_of(trunk)

    def read(self, contents, caller):
        file = contents.arrays
        # The linear map behind the trunk is a head if it has a bias, and else a projection.
        behind = "head." if TRUNK_HEAD + "bias" in file else "projection."
        tower = [name for name in file if name.startswith(VISUAL)]
        names = {name.removeprefix(TRUNK).replace(TRUNK_HEAD, behind): name for name in tower}
        if not timm.FAMILY.recognises(names):
            raise unsupported("a trunk that is no Vision Transformer")
        if {TRUNK_HEAD + "weight", TRUNK + "head.weight"} <= file.keys():
            raise unsupported("two heads, one after the other")
        arrays = {plain: file[name] for plain, name in names.items()}
        config = timm_config(contents.config)
        trunk = dataclasses.replace(contents, arrays=arrays, config=config)
        weights, arguments = timm.FAMILY.read(trunk, caller)
        weights.rename(names, file)
        return weights, arguments


def timm_config(config):
    """What a `config.json` of timm would say of a trunk."""
    vision = config.get("model_cfg", {}).get("vision_cfg", {})
    if not vision:
        return {}
    arguments, images = dict(vision.get("timm_model_kwargs") or {}), images_of(config)
    if vision.get("timm_pool"):
        arguments["global_pool"] = vision["timm_pool"]
    if "image_size" in vision:
        size = vision["image_size"]
        images["input_size"] = [3, *(size if isinstance(size, list) else [size, size])]
    name = vision.get("timm_model_name", "")
    return {"architecture": name, "model_args": arguments, "pretrained_cfg": images}


def images_of(config):
    """What a `pretrained_cfg` of timm would say of how images are prepared."""
    stated = config.get("preprocess_cfg", {})
    images = {key: stated[key] for key in ("mean", "std", "interpolation") if key in stated}
    mode = stated.get("resize_mode") or "shortest"
    crop_mode = "center" if mode == "shortest" else mode  # "longest", with borders, is none here
    return {**images, "crop_mode": crop_mode, "crop_pct": 1.0}


OPEN_CLIP = OpenClip(
    name="OpenCLIP",
    signature=r"(visual\.)?transformer\.resblocks\.\d+\.",
    table=Table(
        ("class_embedding", "patch_encoder/class_token", vision_towers.TOKEN),
        ("positional_embedding", POSITION, ROWS),
        ("conv1.weight", "patch_encoder/projection/kernel", CONV),
        *tables.torch_norm("ln_pre", "pre_norm"),
        *tables.torch_norm(BLOCK + "ln_{n}", "block_{i}/norm_{n}"),
        *tables.torch_in_proj(BLOCK + "attn.in_proj", "block_{i}/attention/[query|key|value]"),
        *tables.torch_linear(BLOCK + "attn.out_proj", "block_{i}/attention/out"),
        (BLOCK + "ls_{n}.gamma", "block_{i}/layer_scale_{n}/gamma", SAME),
        *tables.torch_mlp(BLOCK + "mlp.", "c_fc c_proj"),
        *tables.torch_norm("ln_post", "norm"),
        ("proj", "projection/kernel", SAME),
        ("attn_pool.probe", "pool/probe", SAME),
        *tables.torch_in_proj("attn_pool.attn.in_proj", "pool/attention/[query|key|value]"),
        *tables.torch_linear("attn_pool.attn.out_proj", "pool/attention/out"),
        *tables.torch_norm("attn_pool.layernorm", "pool/norm"),
        *tables.torch_mlp("attn_pool.mlp.", "c_fc c_proj", "pool/mlp/"),
    ),
    unsupported={
        r"attn_pool(_contrastive)?\.(query|ln_[qk]\..*)": "CoCa's pooling",
        r"transformer\.resblocks\.\d+\.(ln_attn|mlp\.ln|attn\.(ln|q_norm|k_norm|logit_scale)).*": (
            "a block of OpenCLIP's custom kind"
        ),
    },
    ignored=(r"text\..*",),
    optional=("norm/gamma",),
    joined_heads=True,
    defaults=vision_towers.DEFAULTS,
    preprocessing=dataclasses.replace(CLIP, library="pillow"),
    needs_config=True,
    config={
        "width": "width",
        "layers": "depth",
        "patch_size": "patch_size",
        "heads": "num_heads",
        "image_size": "image_size",
        "pool_type": ("pool", {"tok": "token", "avg": "mean", "none": None}),
        "activation": "activation",
        "eps": "epsilon",
    },
)
OPEN_CLIP_TRUNK = Trunk(
    name="OpenCLIP around a model of timm",
    signature=r"visual\.trunk\.",
    table=Table(("visual.head.proj.weight", "projection/kernel", TRANSPOSED)),
)
FAMILIES = (OPEN_CLIP_TRUNK, OPEN_CLIP)
