"""The published models by name: a row of the table, a model, its weights."""

from keras_vit.variants import VARIANTS
from keras_vit.weights.load import builder_of


def _fits(row):
    """Which image sizes a model takes."""
    if row.stem is None:
        return f"{row.patch_size[0]} must divide it"
    if row.patch_size == (1, 1):
        return "any, as the stem rounds up"
    return f"its 4th part, rounded up, must be a multiple of {row.patch_size[0]}"


def _builder(variant, title, name=None):
    """The builder of one row of `VARIANTS`."""
    row = VARIANTS[variant]
    name = name or "ViT_" + variant.replace("/", "").replace("-", "_")
    build = builder_of("VisionTransformer", variant, name, __name__)
    build.__doc__ = f"""{title}: {row.depth} blocks, width {row.width}, {row.num_heads} heads.

    Args:
        num_classes: number of logits; 0 for none.
        image_size: int or (height, width), in pixels; {_fits(row)}.
        weights: `None`, or a checkpoint to load: a name of `keras_vit.list_weights`, the path of
            a file or folder, or a URL. What its family decides (GELU, epsilon, pooling) is then
            taken from it unless it is an argument here; a head for another number of classes is
            left out, and the model's own is zero. What happened is in `model.load_report`.
        include_top: `False` for the representation instead of logits.
        **options: any other argument of `keras_vit.VisionTransformer`, such as `pool`,
            `representation_size`, `dropout`, `position`, `gelu`, `channels`, `remat`, `dtype`.

    Returns:
        A `keras_vit.VisionTransformer`.
    """
    return build


ViT_Ti16 = _builder("Ti/16", "ViT-Ti/16")
ViT_S32 = _builder("S/32", "ViT-S/32")
ViT_S16 = _builder("S/16", "ViT-S/16")
ViT_S16_plain = _builder("S/16-plain", "The 'better plain ViT' S/16 (Beyer et al., 2022)")
ViT_B32 = _builder("B/32", "ViT-B/32 (Table 1)")
ViT_B16 = _builder("B/16", "ViT-B/16 (Table 1)")
ViT_B8 = _builder("B/8", "ViT-B/8")
ViT_L32 = _builder("L/32", "ViT-L/32 (Table 1)")
ViT_L16 = _builder("L/16", "ViT-L/16 (Table 1)")
ViT_H14 = _builder("H/14", "ViT-H/14 (Table 1)")
ViT_g14 = _builder("g/14", "ViT-g/14 (Zhai et al., 2022)")
ViT_G14 = _builder("G/14", "ViT-G/14 (Zhai et al., 2022)")
ViT_So400m14 = _builder("So400m/14", "ViT-So400m/14 (Alabdulmohsin et al., 2023)")

_hybrid = "ViT-{} after a ResNet with {} units (section 3.1)"
R50_ViT_B16 = _builder("R50+B/16", _hybrid.format("B", "3, 4, 9"), "R50_ViT_B16")
R50_ViT_L16 = _builder("R50+L/16", _hybrid.format("L", "3, 4, 9"), "R50_ViT_L16")
R50_ViT_B32 = _builder("R50+B/32", _hybrid.format("B", "3, 4, 6, 3"), "R50_ViT_B32")
R50_ViT_L32 = _builder("R50+L/32", _hybrid.format("L", "3, 4, 6, 3"), "R50_ViT_L32")
R26_ViT_S32 = _builder("R26+S/32", _hybrid.format("S", "2, 2, 2, 2"), "R26_ViT_S32")
R26_ViT_B32 = _builder("R26+B/32", _hybrid.format("B", "2, 2, 2, 2"), "R26_ViT_B32")
R_ViT_Ti16 = _builder("R+Ti/16", "ViT-Ti on 8 x 8 patches of a ResNet's root", "R_ViT_Ti16")
