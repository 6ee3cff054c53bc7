"""The update of a small ViT: compiled, to be read; or made, to be measured."""

import keras
import numpy as np

import keras_vit
from keras_vit import training

CLASSES = 16


def make_model(devices, optimizer="AdamW", clip=None, ema=False, **options):
    """A compiled model with `CLASSES` classes on the `Devices` given; `fit` can begin."""
    with devices.scope():
        model = keras_vit.VisionTransformer(**{"num_classes": CLASSES, **options})
        rule = getattr(training, optimizer)(1e-3, global_clipnorm=clip, use_ema=ema)
        model.compile(rule, keras.losses.CategoricalCrossentropy(from_logits=True))
        rule.build(model.trainable_variables)
    devices.prepare(model)
    return model


def make_batch(model, count, seed=0):
    """Random images in [-1, 1] and one-hot labels."""
    rng = np.random.default_rng(seed)
    shape = (count, *model.image_size, model.channels)
    labels = np.eye(CLASSES, dtype="float32")[rng.integers(0, CLASSES, count)]
    return rng.uniform(-1, 1, shape).astype("float32"), labels


def compile_with_jax(devices, model, count):
    """The compiled program of `model.fit` for one batch of `count` images."""
    import jax

    variables = (model.trainable_variables, model.non_trainable_variables)
    variables += (model.optimizer.variables, model.metrics_variables)
    state = tuple([v.value for v in group] for group in variables)
    batch, out = make_batch(model, count), None
    if devices.mode != "single":
        out = (None, tuple([value.sharding for value in group] for group in state))
        mesh = state[0][0].sharding.mesh
        cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(mesh.axis_names[0]))
        batch = tuple(jax.device_put(array, cut) for array in batch)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=out)
    return step.lower(state, (*batch, None)).compile()
