"""The one form that every format is brought into, and what it tells about the architecture.

Canonical names are the variable paths of the models. `keras_vit.weights.evidence` decides what the
arrays do not tell.
"""

import dataclasses
import re

import numpy as np

from keras_vit.checks import check_choice, pair, positive_int
from keras_vit.extensions import BIASES
from keras_vit.layers.resnet import ROOT_FILTERS
from keras_vit.models.bit import BiTVariant
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.variants import Variant
from keras_vit.weights.evidence import POSITION, Evidence
from keras_vit.weights.files import CheckpointError

PROJECTION = "patch_encoder/projection/kernel"
ROOT = "root/conv/kernel"
# How outputs are read, by the names that configs of Hugging Face have for the problems.
PROBLEM_TYPES = {
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "values",
}
IMAGES = "the family's, as no config beside the file says it; set model.preprocessing if not"
MAX_SIDE = 1 << 14  # pixels; no image that a config names is larger
MAX_EPSILON = 0.1
FRESH_SCALE = 1e-5  # of a LayerScale whose first value no config says
QKV = {"query", "key", "value"}  # of which `qkv_bias` takes the biases away
REQUIRED = (
    PROJECTION,
    "block_0/attention/query/kernel",
    "block_0/attention/out/kernel",
    "block_0/mlp/dense_1/kernel",
    "norm/gamma",
)


@dataclasses.dataclass
class Canonical:
    """A checkpoint in canonical form."""

    family: str  # whose format it is
    arrays: dict  # canonical name -> array, in the shape of the variable
    origin: dict  # canonical name -> name in the file
    evidence: Evidence  # arguments of the model's class, with the image size of the positions
    ignored: tuple = ()  # names in the file that are no part of the model, such as a text tower
    preprocessing: Preprocessing = GOOGLE
    class_names: tuple | None = None
    label_set: str | None = None
    reading: str | None = None  # how its outputs are read, see keras_vit.outputs
    path: str = ""
    source: str = ""  # a name of the catalogue, a URL, or the name of a local file
    prefix: str = ""  # what the names in the file begin with, where the tables do not know it
    others: tuple = ()  # prefixes of further models in the file
    model: str = "VisionTransformer"  # the name of the class of the architecture

    def prepare(self, preprocessing, unsaid, source):
        """Sets how images are prepared, and reports the texts for what no recipe here can say.

        `source` is what it was read from; where that is empty, it is assumed.
        """
        self.preprocessing, self.ignored = preprocessing, (*unsaid, *self.ignored)
        if not source:
            self.evidence.assumed["preprocessing"] = IMAGES

    def leave_out(self, *starts):
        """Takes the arrays of layers away that a model does not use, and reports their names."""
        names = [name for name in self.arrays if name.startswith(starts)]
        for name in names:
            del self.arrays[name]
        left = dict.fromkeys(self.origin.pop(name) for name in names)  # some are of one array
        self.ignored = (*self.ignored, *left)

    def add_zero_positions(self, at, count):
        """Gives learned tokens that have no positions in the file those of zeros."""
        self.arrays[POSITION] = np.insert(self.arrays[POSITION], [at] * count, 0, axis=1)

    def add_zero_bias(self, name, why):
        """Gives a layer that the file has without a bias one of zeros, unless it has one."""
        kernel = self.arrays.get(f"{name}/kernel")
        if kernel is not None and f"{name}/bias" not in self.arrays:
            self.arrays[f"{name}/bias"] = np.zeros(kernel.shape[-1], kernel.dtype)
            self.origin[f"{name}/bias"] = why


# ---- what the shapes of arrays tell


def expect(fits, name, array, expected):
    """Raises a CheckpointError for an array whose shape does not fit."""
    if not fits:
        raise CheckpointError(
            f"{name!r} must have {expected}. Received: shape {array.shape}; the file is damaged "
            "or of another format."
        )


def architecture_of(arrays, family, optional=()):
    """Arguments of `VisionTransformer` that the shapes of canonical arrays tell.

    `optional` are names of `REQUIRED` that some models of the family lack.
    """
    blocks = {int(name.split("/")[0][6:]) for name in arrays if name.startswith("block_")}
    missing = sorted(set(REQUIRED) - set(arrays) - set(optional))
    if missing or blocks != set(range(len(blocks))):
        raise CheckpointError(
            f"This is no whole Vision Transformer of {family}. Received: {len(arrays)} arrays "
            f"with the blocks {sorted(blocks)}; expected blocks numbered from 0 without a gap, "
            f"and also {missing} (canonical names)."
        )
    *patch_size, channels, width = arrays[PROJECTION].shape
    position = arrays.get(POSITION)
    expect(position is None or position.ndim == 3, POSITION, position, "3 axes")
    representation_size = units_of(arrays, "pre_logits", width) or None
    projection = units_of(arrays, "projection", representation_size or width) or None
    registers = arrays.get("patch_encoder/registers")
    class_token = "patch_encoder/class_token" in arrays
    pool = "token" if class_token else "mean"
    if "pool/probe" in arrays:
        pool = "map" if "pool/attention/query/kernel" in arrays else "probe"
    pooled, head = projection or representation_size or width, arrays.get("head/kernel")
    if class_token and head is not None and head.shape[:1] == (2 * width,) != (pooled,):
        pool, pooled = "token_mean", 2 * width
    arguments = {
        "width": width,
        "depth": len(blocks),
        "mlp_dim": arrays["block_0/mlp/dense_1/kernel"].shape[-1],
        "patch_size": tuple(patch_size),
        "channels": channels,
        "pool": pool,
        "class_token": class_token,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": representation_size,
        "num_classes": units_of(arrays, "head", pooled),
        "qkv_bias": "block_0/attention/query/bias" in arrays,
        "norm_after_pool": False,
        "projection": projection,
        **extensions_of(arrays),
    }
    if pool == "map":
        pool_mlp_dim = arrays["pool/mlp/dense_1/kernel"].shape[-1]
        arguments["pool_mlp_dim"] = None if pool_mlp_dim == arguments["mlp_dim"] else pool_mlp_dim
    if ROOT in arrays:
        arguments["stem"], arguments["stem_width"], arguments["channels"] = resnet_of(
            arrays, "ResNet stem"
        )
    return arguments


def extensions_of(arrays):
    """The fields of `Extensions` that canonical arrays tell; others are left to be refused."""
    has_bias = lambda name: f"block_0/{name}/bias" in arrays  # noqa: E731
    biased = {part for part in ("query", "key", "value", "out") if has_bias(f"attention/{part}")}
    biased |= {"mlp"} if has_bias("mlp/dense_1") or has_bias("mlp/dense_2") else set()
    if biased and "query" not in biased:
        biased |= QKV
    biases = next((name for name, row in BIASES.items() if set(row) == biased), "all")
    pre_norm = norm_of(arrays, "pre_norm")
    return {
        "norm": norm_of(arrays, "block_0/norm_1") or "layer_norm",
        "block": "pre_norm" if "block_0/norm_2/gamma" in arrays else "parallel",
        "mlp": "swiglu" if "block_0/mlp/gate/kernel" in arrays else "mlp",
        "layer_scale": FRESH_SCALE if "block_0/layer_scale_1/gamma" in arrays else None,
        "qk_norm": norm_of(arrays, "block_0/attention/query_norm"),
        "mlp_norm": norm_of(arrays, "block_0/mlp/norm"),
        "attention_norm": norm_of(arrays, "block_0/attention/norm"),
        "patch_norm": norm_of(arrays, "patch_encoder/norm"),
        "pre_norm": pre_norm,
        "final_norm": "norm/gamma" in arrays,
        "biases": biases,
        # A norm that follows takes a bias away again, and only then authors leave it out.
        "patch_bias": "patch_encoder/projection/bias" in arrays or pre_norm is None,
        "distillation": "patch_encoder/distillation_token" in arrays,
        "rotary": "mixed" if "rotary_0/frequencies" in arrays else None,
    }


def smallest_fitting(names):
    """The (biases, qkv_bias) of `Extensions` with fewest biases beside those that are named."""
    rows = [
        (biases, qkv_bias, set(parts) - (set() if qkv_bias else QKV))
        for biases, parts in BIASES.items()
        for qkv_bias in (True, False)
    ]
    fitting = [row for row in rows if names <= row[2]]
    biases, qkv_bias, _ = min(fitting, key=lambda row: len(row[2]))
    return biases, qkv_bias and bool(names)


def norm_of(arrays, layer):
    """The name of a norm, or `None` where there is none."""
    if f"{layer}/gamma" not in arrays:
        return None
    return "layer_norm" if f"{layer}/beta" in arrays else "rms_norm"


def units_of(arrays, layer, inputs=None):
    """The outputs of a last layer, 0 without one; half a layer, or one that cannot be, is damage.

    `inputs` is how many it must have, or `None` for any number.
    """
    kernel, bias = arrays.get(f"{layer}/kernel"), arrays.get(f"{layer}/bias")
    if kernel is None:
        return 0
    fits = inputs is None or (kernel.ndim == 2 and kernel.shape[0] == inputs)
    expect(fits, f"{layer}/kernel", kernel, f"the shape ({inputs}, units)")
    fits = bias is None or bias.shape == kernel.shape[-1:]
    expect(fits, f"{layer}/bias", bias, f"the shape {kernel.shape[-1:]}, as its kernel tells")
    return kernel.shape[-1]


def resnet_of(arrays, what):
    """(units of each stage, width factor, channels of the images) of a ResNet."""
    matches = (re.match(r"stage_(\d+)_unit_(\d+)/", name) for name in arrays)
    units = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    stages = range(1, 1 + max((stage for stage, _ in units), default=0))
    counts = tuple(sum(stage == s for s, _ in units) for stage in stages)
    whole = [(stage, unit) for stage in stages for unit in range(1, counts[stage - 1] + 1)]
    if units != whole or 0 in counts:
        raise CheckpointError(
            f"The {what} has gaps. Received: units (stage, unit) {units[:20]}; expected stages and "
            "units that are numbered from 1 without one. Check that the file is whole."
        )
    shape = arrays[ROOT].shape
    expect(len(shape) == 4 and shape[3], ROOT, arrays[ROOT], "4 axes")
    return counts, shape[3] / ROOT_FILTERS, shape[2]


def heads_of(arrays):
    """The number of heads in formats that keep it as an axis."""
    kernel = arrays["block_0/attention/query/kernel"]
    fits = kernel.ndim == 3 and kernel.shape[0] == kernel.shape[1] * kernel.shape[2]
    expect(fits, "query/kernel", kernel, "3 axes (width, heads, width / heads)")
    return kernel.shape[1]


def check_architecture(canonical):
    """Raises an error for an architecture that cannot be, or is larger than its file.

    A config may say anything, and an array may have a shape that no other array confirms: a model
    of that size is not built before the file has shown that it has its weights.
    """
    arguments = canonical.evidence
    positive_int(arguments["channels"], "channels")
    if max(pair(arguments["image_size"], "image_size")) > MAX_SIDE:
        raise ValueError(f"image_size={arguments['image_size']} is above {MAX_SIDE} pixels.")
    variant_class = Variant if canonical.model == "VisionTransformer" else BiTVariant
    names = {field.name for field in dataclasses.fields(variant_class)} & set(arguments)
    v = variant_class(**{name: arguments[name] for name in names})
    if variant_class is Variant:
        if v.epsilon > MAX_EPSILON:
            raise ValueError(f"epsilon={v.epsilon} is above {MAX_EPSILON}.")
        v.grid(arguments["image_size"])
        needed = v.depth * v.width * (4 * v.width + 2 * v.mlp_dim)
        blocks, width = v.stem or (), v.stem_width
    else:
        needed, blocks, width = 0, v.blocks, v.width
    for stage, units in enumerate(blocks):
        needed += 13 * units * (ROOT_FILTERS * width * 2**stage) ** 2
    present = sum(array.size for array in canonical.arrays.values())
    if needed > 2 * present:
        raise CheckpointError(
            f"Its arrays tell of a model with {needed:.3g} weights, and it has {present}: the file "
            "is damaged or of another format."
        )


def reading_of_config(config):
    """The reading that `problem_type` in the config of a checkpoint stands for, or `None`.

    Raises:
        ValueError: it is of another problem.
    """
    problem = (config or {}).get("problem_type")
    check_choice("problem_type", problem, (*PROBLEM_TYPES, None))
    return PROBLEM_TYPES.get(problem)


def config_of(model):
    """What a config beside weights says of the reading, as a dict: nothing where it is unknown."""
    problems = [name for name, reading in PROBLEM_TYPES.items() if reading == model.reading]
    return {"problem_type": problems[0]} if problems else {}
