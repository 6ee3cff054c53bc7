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
from keras_vit.weights.canonical import POSITION
from keras_vit.weights.evidence import CUSTOM
from keras_vit.weights.family import Family, unsupported
from keras_vit.weights.files import Contents
from keras_vit.weights.formats import timm
from keras_vit.weights.formats.vision_towers import ROWS, TOKEN, choose_gelu
from keras_vit.weights.tables import CONV, SAME, Table

BLOCK = "transformer.resblocks.{i}."
VISUAL, TRUNK, LINEAR = "visual.", "visual.trunk.", "visual.head.proj"
OF_OPENAI = ("input_resolution", "context_length", "vocab_size")
PERCEPTION_ENCODER = Preprocessing(library="pillow")
RESIZES = {"shortest": "shortest", "squash": "squash"}
ACTIVATIONS = {"gelu": "gelu_erf", "gelu_tanh": "gelu_tanh", "quick_gelu": "quick_gelu"}


class OpenClip(Family):
    """Vision Transformers of OpenAI, OpenCLIP and Meta's Perception Encoder."""

    def prefix_of(self, file):
        return VISUAL if VISUAL + "conv1.weight" in file else ""

    def flat_config(self, contents):
        """The arguments of OpenCLIP's tower of images."""
        model = contents.config.get("model_cfg", {})
        vision = {"head_width": 64, "pool_type": "tok", **model.get("vision_cfg", {})}
        if not model or "width" not in vision:
            return {}
        options = vision.get("act_kwargs") or {}
        if options not in ({}, {"approximate": "tanh"}):
            raise unsupported(f"been built with act_kwargs={options} (its config)")
        exact = "gelu_tanh" if options else "gelu"
        vision["activation"] = "quick_gelu" if model.get("quick_gelu") else exact
        vision["eps"] = (vision.get("norm_kwargs") or {}).get("eps", 1e-5)
        return {**vision, "heads": vision["width"] // vision["head_width"]}

    def complete(self, canonical, contents):
        evidence, names = canonical.evidence, contents.arrays
        evidence["patch_bias"] = False
        canonical.preprocessing = preprocessing_of(contents.config)
        if any(name in names for name in OF_OPENAI):
            evidence.add(CUSTOM, activation="quick_gelu")
        choose_gelu(evidence)
        if evidence["pool"] == "map" or not evidence["final_norm"]:
            offset = 1.0 if evidence["class_token"] else 0.0  # the class token has the place 0
            evidence.update(rotary=Rotary(offset=offset, order="columns"), interpolation="bilinear")
            evidence["pool_heads"] = (
                evidence.caller.get("pool_heads") or 8 if evidence["pool"] == "map" else None
            )
            canonical.preprocessing = PERCEPTION_ENCODER
        if not evidence["final_norm"]:
            evidence.settle(CUSTOM, pool="mean")
        after = evidence.config.get("final_ln_after_pool", False) and evidence["pool"] == "mean"
        evidence["norm_after_pool"] = bool(after)


class Trunk(Family):
    """OpenCLIP's models around one of timm."""

    def arrays_of(self, file):
        return timm.FAMILY.arrays_of(trunk_of(file))

    def read(self, contents, caller):
        file, cfg = contents.arrays, contents.config
        vision = cfg.get("model_cfg", {}).get("vision_cfg", {})
        trunk = trunk_of(file)
        if not timm.FAMILY.recognises(trunk):
            raise unsupported("a trunk that is no Vision Transformer")
        inner = Contents(contents.path, trunk, timm_config(cfg, vision))
        canonical = timm.FAMILY.read(inner, caller)
        canonical.family = self.name
        canonical.origin = {path: TRUNK + name for path, name in canonical.origin.items()}
        outside = [name for name in file if not name.startswith(TRUNK)]
        rows = [name for name in outside if name.startswith("visual.")]
        arrays, origin, _ = self.table.read({n: file[n] for n in rows}, self.name)
        canonical.arrays.update(arrays)
        canonical.origin.update(origin)
        self._settle_head(canonical, arrays)
        of_trunk = (TRUNK + n if n in trunk else n for n in canonical.ignored)
        canonical.ignored = (*of_trunk, *(name for name in outside if name not in rows))
        return canonical

    def _settle_head(self, canonical, arrays):
        """A linear map without a bias is a projection, and one with a bias a head."""
        kernel, evidence = arrays.get("head/kernel"), canonical.evidence
        if kernel is None:
            return
        if evidence["num_classes"] or evidence["projection"]:
            raise unsupported("two heads, one after the other")
        if "head/bias" in arrays:
            evidence["num_classes"] = kernel.shape[-1]
            return
        evidence["projection"] = kernel.shape[-1]
        for side in (canonical.arrays, canonical.origin):
            side["projection/kernel"] = side.pop("head/kernel")


def trunk_of(file):
    """The arrays of the model of timm."""
    return {n.removeprefix(TRUNK): a for n, a in file.items() if n.startswith(TRUNK)}


def timm_config(config, vision):
    """What a `config.json` of timm would say of a trunk."""
    if not vision:
        return {}
    arguments = dict(vision.get("timm_model_kwargs") or {})
    if vision.get("timm_pool"):
        arguments["global_pool"] = vision["timm_pool"]
    recipe = config.get("preprocess_cfg", {})
    images = {key: recipe[key] for key in ("mean", "std", "interpolation") if key in recipe}
    modes = {"shortest": "center", "squash": "squash"}
    images |= {"crop_mode": modes.get(recipe.get("resize_mode"), "center"), "crop_pct": 1.0}
    if "image_size" in vision:
        size = vision["image_size"]
        images["input_size"] = [3, *(size if isinstance(size, list) else [size, size])]
    name = vision.get("timm_model_name", "")
    return {"architecture": name, "model_args": arguments, "pretrained_cfg": images}


def preprocessing_of(config):
    """The recipe of an `open_clip_config.json`; OpenAI's where it says nothing."""
    stated = config.get("preprocess_cfg", {})
    fields = {key: tuple(stated[key]) for key in ("mean", "std") if key in stated}
    if stated.get("resize_mode") in RESIZES:
        fields["resize"] = RESIZES[stated["resize_mode"]]
    if stated.get("interpolation") in ("bilinear", "bicubic"):
        fields["interpolation"] = stated["interpolation"]
    return dataclasses.replace(CLIP, library="pillow", **fields)


OPEN_CLIP = OpenClip(
    name="OpenCLIP",
    sign=r"(visual\.)?transformer\.resblocks\.\d+\.",
    table=Table(
        ("class_embedding", "patch_encoder/class_token", TOKEN),
        ("positional_embedding", POSITION, ROWS),
        ("conv1.weight", "patch_encoder/projection/kernel", CONV),
        *tables.torch_norm("ln_pre", "pre_norm"),
        *tables.torch_norm(BLOCK + "ln_{n}", "block_{i}/norm_{n}"),
        *tables.torch_in_proj(BLOCK + "attn.in_proj", "block_{i}/attention"),
        *tables.torch_linear(BLOCK + "attn.out_proj", "block_{i}/attention/out"),
        (BLOCK + "ls_{n}.gamma", "block_{i}/layer_scale_{n}/gamma", SAME),
        *tables.torch_linear(BLOCK + "mlp.c_fc", "block_{i}/mlp/dense_1"),
        *tables.torch_linear(BLOCK + "mlp.c_proj", "block_{i}/mlp/dense_2"),
        *tables.torch_norm("ln_post", "norm"),
        ("proj", "projection/kernel", SAME),
        ("attn_pool.probe", "pool/probe", SAME),
        *tables.torch_in_proj("attn_pool.attn.in_proj", "pool/attention"),
        *tables.torch_linear("attn_pool.attn.out_proj", "pool/attention/out"),
        *tables.torch_norm("attn_pool.layernorm", "pool/norm"),
        *tables.torch_linear("attn_pool.mlp.c_fc", "pool/mlp/dense_1"),
        *tables.torch_linear("attn_pool.mlp.c_proj", "pool/mlp/dense_2"),
    ),
    unsupported={
        r"attn_pool(_contrastive)?\.(query|ln_[qk]\..*)": "CoCa's pooling",
        r"transformer\.resblocks\.\d+\.(ln_attn|mlp\.ln|attn\.(ln|q_norm|k_norm|logit_scale)).*": (
            "a block of OpenCLIP's custom kind"
        ),
    },
    optional=("norm/gamma",),
    joined_heads=True,
    defaults={
        "interpolation": "bicubic_no_antialias",
        "activation": "gelu_erf",
        "gelu": "erf",
        "epsilon": 1e-5,
    },
    needs_config=True,
    config={
        "width": "width",
        "layers": "depth",
        "patch_size": "patch_size",
        "heads": "num_heads",
        "image_size": "image_size",
        "pool_type": ("pool", {"tok": "token", "avg": "mean", "none": None}),
        "activation": ("activation", ACTIVATIONS),
        "eps": "epsilon",
    },
)
OPEN_CLIP_TRUNK = Trunk(
    name="OpenCLIP around a model of timm",
    sign=r"visual\.trunk\.",
    table=Table(*tables.torch_linear(LINEAR, "head")),
)
FAMILIES = (OPEN_CLIP_TRUNK, OPEN_CLIP)
