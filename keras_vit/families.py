"""The models of the paper's table and of the families that came after it, as data.

A `Line` is one family, or the part of it that shares its fields; a word in its `sizes` is one
published model. Nothing here is a rule: `keras_vit.variants` makes `VARIANTS` of it, and
`keras_vit.builders` a builder for each.
"""

import typing

SIZES = {
    # name: width, depth, heads, units of the MLP
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "M": (512, 12, 8, 2048),  # Touvron et al., 2022
    "B": (768, 12, 12, 3072),  # Table 1
    "L": (1024, 24, 16, 4096),  # Table 1
    "H": (1280, 32, 16, 5120),  # Table 1
    "g": (1408, 40, 16, 6144),  # Zhai et al., 2022, Table 2
    "G": (1664, 48, 16, 8192),  # Zhai et al., 2022, Table 2
    "bigG": (1664, 48, 16, 8192),  # what OpenCLIP calls G
    "So400m": (1152, 27, 16, 4304),  # Alabdulmohsin et al., 2023
    "22B": (6144, 48, 48, 24576),  # Dehghani et al., 2023, Table 1
    # Wightman, 2024
    "wee": (256, 14, 4, 1280),
    "little": (320, 14, 5, 1792),
    "medium": (512, 12, 8, 2048),
    "mediumd": (512, 20, 8, 2048),
    "betwixt": (640, 12, 10, 2560),
}


class Line(typing.NamedTuple):
    """Models that differ in their sizes.

    Args:
        name: of each variant, where `{}` stands for size and patch size, such as `"B/16"`.
        title: of the family, with its source.
        sizes: dict from size and patch size to fields of this size alone; those of `SIZES` come
            from there.
        fields: fields of `keras_vit.Variant` that all of them have.
    """

    name: str
    title: str
    sizes: dict
    fields: dict


def _published(names, **fields):
    """`Line.sizes` of models whose dimensions are in `SIZES`, such as `"B/16 L/16"`."""
    return dict.fromkeys(names.split(), fields)


def _dimensions(width, depth, num_heads, mlp_dim, **fields):
    """The fields of a size that is not in `SIZES`."""
    return {"width": width, "depth": depth, "num_heads": num_heads, "mlp_dim": mlp_dim, **fields}


def _counted(side, offset=1.0):
    """Rotary positions of the Perception Encoder, counted on a grid of this side."""
    return {"rotary": {"reference": (side, side), "offset": offset, "order": "columns"}}


# Fields that several lines have, or that are long; in `A | B` a field of `B` overrides that of `A`,
# and the fields of a size override those of its line.
TORCH = {"gelu": "erf", "interpolation": "bicubic"}  # what most authors on PyTorch compute
DISTILLED = TORCH | {"distillation": True}
SCALED = TORCH | {"layer_scale": 1e-5}
REGISTERED = SCALED | {"registers": 4}
FLEXIBLE = {"interpolation": "bilinear_antialias"}
MAP = {"pool": "map"}
PATCHES = {"pool": "mean", "class_token": False}
MEAN = {"pool": "mean", "class_token": True, "norm_after_pool": True}
GATED = {"mlp": "swiglu"}

CLIP = TORCH | {"pre_norm": "layer_norm", "patch_bias": False, "epsilon": 1e-5}
QUICK = CLIP | {"activation": "quick_gelu"}
NO_KEY = {"biases": "no_key"}
DINO_V3 = REGISTERED | NO_KEY | {"position": "none", "rotary": "dinov3", "epsilon": 1e-5}
EVA = TORCH | NO_KEY
EVA_02 = EVA | GATED | {"rotary": "eva02"}
NORMED = {"mlp_norm": "layer_norm"}
NORMED_TWICE = NORMED | {"attention_norm": "layer_norm"}
EVA_02_CLIP = EVA_02 | NORMED_TWICE
BEIT = EVA | MEAN | {"position": "relative_2d"}
BEIT_3 = TORCH | MEAN | NORMED_TWICE | {"epsilon": 1e-5}
RMS_NORMED = {"norm": "rms_norm", "patch_norm": "rms_norm", "epsilon": 1e-5}
AIM_V2 = TORCH | PATCHES | GATED | RMS_NORMED | {"biases": "none", "qkv_bias": False}
PE_CORE = CLIP | {"pool": "map", "pool_heads": 8, "class_token": True}
PE_OTHERS = CLIP | {"pool": "mean", "final_norm": False, "class_token": True} | _counted(32)
PE_G = {"class_token": False, **_counted(32, 0.0)}
INTERN = TORCH | {"layer_scale": 0.1, "final_norm": False}
SBB = SCALED | PATCHES | {"norm_after_pool": True}
SBB_ROPE = SBB | NO_KEY | {"position": "none", "rotary": "eva02", "registers": 1}

# Sizes that several lines have, or that are long.
DEITS = _published("Ti/16 S/16 B/16")
GIANT = {"g/14": _dimensions(1536, 40, 24, 4096, **GATED)}  # Oquab et al., 2024
DINOS = _published("S/14 B/14 L/14") | GIANT
SIGLIPS = _published("B/16 L/16 So400m/14 So400m/16")
SIGLIPS_2 = _published("B/32") | SIGLIPS | {"g-opt/16": _dimensions(1536, 40, 16, 6144)}
CLIPS = _published("B/32 B/16", projection=512) | _published("L/14", projection=768)
HUGE, BIG = _published("H/14", projection=1024), _published("bigG/14", projection=1280)
OPEN_CLIPS = CLIPS | HUGE | _published("g/14", projection=1024) | BIG
META_CLIPS = (
    _published("S/16", projection=384) | _published("M/16", projection=512) | CLIPS | HUGE | BIG
)
EVA_CLIPS = _published("B/16", mlp_dim=2048, projection=512)
EVA_CLIPS |= _published("L/14", mlp_dim=2730, projection=768)
BEITS = _published("B/16", layer_scale=0.1) | _published("L/16", layer_scale=1e-5)
SO150M = {"so150m/16": _dimensions(896, 18, 14, 2304, layer_scale=None, norm_after_pool=False)}

FAMILIES = (
    Line("DeiT-{}", "DeiT (Touvron et al., 2021)", DEITS, TORCH),
    Line(
        "DeiT-{}-distilled",
        "DeiT with a distillation token (Touvron et al., 2021)",
        DEITS,
        DISTILLED,
    ),
    Line(
        "DeiT3-{}",
        "DeiT III (Touvron et al., 2022)",
        _published("S/16 M/16 B/16 L/16 H/14"),
        TORCH | {"layer_scale": 1e-6},
    ),
    Line("DINO-{}", "DINO (Caron et al., 2021)", _published("S/16 S/8 B/16 B/8"), TORCH),
    Line("DINOv2-{}", "DINOv2 (Oquab et al., 2024)", DINOS, SCALED),
    Line("DINOv2-{}-reg4", "DINOv2 with four registers (Darcet et al., 2024)", DINOS, REGISTERED),
    Line(
        "DINOv3-{}",
        "DINOv3 (Siméoni et al., 2025)",
        {
            **_published("S/16 B/16 L/16"),
            "S+/16": _dimensions(384, 12, 6, 1536, **GATED),
            "H+/16": _dimensions(1280, 32, 20, 5120, **GATED),
            "7B/16": _dimensions(4096, 40, 32, 8192, **GATED, biases="all", qkv_bias=False),
        },
        DINO_V3,
    ),
    Line("SigLIP-{}", "The image encoder of SigLIP (Zhai et al., 2023)", SIGLIPS, MAP),
    Line("SigLIP2-{}", "The image encoder of SigLIP 2 (Tschannen et al., 2025)", SIGLIPS_2, MAP),
    Line("CLIP-{}", "The image encoder of CLIP (Radford et al., 2021)", CLIPS, QUICK),
    Line("OpenCLIP-{}", "The image encoder of OpenCLIP (Cherti et al., 2023)", OPEN_CLIPS, CLIP),
    Line(
        "MetaCLIP-{}", "The image encoder of MetaCLIP (Xu et al., 2024)", CLIPS | HUGE | BIG, QUICK
    ),
    Line("MetaCLIP2-{}", "The image encoder of MetaCLIP 2 (Chuang et al., 2025)", META_CLIPS, CLIP),
    Line("EVA-{}", "EVA (Fang et al., 2023)", _published("g/14"), EVA | MEAN),
    Line("EVA-{}", "EVA's ViT-L (Fang et al., 2023)", _published("L/14"), TORCH | MEAN),
    Line(
        "EVA-CLIP-{}",
        "The image encoder of EVA-CLIP (Sun et al., 2023)",
        _published("g/14", projection=1024),
        EVA,
    ),
    Line(
        "EVA02-{}",
        "EVA-02 (Fang et al., 2024)",
        {
            "Ti/14": {"mlp_dim": 512},
            "S/14": {"mlp_dim": 1024},
            "B/14": {"mlp_dim": 2048, **NORMED},
            "L/14": {"mlp_dim": 2730, **NORMED},
        },
        EVA_02 | MEAN,
    ),
    Line(
        "EVA02-CLIP-{}",
        "The image encoder of EVA-02-CLIP (Sun et al., 2023)",
        EVA_CLIPS,
        EVA_02_CLIP,
    ),
    Line(
        "EVA02-CLIP-{}",
        "The image encoder of EVA-02-CLIP (Sun et al., 2023)",
        {"E/14": _dimensions(1792, 64, 16, 15360, projection=1024)},
        EVA | {"block": "post_norm"},
    ),
    Line("BEiT-{}", "BEiT (Bao et al., 2022)", BEITS, BEIT),
    Line(
        "BEiTv2-{}", "BEiT v2 (Peng et al., 2022)", _published("B/16 L/16", layer_scale=1e-5), BEIT
    ),
    Line(
        "BEiT3-{}",
        "The image encoder of BEiT-3 (Wang et al., 2023)",
        _published("B/16 L/16"),
        BEIT_3,
    ),
    Line(
        "AIMv2-{}",
        "AIMv2 (Fini et al., 2025)",
        {
            "L/14": _dimensions(1024, 24, 8, 2816),
            "H/14": _dimensions(1536, 24, 12, 4096),
            "1B/14": _dimensions(2048, 24, 16, 5632),
            "3B/14": _dimensions(3072, 24, 24, 8192),
        },
        AIM_V2,
    ),
    Line(
        "PE-Core-{}",
        "Perception Encoder, core (Bolya et al., 2025)",
        {
            **_published("Ti/16 S/16", projection=512, **_counted(24)),
            **_published("B/16", projection=1024, **_counted(14)),
            **_published("L/14", projection=1024, **_counted(24)),
            "G/14": _dimensions(1536, 50, 16, 8960, pool_mlp_dim=6144, projection=1280, **PE_G),
        },
        PE_CORE,
    ),
    Line(
        "PE-Spatial-{}",
        "Perception Encoder, spatial (Bolya et al., 2025)",
        {
            **_published("Ti/16 S/16 B/16 L/14"),
            "G/14": _dimensions(1536, 50, 16, 8960, layer_scale=0.1, **PE_G),
        },
        PE_OTHERS,
    ),
    Line(
        "PE-Lang-{}",
        "Perception Encoder, language (Bolya et al., 2025)",
        {"L/14": _dimensions(1024, 23, 16, 4096), "G/14": _dimensions(1536, 47, 16, 8960, **PE_G)},
        PE_OTHERS | {"layer_scale": 0.1},
    ),
    Line("IJEPA-{}", "I-JEPA (Assran et al., 2023)", _published("H/14 H/16 g/16"), TORCH | PATCHES),
    Line("MAE-{}", "The encoder of MAE (He et al., 2022)", _published("B/16 L/16 H/14"), TORCH),
    Line("FlexiViT-{}", "FlexiViT (Beyer et al., 2023)", _published("S/16 B/16 L/16"), FLEXIBLE),
    Line(
        "TIPSv2-{}",
        "The image encoder of TIPS v2 (Google DeepMind)",
        _published("B/14 L/14 So400m/14") | GIANT,
        TORCH | {"layer_scale": 1.0, "registers": 1},
    ),
    Line(
        "InternViT-{}",
        "InternViT (Chen et al., 2024)",
        {"300M/14": _dimensions(1024, 24, 16, 4096)},
        INTERN,
    ),
    Line(
        "SBB-{}-reg1",
        "timm's 'Searching for Better ViT Baselines' (Wightman, 2024)",
        {
            "wee/16": {},
            "pwee/16": _dimensions(256, 16, 4, 1280, block="parallel"),
            **_published("little/16 medium/16 betwixt/16"),
            "so150m2/16": _dimensions(832, 21, 13, 2176, qkv_bias=False),
        },
        SBB | {"registers": 1},
    ),
    Line(
        "SBB-{}-reg4",
        "timm's 'Searching for Better ViT Baselines' (Wightman, 2024)",
        _published("little/16 medium/16 mediumd/16 betwixt/16") | SO150M,
        SBB | {"registers": 4},
    ),
    Line(
        "SBB-{}-rope",
        "timm's baselines with rotary positions (Wightman, 2024)",
        {
            "medium/16": {},
            "mediumd/16": {"biases": "all", "qkv_bias": False},
            "betwixt/16": {"registers": 4},
            "B/16": {},
        },
        SBB_ROPE,
    ),
    *(
        Line(
            f"RoPE-ViT-{{}}-{rotary}{end}",
            f"ViT with {rotary} rotary positions (Heo et al., 2024)",
            _published("S/16 B/16 L/16"),
            SCALED | {"rotary": rotary, "position": position},
        )
        for rotary in ("axial", "mixed")
        for end, position in (("", "none"), ("-ape", "learned_1d"))
    ),
)
