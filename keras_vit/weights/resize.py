"""New models from old ones: of another resolution, of another patch size, with folded kernels."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import keras
import numpy as np

from keras_vit.checks import pair
from keras_vit.layers.resample import patch_matrix, resize_grid, resize_matrix
from keras_vit.layers.resnet import NUMERICS, Bottleneck, Root, standardize
from keras_vit.models import VisionTransformer
from keras_vit.models.bit import BiT
from keras_vit.weights.canonical import PROJECTION
from keras_vit.weights.network import check_model

Model = TypeVar("Model", bound=keras.Model)

POSITIONS = r"(?:patch_encoder/)?position(?:_\d+)?/(embedding|rows|columns|table)"


def resize_positions(
    arrays: dict[str, np.ndarray],
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    learned_tokens: int,
    method: str,
) -> dict[str, np.ndarray]:
    """Position embeddings resampled from one grid of patches to another.

    Args:
        arrays: dict from canonical name to array; only position embeddings are looked at. A table
            has the shape (1, learned_tokens + rows * columns, width); biases for offsets of patches
            are resampled by `resize_offsets`.
        old_grid, new_grid: (rows, columns).
        learned_tokens: tokens before those of the patches (class token, registers), which stay.
        method: a rule of `keras_vit.layers.resize_matrix`, such as `"align_corners"`.

    Returns:
        Dict of the arrays that changed.

    Raises:
        ValueError: an unknown method, or positions that have no grid (those of a sequence).
    """
    if tuple(old_grid) == tuple(new_grid):
        return {}
    changed = {}
    for name, array in arrays.items():
        match = re.fullmatch(POSITIONS, name)
        if match is None:
            continue
        if match[1] == "table":
            changed[name] = resize_offsets(array, old_grid, new_grid, method)
        elif match[1] == "embedding":
            tokens = learned_tokens + old_grid[0] * old_grid[1]
            if array.ndim != 3 or array.shape[:2] != (1, tokens):
                raise ValueError(
                    f"{name!r} must have the shape (1, {tokens}, width) for {learned_tokens} "
                    f"learned tokens and a grid of {old_grid}. Received: shape {array.shape}."
                )
            first, patches = array[:, :learned_tokens], array[0, learned_tokens:]
            patches = resize_grid(patches, old_grid, new_grid, method)[None]
            changed[name] = np.concatenate([first, patches.astype(array.dtype)], axis=1)
        else:
            axis = 0 if match[1] == "rows" else 1
            matrix = resize_matrix(old_grid[axis], new_grid[axis], method)
            changed[name] = (matrix @ array).astype(array.dtype)
    return changed


def resize_offsets(table, old_grid, new_grid, method):
    """Biases of attention for offsets of patches, resampled from one grid to another.

    With `"bilinear"` offsets are resampled as pixels are, the rule of Hugging Face. Any other
    method stands for the authors' rule (Bao et al., 2022): the old offsets are moved so far apart,
    by distances that grow geometrically from 1, that they reach the new grid's ends, and what lies
    between them is linear, as in timm.

    Shapes: (offsets of the old grid + C, heads) -> (offsets of the new grid + C, heads), where the
    last C are those of a class token, which stay.

    Raises:
        ValueError: the table does not belong to the old grid.
    """
    old, new = ([2 * side - 1 for side in grid] for grid in (old_grid, new_grid))
    offsets = old[0] * old[1]
    if table.ndim != 2 or len(table) not in (offsets, offsets + 3):
        raise ValueError(
            f"The biases of a grid of {tuple(old_grid)} have {offsets} rows, or 3 more with a "
            f"class token. Received: shape {table.shape}."
        )
    if method == "bilinear":
        resized = resize_grid(table[:offsets], old, new, method)
    else:
        rows, columns = (_geometric_matrix(o, n) for o, n in zip(old, new))
        grid = np.asarray(table[:offsets], "float64").reshape(*old, -1)
        resized = np.einsum("ro,cp,oph->rch", rows, columns, grid, optimize=True)
        resized = resized.reshape(new[0] * new[1], -1)
    return np.concatenate([resized.astype(table.dtype), table[offsets:]])


def _geometric_matrix(old, new):
    """The matrix of shape (new, old) by which the authors of BEiT resample offsets along an axis.

    Offset k moves to 1 + q + ... + q^(k - 1), where q, found by bisection between 1.01 and 1.5, is
    the largest for which the last offset stays within the new ones.
    """
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        q = (low + high) / 2
        low, high = (low, q) if (1 - q ** (old // 2)) / (1 - q) > new // 2 else (q, high)
    places = np.cumsum(q ** np.arange(old // 2))
    places = np.concatenate([-places[::-1], [0], places])
    wanted = np.arange(new) - new // 2
    return np.stack([np.interp(wanted, places, row) for row in np.eye(old)], axis=1)


def resize_patches(
    kernel: np.ndarray, old: tuple[int, int], new: tuple[int, int], method: str = "bicubic"
) -> np.ndarray:
    """Patch kernels for patches of another size: FlexiViT's pseudo-inverse resize.

    The new kernel w' is the one for which the new patches' tokens are the old ones' as well as can
    be: w' = (Rᵀ)⁺ w, where R resizes a patch from the old size to the new (Beyer et al., 2023).

    Shapes: (old P²·C, width) -> (new P²·C, width).

    Args:
        kernel: canonical patch kernel.
        old, new: (height, width) of the patches.
        method: how a patch is resized, as in `keras_vit.layers.resize_matrix`.

    Raises:
        ValueError: the kernel does not belong to patches of size `old`.
    """
    old, new = pair(old, "old"), pair(new, "new")
    if kernel.ndim != 2 or kernel.shape[0] % (old[0] * old[1]):
        raise ValueError(
            f"A kernel for patches of {old} pixels has a multiple of {old[0] * old[1]} rows. "
            f"Received: shape {kernel.shape}."
        )
    if old == new:
        return kernel
    rows, columns = (patch_matrix(o, n, method) for o, n in zip(old, new))
    grid = np.asarray(kernel, "float64").reshape(*old, -1, kernel.shape[1])
    resized = np.einsum("ro,cp,opkd->rckd", rows, columns, grid, optimize=True)
    return resized.reshape(-1, kernel.shape[1]).astype(kernel.dtype)


def adapt_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Kernels that were trained on RGB for images of another number of channels, by timm's rule.

    One channel is all three colours at once: their kernels add up. Any other number of channels has
    the kernels of red, green and blue in turn, times 3 / channels.

    Shapes: (..., 3, units) -> (..., channels, units).
    """
    kernel = kernel.astype(np.result_type(kernel.dtype, "float32"), copy=False)
    if channels == 1:
        return kernel.sum(axis=-2, keepdims=True)
    return kernel[..., np.arange(channels) % 3, :] * (3 / channels)


def for_a_model(options):
    """What of a caller's arguments a model is built with.

    `"scipy_zoom"` is a way to load: the model keeps the rule that it stands for. `None` leaves the
    rule to whoever knows it.
    """
    rule = options.get("interpolation")
    kept = {"interpolation": "align_corners" if rule == "scipy_zoom" else rule} if rule else {}
    return {**{name: v for name, v in options.items() if name != "interpolation"}, **kept}


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
        model: a `VisionTransformer`, or a `BiT`, which takes images of any size and only notes
            what it is used at; it stays as it is.
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
        ValueError: the patches do not tile the image, or relative positions, which have no grid.
    """
    model = check_model(model, whole=True)
    v = model.variant
    size = pair(model.image_size if image_size is None else image_size, "image_size")
    if isinstance(model, BiT):
        if patch_size is not None or interpolation is not None:
            raise ValueError(
                "A BiT has neither patches nor position embeddings. Received: "
                f"patch_size={patch_size!r}, interpolation={interpolation!r}; leave them out."
            )
        copy = type(model).from_config({**model.get_config(), **options, "image_size": size})
        copy.set_weights(model.get_weights())
        return copy
    patch = pair(v.patch_size if patch_size is None else patch_size, "patch_size")
    grid = v.replace(patch_size=patch).grid(size)
    if v.position == "relative" and grid != model.grid:
        raise ValueError(
            "Relative positions have one vector per distance in the sequence and no grid to "
            f"resize. Received: a model with position='relative' and image_size={size}."
        )
    choices = {**options, "image_size": size, "patch_size": patch, "interpolation": interpolation}
    resized = type(model).from_config({**model.get_config(), **for_a_model(choices)})
    arrays = {w.path: keras.ops.convert_to_numpy(w) for w in model.weights}
    method = interpolation or v.interpolation
    arrays |= resize_positions(arrays, model.grid, grid, v.learned_tokens, method)
    arrays[PROJECTION] = resize_patches(
        arrays[PROJECTION], v.patch_size, patch, patch_interpolation
    )
    for variable in resized.weights:
        variable.assign(arrays[variable.path])
    return resized


def merge_tokens(model: VisionTransformer, r: int | Sequence[int]) -> VisionTransformer:
    """A copy of `model` that is faster, as its blocks join tokens that are alike (ToMe).

    Between attention and MLP each block takes r tokens away, at most half of those there are: by
    bipartite soft matching of the keys, pairs of tokens become their mean, and attention counts
    that mean as often as it stands for patches (Bolya et al., 2023). Pooling by the mean or by
    attention counts so too; class token, distillation token and registers stay as they are. The
    weights are the same and need no training.

    The authors count so in supervised models off the shelf. In masked autoencoders, and to train
    with merged tokens, they advise not to (`prop_attn` in facebookresearch/ToMe, tome/patch), which
    this library does not offer.

    Args:
        model: a `VisionTransformer`; it stays as it is.
        r: tokens that each block takes away, or a sequence of one number for each block.

    Returns:
        A new `VisionTransformer`, which has the argument `token_merging=r`; `r=0` undoes it.

    Raises:
        ValueError: a model whose tokens cannot be merged; the message says why.
    """
    return resize(model, token_merging=r, **({"remat": False} if r else {}))


def fold(model: Model) -> Model:
    """A copy of a hybrid or of BiT whose kernels are standardised already.

    It computes the same function without standardising its kernels at every call. It is meant for
    inference and export: training it would be training without weight standardisation, and its
    weights are no checkpoint of the family any more.

    Args:
        model: a `VisionTransformer` with a stem, or a `BiT`; it stays as it is.

    Returns:
        A new model of the same class, not trainable.

    Raises:
        ValueError: the model has no standardised convolutions, or is folded already.
    """
    model = check_model(model, whole=True)
    v = model.variant
    field = "folded" if isinstance(model, BiT) else "stem_folded"
    if getattr(v, "stem", ()) is None or getattr(v, field):
        raise ValueError(
            "fold needs a hybrid or a BiT whose kernels are not standardised yet. Received: "
            f"{model.name!r}, which {'is folded' if getattr(v, field) else 'has no stem'}."
        )
    folded = type(model).from_config({**model.get_config(), field: True})
    kernels = {}
    for layer in model.layers:
        for conv in layer.convolutions() if isinstance(layer, (Root, Bottleneck)) else ():
            kernels[conv.kernel.path] = standardize(conv.kernel, NUMERICS[conv.numerics])
    for old, new in zip(model.weights, folded.weights):
        new.assign(keras.ops.convert_to_numpy(kernels.get(old.path, old)))
    folded.trainable = False
    return folded
