"""The variables of a model and of its optimizer, from the library itself and without values.

A model of two billion parameters takes some megabytes here: its variables have shapes alone.
"""

import contextlib
import dataclasses
import math

import keras

import keras_vit
from keras_vit.distribution import layout

LAYOUTS = ("data_parallel", "model_parallel", "fully_sharded")
OPTIMIZERS = {"adamw": "AdamW", "sgdm": "SGDM"}
BYTES = {"float32": 4, "mixed_bfloat16": 2}  # of a value that is computed


@contextlib.contextmanager
def without_values():
    """Within it, variables have shapes alone; Keras forgets them afterwards."""
    has_meta = keras.backend.backend() == "torch"
    with keras.device("meta") if has_meta else keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session(free_memory=False)  # else they would get their values later


@dataclasses.dataclass(frozen=True)
class Variable:
    """One trained variable: its path, shape and bytes; those of its slots and of its average."""

    path: str
    shape: tuple
    bytes: int
    slots: int
    average: int
    is_cast: bool  # whether the backward pass needs its copy in the compute dtype

    @property
    def values(self):
        return math.prod(self.shape)

    def shares(self, mode, devices):
        """Into how many parts a layout cuts it: 1 where every chip has it whole.

        Args:
            mode: one of `LAYOUTS`.
            devices: that share a model, or in `"fully_sharded"` all of them.

        Raises:
            ValueError: the devices do not divide what the layout cuts.
        """
        if mode == "model_parallel":
            axes = layout.split_axes(layout.LAYOUT_RULES, self.path, self.shape, devices)
            return devices if layout.MODEL in axes else 1
        if mode == "fully_sharded":
            return 1 if layout.largest_axis(self.shape, devices) is None else devices
        return 1


@dataclasses.dataclass(frozen=True)
class Shapes:
    """What a plan needs to know of a model, its optimizer and its images."""

    variables: tuple
    variant: keras_vit.Variant
    image_size: tuple
    grid: tuple
    num_classes: int

    @property
    def tokens(self):
        return math.prod(self.grid) + self.variant.learned_tokens

    @property
    def parameters(self):
        return sum(v.values for v in self.variables)

    def bytes(self, of, mode="data_parallel", devices=1, where=lambda path: True):
        """Bytes on one chip of `"bytes"`, `"slots"`, `"average"` or `"cast"` of its variables."""
        return sum(
            _bytes(v, of) // v.shares(mode, devices) for v in self.variables if where(v.path)
        )


def _bytes(variable, of):
    if of == "cast":
        return 2 * variable.values * variable.is_cast
    return getattr(variable, of)


def get_shapes(
    variant, image_size=224, num_classes=1000, optimizer="adamw", ema=False, **architecture
):
    """The `Shapes` of a `VisionTransformer` and of the optimizer that would train it.

    Raises:
        ValueError: the library has no such model.
    """
    make = getattr(keras_vit.training, OPTIMIZERS[optimizer])
    rule = make(1e-3, use_ema=ema)
    with without_values():
        model = keras_vit.VisionTransformer(
            variant, image_size=image_size, num_classes=num_classes, **architecture
        )
        trained = model.trainable_variables
        before = {id(v) for v in rule.variables}
        rule.build(trained)
        kept = [v for v in rule.variables if id(v) not in before]
        # Pixels have no gradient, so what is first multiplied with them is not needed again.
        first = "patch_encoder/projection/" if model.variant.stem is None else "root/conv/"
        variables = tuple(_describe(v, _of(kept, v), first) for v in trained)
    found = Shapes(variables, model.variant, model.image_size, model.grid, model.num_classes)
    counted = sum(v.slots + v.average for v in variables)
    if counted != sum(map(_size, kept)):
        raise RuntimeError(f"Of {sum(map(_size, kept))} bytes of state {counted} were assigned.")
    return found


def _of(kept, variable):
    """The optimizer's variables for one of the model's, as Keras names them."""
    name = variable.path.replace("/", "_")
    return [v for v in kept if v.path.split("/")[-1] in (f"{name}_{end}" for end in _ENDS)]


_ENDS = (*keras_vit.training.AdamW.slot_names, "average")


def _describe(variable, kept, first):
    averages = [v for v in kept if v.path.endswith("_average")]
    slots = [v for v in kept if not v.path.endswith("_average")]
    return Variable(
        variable.path,
        tuple(variable.shape),
        _size(variable),
        sum(map(_size, slots)),
        sum(map(_size, averages)),
        # What is added is not needed again; LayerNorm and the head compute in float32.
        variable.path.endswith("kernel") and not variable.path.startswith(("head/", first)),
    )


def _size(variable):
    width = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
    return math.prod(variable.shape) * width[keras.backend.standardize_dtype(variable.dtype)]
