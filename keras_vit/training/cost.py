"""What a run costs, before it is begun: parameters, products, memory, the time of an epoch."""

import contextlib
import dataclasses
import functools
import math
import os
import time
from typing import Any

import keras

from keras_vit.checks import require
from keras_vit.text import table
from keras_vit.variant import Variant
from keras_vit.variants import get_variant

TIMED = 3  # updates, after one that compiles and reads ahead
SLOTS = {"adam": 2, "sgdm": 1}  # numbers that an optimizer keeps for one that is trained
# An update is timed with so many images at most, on a CPU: about ten seconds on two cores.
MOST_MACS, MOST_BYTES = 2e11, 2e9


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run with a model costs; printing it shows a table.

    Attributes:
        recipe: of the run.
        model: its name, and what it is made of, as text.
        parameters, trained: numbers in the model, and those of them that are trained.
        macs: multiply-accumulates of the forward pass for one image; `None` with a ResNet.
        weights, gradients, optimizer: bytes of these, counted.
        activations: bytes that the blocks keep for the gradients of a batch; `None` as `macs` is.
        steps_per_epoch: updates in a pass through the training images.
        seconds: of one image in an update, measured; `None` where it was not.
        timed: what was timed, and where, as text; or why nothing was.
        available, peak: bytes of memory of the machine, where it computes on a CPU, and those that
            this process has had at most; `None` where the system does not say.
    """

    recipe: Any
    model: str
    parameters: int
    trained: int
    macs: int | None
    weights: int
    gradients: int
    optimizer: int
    activations: int | None
    steps_per_epoch: int
    seconds: float | None = None
    timed: str = ""
    available: int | None = None
    peak: int | None = None

    @property
    def state(self):
        """Bytes of weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer

    def __str__(self):
        macs, kept = "not counted for a ResNet", "unknown for a ResNet"
        if self.macs is not None:
            macs = f"{_products(self.macs)} multiply-accumulates for an image, forward"
            kept = f"about {_bytes(self.activations)}, computed"
        weights, gradients, slots = map(_bytes, (self.weights, self.gradients, self.optimizer))
        updates, batch_size = self.recipe.steps, self.recipe.batch_size
        epochs = updates / max(self.steps_per_epoch, 1)
        rows = {
            "model": self.model,
            "parameters": f"{self.parameters:,}, {self.trained:,} of them trained",
            "computation": macs,
            "run": f"{updates:,} updates of {batch_size} images, {epochs:.4g} epochs",
            "training images": _in_words(self.recipe.train),
            "test images": str(self.recipe.eval.preprocessing),
            "memory": f"weights {weights}, gradients {gradients}, optimizer {slots}; counted",
            "activations": f"{kept}: what a batch keeps for its gradients",
        }
        needed = self.state + (self.activations or 0)
        if self.available and needed > self.available:
            sizes = f"{_bytes(needed)} are needed and {_bytes(self.available)} are there"
            rows["too large"] = f"{sizes}; accumulate=2 halves the activations"
        if self.peak:
            rows["this process"] = f"{_bytes(self.peak)} at most so far, measured"
        rows["time"] = f"not measured: {self.timed}"
        if self.seconds is not None:
            counts = (1, self.steps_per_epoch, updates)
            update, epoch, run = (_span(self.seconds * batch_size * n) for n in counts)
            spans = f"{update} for an update, {epoch} for an epoch, {run} in all"
            rows |= {"time": f"about {spans}, tests apart", "measured": self.timed}
        return table([*rows.items()], left=2)


def count(model, recipe, steps_per_epoch):
    """The `Cost` of a run without its time; the model is one of this library.

    Source: Korthikanti et al., 2022, section 4.1, for what a block keeps, here without dropout.
    """
    v, parameters = model.variant, model.count_params()
    trained = sum(math.prod(variable.shape) for variable in model.trainable_weights)
    size = 8 if recipe.precision == "float64" else 4  # mixed precision keeps float32, too
    slots = SLOTS[recipe.optimizer] + (recipe.ema is not None) + (recipe.accumulate > 1)
    macs = activations = None
    if isinstance(v, Variant) and v.stem is None:
        macs = vit_products(v, model.image_size, model.channels)
        macs += v.width * sum(keras.tree.flatten(model.num_classes))  # of one head or of several
        kept = _kept(v, model.image_size, recipe.remat) * recipe.micro_batch_size
        activations = kept * (2 if recipe.precision.startswith("mixed") else size)
    return Cost(
        recipe=recipe,
        model=f"{model.name}: {_architecture(v)}",
        parameters=parameters,
        trained=trained,
        macs=macs,
        weights=size * parameters,
        gradients=size * trained,
        optimizer=size * trained * slots,
        activations=activations,
        steps_per_epoch=steps_per_epoch,
    )


def measured(cost, model, load):
    """The `Cost` with the time of an update: of a compiled model, which is trained a little by it.

    Args:
        load: a function from a batch size to the pipeline of the training images.
    """
    device, micro = _accelerator(), load().batch_size
    images = micro
    if device is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        device, cost = f"a CPU with {cores} cores", dataclasses.replace(cost, available=_memory())
        each = (cost.activations or 0) / micro
        most = [MOST_MACS / 3 / cost.macs, MOST_BYTES / each] if cost.macs else [8]
        images = max(1, min(micro, *map(int, most)))
        if cost.available and cost.state + each * images > 0.8 * cost.available:
            memory = _bytes(cost.available)
            text = f"it takes more than the {memory} of memory that this machine has"
            return dataclasses.replace(cost, timed=text)
    batches = iter(load(images).from_step(0, TIMED + 1))
    model.train_on_batch(*next(batches))
    begin = time.perf_counter()
    for batch in batches:
        model.train_on_batch(*batch)
    seconds = (time.perf_counter() - begin) / TIMED / images
    timed = f"{TIMED} updates of {images} images, {keras.backend.backend()}, {device}"
    return dataclasses.replace(cost, seconds=seconds, timed=timed, peak=_peak())


def vit_products(
    variant: Variant | str, image_size: int | tuple[int, int], channels: int = 3
) -> int:
    """Multiply-accumulates of the matrix products of a ViT for one image, by formula.

    For N patches of P x P pixels, T tokens and depth L: N P² C D for the embedding of the patches,
    and L (4 T D² + 2 T² D + 2 T D M) for the blocks: the projections of query, key, value and
    output, the two products of the attention, and the MLP with M hidden units (three products with
    a gate). An axial block has twice the projections and the MLPs, but T (rows + columns) in place
    of T². What follows the last block is not counted.

    Raises:
        ValueError: a hybrid, whose stem has no formula here.
    """
    v = get_variant(variant)
    require(v.stem is None, "The stem of a hybrid has no formula", received=variant)
    tokens, seen, hidden = _sizes(v, image_size)
    embedding = (tokens - v.learned_tokens) * math.prod(v.patch_size) * channels * v.width
    linear = v.block_layers * tokens * v.width * (4 * v.width + hidden)
    return embedding + linear + v.depth * 2 * tokens * seen * v.width


def _kept(v, image_size, remat):
    """Numbers that the blocks keep of one image for the gradients."""
    tokens, seen, hidden = _sizes(v, image_size)
    if remat:  # the input of each block
        return v.block_layers * tokens * v.width
    # Inputs of norms (2), of query, key and value (1), these (3), inputs of both projections (2).
    return v.block_layers * tokens * (8 * v.width + hidden + v.num_heads * seen)


def _sizes(v, image_size):
    """Tokens of an image, those that each attends to, and widths of the MLP's products in all."""
    rows, columns = v.grid(image_size)
    tokens = rows * columns + v.learned_tokens
    seen = rows + columns if v.block == "axial" else tokens
    return tokens, seen, {"mlp": 2, "swiglu": 3}[v.mlp] * v.mlp_dim


_CROPS = {  # of training, see `keras_vit.data.Transform`
    "inception": "a random box of {area} of the image",
    "random_resized": "a random box of {area} of the image",
    "resize_small_random": "the shorter side to {small}, a random window",
    "squash_random": "both sides to {small}, a random window",
    "pad_random": "a random window of the padded image",
}


def _in_words(transform):
    """What a transform of training does to an image, as text."""
    area = "{:.0%} to {:.0%}".format(*transform.area)
    crop = _CROPS.get(transform.crop, transform.crop.replace("_", " "))
    names = ["half of them mirrored"] if transform.flip else []
    names += [name for name, *_ in transform.steps]
    size = "to {} x {}".format(*transform.image_size)
    return ", ".join([crop.format(area=area, small=transform.resize_small), size, *names])


def _architecture(v):
    """What a `Variant` or a `BiTVariant` is made of, as text."""
    if not isinstance(v, Variant):
        return f"a ResNet of {sum(v.blocks)} units, {v.width:g} times as wide"
    stem = "" if v.stem is None else f" after a ResNet of {sum(v.stem)} units"
    patch = "{} x {}".format(*v.patch_size)
    return f"{v.depth} blocks of width {v.width}, {v.num_heads} heads, patches of {patch}{stem}"


def _accelerator():
    """What the backend computes with besides the CPU, as text, or `None`."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    import tensorflow as tf

    return next((d.name for d in tf.config.list_logical_devices() if d.device_type != "CPU"), None)


def _memory():
    """Bytes of memory of this machine, or `None` where the system does not say."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _peak():
    """Bytes that this process has had in memory at most, or `None` where nothing says so."""
    with contextlib.suppress(ImportError):  # on Windows
        import resource

        unit = 1 if os.uname().sysname == "Darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _in_units(number, units, least=1.0, below="{:,}"):
    """A number in three digits, in the first of the units that it has `least` of."""
    for name, unit in units.items():
        if number >= least * unit:
            return f"{number / unit:.3g} {name}"
    return below.format(number)


_products = functools.partial(_in_units, units={"trillion": 1e12, "billion": 1e9, "million": 1e6})
_bytes = functools.partial(_in_units, units={"GB": 1e9, "MB": 1e6}, below="{} bytes")
_span = functools.partial(
    _in_units, units={"days": 86_400, "h": 3600, "min": 60}, least=1.5, below="{:.2g} s"
)
