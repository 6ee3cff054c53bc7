"""Learning rates: over the updates of a run, as the authors have them, and from layer to layer."""

import dataclasses
import math
import re
from collections.abc import Sequence

import keras
from keras import ops

from keras_vit.checks import positive_float, positive_int


@dataclasses.dataclass(eq=False)
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up from 0, times a decay that a subclass defines.

    At update t, counted from 0, the warm-up multiplies by min(1, t / warmup_steps); `progress` is
    the share of the updates after it that are done, within [0, 1]. All is computed in float32, as
    by the authors.

    Args:
        learning_rate: the base, reached after the warm-up.
        steps: updates in the whole run, the warm-up included.
        warmup_steps: updates of the warm-up.

    Raises:
        ValueError: a value is out of range, or the warm-up is not shorter than the run.

    Source: vit_jax/utils.py of google-research/vision_transformer, `create_learning_rate_schedule`;
    big_vision/utils.py has the same.
    """

    learning_rate: float
    steps: int
    warmup_steps: int = 0

    def __post_init__(self):
        self.learning_rate = positive_float(self.learning_rate, "learning_rate")
        self.steps = positive_int(self.steps, "steps")
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(
                "The warm-up must be shorter than the run. Received: warmup_steps="
                f"{self.warmup_steps}, steps={self.steps}; lower warmup_steps or train longer."
            )

    def decay(self, step, progress):
        """The learning rate at a step (float32 tensor) without the warm-up."""
        raise NotImplementedError

    def __call__(self, step):
        step = ops.cast(ops.convert_to_tensor(step), "float32")
        progress = ops.clip((step - self.warmup_steps) / (self.steps - self.warmup_steps), 0.0, 1.0)
        rate = self.decay(step, progress)
        return rate * ops.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else rate

    def get_config(self):
        return dataclasses.asdict(self)


@keras.saving.register_keras_serializable("keras_vit")
class WarmupCosine(WarmupSchedule):
    """Half a cosine from the base to 0: base · ½(1 + cos(π · progress)); see `WarmupSchedule`."""

    def decay(self, step, progress):
        return self.learning_rate * 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable("keras_vit")
@dataclasses.dataclass(eq=False)
class WarmupLinear(WarmupSchedule):
    """A straight line from the base to `end`.

    Args:
        learning_rate, steps, warmup_steps: as in `WarmupSchedule`.
        end: the learning rate at the last step; the authors of the paper end at 1e-5.
    """

    end: float = 1e-5

    def decay(self, step, progress):
        return self.end + (self.learning_rate - self.end) * (1.0 - progress)


@keras.saving.register_keras_serializable("keras_vit")
@dataclasses.dataclass(eq=False)
class WarmupRsqrt(WarmupSchedule):
    """The reciprocal of a square root, whatever the length of the run, and a linear cooldown.

    base / √(1 + (step - warmup_steps) / timescale) · min(1, (steps - step) / cooldown_steps).

    Args:
        learning_rate, steps, warmup_steps: as in `WarmupSchedule`.
        timescale: updates after the warm-up until the base is divided by √2.
        cooldown_steps: updates at the end over which the learning rate falls to 0.

    Source: Zhai et al., 2022 (section 3.5), and big_vision/utils.py.
    """

    timescale: int = 10_000
    cooldown_steps: int = 0

    def __post_init__(self):
        super().__post_init__()
        self.timescale = positive_int(self.timescale, "timescale")

    def decay(self, step, progress):
        since = ops.maximum(step - self.warmup_steps, 0.0)
        rate = self.learning_rate / ops.sqrt(1.0 + since / self.timescale)
        if self.cooldown_steps:
            rate = rate * ops.clip((self.steps - step) / self.cooldown_steps, 0.0, 1.0)
        return rate


@keras.saving.register_keras_serializable("keras_vit")
@dataclasses.dataclass(eq=False)
class WarmupStairs(WarmupSchedule):
    """Divides by ten after each boundary: base · 0.1^(number of boundaries below the step).

    Args:
        learning_rate, steps, warmup_steps: as in `WarmupSchedule`.
        boundaries: steps; the one after a boundary is the first with the lower learning rate.

    Source: bit_hyperrule.py of google-research/big_transfer, `get_lr`.
    """

    boundaries: tuple[int, ...] = ()

    def decay(self, step, progress):
        rate = ops.full_like(step, self.learning_rate)
        for boundary in self.boundaries:
            rate = ops.where(step > boundary, rate / 10, rate)
        return rate


def layer_rates(
    paths: Sequence[str], layer_decay: float | None, num_blocks: int | None = None
) -> tuple[float, ...]:
    """A tuple with the factor of the learning rate for each path, from the names of the layers.

    The head and all that follows the blocks have the factor 1, as the biases of relative positions
    that all blocks share; the last block has `layer_decay`, the one before it `layer_decay`², and
    so on down to the embedding, with the stem of a hybrid and a norm before the blocks.

    Args:
        paths: paths of variables, such as `"block_3/attention/query/kernel"`; names of models
            around them do not matter.
        layer_decay: in (0, 1], or `None` for factors of 1.
        num_blocks: depth of the network; layers of any other name, as a user's model has them
            around it, then have the factor 1. `None` counts the blocks, and takes no other names.

    Raises:
        ValueError: `layer_decay` is out of range, no variable belongs to a block, or a layer has
            none of the names that a place in the order follows from.

    Source: Clark et al., 2020 (ELECTRA), for ViTs Bao et al., 2022 (BEiT): `get_num_layer_for_vit`
    in optim_factory.py of microsoft/unilm.
    """
    if layer_decay is None:
        return (1.0,) * len(paths)
    if not isinstance(layer_decay, (int, float)) or not 0 < layer_decay <= 1:
        text = "layer_decay must be a number in (0, 1], such as 0.75."
        raise ValueError(f"{text} Received: {layer_decay=}.")
    depths = [_depth(path) for path in paths]
    if num_blocks is None:
        num_blocks = max((n for n in depths if n not in (None, math.inf)), default=0)
        unknown = [path for path, depth in zip(paths, depths) if depth is None]
        if unknown or not num_blocks:
            raise ValueError(
                "layer_decay needs the layers of a VisionTransformer, named block_0 and so on. "
                f"Received: variables {(unknown or list(paths))[:3]}; leave layer_decay out, name "
                "what follows the blocks 'head', or give num_blocks where all are frozen."
            )
    head = positive_int(num_blocks, "num_blocks") + 1
    depths = [head if depth is None else min(depth, head) for depth in depths]
    return tuple(float(layer_decay) ** (head - depth) for depth in depths)


def _depth(path):
    """0 before the blocks, i + 1 in block i, infinity after them, None for another layer."""
    if path.endswith("position/table"):  # biases of attention that all blocks share
        return math.inf
    for name in path.split("/"):
        if match := re.fullmatch(r"(?:block|position|rotary)_(\d+)", name):
            return int(match[1]) + 1
        if re.fullmatch(r"root|stage_\d+_unit_\d+|patches|patch_encoder|pre_norm|position", name):
            return 0
        if re.fullmatch(r"norm|pool|pre_logits|projection|head|head_distillation", name):
            return math.inf
    return None
