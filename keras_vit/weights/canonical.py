"""The one form that every format is brought into, and the architecture that its arrays tell.

Canonical names are the paths of the model's variables, such as `block_0/mlp/dense_1/kernel`, and
canonical arrays have the shapes of these variables.
"""

import collections
import dataclasses
import re

import numpy as np

from keras_vit.extensions import BIASES
from keras_vit.layers.resnet import ROOT_FILTERS
from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights.model_arguments import POSITION, Arguments
from keras_vit.weights.safety import CheckpointError, expect

ROOT = "root/conv/kernel"
REQUIRED = (
    PROJECTION,
    "block_0/attention/query/kernel",
    "block_0/attention/out/kernel",
    "block_0/mlp/dense_1/kernel",
    "norm/gamma",
)
FRESH_SCALE = 1e-5  # of a LayerScale whose first value no config says
QKV = {"query", "key", "value"}  # of which `qkv_bias` takes the biases away


@dataclasses.dataclass
class CanonicalWeights:
    """The arrays of a model in canonical form, which readers change until the model takes them."""

    arrays: dict  # canonical name -> array, in the shape of the variable
    names_in_file: dict  # canonical name -> name in the file
    ignored: tuple  # names in the file that the model does not use, such as those of a text tower
    resized: tuple = ()  # rows of `LoadReport.resized`

    def copy(self):
        """Another whose arrays can be replaced."""
        arrays, names = dict(self.arrays), dict(self.names_in_file)
        return dataclasses.replace(self, arrays=arrays, names_in_file=names)

    def replace(self, name, array, method):
        """Replaces an array by one of another shape, and reports it."""
        self.resized += ((name, self.arrays[name].shape, array.shape, method),)
        self.arrays[name] = array

    def rename(self, names, everything=()):
        """Takes `names`, old -> new, for those in the file; others of `everything` are ignored."""
        inside, stored = {*names.values()}, self.names_in_file
        self.names_in_file = {path: names.get(name, name) for path, name in stored.items()}
        outside = (name for name in everything if name not in inside)
        self.ignored = (*(names.get(name, name) for name in self.ignored), *outside)

    def leave_out(self, *starts):
        """Takes the arrays of layers away that a model does not use, and reports their names."""
        names = [name for name in self.arrays if name.startswith(starts)]
        for name in names:
            del self.arrays[name]
        # Some of them are one array of the file.
        self.ignored += (*dict.fromkeys(self.names_in_file.pop(name) for name in names),)

    def add(self, path, array, source):
        """Adds an array that the file lacks; `source` stands in place of its name there."""
        self.arrays[path], self.names_in_file[path] = array, source

    def add_zero_positions(self, at, count):
        """Adds positions of zeros for learned tokens, which have none in the file."""
        self.arrays[POSITION] = np.insert(self.arrays[POSITION], [at] * count, 0, axis=1)

    def add_zero_biases(self, layers, source):
        """Adds biases of zeros for layers, by a pattern and of any block, that have none."""
        for name in [n for n in self.arrays if re.fullmatch(rf"(block_\d+/)?({layers})/kernel", n)]:
            bias, kernel = name.replace("/kernel", "/bias"), self.arrays[name]
            if bias not in self.arrays:
                self.add(bias, np.zeros(kernel.shape[-1], kernel.dtype), source)

    def fold_layer_scale(self):
        """For a model without LayerScale: multiplies the last layer of each branch by its scale."""
        arrays, names = self.arrays, self.names_in_file
        for name in [n for n in arrays if re.fullmatch(r"block_\d+/layer_scale_[12]/gamma", n)]:
            scale, name_of_scale = arrays.pop(name), names.pop(name)
            block, branch = name.removesuffix("/gamma").split("/layer_scale_")
            last = f"{block}/attention/out" if branch == "1" else f"{block}/mlp/dense_2"
            for scaled in {f"{last}/kernel", f"{last}/bias"} & arrays.keys():
                fits = scale.shape == arrays[scaled].shape[-1:]
                expect(fits, name_of_scale, scale, f"the width of {names[scaled]!r}")
                arrays[scaled] = arrays[scaled] * scale
                names[scaled] += f" * {name_of_scale}"


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What a model keeps of a checkpoint besides its weights, by the names of its attributes."""

    preprocessing: Preprocessing
    reading: str | None = None  # this and the next two are of the head
    class_names: tuple | None = None
    label_set: str | None = None
    weights_from: str | None = None  # a name of the catalogue, a URL, or a file's name


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a checkpoint is from; the fields are those of `LoadReport`."""

    family: str
    path: str
    prefix: str = ""
    others: tuple = ()


@dataclasses.dataclass(frozen=True)
class CanonicalCheckpoint:
    """A model in a file: its class and the arguments of that, its weights, and about both."""

    model: str  # a key of `keras_vit.models.backbone.MODELS`
    arguments: Arguments  # the image size is that of the positions
    weights: CanonicalWeights
    metadata: Metadata
    source: Source


# ---- what the shapes of arrays tell: width, depth, pooling, ...


def architecture_of(arrays, family, optional=()):
    """Arguments of `VisionTransformer`; of `REQUIRED` the names in `optional` may be missing."""
    blocks = {int(match[1]) for name in arrays if (match := re.match(r"block_(\d+)/", name))}
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
    pool, inputs_of_head = pooling_of(arrays, width, projection or representation_size or width)
    registers = arrays.get("patch_encoder/registers")
    mlp_dim = arrays["block_0/mlp/dense_1/kernel"].shape[-1]
    arguments = {
        "width": width,
        "depth": len(blocks),
        "mlp_dim": mlp_dim,
        "patch_size": tuple(patch_size),
        "channels": channels,
        "pool": pool,
        "class_token": "patch_encoder/class_token" in arrays,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": representation_size,
        "num_classes": units_of(arrays, "head", inputs_of_head),
        "norm_after_pool": False,
        "projection": projection,
        **extensions_of(arrays),
    }
    if pool == "map":
        pool_mlp_dim = arrays["pool/mlp/dense_1/kernel"].shape[-1]
        arguments["pool_mlp_dim"] = None if pool_mlp_dim == mlp_dim else pool_mlp_dim
    if ROOT in arrays:
        stem, stem_width, channels = resnet_of(arrays, "ResNet stem")
        arguments |= {"stem": stem, "stem_width": stem_width, "channels": channels}
    return arguments


def extensions_of(arrays):
    """The fields of `Extensions` that canonical arrays tell; others are left to be refused."""
    biased = {part for part in (*QKV, "out") if f"block_0/attention/{part}/bias" in arrays}
    if any(f"block_0/mlp/{layer}/bias" in arrays for layer in ("dense_1", "dense_2")):
        biased.add("mlp")
    biases, qkv_bias = smallest_fitting(biased) if biased else ("none", False)
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
        "biases": biases,  # where no model has the same, `assign` names those that are missing
        "qkv_bias": qkv_bias,
        # Authors leave this bias out only in front of a norm, which would take it away again.
        "patch_bias": "patch_encoder/projection/bias" in arrays or pre_norm is None,
        "distillation": "patch_encoder/distillation_token" in arrays,
        "rotary": "mixed" if "rotary_0/frequencies" in arrays else None,
    }


def smallest_fitting(names):
    """The (biases, qkv_bias) of `Extensions` with fewest biases beside those that are named."""
    fitting = {
        (biases, qkv_bias): len(has)
        for biases, parts in BIASES.items()
        for qkv_bias in (True, False)
        if names <= (has := set(parts) - (set() if qkv_bias else QKV))
    }
    biases, qkv_bias = min(fitting, key=fitting.get)
    return biases, qkv_bias and bool(names)


def norm_of(arrays, layer):
    """The name of a norm, or `None` where there is none."""
    if f"{layer}/gamma" not in arrays:
        return None
    return "layer_norm" if f"{layer}/beta" in arrays else "rms_norm"


def pooling_of(arrays, width, units):
    """How tokens are pooled, and the inputs of a head; `units` are those of one token before it."""
    has_class_token = "patch_encoder/class_token" in arrays
    inputs_of_head = arrays["head/kernel"].shape[:1] if "head/kernel" in arrays else None
    if has_class_token and inputs_of_head == (2 * width,) and units != 2 * width:
        return "token_mean", 2 * width
    if "pool/probe" in arrays:
        return "map" if "pool/attention/query/kernel" in arrays else "probe", units
    return "token" if has_class_token else "mean", units


def resnet_of(arrays, what):
    """(units of each stage, width factor, channels of the images) of a ResNet."""
    matches = (re.match(r"stage_(\d+)_unit_(\d+)/", name) for name in arrays)
    units = sorted({(int(match[1]), int(match[2])) for match in matches if match})
    counts = tuple(collections.Counter(stage for stage, _ in units).values())
    if units != [(s, u) for s, count in enumerate(counts, 1) for u in range(1, count + 1)]:
        raise CheckpointError(
            f"The {what} has gaps. Received: units (stage, unit) {units[:20]}; expected stages and "
            "units that are numbered from 1 without one. Check that the file is whole."
        )
    shape = arrays[ROOT].shape
    expect(len(shape) == 4 and shape[3], ROOT, arrays[ROOT], "4 axes")
    return counts, shape[3] / ROOT_FILTERS, shape[2]


def units_of(arrays, layer, inputs=None):
    """The outputs of a last layer, 0 without one; it has `inputs`, or any number for `None`."""
    kernel, bias = arrays.get(f"{layer}/kernel"), arrays.get(f"{layer}/bias")
    if kernel is None:
        return 0
    fits = inputs is None or (kernel.ndim == 2 and kernel.shape[0] == inputs)
    expect(fits, f"{layer}/kernel", kernel, f"the shape ({inputs}, units)")
    fits = bias is None or bias.shape == kernel.shape[-1:]
    expect(fits, f"{layer}/bias", bias, f"the shape {kernel.shape[-1:]}, as its kernel tells")
    return kernel.shape[-1]


def heads_of(arrays):
    """The number of heads in formats that keep it as an axis."""
    kernel = arrays["block_0/attention/query/kernel"]
    fits = kernel.ndim == 3 and kernel.shape[0] == kernel.shape[1] * kernel.shape[2]
    expect(fits, "query/kernel", kernel, "3 axes (width, heads, width / heads)")
    return kernel.shape[1]
