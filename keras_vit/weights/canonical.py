"""The one form that every format is brought into: the variable paths of the models.

What the families share stands here: what the shapes of arrays tell about the architecture.
"""

import dataclasses
import re

from keras_vit.checks import grid_of, pair, positive_int
from keras_vit.layers.resnet import ROOT_FILTERS
from keras_vit.models.bit import BiTVariant
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.variants import Variant
from keras_vit.weights.files import CheckpointError

PROJECTION = "patch_encoder/projection/kernel"
POSITION = "patch_encoder/position/embedding"
ROOT = "root/conv/kernel"
CONFIG = "its config.json"  # where a fact in `Canonical.assumed` is from
MAX_SIDE = 1 << 14  # pixels; no image that a config names is larger
MAX_EPSILON = 0.1
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
        architecture: arguments of the model's class; `image_size` is that of the position
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


def architecture_of(arrays, family):
    """What the shapes of canonical arrays say: arguments of `VisionTransformer`.

    Head count, image size and patch size are not among them: the formats differ there.

    Raises:
        CheckpointError: parts are missing, or contradict each other.
    """
    blocks = {int(name.split("/")[0][6:]) for name in arrays if name.startswith("block_")}
    missing = sorted(set(REQUIRED) - set(arrays))
    if missing or blocks != set(range(len(blocks))):
        raise CheckpointError(
            f"This is no whole Vision Transformer of {family}. Received: {len(arrays)} arrays "
            f"with the blocks {sorted(blocks)}; expected blocks numbered from 0 without a gap, "
            f"and also {missing} (canonical names)."
        )
    width = arrays[PROJECTION].shape[-1]
    position = arrays.get(POSITION)
    if position is not None and position.ndim != 3:
        raise CheckpointError(
            f"{POSITION!r} must have 3 axes. Received: shape {position.shape}; the file is "
            "damaged or of another format."
        )
    representation_size = _units(arrays, "pre_logits", width)
    registers = arrays.get("patch_encoder/registers")
    class_token = "patch_encoder/class_token" in arrays
    pool = "map" if "pool/probe" in arrays else "token" if class_token else "mean"
    found = {
        "width": width,
        "depth": len(blocks),
        "mlp_dim": arrays["block_0/mlp/dense_1/kernel"].shape[-1],
        "pool": pool,
        "class_token": class_token,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": representation_size,
        "num_classes": _units(arrays, "head", representation_size or width) or 0,
        "qkv_bias": "block_0/attention/query/bias" in arrays,
        "norm_after_pool": False,
    }
    if ROOT in arrays:
        stem, found["stem_width"] = units_of(arrays, "ResNet stem"), root_width(arrays)
        found.update(stem=stem, stem_numerics="google")
    return found


def _units(arrays, layer, inputs):
    """The outputs of a last layer, `None` without one; half a layer is damage."""
    kernel, bias = (arrays.get(f"{layer}/{kind}") for kind in ("kernel", "bias"))
    if kernel is None:
        return None
    if kernel.ndim != 2 or kernel.shape[0] != inputs:
        raise CheckpointError(
            f"'{layer}/kernel' must have the shape ({inputs}, units). Received: shape "
            f"{kernel.shape}; the file is damaged or of another format."
        )
    check_bias(layer, kernel, bias)
    return kernel.shape[1]


def check_bias(layer, kernel, bias):
    """Raises a CheckpointError for a bias of another length than its kernel has outputs."""
    if bias is not None and bias.shape != kernel.shape[-1:]:
        raise CheckpointError(
            f"'{layer}/bias' must have the shape {kernel.shape[-1:]}, as its kernel has "
            f"{kernel.shape}. Received: shape {bias.shape}; the file is damaged."
        )


def units_of(arrays, what):
    """The number of units of each stage of a ResNet.

    Raises:
        CheckpointError: units are missing.
    """
    matches = (re.match(r"stage_(\d+)_unit_(\d+)/", name) for name in arrays)
    found = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    stages = range(1, 1 + max((stage for stage, _ in found), default=0))
    counts = tuple(sum(stage == s for s, _ in found) for stage in stages)
    whole = [(stage, unit) for stage in stages for unit in range(1, counts[stage - 1] + 1)]
    if found != whole or 0 in counts:
        raise CheckpointError(
            f"The {what} has gaps. Received: units (stage, unit) {found[:20]}; expected stages and "
            "units that are numbered from 1 without one. Check that the file is whole."
        )
    return counts


def root_width(arrays):
    """The width factor of a ResNet, which its first kernel tells."""
    shape = arrays[ROOT].shape
    if len(shape) != 4 or not shape[3]:
        raise CheckpointError(f"{ROOT!r} must have 4 axes. Received: shape {shape}.")
    return shape[3] / ROOT_FILTERS


def channels_of(arrays, patch_channels):
    """The channels of the images: those of the patches, or of the root in front of them."""
    return arrays[ROOT].shape[2] if ROOT in arrays else patch_channels


def check_architecture(canonical):
    """Raises an error for an architecture that cannot be, or is larger than its file.

    A config may say anything, and an array may have a shape that no other array confirms: a model
    of that size is not built before the file has shown that it has its weights.

    Raises:
        ValueError: a field outside its range.
        CheckpointError: the file is much smaller than the model.
    """
    found = canonical.architecture
    positive_int(found["channels"], "channels")
    if max(pair(found["image_size"], "image_size")) > MAX_SIDE:
        raise ValueError(f"image_size={found['image_size']} is above {MAX_SIDE} pixels.")
    if canonical.model == "VisionTransformer":
        v = _variant(Variant, found)
        if v.epsilon > MAX_EPSILON:
            raise ValueError(f"epsilon={v.epsilon} is above {MAX_EPSILON}.")
        grid_of(v.feature_map(found["image_size"]), v.patch_size)
        needed = v.depth * v.width * (4 * v.width + 2 * v.mlp_dim)
        blocks, width = v.stem or (), v.stem_width
    else:
        v = _variant(BiTVariant, found)
        needed, blocks, width = 0, v.blocks, v.width
    for stage, units in enumerate(blocks):
        needed += 13 * units * (ROOT_FILTERS * width * 2**stage) ** 2
    there = sum(array.size for array in canonical.arrays.values())
    if needed > 2 * there:
        raise CheckpointError(
            f"Its arrays tell of a model with {needed:.3g} weights, and it has {there}: the file "
            "is damaged or of another format."
        )


def _variant(variant_class, found):
    names = [field.name for field in dataclasses.fields(variant_class)]
    return variant_class(**{name: found[name] for name in names if name in found})


def heads_of(arrays):
    """The number of heads in formats that keep it as an axis."""
    shape = arrays["block_0/attention/query/kernel"].shape
    if len(shape) != 3 or shape[0] != shape[1] * shape[2]:
        raise CheckpointError(
            "'query/kernel' must have 3 axes (width, heads, width / heads). Received: shape "
            f"{shape}; the file is damaged or of another format."
        )
    return shape[1]


def split_heads(arrays, num_heads):
    """Gives the matrices of the attention their axis of heads, in place."""
    for name in [n for n in arrays if "/attention/" in n and not n.endswith("/out/bias")]:
        array = arrays[name]
        axis = 0 if name.endswith("/out/kernel") else array.ndim - 1
        if array.shape[axis] % num_heads:
            raise CheckpointError(
                f"{num_heads} heads do not divide the {array.shape[axis]} units of {name!r}. "
                "Say num_heads=... as the model was built."
            )
        halves = (num_heads, array.shape[axis] // num_heads)
        arrays[name] = array.reshape(*array.shape[:axis], *halves, *array.shape[axis + 1 :])


def join_heads(arrays):
    """The arrays with the matrices of the attention without their axis of heads."""
    flat = {}
    for name, array in arrays.items():
        if re.search(r"/attention/(query|key|value)/", name):
            array = array.reshape(*array.shape[:-2], -1)
        elif name.endswith("/attention/out/kernel"):
            array = array.reshape(-1, array.shape[-1])
        flat[name] = array
    return flat
