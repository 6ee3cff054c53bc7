"""New models from old ones: of another resolution, of another patch size, with folded kernels."""

from collections.abc import Sequence
from typing import Any, TypeVar

import keras

from keras_vit.checks import pair
from keras_vit.layers.resnet import NUMERICS, StdConv2D, standardize
from keras_vit.models.backbone import check_model
from keras_vit.models.bit import BiT
from keras_vit.models.resize_weights import PROJECTION, resize_patches, resize_positions
from keras_vit.models.vision_transformer import VisionTransformer

Model = TypeVar("Model", bound=keras.Model)


def building_arguments(arguments):
    """The arguments of `resize` or `from_checkpoint` as those of a model's constructor.

    Only loading knows `"scipy_zoom"`; a model has the rule `"align_corners"` in its place. With
    `interpolation=None` the model's class or config chooses.
    """
    arguments = dict(arguments)
    if method := arguments.pop("interpolation", None):
        arguments["interpolation"] = "align_corners" if method == "scipy_zoom" else method
    return arguments


def resize(
    model: Model,
    image_size: int | tuple[int, int] | None = None,
    patch_size: int | tuple[int, int] | None = None,
    interpolation: str | None = None,
    patch_interpolation: str = "bicubic",
    **options: Any,
) -> Model:
    """A copy of `model` for images or patches of another size, with its weights resized.

    Args:
        model: a `VisionTransformer`, or a `BiT`, which takes images of any size anyway. The model
            stays as it is.
        image_size, patch_size: int or (height, width), in pixels; `None` leaves it. Patch kernels
            are resized by FlexiViT's pseudo-inverse.
        interpolation: how position embeddings are resampled, as in
            `keras_vit.layers.resize_matrix`; `None` for the rule of the model, which is that of
            the checkpoint's family.
        patch_interpolation: how patches are resized where their kernels are to fit: `"bicubic"`,
            timm's rule, or `"bilinear"`, that of FlexiViT's training.
        **options: other arguments of `VisionTransformer` to change that leave the weights as they
            are, such as `variable_size=True`, `dropout`, `remat`.

    Returns:
        A new model of the same class.

    Raises:
        ValueError: the patches do not tile the image, or positions are 1-D relative, without grid.
    """
    model = check_model(model, whole=True)
    size = pair(model.image_size if image_size is None else image_size, "image_size")
    if isinstance(model, BiT):
        if patch_size is not None or interpolation is not None:
            raise ValueError(
                "A BiT has neither patches nor position embeddings. Received: "
                f"patch_size={patch_size!r}, interpolation={interpolation!r}; leave them out."
            )
        resized = _rebuilt(model, **options, image_size=size)
        resized.set_weights(model.get_weights())
        return resized
    v = model.variant
    patch = pair(v.patch_size if patch_size is None else patch_size, "patch_size")
    grid = v.replace(patch_size=patch).grid(size)
    if v.position == "relative" and grid != model.grid:
        raise ValueError(
            "Relative positions have one vector per distance in the sequence and no grid to "
            f"resize. Received: a model with position='relative' and image_size={size}."
        )
    changes = {**options, "image_size": size, "patch_size": patch, "interpolation": interpolation}
    resized = _rebuilt(model, **building_arguments(changes))
    arrays = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
    method = interpolation or v.interpolation
    arrays |= resize_positions(arrays, model.grid, grid, v.learned_tokens, method)
    if patch != v.patch_size:
        kernel = model.get_layer("patch_encoder").projection.exact_kernel
        kernel = keras.ops.convert_to_numpy(kernel)
        arrays[PROJECTION] = resize_patches(kernel, v.patch_size, patch, patch_interpolation)
    for variable in resized.weights:
        variable.assign(arrays[variable.path])
    return resized


def _rebuilt(model, **changes):
    """A new model of fresh weights, with the config of another but for some arguments."""
    return type(model).from_config({**model.get_config(), **changes})


def merge_tokens(model: VisionTransformer, r: int | Sequence[int]) -> VisionTransformer:
    """A copy of `model` that is faster, as its blocks join tokens that are alike (ToMe).

    Each block takes r tokens away between attention and MLP, at most half of its tokens: bipartite
    soft matching of the keys finds pairs, each pair becomes its mean, and attention and pooling
    count that mean as often as it stands for patches (Bolya et al., 2023), as the authors do in
    supervised models off the shelf. They advise against counting in masked autoencoders and in
    training with merged tokens (`prop_attn` in facebookresearch/ToMe, tome/patch). Class token,
    distillation token and registers stay. The weights are the same and need no training.

    Args:
        model: a `VisionTransformer`; it stays as it is.
        r: tokens that each block takes away, or a sequence of one number for each block.

    Returns:
        A new `VisionTransformer`, which has the argument `token_merging=r`; `r=0` undoes it.

    Raises:
        ValueError: a model whose tokens cannot be merged; the message says why.
    """
    without_remat = {"remat": False} if r else {}  # no block both merges and computes again
    return resize(model, token_merging=r, **without_remat)


def fold(model: Model) -> Model:
    """A copy of a hybrid or of BiT whose kernels are standardised already.

    The copy of a `VisionTransformer` with a stem, or of a `BiT`, computes the same function and
    standardises no kernels in a call. It is meant for inference and export, and not trainable: that
    would be to train without weight standardisation, and its weights are no checkpoint of the
    family any more.

    Raises:
        ValueError: the model has no standardised convolutions, or is folded already.
    """
    model = check_model(model, whole=True)
    field = "folded" if isinstance(model, BiT) else "stem_folded"
    is_folded = getattr(model.variant, field)
    if is_folded or getattr(model.variant, "stem", ()) is None:
        raise ValueError(
            "fold needs a hybrid or a BiT whose kernels are not standardised yet. Received: "
            f"{model.name!r}, which {'is folded' if is_folded else 'has no stem'}."
        )
    folded = _rebuilt(model, **{field: True})
    folded.set_weights(model.get_weights())
    for layer in folded._flatten_layers():
        if isinstance(layer, StdConv2D):
            layer.kernel.assign(standardize(layer.kernel, NUMERICS[layer.numerics]))
    folded.trainable = False
    return folded
