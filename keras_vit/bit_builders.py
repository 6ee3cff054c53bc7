"""The BiT ResNets of the two papers by name: a row of the table, a model, its weights."""

from keras_vit.models.bit_variants import BIT_VARIANTS
from keras_vit.weights.load import builder_of


def _builder(variant):
    """The builder of one row of `BIT_VARIANTS`."""
    row = BIT_VARIANTS[variant]
    build = builder_of("BiT", variant, f"BiT_{variant}", __name__)
    build.__doc__ = f"""BiT-{variant} (Kolesnikov et al., 2020): {sum(row.blocks)} units.

    Args:
        num_classes: number of logits; 0 for none.
        image_size: int or (height, width), in pixels, for its preprocessing; the model takes
            images of any size.
        weights: `None`, or a checkpoint to load: a name of `keras_vit.list_weights`, the path of
            a file or folder, or a URL. The constants of its family are then taken from it unless
            `numerics` is an argument here; a head for another number of classes is left out, and
            the model's own is zero. What happened is in `model.load_report`.
        include_top: `False` for the pooled features instead of logits.
        **options: any other argument of `keras_vit.BiT`, such as `channels`, `numerics`, `dtype`.

    Returns:
        A `keras_vit.BiT`.
    """
    return build


BiT_R50x1 = _builder("R50x1")
BiT_R50x2 = _builder("R50x2")
BiT_R50x3 = _builder("R50x3")
BiT_R101x1 = _builder("R101x1")
BiT_R101x3 = _builder("R101x3")
BiT_R152x1 = _builder("R152x1")
BiT_R152x2 = _builder("R152x2")
BiT_R152x4 = _builder("R152x4")
BiT_R200x3 = _builder("R200x3")
