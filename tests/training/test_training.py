"""The optimizer with the authors' settings, and what stands around a run."""

import math

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer, training


def tiny(**options):
    return VisionTransformer(
        image_size=8, patch_size=4, width=8, depth=1, num_heads=2, num_classes=3, **options
    )


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(6, 8, 8, 3)).astype("float32"), np.arange(6) % 3


def compiled(model, **options):
    optimizer = training.adamw(1e-2, steps=10, **options)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def test_the_schedule_warms_up_linearly_and_decays_as_a_cosine():
    schedule = training.adamw(0.3, steps=110, warmup_steps=10).get_config()["learning_rate"]
    schedule = keras.optimizers.schedules.deserialize(schedule)
    for step in (0, 1, 5, 10, 11, 60, 109):
        expected = 0.3 * step / 10
        if step >= 10:
            expected = 0.3 * 0.5 * (1 + math.cos(math.pi * (step - 10) / 100))
        assert float(schedule(step)) == pytest.approx(expected, abs=1e-6)
    constant_start = training.adamw(0.3, steps=100).get_config()["learning_rate"]
    assert float(keras.optimizers.schedules.deserialize(constant_start)(0)) == pytest.approx(0.3)


@pytest.mark.parametrize("warmup_steps", [10, 11, -1])
def test_a_warm_up_that_does_not_fit_is_refused(warmup_steps):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup_steps}, steps=10; lower"):
        training.adamw(0.1, steps=10, warmup_steps=warmup_steps)


@pytest.mark.parametrize("position", ["learned_1d", "learned_2d", "relative"])
def test_only_kernels_decay(position):
    """With zero gradients AdamW moves nothing but what decays."""
    model = compiled(tiny(pool="map", class_token=True, position=position), weight_decay=0.5)
    before = {v.path: keras.ops.convert_to_numpy(v).copy() for v in model.trainable_variables}
    for variable in model.trainable_variables:  # decay of a zero would not show
        variable.assign(np.ones(variable.shape))
    model.optimizer.apply(
        [keras.ops.zeros(v.shape) for v in model.trainable_variables], model.trainable_variables
    )
    moved = {
        v.path for v in model.trainable_variables if np.any(keras.ops.convert_to_numpy(v) != 1.0)
    }
    assert moved == {path for path in before if path.endswith("/kernel")}
