"""The one form that every format is brought into, and what its arrays tell of the architecture.

Canonical names are the variable paths of the models, such as `block_0/mlp/dense_1/kernel`, and
canonical arrays have the shapes of these variables. `keras_vit.weights.evidence` decides what they
do not tell of the model, and `keras_vit.weights.extensions` knows the parts of later models.
"""

import dataclasses

import numpy as np

from keras_vit.models.resize_weights import PROJECTION
from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.weights.evidence import POSITION, Evidence
from keras_vit.weights.extensions import ROOT, extensions_of, pooling_of, resnet_of
from keras_vit.weights.reading import CheckpointError, expect

IMAGES = "the family's, as no config beside the file says it; set model.preprocessing if not"
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
    resized: tuple = ()  # a row of `LoadReport.resized` for each array that fits a model now
    model: str = "VisionTransformer"  # the name of the class of the architecture

    def set_preprocessing(self, recipe, unsaid, source):
        """Sets how images are prepared, and adds `unsaid`, what no recipe can say, to `ignored`.

        `source` is the config that says it; without one the report calls the recipe assumed.
        """
        self.preprocessing, self.ignored = recipe, (*unsaid, *self.ignored)
        if not source:
            self.evidence.assumed["preprocessing"] = IMAGES

    def replace_array(self, name, array, method):
        """Replaces an array by one of another shape, and reports it."""
        self.resized += ((name, self.arrays[name].shape, array.shape, method),)
        self.arrays[name] = array

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
    pool, inputs_of_head = pooling_of(arrays, width, projection or representation_size or width)
    registers = arrays.get("patch_encoder/registers")
    arguments = {
        "width": width,
        "depth": len(blocks),
        "mlp_dim": arrays["block_0/mlp/dense_1/kernel"].shape[-1],
        "patch_size": tuple(patch_size),
        "channels": channels,
        "pool": pool,
        "class_token": "patch_encoder/class_token" in arrays,
        "registers": 0 if registers is None else registers.shape[1],
        "representation_size": representation_size,
        "num_classes": units_of(arrays, "head", inputs_of_head),
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


def heads_of(arrays):
    """The number of heads in formats that keep it as an axis."""
    kernel = arrays["block_0/attention/query/kernel"]
    fits = kernel.ndim == 3 and kernel.shape[0] == kernel.shape[1] * kernel.shape[2]
    expect(fits, "query/kernel", kernel, "3 axes (width, heads, width / heads)")
    return kernel.shape[1]
