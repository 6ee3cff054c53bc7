"""Learning rates over the updates of a run, as the authors have them."""

import dataclasses
import math

import keras
from keras import ops

from keras_vit.checks import positive_float, positive_int, require


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
        wanted = "cooldown_steps must not be negative"
        require(self.cooldown_steps >= 0, wanted, received=self.cooldown_steps)

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
