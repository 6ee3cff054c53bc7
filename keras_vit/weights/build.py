"""Models of published sizes with the weights of a checkpoint, for `keras_vit.builders`."""

from keras_vit.checks import check_names, marked
from keras_vit.models.backbone import MODELS
from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.models.origin import argument_names
from keras_vit.models.surgery import building_arguments
from keras_vit.variants import VARIANTS, get_variant
from keras_vit.weights.assign import assign
from keras_vit.weights.load import computed_positions, fit_to_model, read
from keras_vit.weights.locate import SIZE, locate, published_for


def build_and_load(variant, weights, options):
    """A model of a published size with the weights of a checkpoint, for the builders.

    A field of the variant that a checkpoint decides (`inherited`) and that is not in `options`
    comes from the checkpoint.
    """
    row = BIT_VARIANTS.get(variant) or get_variant(variant)
    name = "BiT" if variant in BIT_VARIANTS else "VisionTransformer"
    check_names(type(row), options, argument_names(MODELS[name]))  # before a long download
    try:
        _, record = locate(weights)
    except ValueError as error:
        raise ValueError(f"{error} {published_for(variant)}.") from None
    _check_variant(record, variant, row=row, options=options)
    # Only what the arrays of a file may leave open comes from the row.
    names = ("width", "num_heads", "interpolation")
    of_row = {n: getattr(row, n) for n in names if name == "VisionTransformer"}
    known = {**of_row, **computed_positions(row), **options}
    canonical = read(weights, known)
    of_file = canonical.arguments
    inherited = {n: of_file[n] for n in marked(type(row), "inherited") if n in of_file}
    model = MODELS[name](variant, **{**inherited, **building_arguments(options)})
    assign(model, fit_to_model(canonical, model, options.get("interpolation")))
    return model


def _check_variant(record, variant, row, options):
    """Raises a ValueError, before anything is downloaded, for weights of another variant."""
    published = {**VARIANTS, **{f"BiT-{name}": v for name, v in BIT_VARIANTS.items()}}
    of_weights = published.get(record.variant) if record else None
    names = [n for n in (*SIZE, "patch_size") if hasattr(row, n) and n not in options]
    if of_weights and any(getattr(of_weights, n, None) != getattr(row, n) for n in names):
        raise ValueError(
            f"The weights are of another model. Received: weights={record.name!r}, which are of "
            f"{record.variant}, for {variant}. {published_for(variant)}; "
            "keras_vit.from_checkpoint builds the model that fits its weights."
        )
