"""Checks of arguments that the whole package shares, and the fields of architectures."""

import contextlib
import dataclasses
import math
import numbers
import warnings
from collections.abc import Iterable, Mapping, Sized

import numpy as np

from keras_vit.text import brief, unknown

MAX_PATCHES = 1 << 22  # of an image; ViT-B then has 12 GiB of positions
MAX_PAIRED = 1 << 15  # where positions are relative; the index of their pairs then takes 8 GiB


@contextlib.contextmanager
def needs_extra(extra, purpose):
    """An import within it that fails is an ImportError that says what to install, and for what."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f'{purpose}: pip install "keras3-vit[{extra}]" ({error})') from error


def must_be(expected, holds, convert=lambda value: value, bools=False):
    """A check `(value, name)`: what `holds` is true of, converted, or a ValueError that names it.

    Bools are refused unless they are said to fit.
    """

    def check(value, name):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if (bools or not isinstance(value, bool)) and holds(value):
                return convert(value)
        raise ValueError(f"{name} must be {expected}. Received: {name}={brief(value)}.")

    return check


positive_int = must_be("a positive integer", lambda value: value == int(value) >= 1, int)
whole = must_be("a whole number of at least 0", lambda value: value == int(value) >= 0, int)
positive_float = must_be(
    "a positive number",
    lambda value: isinstance(value, numbers.Real) and 0 < value < math.inf,
    float,
)


def rate(value, name, within="[0, 1)"):
    """`value` as a float in an interval from 0 to 1, or a ValueError that names it."""
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 <= value <= 1
    if not fits or (value == 0 and within[0] == "(") or (value == 1 and within[-1] == ")"):
        raise ValueError(f"{name} must be a number in {within}. Received: {name}={brief(value)}.")
    return float(value)


def pair(value, name):
    """`value`, an int or two of them, as (height, width), or a ValueError that names it."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(values) != 2:
        raise ValueError(
            f"{name} must be one positive integer or a pair (height, width). "
            f"Received: {name}={brief(value)}."
        )
    return tuple(positive_int(side, name) for side in values)


def known(sides):
    """The sides of a shape, `None` for those that are numbers only when the graph runs."""
    return tuple(side if isinstance(side, int) else None for side in sides)


def grid_of(image_size, patch_size, in_pairs=False):
    """The (rows, columns) of patches of an image; sizes are ints or (height, width), in pixels.

    Raises:
        ValueError: the patches do not tile the image, or are too many; see `bounded`.
    """
    image_size, patch_size = pair(image_size, "image_size"), pair(patch_size, "patch_size")
    if any(side % patch for side, patch in zip(image_size, patch_size)):
        below = tuple(max(s // p, 1) * p for s, p in zip(image_size, patch_size))
        above = tuple(-(-s // p) * p for s, p in zip(image_size, patch_size))
        raise ValueError(
            "image_size must be a multiple of patch_size. Received: "
            f"image_size={image_size}, patch_size={patch_size}; the nearest sizes that fit are "
            f"{below} and {above}. Resize the images, or choose another patch_size."
        )
    grid = tuple(side // patch for side, patch in zip(image_size, patch_size))
    return bounded(grid, image_size, in_pairs)


def bounded(grid, image_size, in_pairs=False):
    """The grid of an image, unless its patches are too many, or `in_pairs` the pairs of them."""
    most = MAX_PAIRED if in_pairs else MAX_PATCHES
    if grid[0] * grid[1] > most:
        raise ValueError(
            f"image_size stands for at most {most} patches. Received: image_size={image_size}, "
            f"a grid of {grid}; choose smaller images, or larger patches."
        )
    return grid


def require(holds, rule, *, received):
    """Raises a ValueError that tells a rule, and what was received, unless the rule holds."""
    if not holds:
        raise ValueError(f"{rule}. Received: {brief(received)}.")


def check_choice(name, value, choices):
    """Raises a ValueError that lists `choices` where `value` is none of them."""
    if value not in choices:
        raise ValueError(
            f"Unknown {name}. Received: {name}={brief(value)}; expected one of {choices}."
        )


def output_names(names, counts):
    """Names of outputs as a tuple of text, or a ValueError if they are not as many as a count."""
    if isinstance(names, Iterable) and not isinstance(names, (str, bytes, Mapping, set, frozenset)):
        names = tuple(map(str, names))
        if len(names) in counts:
            return names
    length = f", of length {len(names)}" if isinstance(names, Sized) else ""
    raise ValueError(
        "class_names, given or of the model or the data, must be a sequence of "
        f"{' or '.join(map(str, counts))} names in the order of the outputs, which no dict and no "
        f"set of names has. Received: {names!r:.80}{length}"
    )


def check_heads(width, num_heads):
    """Raises a ValueError that proposes other numbers where `num_heads` does not divide `width`."""
    if width % num_heads:
        fits = [heads for heads in range(1, width + 1) if width % heads == 0]
        nearest = sorted(sorted(fits, key=lambda heads: abs(heads - num_heads))[:3])
        raise ValueError(
            "The number of heads must divide the width. Received: "
            f"width={width}, num_heads={num_heads}; the nearest numbers that fit are {nearest}."
        )


def unit_counts(value, name, least=0):
    """`value` as the number of units of each stage, or a ValueError that names it."""
    if not isinstance(value, (tuple, list)) or len(value) < least:
        raise ValueError(
            f"{name} must be the number of units of each stage, such as (3, 4, 9) or (3, 4, 6, 3). "
            f"Received: {name}={brief(value)}."
        )
    return tuple(positive_int(units, f"each number of {name}") for units in value)


def choice(default, of=None, compared=False, follows=None):
    """A field of a variant that a builder inherits from the checkpoint, unless it is an argument.

    `of` are the values that it may have, if `check_choices` knows them. It is `compared` if weights
    of a model with another value fit, but compute other numbers: the load report then names it. It
    `follows` the field of a name if it has its default again where `Variant.replace` changes that.
    """
    marks = {"of": of, "compared": compared, "follows": follows}
    return dataclasses.field(default=default, metadata=marks | {"inherited": True})


def check_choices(variant):
    """Raises a ValueError where a field of a dataclass has none of the values of its `choice`."""
    for field in dataclasses.fields(variant):
        if choices := field.metadata.get("of"):
            check_choice(field.name, getattr(variant, field.name), choices)


def check_names(variant, names, further=()):
    """Raises a ValueError where a name is neither a field of a dataclass nor a further one."""
    known = [*(field.name for field in dataclasses.fields(variant)), *further]
    for name in names:
        if name in known:
            continue
        advice = next((text for text, others in ELSEWHERE.items() if name in others.split()), None)
        if advice is None or (advice.isidentifier() and advice not in known):
            raise unknown("argument", name, known)
        raise ValueError(f"Unknown argument. Received: argument={name!r}; use {advice}.")


# What to use here: its names in timm, Hugging Face, torchvision, Keras, KerasHub and vit-pytorch.
ELSEWHERE = {
    "num_classes": "classes num_labels num_class n_classes nb_classes nclass",
    "image_size": "img_size input_size input_resolution resolution crop_size",
    "image_size=(height, width) and channels=3": "input_shape image_shape",
    "channels": "in_chans in_channels num_channels input_channels n_channels",
    "width": "embed_dim hidden_size hidden_dim dim d_model embedding_dim",
    "depth": "num_layers num_hidden_layers layers n_layers num_blocks",
    "num_heads": "heads num_attention_heads n_heads nhead",
    "mlp_dim": "intermediate_size feedforward_dim mlp_hidden_dim dim_feedforward",
    "mlp_dim, which is the width times that ratio": "mlp_ratio",
    "patch_size": "patch patch_dim patch_shape",
    "dropout": """drop_rate dropout_rate hidden_dropout_prob proj_drop_rate pos_drop_rate
        emb_dropout""",
    "attention_dropout": """attn_drop_rate attn_drop attention_probs_dropout_prob
        attention_dropout_rate""",
    "stochastic_depth": "drop_path_rate drop_path stochastic_depth_prob",
    "patch_dropout": "patch_drop_rate",
    "pool": "global_pool pooling pool_type classifier",
    "layer_scale": "init_values layerscale_value layer_scale_init_value layerscale_init",
    "registers": "reg_tokens num_register_tokens num_registers",
    "epsilon": "layer_norm_eps layer_norm_epsilon norm_eps",
    "norm": "norm_layer",
    "activation": "act_layer hidden_act activation_fn",
    "variable_size": "dynamic_img_size interpolate_pos_encoding",
    "remat": "gradient_checkpointing grad_checkpointing",
    "class_token": "use_class_token cls_token use_cls_token",
    "dtype": "torch_dtype dtype_policy",
    "name": "model_name",
    "include_top=False or num_classes=0": "features_only no_head",
    "class_names, an attribute of the model": "id2label label2id",
    "weights='NAME' of a builder such as keras_vit.ViT_B16; keras_vit.list_weights() and "
    "`keras-vit list` print the names": """pretrained weights checkpoint_path ckpt checkpoint
        ckpt_path weights_path pretrained_cfg load_weights preset
        pretrained_model_name_or_path""",
    "keras.layers.Softmax() behind the model, which gives logits": "classifier_activation",
    "model(tensor), a call of the model that was built": "input_tensor",
}


def marked(variant_class, mark):
    """The names of the fields that `choice` marked as `"inherited"` or `"compared"`."""
    return [f.name for f in dataclasses.fields(variant_class) if f.metadata.get(mark)]


def to_array(tensor):
    """A tensor of any backend, whichever Keras runs on, as an array; 16-bit floats as float32."""
    if hasattr(tensor, "detach"):  # PyTorch's, perhaps on another device
        tensor = tensor.detach().cpu()
        tensor = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    try:
        array = np.asarray(tensor)
    except ValueError as error:
        raise ValueError(
            "An array needs rows of one length, such as one column for each class. Received: "
            f"{tensor!r:.80}."
        ) from error
    return array.astype("float32") if array.dtype.name in ("bfloat16", "float16") else array


def are_alike(tensor, expected):
    """Whether a tensor has the shape of an array and, within a hundredth, its values."""
    array = to_array(tensor)
    return array.shape == expected.shape and np.allclose(array, expected, atol=1e-2)


def warn_of_parts(train, held_out=None):
    """Warns of a pipeline that is made for the other purpose, and of images that both have.

    Images of `train` are trained on, and those of `held_out` are for validation or a test; either
    may be data of another kind.
    """
    held_out = None if held_out is train else held_out
    of_held_out = "augmented, mixed and not all there"
    purposes = (train, True, "in order and as they are"), (held_out, False, of_held_out)
    for data, training, what in purposes:
        if getattr(data, "training", training) is not training:
            text = f"Images of this pipeline are {what}; make it with training={training}"
            warnings.warn(f"{text}. Received: {data!r}", stacklevel=3)
    if hasattr(train, "overlaps") and train.overlaps(held_out):
        received = f"some images in both {train!r} and {held_out!r}"
    elif _are_views(train, held_out):
        received = "arrays that are parts of one, and have some of its images in common"
    else:
        sources = [getattr(each, "source", None) for each in (train, held_out)]
        if all(hasattr(source, "warn_of_copies") for source in sources):
            train.source.warn_of_copies(train.rows, held_out.source, held_out.rows)
        return
    warnings.warn(
        f"Images for validation or a test should not be trained on. Received: {received}; take "
        "slices that stay apart, such as 'train[:80%]' and 'train[80%:]'.",
        stacklevel=3,
    )


def _are_views(*parts):
    """Whether two arrays of images, or pairs of images and labels, have memory in common.

    The same array twice is meant so.
    """
    images = [part[0] if isinstance(part, (tuple, list)) and part else part for part in parts]
    one, two = images
    if one is two or not all(isinstance(each, np.ndarray) for each in images):
        return False
    try:
        return np.shares_memory(one, two, max_work=1000)
    except np.exceptions.TooHardError:
        return False
