"""The one form that every format is brought into: the variable paths of `VisionTransformer`.

What the format modules share stands here: tables of names, and the rules for what a file cannot
say.
"""

import dataclasses
import re

from keras_vit.checks import positive_int
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.variants import VARIANTS
from keras_vit.weights.files import CheckpointError

PROJECTION = "patch_encoder/projection/kernel"
POSITION = "patch_encoder/position/embedding"
CONFIG = "its config.json"  # where a fact in `Canonical.assumed` is from
HEAD_WIDTH = 64  # of the attention heads in nearly every published model
REQUIRED = (
    PROJECTION,
    "block_0/attention/query/kernel",
    "block_0/attention/out/kernel",
    "block_0/mlp/dense_1/kernel",
    "norm/gamma",
)


@dataclasses.dataclass
class Canonical:
    """A checkpoint in canonical form.

    Attributes:
        family: whose format it is.
        arrays: dict from canonical name to array, in the shapes of the variables.
        origin: dict from canonical name to the name in the file.
        architecture: arguments of `VisionTransformer`; `image_size` is that of the position
            embedding.
        assumed: dict from an argument that the arrays do not say to where its value is from.
        ignored: names in the file that are no part of the model, such as a text tower.
        preprocessing: how the family prepares images.
        class_names: names of the classes in their order, if the file has them.
        path: where it was read from.
        model: name of the class that the architecture is of.
    """

    family: str
    arrays: dict
    origin: dict
    architecture: dict
    assumed: dict = dataclasses.field(default_factory=dict)
    ignored: tuple = ()
    preprocessing: Preprocessing = GOOGLE
    class_names: tuple | None = None
    path: str = ""
    model: str = "VisionTransformer"


def rename(arrays, table, family, ignored=()):
    """The arrays of a file under canonical names.

    Args:
        arrays: dict from name in the file to array.
        table: rows (pattern of a name in the file, canonical name or a function of the groups of
            the pattern that gives it, function of the array or `None`); the first match counts.
        family: whose format it is, for errors.
        ignored: patterns of names that are no part of a Vision Transformer.

    Returns:
        Two dicts from canonical name: to the array, and to the name in the file; and the names
        that were ignored.

    Raises:
        CheckpointError: names that the format does not have, or two for one variable.
    """
    canonical, origin, left_out, unknown = {}, {}, [], []
    for name, array in arrays.items():
        row = next((row for row in table if re.fullmatch(row[0], name)), None)
        if row is None:
            is_ignored = any(re.fullmatch(pattern, name) for pattern in ignored)
            (left_out if is_ignored else unknown).append(name)
            continue
        pattern, target, function = row
        match = re.fullmatch(pattern, name)
        target = target(*match.groups()) if callable(target) else match.expand(target)
        if target in canonical:
            raise CheckpointError(f"Two arrays for {target!r}: {origin[target]!r} and {name!r}.")
        canonical[target] = array if function is None else _apply(function, name, array)
        origin[target] = name
    if unknown:
        raise CheckpointError(
            f"These arrays have no place in a model of {family}: {shortened(sorted(unknown))}."
        )
    return canonical, origin, tuple(left_out)


def _apply(function, name, array):
    try:
        return function(array)
    except (ValueError, IndexError, TypeError) as error:
        raise CheckpointError(
            f"{name!r} has the shape {array.shape}, which no such array has ({error}); the file "
            "is damaged or of another format."
        ) from error


def shortened(names, limit=12):
    """A list of names as text, cut where it would fill the screen."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{names[:limit]}{more}"


def check_whole(arrays, family):
    """Raises a CheckpointError unless `arrays` have all parts and blocks 0, 1, 2 and so on.

    Returns:
        The number of blocks.
    """
    blocks = {int(name.split("/")[0][6:]) for name in arrays if name.startswith("block_")}
    missing = sorted(set(REQUIRED) - set(arrays))
    if missing or blocks != set(range(len(blocks))):
        raise CheckpointError(
            f"This is no whole Vision Transformer of {family}. Received: {len(arrays)} arrays "
            f"with the blocks {sorted(blocks)}; expected blocks numbered from 0 without a gap, "
            f"and also {missing} (canonical names)."
        )
    return len(blocks)


def architecture_of(arrays, family):
    """What the shapes of canonical arrays say: arguments of `VisionTransformer`.

    Head count, image size and patch size are not among them: the formats differ there.
    """
    depth = check_whole(arrays, family)
    _check_head(arrays)
    class_token = "patch_encoder/class_token" in arrays
    registers = arrays.get("patch_encoder/registers")
    return {
        "width": arrays[PROJECTION].shape[-1],
        "depth": depth,
        "mlp_dim": arrays["block_0/mlp/dense_1/kernel"].shape[-1],
        "pool": _pool(arrays, class_token),
        "class_token": class_token,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": _last(arrays, "pre_logits/kernel", None),
        "num_classes": _last(arrays, "head/kernel", 0),
        "qkv_bias": "block_0/attention/query/bias" in arrays,
        "position": "learned_1d" if POSITION in arrays else "none",
        "norm_after_pool": False,
        **stem_of(arrays),
    }


def _check_head(arrays):
    """Raises a CheckpointError for a head that no model of this width has; it is no other head."""
    inputs = arrays[PROJECTION].shape[-1:]
    for name in ("pre_logits/kernel", "head/kernel"):
        if name not in arrays:
            continue
        shape = arrays[name].shape
        if len(shape) != 2 or shape[:1] != inputs or not shape[1]:
            raise CheckpointError(
                f"{name!r} must have the shape ({inputs[0] if inputs else 'width'}, units). "
                f"Received: shape {shape}; the file is damaged or of another format."
            )
        inputs = shape[1:]


def check_position(arrays):
    """Raises a CheckpointError unless the position embedding has shape (1, tokens, width)."""
    position = arrays.get(POSITION)
    if position is not None and position.ndim != 3:
        raise CheckpointError(
            f"{POSITION!r} must have 3 axes. Received: shape {position.shape}; the file is "
            "damaged or of another format."
        )


def stem_of(arrays):
    """What the stem of a hybrid has: arguments of `VisionTransformer`; none for a plain model.

    Raises:
        CheckpointError: units are missing.
    """
    if "root/conv/kernel" not in arrays:
        return {}
    units = {}
    for name in arrays:
        if match := re.match(r"stage_(\d+)_unit_(\d+)/", name):
            units.setdefault(int(match[1]), set()).add(int(match[2]))
    stem = tuple(len(units.get(stage, ())) for stage in range(1, len(units) + 1))
    if any(units.get(s + 1) != set(range(1, n + 1)) for s, n in enumerate(stem)):
        raise CheckpointError(
            f"The ResNet stem has gaps. Received: units {units}; expected stages and units that "
            "are numbered without one."
        )
    width = arrays["root/conv/kernel"].shape[-1] / 64
    return {"stem": stem, "stem_width": width, "stem_numerics": "google"}


def _pool(arrays, class_token):
    if "pool/probe" in arrays:
        return "map"
    return "token" if class_token else "mean"


def _last(arrays, name, default):
    return arrays[name].shape[-1] if name in arrays and arrays[name].ndim else default


def choose_heads(configured, hints, found):
    """The number of heads where the arrays do not show it, and where it is from.

    Args:
        configured: what the config beside the file says, or `None`.
        hints: arguments of the caller, or of a model that waits for the file: its `num_heads` says
            nothing about a file of another `width`.
        found: arguments read off the arrays.
    """
    if configured is not None:
        return positive_int(configured, "num_heads"), CONFIG
    if hints.get("num_heads") is not None and hints.get("width", found["width"]) == found["width"]:
        return positive_int(hints["num_heads"], "num_heads"), "num_heads as given"
    return rule_for_heads(found["width"], found["depth"])


def gelu_of(name, names):
    """`"tanh"` or `"erf"` for the name of an activation in a config.

    Raises:
        CheckpointError: the name is not in `names`.
    """
    if not isinstance(name, str) or name not in names:
        raise CheckpointError(
            f"The config beside the file names the activation {name!r}; expected one of "
            f"{sorted(names)}."
        )
    return names[name]


def rule_for_heads(width, depth):
    """The number of heads that a model of this size has by custom, and whose custom it is.

    Raises:
        CheckpointError: none fits.
    """
    for name, variant in VARIANTS.items():
        if (variant.width, variant.depth) == (width, depth):
            return variant.num_heads, f"ViT-{name.split('/')[0]} has as many"
    if width % HEAD_WIDTH == 0:
        return width // HEAD_WIDTH, f"heads of width {HEAD_WIDTH} are the custom"
    raise CheckpointError(
        f"The file does not say how many attention heads it has, and no custom fits its width "
        f"{width}. Say num_heads=..., or put its config.json beside it."
    )
