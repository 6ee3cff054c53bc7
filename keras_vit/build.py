"""`build`: any published model by the name of its variant."""

import difflib

from keras_vit.models import BIT_VARIANTS
from keras_vit.variants import VARIANTS
from keras_vit.weights.load import builder_of


def build(variant, weights=None, **options):
    """A model by the name of its variant, as the builders `ViT_B16`, `BiT_R50x1` and so on make.

    Args:
        variant: a key of `keras_vit.VARIANTS`, such as `"B/16"` or `"R50+B/16"`, or of
            `keras_vit.BIT_VARIANTS`, such as `"R50x1"`.
        weights: `None`, or a checkpoint: see `keras_vit.ViT_B16`.
        **options: arguments of that builder, such as `num_classes` and `image_size`.

    Returns:
        A `VisionTransformer` or a `BiT`.

    Raises:
        ValueError: no such variant; the message lists the nearest.
    """
    known = [*VARIANTS, *BIT_VARIANTS]
    if variant not in known:
        near = difflib.get_close_matches(str(variant), known, n=3, cutoff=0.3) or known[:3]
        raise ValueError(
            f"Unknown variant. Received: variant={variant!r}; the nearest are {near}, and all are "
            f"{known}."
        )
    model = "BiT" if variant in BIT_VARIANTS else "VisionTransformer"
    name = model.lower() + "_" + variant.lower().replace("/", "").replace("+", "_")
    return builder_of(model, variant, name, __name__)(weights=weights, **options)
