"""Learning rates, against the authors' code and their formulas."""

import json

import keras
import numpy as np
import pytest

from keras_vit.training import WarmupCosine, WarmupLinear, WarmupRsqrt, WarmupStairs
from tests.support import ORACLES, refuses, to_numpy

ORACLE = json.loads((ORACLES / "training" / "lr_schedule.json").read_text())


def rates(schedule, steps):
    return to_numpy(schedule(np.array(steps, "float32")))


@pytest.mark.parametrize("case", ORACLE, ids=lambda case: f"{case['decay_type']}-{case['base']}")
def test_schedules_equal_the_authors(case):
    """`create_learning_rate_schedule` of vision_transformer, also past the end of the run."""
    if case["decay_type"] == "linear":
        end = {"end": case["linear_end"]} if "linear_end" in case else {}
        schedule = WarmupLinear(case["base"], case["total_steps"], case["warmup_steps"], **end)
    else:
        schedule = WarmupCosine(case["base"], case["total_steps"], case["warmup_steps"])
    expected = np.array(case["lr"])
    np.testing.assert_allclose(
        rates(schedule, case["steps"]), expected, rtol=2e-6, atol=1e-7 * case["base"]
    )


def test_the_reciprocal_square_root_falls_by_root_two_per_timescale_and_cools_down():
    schedule = WarmupRsqrt(0.1, 1000, warmup_steps=100, timescale=50, cooldown_steps=200)
    expected = [0.0, 0.05, 0.1, 0.1 / 2**0.5, 0.1 / 3**0.5, 0.1 / 17**0.5, 0.05 / 17.0**0.5, 0.0]
    found = rates(schedule, [0, 50, 100, 150, 200, 900, 900, 1000])
    expected[5] = expected[6] = 0.1 / 17**0.5 * 0.5  # half of the cooldown is left at 900
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_stairs_drop_after_their_boundaries_as_in_the_hyperrule():
    """`get_lr` of big_transfer, written out."""

    def get_lr(step, supports=(10, 30, 40, 50), rate=0.003):
        if step < supports[0]:
            return rate * step / supports[0]
        for support in supports[1:]:
            if support < step:
                rate /= 10
        return rate

    schedule = WarmupStairs(0.003, 50, warmup_steps=10, boundaries=(30, 40))
    found = rates(schedule, range(50))
    np.testing.assert_allclose(found, [get_lr(step) for step in range(50)], rtol=1e-6)


@pytest.mark.parametrize(
    "schedule",
    [
        WarmupCosine(0.1, 20, 3),
        WarmupLinear(0.1, 20, 3, end=0.01),
        WarmupRsqrt(0.1, 20, 3, timescale=5, cooldown_steps=4),
        WarmupStairs(0.1, 20, 3, boundaries=(7, 9)),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_schedules_survive_json(schedule):
    config = json.loads(json.dumps(keras.optimizers.schedules.serialize(schedule)))
    again = keras.optimizers.schedules.deserialize(config)
    np.testing.assert_array_equal(rates(again, range(20)), rates(schedule, range(20)))


def test_lengths_that_do_not_fit_are_refused():
    for steps in (10, 11, -1):
        refuses(f"warmup_steps={steps}, steps=10; lower", WarmupLinear, 0.1, 10, steps)
    refuses("steps must be a positive integer", WarmupCosine, 0.1, 0)
    refuses(r"cooldown_steps must not be negative.*-5", WarmupRsqrt, 0.1, 10, cooldown_steps=-5)
