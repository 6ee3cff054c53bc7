# Written by `python -m tests.typing.write`.

import os
from typing import Any, Protocol, Unpack

from keras_vit.arguments import BiTOptions, ViTOptions
from keras_vit.models import BiT, VisionTransformer

LATER: dict[str, ViTBuilder]

def build(
    variant: str, weights: str | os.PathLike[str] | None = None, **options: Any
) -> VisionTransformer | Any: ...

__all__ = [
    "CLIP_B16",
    "CLIP_B32",
    "CLIP_L14",
    "DINO_B8",
    "DINO_B16",
    "DINO_S8",
    "DINO_S16",
    "EVA02_B14",
    "EVA02_CLIP_B16",
    "EVA02_CLIP_E14",
    "EVA02_CLIP_L14",
    "EVA02_L14",
    "EVA02_S14",
    "EVA_L14",
    "IJEPA_H14",
    "IJEPA_H16",
    "MAE_B16",
    "MAE_H14",
    "MAE_L16",
    "AIMv2_1B14",
    "AIMv2_3B14",
    "AIMv2_H14",
    "AIMv2_L14",
    "BEiT3_B16",
    "BEiT3_L16",
    "BEiT_B16",
    "BEiT_L16",
    "BEiTv2_B16",
    "BEiTv2_L16",
    "BiT_R50x1",
    "BiT_R50x2",
    "BiT_R50x3",
    "BiT_R101x1",
    "BiT_R101x3",
    "BiT_R152x1",
    "BiT_R152x2",
    "BiT_R152x4",
    "BiT_R200x3",
    "DINOv2_B14",
    "DINOv2_B14_reg4",
    "DINOv2_L14",
    "DINOv2_L14_reg4",
    "DINOv2_S14",
    "DINOv2_S14_reg4",
    "DINOv2_g14",
    "DINOv2_g14_reg4",
    "DINOv3_7B16",
    "DINOv3_B16",
    "DINOv3_Hplus16",
    "DINOv3_L16",
    "DINOv3_S16",
    "DINOv3_Splus16",
    "DeiT3_B16",
    "DeiT3_H14",
    "DeiT3_L16",
    "DeiT3_M16",
    "DeiT3_S16",
    "DeiT_B16",
    "DeiT_B16_distilled",
    "DeiT_S16",
    "DeiT_S16_distilled",
    "DeiT_Ti16",
    "DeiT_Ti16_distilled",
    "EVA02_Ti14",
    "EVA_CLIP_g14",
    "EVA_g14",
    "FlexiViT_B16",
    "FlexiViT_L16",
    "FlexiViT_S16",
    "IJEPA_g16",
    "InternViT_300M14",
    "MetaCLIP2_B16",
    "MetaCLIP2_B32",
    "MetaCLIP2_H14",
    "MetaCLIP2_L14",
    "MetaCLIP2_M16",
    "MetaCLIP2_S16",
    "MetaCLIP2_bigG14",
    "MetaCLIP_B16",
    "MetaCLIP_B32",
    "MetaCLIP_H14",
    "MetaCLIP_L14",
    "MetaCLIP_bigG14",
    "OpenCLIP_B16",
    "OpenCLIP_B32",
    "OpenCLIP_H14",
    "OpenCLIP_L14",
    "OpenCLIP_bigG14",
    "OpenCLIP_g14",
    "PE_Core_B16",
    "PE_Core_G14",
    "PE_Core_L14",
    "PE_Core_S16",
    "PE_Core_Ti16",
    "PE_Lang_G14",
    "PE_Lang_L14",
    "PE_Spatial_B16",
    "PE_Spatial_G14",
    "PE_Spatial_L14",
    "PE_Spatial_S16",
    "PE_Spatial_Ti16",
    "R26_ViT_B32",
    "R26_ViT_S32",
    "R50_ViT_B16",
    "R50_ViT_B32",
    "R50_ViT_L16",
    "R50_ViT_L32",
    "R_ViT_Ti16",
    "RoPE_ViT_B16_axial",
    "RoPE_ViT_B16_axial_ape",
    "RoPE_ViT_B16_mixed",
    "RoPE_ViT_B16_mixed_ape",
    "RoPE_ViT_L16_axial",
    "RoPE_ViT_L16_axial_ape",
    "RoPE_ViT_L16_mixed",
    "RoPE_ViT_L16_mixed_ape",
    "RoPE_ViT_S16_axial",
    "RoPE_ViT_S16_axial_ape",
    "RoPE_ViT_S16_mixed",
    "RoPE_ViT_S16_mixed_ape",
    "SBB_B16_rope",
    "SBB_betwixt16_reg1",
    "SBB_betwixt16_reg4",
    "SBB_betwixt16_rope",
    "SBB_little16_reg1",
    "SBB_little16_reg4",
    "SBB_medium16_reg1",
    "SBB_medium16_reg4",
    "SBB_medium16_rope",
    "SBB_mediumd16_reg4",
    "SBB_mediumd16_rope",
    "SBB_pwee16_reg1",
    "SBB_so150m2_16_reg1",
    "SBB_so150m16_reg4",
    "SBB_wee16_reg1",
    "SigLIP2_B16",
    "SigLIP2_B32",
    "SigLIP2_L16",
    "SigLIP2_So400m14",
    "SigLIP2_So400m16",
    "SigLIP2_g_opt16",
    "SigLIP_B16",
    "SigLIP_L16",
    "SigLIP_So400m14",
    "SigLIP_So400m16",
    "TIPSv2_B14",
    "TIPSv2_L14",
    "TIPSv2_So400m14",
    "TIPSv2_g14",
    "ViT_22B14",
    "ViT_B8",
    "ViT_B16",
    "ViT_B32",
    "ViT_G14",
    "ViT_H14",
    "ViT_L16",
    "ViT_L32",
    "ViT_S16",
    "ViT_S16_plain",
    "ViT_S32",
    "ViT_So400m14",
    "ViT_Ti16",
    "ViT_g14",
    "build",
]

class ViTBuilder(Protocol):
    """What the builders of `keras_vit.VisionTransformer` take and return."""

    def __call__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        weights: str | os.PathLike[str] | None = None,
        include_top: bool = True,
        **options: Unpack[ViTOptions],
    ) -> VisionTransformer:
        """A model of this variant.

        Args:
            num_classes: number of logits; 0 for none.
            image_size: int or (height, width), in pixels; the patches must fit.
            weights: `None`, or a checkpoint to load: a name of `keras_vit.list_weights`, the path of
                a file or folder, or a URL. What its family decides (GELU, epsilon, pooling) is then taken from it
                unless it is an argument here; a head for another number of classes is left out, and
                the model's own is zero. What happened is in `model.load_report`.
            include_top: `False` for the representation instead of logits.
            **options: any other argument of `keras_vit.VisionTransformer`, such as `pool`, `representation_size`, `dropout`, `position`, `gelu`, `channels`, `remat`, `dtype`. The
                signature shows those of a model without weights.

        Returns:
            A `keras_vit.VisionTransformer`.
        """

class BiTBuilder(Protocol):
    """What the builders of `keras_vit.BiT` take and return."""

    def __call__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        weights: str | os.PathLike[str] | None = None,
        include_top: bool = True,
        **options: Unpack[BiTOptions],
    ) -> BiT:
        """A model of this variant.

        Args:
            num_classes: number of logits; 0 for none.
            image_size: int or (height, width), in pixels; for its preprocessing, as the model takes images of any size.
            weights: `None`, or a checkpoint to load: a name of `keras_vit.list_weights`, the path of
                a file or folder, or a URL. What its family decides (its constants) is then taken from it
                unless it is an argument here; a head for another number of classes is left out, and
                the model's own is zero. What happened is in `model.load_report`.
            include_top: `False` for the representation instead of logits.
            **options: any other argument of `keras_vit.BiT`, such as `channels`, `numerics`, `dtype`. The
                signature shows those of a model without weights.

        Returns:
            A `keras_vit.BiT`.
        """

ViT_Ti16: ViTBuilder
"""ViT-Ti/16: 12 blocks, width 192, 3 heads."""
ViT_S32: ViTBuilder
"""ViT-S/32: 12 blocks, width 384, 6 heads."""
ViT_S16: ViTBuilder
"""ViT-S/16: 12 blocks, width 384, 6 heads."""
ViT_S16_plain: ViTBuilder
"""The 'better plain ViT' S/16 (Beyer et al., 2022): 12 blocks, width 384, 6 heads."""
ViT_B32: ViTBuilder
"""ViT-B/32 (Table 1): 12 blocks, width 768, 12 heads."""
ViT_B16: ViTBuilder
"""ViT-B/16 (Table 1): 12 blocks, width 768, 12 heads."""
ViT_B8: ViTBuilder
"""ViT-B/8: 12 blocks, width 768, 12 heads."""
ViT_L32: ViTBuilder
"""ViT-L/32 (Table 1): 24 blocks, width 1024, 16 heads."""
ViT_L16: ViTBuilder
"""ViT-L/16 (Table 1): 24 blocks, width 1024, 16 heads."""
ViT_H14: ViTBuilder
"""ViT-H/14 (Table 1): 32 blocks, width 1280, 16 heads."""
ViT_g14: ViTBuilder
"""ViT-g/14 (Zhai et al., 2022): 40 blocks, width 1408, 16 heads."""
ViT_G14: ViTBuilder
"""ViT-G/14 (Zhai et al., 2022): 48 blocks, width 1664, 16 heads."""
ViT_So400m14: ViTBuilder
"""ViT-So400m/14 (Alabdulmohsin et al., 2023): 27 blocks, width 1152, 16 heads."""
ViT_22B14: ViTBuilder
"""ViT-22B/14 (Dehghani et al., 2023): 48 blocks, width 6144, 48 heads."""
R50_ViT_B16: ViTBuilder
"""ViT-B after a ResNet with 3, 4, 9 units (section 3.1): 12 blocks, width 768, 12 heads."""
R50_ViT_L16: ViTBuilder
"""ViT-L after a ResNet with 3, 4, 9 units (section 3.1): 24 blocks, width 1024, 16 heads."""
R50_ViT_B32: ViTBuilder
"""ViT-B after a ResNet with 3, 4, 6, 3 units (section 3.1): 12 blocks, width 768, 12 heads."""
R50_ViT_L32: ViTBuilder
"""ViT-L after a ResNet with 3, 4, 6, 3 units (section 3.1): 24 blocks, width 1024, 16 heads."""
R26_ViT_S32: ViTBuilder
"""ViT-S after a ResNet with 2, 2, 2, 2 units (section 3.1): 12 blocks, width 384, 6 heads."""
R26_ViT_B32: ViTBuilder
"""ViT-B after a ResNet with 2, 2, 2, 2 units (section 3.1): 12 blocks, width 768, 12 heads."""
R_ViT_Ti16: ViTBuilder
"""ViT-Ti on 8 x 8 patches of a ResNet's root: 12 blocks, width 192, 3 heads."""
BiT_R50x1: BiTBuilder
"""BiT-R50x1 (Kolesnikov et al., 2020): 16 units."""
BiT_R50x2: BiTBuilder
"""BiT-R50x2 (Kolesnikov et al., 2020): 16 units."""
BiT_R50x3: BiTBuilder
"""BiT-R50x3 (Kolesnikov et al., 2020): 16 units."""
BiT_R101x1: BiTBuilder
"""BiT-R101x1 (Kolesnikov et al., 2020): 33 units."""
BiT_R101x3: BiTBuilder
"""BiT-R101x3 (Kolesnikov et al., 2020): 33 units."""
BiT_R152x1: BiTBuilder
"""BiT-R152x1 (Kolesnikov et al., 2020): 50 units."""
BiT_R152x2: BiTBuilder
"""BiT-R152x2 (Kolesnikov et al., 2020): 50 units."""
BiT_R152x4: BiTBuilder
"""BiT-R152x4 (Kolesnikov et al., 2020): 50 units."""
BiT_R200x3: BiTBuilder
"""BiT-R200x3 (Kolesnikov et al., 2020): 66 units."""
DeiT_Ti16: ViTBuilder
"""DeiT (Touvron et al., 2021): 12 blocks, width 192, 3 heads."""
DeiT_S16: ViTBuilder
"""DeiT (Touvron et al., 2021): 12 blocks, width 384, 6 heads."""
DeiT_B16: ViTBuilder
"""DeiT (Touvron et al., 2021): 12 blocks, width 768, 12 heads."""
DeiT_Ti16_distilled: ViTBuilder
"""DeiT with a distillation token (Touvron et al., 2021): 12 blocks, width 192, 3 heads."""
DeiT_S16_distilled: ViTBuilder
"""DeiT with a distillation token (Touvron et al., 2021): 12 blocks, width 384, 6 heads."""
DeiT_B16_distilled: ViTBuilder
"""DeiT with a distillation token (Touvron et al., 2021): 12 blocks, width 768, 12 heads."""
DeiT3_S16: ViTBuilder
"""DeiT III (Touvron et al., 2022): 12 blocks, width 384, 6 heads."""
DeiT3_M16: ViTBuilder
"""DeiT III (Touvron et al., 2022): 12 blocks, width 512, 8 heads."""
DeiT3_B16: ViTBuilder
"""DeiT III (Touvron et al., 2022): 12 blocks, width 768, 12 heads."""
DeiT3_L16: ViTBuilder
"""DeiT III (Touvron et al., 2022): 24 blocks, width 1024, 16 heads."""
DeiT3_H14: ViTBuilder
"""DeiT III (Touvron et al., 2022): 32 blocks, width 1280, 16 heads."""
DINO_S16: ViTBuilder
"""DINO (Caron et al., 2021): 12 blocks, width 384, 6 heads."""
DINO_S8: ViTBuilder
"""DINO (Caron et al., 2021): 12 blocks, width 384, 6 heads."""
DINO_B16: ViTBuilder
"""DINO (Caron et al., 2021): 12 blocks, width 768, 12 heads."""
DINO_B8: ViTBuilder
"""DINO (Caron et al., 2021): 12 blocks, width 768, 12 heads."""
DINOv2_S14: ViTBuilder
"""DINOv2 (Oquab et al., 2024): 12 blocks, width 384, 6 heads."""
DINOv2_B14: ViTBuilder
"""DINOv2 (Oquab et al., 2024): 12 blocks, width 768, 12 heads."""
DINOv2_L14: ViTBuilder
"""DINOv2 (Oquab et al., 2024): 24 blocks, width 1024, 16 heads."""
DINOv2_g14: ViTBuilder
"""DINOv2 (Oquab et al., 2024): 40 blocks, width 1536, 24 heads."""
DINOv2_S14_reg4: ViTBuilder
"""DINOv2 with four registers (Darcet et al., 2024): 12 blocks, width 384, 6 heads."""
DINOv2_B14_reg4: ViTBuilder
"""DINOv2 with four registers (Darcet et al., 2024): 12 blocks, width 768, 12 heads."""
DINOv2_L14_reg4: ViTBuilder
"""DINOv2 with four registers (Darcet et al., 2024): 24 blocks, width 1024, 16 heads."""
DINOv2_g14_reg4: ViTBuilder
"""DINOv2 with four registers (Darcet et al., 2024): 40 blocks, width 1536, 24 heads."""
DINOv3_S16: ViTBuilder
"""DINOv3 (Siméoni et al., 2025): 12 blocks, width 384, 6 heads."""
DINOv3_B16: ViTBuilder
"""DINOv3 (Siméoni et al., 2025): 12 blocks, width 768, 12 heads."""
DINOv3_L16: ViTBuilder
"""DINOv3 (Siméoni et al., 2025): 24 blocks, width 1024, 16 heads."""
DINOv3_Splus16: ViTBuilder
"""DINOv3 (Siméoni et al., 2025): 12 blocks, width 384, 6 heads."""
DINOv3_Hplus16: ViTBuilder
"""DINOv3 (Siméoni et al., 2025): 32 blocks, width 1280, 20 heads."""
DINOv3_7B16: ViTBuilder
"""DINOv3 (Siméoni et al., 2025): 40 blocks, width 4096, 32 heads."""
SigLIP_B16: ViTBuilder
"""The image encoder of SigLIP (Zhai et al., 2023): 12 blocks, width 768, 12 heads."""
SigLIP_L16: ViTBuilder
"""The image encoder of SigLIP (Zhai et al., 2023): 24 blocks, width 1024, 16 heads."""
SigLIP_So400m14: ViTBuilder
"""The image encoder of SigLIP (Zhai et al., 2023): 27 blocks, width 1152, 16 heads."""
SigLIP_So400m16: ViTBuilder
"""The image encoder of SigLIP (Zhai et al., 2023): 27 blocks, width 1152, 16 heads."""
SigLIP2_B32: ViTBuilder
"""The image encoder of SigLIP 2 (Tschannen et al., 2025): 12 blocks, width 768, 12 heads."""
SigLIP2_B16: ViTBuilder
"""The image encoder of SigLIP 2 (Tschannen et al., 2025): 12 blocks, width 768, 12 heads."""
SigLIP2_L16: ViTBuilder
"""The image encoder of SigLIP 2 (Tschannen et al., 2025): 24 blocks, width 1024, 16 heads."""
SigLIP2_So400m14: ViTBuilder
"""The image encoder of SigLIP 2 (Tschannen et al., 2025): 27 blocks, width 1152, 16 heads."""
SigLIP2_So400m16: ViTBuilder
"""The image encoder of SigLIP 2 (Tschannen et al., 2025): 27 blocks, width 1152, 16 heads."""
SigLIP2_g_opt16: ViTBuilder
"""The image encoder of SigLIP 2 (Tschannen et al., 2025): 40 blocks, width 1536, 16 heads."""
CLIP_B32: ViTBuilder
"""The image encoder of CLIP (Radford et al., 2021): 12 blocks, width 768, 12 heads."""
CLIP_B16: ViTBuilder
"""The image encoder of CLIP (Radford et al., 2021): 12 blocks, width 768, 12 heads."""
CLIP_L14: ViTBuilder
"""The image encoder of CLIP (Radford et al., 2021): 24 blocks, width 1024, 16 heads."""
OpenCLIP_B32: ViTBuilder
"""The image encoder of OpenCLIP (Cherti et al., 2023): 12 blocks, width 768, 12 heads."""
OpenCLIP_B16: ViTBuilder
"""The image encoder of OpenCLIP (Cherti et al., 2023): 12 blocks, width 768, 12 heads."""
OpenCLIP_L14: ViTBuilder
"""The image encoder of OpenCLIP (Cherti et al., 2023): 24 blocks, width 1024, 16 heads."""
OpenCLIP_H14: ViTBuilder
"""The image encoder of OpenCLIP (Cherti et al., 2023): 32 blocks, width 1280, 16 heads."""
OpenCLIP_g14: ViTBuilder
"""The image encoder of OpenCLIP (Cherti et al., 2023): 40 blocks, width 1408, 16 heads."""
OpenCLIP_bigG14: ViTBuilder
"""The image encoder of OpenCLIP (Cherti et al., 2023): 48 blocks, width 1664, 16 heads."""
MetaCLIP_B32: ViTBuilder
"""The image encoder of MetaCLIP (Xu et al., 2024): 12 blocks, width 768, 12 heads."""
MetaCLIP_B16: ViTBuilder
"""The image encoder of MetaCLIP (Xu et al., 2024): 12 blocks, width 768, 12 heads."""
MetaCLIP_L14: ViTBuilder
"""The image encoder of MetaCLIP (Xu et al., 2024): 24 blocks, width 1024, 16 heads."""
MetaCLIP_H14: ViTBuilder
"""The image encoder of MetaCLIP (Xu et al., 2024): 32 blocks, width 1280, 16 heads."""
MetaCLIP_bigG14: ViTBuilder
"""The image encoder of MetaCLIP (Xu et al., 2024): 48 blocks, width 1664, 16 heads."""
MetaCLIP2_S16: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 12 blocks, width 384, 6 heads."""
MetaCLIP2_M16: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 12 blocks, width 512, 8 heads."""
MetaCLIP2_B32: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 12 blocks, width 768, 12 heads."""
MetaCLIP2_B16: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 12 blocks, width 768, 12 heads."""
MetaCLIP2_L14: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 24 blocks, width 1024, 16 heads."""
MetaCLIP2_H14: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 32 blocks, width 1280, 16 heads."""
MetaCLIP2_bigG14: ViTBuilder
"""The image encoder of MetaCLIP 2 (Chuang et al., 2025): 48 blocks, width 1664, 16 heads."""
EVA_g14: ViTBuilder
"""EVA (Fang et al., 2023): 40 blocks, width 1408, 16 heads."""
EVA_L14: ViTBuilder
"""EVA's ViT-L (Fang et al., 2023): 24 blocks, width 1024, 16 heads."""
EVA_CLIP_g14: ViTBuilder
"""The image encoder of EVA-CLIP (Sun et al., 2023): 40 blocks, width 1408, 16 heads."""
EVA02_Ti14: ViTBuilder
"""EVA-02 (Fang et al., 2024): 12 blocks, width 192, 3 heads."""
EVA02_S14: ViTBuilder
"""EVA-02 (Fang et al., 2024): 12 blocks, width 384, 6 heads."""
EVA02_B14: ViTBuilder
"""EVA-02 (Fang et al., 2024): 12 blocks, width 768, 12 heads."""
EVA02_L14: ViTBuilder
"""EVA-02 (Fang et al., 2024): 24 blocks, width 1024, 16 heads."""
EVA02_CLIP_B16: ViTBuilder
"""The image encoder of EVA-02-CLIP (Sun et al., 2023): 12 blocks, width 768, 12 heads."""
EVA02_CLIP_L14: ViTBuilder
"""The image encoder of EVA-02-CLIP (Sun et al., 2023): 24 blocks, width 1024, 16 heads."""
EVA02_CLIP_E14: ViTBuilder
"""The image encoder of EVA-02-CLIP (Sun et al., 2023): 64 blocks, width 1792, 16 heads."""
BEiT_B16: ViTBuilder
"""BEiT (Bao et al., 2022): 12 blocks, width 768, 12 heads."""
BEiT_L16: ViTBuilder
"""BEiT (Bao et al., 2022): 24 blocks, width 1024, 16 heads."""
BEiTv2_B16: ViTBuilder
"""BEiT v2 (Peng et al., 2022): 12 blocks, width 768, 12 heads."""
BEiTv2_L16: ViTBuilder
"""BEiT v2 (Peng et al., 2022): 24 blocks, width 1024, 16 heads."""
BEiT3_B16: ViTBuilder
"""The image encoder of BEiT-3 (Wang et al., 2023): 12 blocks, width 768, 12 heads."""
BEiT3_L16: ViTBuilder
"""The image encoder of BEiT-3 (Wang et al., 2023): 24 blocks, width 1024, 16 heads."""
AIMv2_L14: ViTBuilder
"""AIMv2 (Fini et al., 2025): 24 blocks, width 1024, 8 heads."""
AIMv2_H14: ViTBuilder
"""AIMv2 (Fini et al., 2025): 24 blocks, width 1536, 12 heads."""
AIMv2_1B14: ViTBuilder
"""AIMv2 (Fini et al., 2025): 24 blocks, width 2048, 16 heads."""
AIMv2_3B14: ViTBuilder
"""AIMv2 (Fini et al., 2025): 24 blocks, width 3072, 24 heads."""
PE_Core_Ti16: ViTBuilder
"""Perception Encoder, core (Bolya et al., 2025): 12 blocks, width 192, 3 heads."""
PE_Core_S16: ViTBuilder
"""Perception Encoder, core (Bolya et al., 2025): 12 blocks, width 384, 6 heads."""
PE_Core_B16: ViTBuilder
"""Perception Encoder, core (Bolya et al., 2025): 12 blocks, width 768, 12 heads."""
PE_Core_L14: ViTBuilder
"""Perception Encoder, core (Bolya et al., 2025): 24 blocks, width 1024, 16 heads."""
PE_Core_G14: ViTBuilder
"""Perception Encoder, core (Bolya et al., 2025): 50 blocks, width 1536, 16 heads."""
PE_Spatial_Ti16: ViTBuilder
"""Perception Encoder, spatial (Bolya et al., 2025): 12 blocks, width 192, 3 heads."""
PE_Spatial_S16: ViTBuilder
"""Perception Encoder, spatial (Bolya et al., 2025): 12 blocks, width 384, 6 heads."""
PE_Spatial_B16: ViTBuilder
"""Perception Encoder, spatial (Bolya et al., 2025): 12 blocks, width 768, 12 heads."""
PE_Spatial_L14: ViTBuilder
"""Perception Encoder, spatial (Bolya et al., 2025): 24 blocks, width 1024, 16 heads."""
PE_Spatial_G14: ViTBuilder
"""Perception Encoder, spatial (Bolya et al., 2025): 50 blocks, width 1536, 16 heads."""
PE_Lang_L14: ViTBuilder
"""Perception Encoder, language (Bolya et al., 2025): 23 blocks, width 1024, 16 heads."""
PE_Lang_G14: ViTBuilder
"""Perception Encoder, language (Bolya et al., 2025): 47 blocks, width 1536, 16 heads."""
IJEPA_H14: ViTBuilder
"""I-JEPA (Assran et al., 2023): 32 blocks, width 1280, 16 heads."""
IJEPA_H16: ViTBuilder
"""I-JEPA (Assran et al., 2023): 32 blocks, width 1280, 16 heads."""
IJEPA_g16: ViTBuilder
"""I-JEPA (Assran et al., 2023): 40 blocks, width 1408, 16 heads."""
MAE_B16: ViTBuilder
"""The encoder of MAE (He et al., 2022): 12 blocks, width 768, 12 heads."""
MAE_L16: ViTBuilder
"""The encoder of MAE (He et al., 2022): 24 blocks, width 1024, 16 heads."""
MAE_H14: ViTBuilder
"""The encoder of MAE (He et al., 2022): 32 blocks, width 1280, 16 heads."""
FlexiViT_S16: ViTBuilder
"""FlexiViT (Beyer et al., 2023): 12 blocks, width 384, 6 heads."""
FlexiViT_B16: ViTBuilder
"""FlexiViT (Beyer et al., 2023): 12 blocks, width 768, 12 heads."""
FlexiViT_L16: ViTBuilder
"""FlexiViT (Beyer et al., 2023): 24 blocks, width 1024, 16 heads."""
TIPSv2_B14: ViTBuilder
"""The image encoder of TIPS v2 (Google DeepMind): 12 blocks, width 768, 12 heads."""
TIPSv2_L14: ViTBuilder
"""The image encoder of TIPS v2 (Google DeepMind): 24 blocks, width 1024, 16 heads."""
TIPSv2_So400m14: ViTBuilder
"""The image encoder of TIPS v2 (Google DeepMind): 27 blocks, width 1152, 16 heads."""
TIPSv2_g14: ViTBuilder
"""The image encoder of TIPS v2 (Google DeepMind): 40 blocks, width 1536, 24 heads."""
InternViT_300M14: ViTBuilder
"""InternViT (Chen et al., 2024): 24 blocks, width 1024, 16 heads."""
SBB_wee16_reg1: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 14 blocks, width 256, 4 heads."""
SBB_pwee16_reg1: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 16 blocks, width 256, 4 heads."""
SBB_little16_reg1: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 14 blocks, width 320, 5 heads."""
SBB_medium16_reg1: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 12 blocks, width 512, 8 heads."""
SBB_betwixt16_reg1: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 12 blocks, width 640, 10 heads."""
SBB_so150m2_16_reg1: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 21 blocks, width 832, 13 heads."""
SBB_little16_reg4: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 14 blocks, width 320, 5 heads."""
SBB_medium16_reg4: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 12 blocks, width 512, 8 heads."""
SBB_mediumd16_reg4: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 20 blocks, width 512, 8 heads."""
SBB_betwixt16_reg4: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 12 blocks, width 640, 10 heads."""
SBB_so150m16_reg4: ViTBuilder
"""timm's 'Searching for Better ViT Baselines' (Wightman, 2024): 18 blocks, width 896, 14 heads."""
SBB_medium16_rope: ViTBuilder
"""timm's baselines with rotary positions (Wightman, 2024): 12 blocks, width 512, 8 heads."""
SBB_mediumd16_rope: ViTBuilder
"""timm's baselines with rotary positions (Wightman, 2024): 20 blocks, width 512, 8 heads."""
SBB_betwixt16_rope: ViTBuilder
"""timm's baselines with rotary positions (Wightman, 2024): 12 blocks, width 640, 10 heads."""
SBB_B16_rope: ViTBuilder
"""timm's baselines with rotary positions (Wightman, 2024): 12 blocks, width 768, 12 heads."""
RoPE_ViT_S16_axial: ViTBuilder
"""ViT with axial rotary positions (Heo et al., 2024): 12 blocks, width 384, 6 heads."""
RoPE_ViT_B16_axial: ViTBuilder
"""ViT with axial rotary positions (Heo et al., 2024): 12 blocks, width 768, 12 heads."""
RoPE_ViT_L16_axial: ViTBuilder
"""ViT with axial rotary positions (Heo et al., 2024): 24 blocks, width 1024, 16 heads."""
RoPE_ViT_S16_axial_ape: ViTBuilder
"""ViT with axial rotary positions (Heo et al., 2024): 12 blocks, width 384, 6 heads."""
RoPE_ViT_B16_axial_ape: ViTBuilder
"""ViT with axial rotary positions (Heo et al., 2024): 12 blocks, width 768, 12 heads."""
RoPE_ViT_L16_axial_ape: ViTBuilder
"""ViT with axial rotary positions (Heo et al., 2024): 24 blocks, width 1024, 16 heads."""
RoPE_ViT_S16_mixed: ViTBuilder
"""ViT with mixed rotary positions (Heo et al., 2024): 12 blocks, width 384, 6 heads."""
RoPE_ViT_B16_mixed: ViTBuilder
"""ViT with mixed rotary positions (Heo et al., 2024): 12 blocks, width 768, 12 heads."""
RoPE_ViT_L16_mixed: ViTBuilder
"""ViT with mixed rotary positions (Heo et al., 2024): 24 blocks, width 1024, 16 heads."""
RoPE_ViT_S16_mixed_ape: ViTBuilder
"""ViT with mixed rotary positions (Heo et al., 2024): 12 blocks, width 384, 6 heads."""
RoPE_ViT_B16_mixed_ape: ViTBuilder
"""ViT with mixed rotary positions (Heo et al., 2024): 12 blocks, width 768, 12 heads."""
RoPE_ViT_L16_mixed_ape: ViTBuilder
"""ViT with mixed rotary positions (Heo et al., 2024): 24 blocks, width 1024, 16 heads."""
