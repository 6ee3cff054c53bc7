"""The published BiT ResNets by name: a row of the table, a model, its weights."""

from keras_vit.models.bit import BiT
from keras_vit.models.bit_variants import BIT_VARIANTS
from keras_vit.weights.load import build_and_load


def _builder(variant):
    """A function that builds the model of one row of `BIT_VARIANTS`."""

    def build(num_classes=1000, image_size=224, weights=None, include_top=True, **options):
        options = {
            "name": name.lower(),
            "num_classes": num_classes,
            "image_size": image_size,
            "include_top": include_top,
            **options,
        }
        if weights is None:
            return BiT(variant, **options)
        return build_and_load(variant, weights, options, model="BiT")

    row, name = BIT_VARIANTS[variant], f"BiT_{variant}"
    build.__name__ = build.__qualname__ = name
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
BiT_R50x3 = _builder("R50x3")
BiT_R101x1 = _builder("R101x1")
BiT_R101x3 = _builder("R101x3")
BiT_R152x2 = _builder("R152x2")
BiT_R152x4 = _builder("R152x4")
BiT_R200x3 = _builder("R200x3")
