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
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.weights.model_arguments import CATALOGUE, POSITION, Arguments
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
class CanonicalCheckpoint:
    """A checkpoint in canonical form."""

    family: str  # whose format it is
    arrays: dict  # canonical name -> array, in the shape of the variable
    names_in_file: dict  # canonical name -> name in the file
    # The architecture, as arguments of the model's class; the image size is that of the positions.
    arguments: Arguments
    # What the model does not use: names of arrays, such as those of a text tower, and what a config
    # says beyond its arguments.
    ignored: tuple = ()
    preprocessing: Preprocessing = GOOGLE  # what the model keeps with the weights
    class_names: tuple | None = None  # what it keeps with the head
    reading: str | None = None  # how outputs are read, as in `keras_vit.outputs`
    model: str = "VisionTransformer"  # the name of the class of the architecture
    resized: tuple = ()  # a row of `LoadReport.resized` for each array that was fitted to a model
    path: str = ""  # this and the next two: as in `LoadReport`
    prefix: str = ""
    others: tuple = ()
    name: str = ""  # what the model keeps of it: a name of the catalogue, a URL, or a file's name
    label_set: str | None = None  # whose order the classes follow, as the catalogue says it

    def add_record(self, record):
        """Adds what the catalogue says of published weights: a `catalog.Checkpoint`."""
        self.name, self.label_set = record.name, record.label_set
        self.preprocessing = record.preprocessing or self.preprocessing
        # The catalogue says it, or that it is the usual one.
        self.arguments.assumed.pop("preprocessing", None)
        self.arguments.add(CATALOGUE, **dict(record.overrides))

    def set_preprocessing(self, recipe, beyond_recipe, config):
        """Sets how images are prepared; the report names `beyond_recipe`, what no recipe can say.

        The report calls a recipe assumed that no `config` says, or that is only near to what one
        says; whoever uses it is warned.
        """
        self.preprocessing, self.ignored = recipe, (*beyond_recipe, *self.ignored)
        why = "the family's, as no config beside the file says it; set model.preprocessing if not"
        if config:
            why = f"the nearest to {', '.join(beyond_recipe)}, which nothing here does"
        if not config or beyond_recipe:
            self.arguments.assumed["preprocessing"] = why

    def replace_array(self, name, array, method):
        """Replaces an array by one of another shape, and reports it."""
        self.resized += ((name, self.arrays[name].shape, array.shape, method),)
        self.arrays[name] = array

    def restore_names(self, names, everything):
        """Gives arrays the names that they have in the file, and reports the file's other names.

        `names` are those in the file by those that a family has read.
        """
        inside, own = {*names.values()}, self.names_in_file
        self.names_in_file = {path: names.get(name, name) for path, name in own.items()}
        outside = (name for name in everything if name not in inside)
        self.ignored = (*(names.get(name, name) for name in self.ignored), *outside)

    def leave_out(self, *starts):
        """Takes the arrays of layers away that a model does not use, and reports their names."""
        names = [name for name in self.arrays if name.startswith(starts)]
        for name in names:
            del self.arrays[name]
        # Some of them are one array of the file.
        self.ignored += (*dict.fromkeys(self.names_in_file.pop(name) for name in names),)

    def add_array(self, path, array, source):
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
                self.add_array(bias, np.zeros(kernel.shape[-1], kernel.dtype), source)

    def fold_layer_scale(self):
        """For a model without LayerScale: multiplies the last layer of each branch by its scale."""
        arrays, names = self.arrays, self.names_in_file
        for name in [n for n in arrays if re.fullmatch(r"block_\d+/layer_scale_[12]/gamma", n)]:
            scale, name_of_scale = arrays.pop(name), names.pop(name)
            block, branch = name.removesuffix("/gamma").split("/layer_scale_")
            last = f"{block}/attention/out" if branch == "1" else f"{block}/mlp/dense_2"
            for scaled in {f"{last}/kernel", f"{last}/bias"} & arrays.keys():
                if scale.shape != arrays[scaled].shape[-1:]:
                    raise CheckpointError(
                        f"{name_of_scale!r} and {names[scaled]!r} are of different width."
                    )
                arrays[scaled] = arrays[scaled] * scale
                names[scaled] += f" * {name_of_scale}"


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
