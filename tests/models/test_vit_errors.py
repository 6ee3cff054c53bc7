"""A wrong argument or image is refused with what was received and what would fit."""

import dataclasses
import inspect
import re

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checks import ELSEWHERE
from tests.support import BACKEND, images, refuses, run_in_fresh_process, tiny_vit

WRONG_ARGUMENTS = [
    ({"image_size": 30}, "image_size=(30, 30), patch_size=(8, 8)", "(24, 24) and (32, 32)"),
    ({"image_size": (16, 9)}, "image_size=(16, 9)", "(16, 8) and (16, 16)"),
    ({"image_size": 0}, "image_size=0", "positive integer"),
    ({"image_size": (16, 16, 3)}, "image_size=(16, 16, 3)", "pair (height, width)"),
    ({"patch_size": -8}, "patch_size=-8", "positive integer"),
    ({"num_heads": 3}, "width=8, num_heads=3", "[1, 2, 4]"),
    ({"num_heads": 16}, "width=8, num_heads=16", "[2, 4, 8]"),
    ({"num_heads": "2"}, "num_heads='2'", "positive integer"),
    ({"width": 0}, "width=0", "positive integer"),
    ({"depth": 0}, "depth=0", "positive integer"),
    ({"depth": 1.5}, "depth=1.5", "positive integer"),
    ({"depth": float("inf")}, "depth=inf", "positive integer"),
    ({"epsilon": 0}, "epsilon=0", "positive number"),
    ({"variant": ["B/16"]}, "variant=['B/16']", "'B/16'"),
    ({"channels": 0}, "channels=0", "positive integer"),
    ({"image_size": 10**6}, "image_size=(1000000, 1000000)", "smaller images"),
    ({"image_size": 4096, "position": "relative_2d"}, "at most 32768 patches", "smaller images"),
    ({"image_size": 10**6, "stem": ()}, "image_size=(1000000, 1000000)", "smaller images"),
    ({"mlp_dim": -4}, "mlp_dim=-4", "positive integer"),
    ({"representation_size": 0}, "representation_size=0", "positive integer"),
    (
        {"pool": "max"},
        "pool='max'",
        "('token', 'mean', 'token_mean', 'map', 'probe', 'first', None)",
    ),
    (
        {"position": "rotary"},
        "position='rotary'",
        "('learned_1d', 'learned_2d', 'sincos_2d', 'relative', 'relative_2d', 'none')",
    ),
    ({"position_at": "output"}, "position_at='output'", "('input', 'every_layer', 'shared')"),
    ({"gelu": "fast"}, "gelu='fast'", "('tanh', 'erf')"),
    ({"class_token": False}, "class_token=False", "pool='mean', 'map', 'first' or None"),
    (
        {"position": "relative", "position_at": "input"},
        "position='relative', position_at='input'",
        "'every_layer' or 'shared'",
    ),
    ({"rotary": {}, "position_at": "shared"}, "position_at='shared'", "position_at='input'"),
    ({"registers": -1}, "registers=-1", "positive integer"),
    ({"interpolation": "nearest"}, "interpolation='nearest'", "'align_corners'"),
    ({"norm_after_pool": True, "pool": None}, "norm_after_pool=True, pool=None", "'mean'"),
    ({"num_classes": -1}, "num_classes=-1", "positive integer"),
    ({"num_classes": 2.5}, "num_classes=2.5", "positive integer"),
    ({"num_classes": "10"}, "num_classes='10'", "positive integer"),
    ({"num_classes": True}, "num_classes=True", "positive integer"),
    ({"variant": "B/x"}, "variant='B/x'", "'B/16'"),
    ({"variant": "Huge"}, "variant='Huge'", "'H/14'"),
    ({"variant": "B/0"}, "variant='B/0'", "another patch size (such as 'B/24')"),
    ({"variant": 224}, "variant=224", "'B/16'"),
    ({"widht": 8}, "argument='widht'", "the nearest are ['width'"),
    ({"image_sise": 8}, "argument='image_sise'", "the nearest are ['image_size'"),
    ({"num_labels": 8}, "argument='num_labels'", "use num_classes."),
    ({"img_size": 8}, "argument='img_size'", "use image_size."),
    ({"drop_path_rate": 0.1}, "argument='drop_path_rate'", "use stochastic_depth."),
    ({"mlp_ratio": 4}, "argument='mlp_ratio'", "use mlp_dim, which is the width times"),
    ({"input_shape": (8, 8, 3)}, "argument='input_shape'", "image_size=(height, width) and ch"),
    ({"pretrained": True}, "argument='pretrained'", "use weights='NAME' of a builder"),
    ({"dropout": 1.5}, "dropout=1.5", "[0, 1)"),
    ({"attention_dropout": -0.1}, "attention_dropout=-0.1", "[0, 1)"),
    ({"stochastic_depth": 1}, "stochastic_depth=1", "[0, 1)"),
]


@pytest.mark.parametrize("options, received, remedy", WRONG_ARGUMENTS, ids=lambda x: str(x)[:40])
def test_wrong_arguments(options, received, remedy):
    with pytest.raises(ValueError, match=re.escape(received)) as error:
        tiny_vit(**options)
    assert remedy in str(error.value)


WRONG_IMAGES = {
    "size": (2, 24, 24, 3),
    "same_number_of_patches": (2, 8, 32, 3),
    "channels_first": (2, 3, 16, 16),
    "grayscale": (2, 16, 16, 1),
    "no_batch": (16, 16, 3),
    "no_channels": (2, 16, 16),
    "video": (2, 4, 16, 16, 3),
}
MESSAGE = r"takes images of shape \('batch', 16, 16, 3\), channels last. Received: shape .*Resize"


@pytest.mark.parametrize("shape", WRONG_IMAGES.values(), ids=WRONG_IMAGES)
def test_wrong_images_in_a_call(shape):
    model = tiny_vit(depth=1)
    for wrong in (np.zeros(shape, "float32"), keras.Input(shape[1:])):
        refuses(MESSAGE, model, wrong)


@pytest.mark.parametrize("name", ["size", "same_number_of_patches", "grayscale"])
def test_wrong_images_in_fit_evaluate_and_predict(name):
    """On JAX, `predict` goes past `__call__`: 8 x 32 pixels gave logits without a word."""
    model = tiny_vit(depth=1)
    model.compile("sgd", "mse")
    x, y = np.zeros(WRONG_IMAGES[name], "float32"), np.zeros((2, 3))
    for call, arrays in ((model.fit, (x, y)), (model.evaluate, (x, y)), (model.predict, (x,))):
        refuses(MESSAGE, call, *arrays, verbose=0)


def test_wrong_images_after_right_ones():
    model = tiny_vit(depth=1)
    model.compile("sgd", "mse")
    y = np.zeros((2, 3))
    model.fit(np.zeros((2, 16, 16, 3), "float32"), y, verbose=0)
    x = np.zeros(WRONG_IMAGES["same_number_of_patches"], "float32")
    # TensorFlow, which by then compiles for images of any size, refuses them while it runs.
    refusal = r"takes images of shape|not compatible with expected shape \[\?,16,16,3\]"
    refuses(refusal, model.fit, x, y, verbose=0, error=Exception)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="elsewhere every tensor knows its shape")
def test_data_that_hides_its_shape():
    """As after `tf.data.Dataset.from_generator` and `tf.py_function`."""
    import tensorflow as tf

    data = tf.data.Dataset.from_generator(
        lambda: iter([(images(), np.zeros((4, 3), "float32"))]),
        output_signature=(tf.TensorSpec((None, None, None, 3)), tf.TensorSpec((None, 3))),
    )
    model = tiny_vit(depth=1)
    model.compile("sgd", "mse")
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()
    assert model.predict(data.map(lambda x, y: x), verbose=0).shape == (4, 3)


FLOAT64 = """
import tests.bare
import keras_vit
keras_vit.VisionTransformer(
    image_size=16, patch_size=8, width=8, depth=1, num_heads=2, num_classes=3, dtype="float64")
"""


@pytest.mark.skipif(BACKEND != "jax", reason="the other backends always have float64")
def test_jax_without_64_bit_mode_refuses_float64():
    """Without a word, every number would be float32."""
    error = run_in_fresh_process(FLOAT64, "jax", check=False)
    assert "ValueError: The backend cuts float64 down to float32" in error
    assert "JAX_ENABLE_X64=1" in error


def test_names_of_other_libraries_lead_to_arguments_that_exist():
    """Each is refused with one name, which is an argument wherever it is not a sentence."""
    known = [field.name for field in dataclasses.fields(keras_vit.Variant)]
    known += [*inspect.signature(keras_vit.ViT_B16).parameters, "name", "dtype"]
    words = [word for theirs in ELSEWHERE.values() for word in theirs.split()]
    assert {here for here in ELSEWHERE if here.isidentifier()} <= set(known)
    assert len(words) == len(set(words)) and not set(words) & (set(known) - {"weights"})
