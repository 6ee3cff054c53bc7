"""The one form that every format is brought into.

Canonical names are the paths of the model's variables, such as `block_0/mlp/dense_1/kernel`, and
canonical arrays have the shapes of these variables.
"""

import dataclasses
import re

import numpy as np

from keras_vit.preprocessing import GOOGLE, Preprocessing
from keras_vit.weights.model_arguments import CATALOGUE, POSITION, Arguments
from keras_vit.weights.safety import CheckpointError

ASSUMED_RECIPE = (
    "the family's, as no config beside the file says it; set model.preprocessing if not"
)
NEAREST_RECIPE = "the nearest to {}, which nothing here does"


@dataclasses.dataclass
class CanonicalCheckpoint:
    """A checkpoint in canonical form.

    Attributes:
        family: whose format it is.
        arrays: canonical name -> array, in the shape of the variable.
        origin: canonical name -> name in the file.
        arguments: the architecture, as arguments of the model's class; the image size is that of
            the positions.
        ignored: what the model does not use: names of arrays, such as those of a text tower, and
            what a config says beyond its arguments.
        preprocessing, class_names: what the model keeps with the weights, and with the head.
        reading: how outputs are read, as in `keras_vit.outputs`.
        model: the name of the class of the architecture.
        resized: a row of `LoadReport.resized` for each array that was fitted to a model.
        path, prefix, others: as in `LoadReport`.
        name: what the model keeps of it: a name of the catalogue, a URL, or that of a local file.
        label_set: whose order the classes follow, as the catalogue says it.
    """

    family: str
    arrays: dict
    origin: dict
    arguments: Arguments
    ignored: tuple = ()
    preprocessing: Preprocessing = GOOGLE
    class_names: tuple | None = None
    reading: str | None = None
    model: str = "VisionTransformer"
    resized: tuple = ()
    path: str = ""
    prefix: str = ""
    others: tuple = ()
    name: str = ""
    label_set: str | None = None

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
        if not config or beyond_recipe:
            why = NEAREST_RECIPE.format(", ".join(beyond_recipe)) if config else ASSUMED_RECIPE
            self.arguments.assumed["preprocessing"] = why

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

    def fold_layer_scale(self):
        """For a model without LayerScale: multiplies the last layer of each branch by its scale."""
        arrays, origin = self.arrays, self.origin
        for name in [n for n in arrays if re.fullmatch(r"block_\d+/layer_scale_[12]/gamma", n)]:
            scale, name_in_file = arrays.pop(name), origin.pop(name)
            block, branch = name.removesuffix("/gamma").split("/layer_scale_")
            last = f"{block}/attention/out" if branch == "1" else f"{block}/mlp/dense_2"
            for part in (f"{last}/kernel", f"{last}/bias"):
                if part in arrays:
                    if scale.shape != arrays[part].shape[-1:]:
                        raise CheckpointError(
                            f"{name_in_file!r} and {origin[part]!r} are of different width."
                        )
                    arrays[part] = arrays[part] * scale
                    origin[part] += f" * {name_in_file}"
