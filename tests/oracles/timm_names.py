"""Which variant of `keras_vit.VARIANTS` a model of timm is; for the two generators beside it."""

import re

# In this order; the first that matches the whole name decides.
SIZES = {
    **{"tiny": "Ti", "small": "S", "medium": "M", "base": "B", "large": "L", "huge": "H"},
    **{"giant": "g", "gigantic": "bigG", "so400m": "So400m", "giantopt": "g-opt"},
    **{"small_plus": "S+", "huge_plus": "H+", "7b": "7B", "1b": "1B", "3b": "3B"},
    **{"enormous": "E"},
}
SIZE, END = "(" + "|".join(sorted(SIZES, key=len, reverse=True)) + ")", r"(_\d+)?"
NAMES = (
    (rf"deit_{SIZE}_distilled_patch(\d+){END}", "DeiT-{}/{}-distilled"),
    (rf"deit_{SIZE}_patch(\d+){END}", "DeiT-{}/{}"),
    (rf"deit3_{SIZE}_patch(\d+){END}", "DeiT3-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_dinov2", "DINOv2-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_reg4_dinov2", "DINOv2-{}/{}-reg4"),
    (rf"vit_{SIZE}_patch(\d+)_dinov3(_qkvb)?", "DINOv3-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_siglip(_gap)?{END}\.v2_.*", "SigLIP2-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_siglip(_gap)?{END}\..*", "SigLIP-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_clip(_quickgelu)?{END}\.openai.*", "CLIP-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_clip(_quickgelu)?{END}\.metaclip2_.*", "MetaCLIP2-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+)_clip(_quickgelu)?{END}\.metaclip_.*", "MetaCLIP-{}/{}"),
    (rf"vit_(base|large|huge|giant|gigantic)_patch(\d+)_clip(_quickgelu)?{END}", "OpenCLIP-{}/{}"),
    (rf"eva_{SIZE}_patch(\d+)_clip{END}", "EVA-CLIP-{}/{}"),
    (rf"eva_{SIZE}_patch(\d+){END}", "EVA-{}/{}"),
    (rf"eva02_{SIZE}_patch(\d+)_clip{END}", "EVA02-CLIP-{}/{}"),
    (rf"eva02_{SIZE}_patch(\d+){END}", "EVA02-{}/{}"),
    (rf"beit_{SIZE}_patch(\d+){END}", "BEiT-{}/{}"),
    (rf"beitv2_{SIZE}_patch(\d+){END}", "BEiTv2-{}/{}"),
    (r"beit3_(base|large)_patch(\d+)_\d+", "BEiT3-{}/{}"),
    (rf"aimv2_{SIZE}_patch(\d+){END}", "AIMv2-{}/{}"),
    (rf"vit_pe_core_{SIZE}_patch(\d+){END}", "PE-Core-{}/{}"),
    (rf"vit_pe_spatial_{SIZE}_patch(\d+){END}", "PE-Spatial-{}/{}"),
    (rf"vit_pe_lang_{SIZE}_patch(\d+){END}", "PE-Lang-{}/{}"),
    (r"vit_(huge|giant)_patch(\d+)_gap_\d+", "IJEPA-{}/{}"),
    (r"flexivit_(small|base|large)()", "FlexiViT-{}/16"),
    (rf"vit_{SIZE}_patch(\d+)_reg1_tipsv2", "TIPSv2-{}/{}"),
    (r"vit_intern(300m)_patch(\d+)_448", "InternViT-300M/{1}"),
    (r"vit_(\w+?)_patch(\d+)_(reg\d)_gap_\d+", "SBB-{}/{}-{}"),
    (r"vit_(\w+?)_patch(\d+)_rope_reg\d_gap_\d+", "SBB-{}/{}-rope"),
    (rf"vit_{SIZE}_patch(\d+)_rope_mixed_ape{END}", "RoPE-ViT-{}/{}-mixed-ape"),
    (rf"vit_{SIZE}_patch(\d+)_rope_mixed{END}", "RoPE-ViT-{}/{}-mixed"),
    (rf"vit_{SIZE}_patch(\d+)_rope_ape{END}", "RoPE-ViT-{}/{}-axial-ape"),
    (rf"vit_{SIZE}_patch(\d+)_rope{END}", "RoPE-ViT-{}/{}-axial"),
    (rf"vit_{SIZE}_patch(\d+){END}\.mae", "MAE-{}/{}"),
    (rf"vit_{SIZE}_patch(\d+){END}\.dino", "DINO-{}/{}"),
)


def variant_of(name):
    """The name of a variant of a later family, or `None`; `name` may end in a tag."""
    if re.search(r"_d(pwee|wee|little)_|\.eupe_", name):  # differential attention; another family
        return None
    for pattern, variant in NAMES:
        if match := re.fullmatch(pattern if r"\." in pattern else pattern + r"(\..*)?", name):
            size, patch, *rest = match.groups()
            keeps = variant.startswith("SBB") and size != "base"
            size = size if keeps else SIZES.get(size, size)
            if "PE-" in variant or variant.startswith("DINOv2-bigG"):
                size = size.replace("bigG", "G")
            return variant.format(size, patch, *rest)
    return None
