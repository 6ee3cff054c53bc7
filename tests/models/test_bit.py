"""BiT: its numbers, its names, what it computes, its config, and what it refuses."""

import json
import re

import keras
import numpy as np
import pytest

from keras_vit import builders
from keras_vit.layers.resnet import StdConv2D
from keras_vit.models.bit import BIT_VARIANTS, BiT, BiTVariant, get_bit_variant
from keras_vit.preprocessing import BIT, Preprocessing
from tests.arrays import assert_close, dtype_of, images, largest, to_numpy
from tests.definitions import below
from tests.layers.resnet_cases import bottleneck, group_norm, relu, root
from tests.models.test_variants import parameters
from tests.support import BACKEND, forward, precision, randomize, refuses, tiny_bit

# Of the authors' code, for 1000 and 21843 classes and for no head; those of R50x2, R152x1 and
# R200x3 are of timm's ResNetV2.
COUNTS = {
    "R50x1": (25549352, 68256659, 23500352),
    "R50x2": (97988712, 183382483, 93891712),
    "R50x3": (217319080, 345399315, 211174080),
    "R101x1": (44541480, 87248787, 42492480),
    "R101x3": (387934888, 516015123, 381789888),
    "R152x1": (60185128, 102892435, 58136128),
    "R152x2": (236335208, 321728979, 232238208),
    "R152x4": (936533224, 1107299923, 928340224),
    "R200x3": (568633000, 568633000 + (6144 + 1) * 20843, 568633000 - (6144 + 1) * 1000),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_parameter_counts(name, no_memory):
    with_head, of_21k, trunk = COUNTS[name]
    assert parameters(BiT(name, include_top=False)) == trunk
    assert trunk + (BIT_VARIANTS[name].features + 1) * 1000 == with_head
    assert trunk + (BIT_VARIANTS[name].features + 1) * 21843 == of_21k
    if name == "R50x1":
        assert parameters(BiT(name)) == with_head


def test_every_variant_has_a_builder(no_memory):
    assert set(BIT_VARIANTS) == set(COUNTS)
    for name, variant in BIT_VARIANTS.items():
        build = getattr(builders, f"BiT_{name}")
        model = build(num_classes=5, blocks=(1,), image_size=32)
        assert model.variant == variant.replace(blocks=(1,))
        assert model.output_shape == (None, 5)
        assert (model.name, model.image_size) == (f"bit_{name.lower()}", (32, 32))
        assert build.__name__ in repr(build)
        headless = build(include_top=False, blocks=(1,), name="mine")
        assert (headless.name, headless.output_shape) == ("mine", (None, headless.variant.features))


def test_a_variant_is_a_value():
    assert BiTVariant() == get_bit_variant() == BIT_VARIANTS["R50x1"]
    assert get_bit_variant(BIT_VARIANTS["R101x3"], width=1).blocks == (3, 4, 23, 3)
    assert hash(get_bit_variant("R50x3")) == hash(BIT_VARIANTS["R50x1"].replace(width=3))
    assert BiTVariant(blocks=[1, 2]).blocks == (1, 2)


NAMES = {
    "v2": ["images", "root", "stage_1_unit_1", "stage_2_unit_1", "norm", "relu", "pool", "head"],
    "v1": ["images", "root", "stage_1_unit_1", "stage_2_unit_1", "pool", "head"],
}


@pytest.mark.parametrize("version", NAMES)
def test_names_of_layers(version):
    assert [layer.name for layer in tiny_bit(version=version).layers] == NAMES[version]


@pytest.mark.parametrize("version", NAMES)
def test_paths_of_variables(version):
    """Part of the interface: weights, freezing and per-layer learning rates rely on them."""
    unit = "conv1/kernel conv2/kernel conv3/kernel conv_proj/kernel"
    norms = ["norm1", "norm2", "norm3"] + ["norm_proj"] * (version == "v1")
    last = "norm" if version == "v2" else "root/norm"
    parts = [*unit.split(), *(f"{norm}/{kind}" for norm in norms for kind in ("gamma", "beta"))]
    expected = ["root/conv/kernel", f"{last}/gamma", f"{last}/beta", "head/kernel", "head/bias"]
    expected += [f"stage_1_unit_1/{part}" for part in parts]
    # A unit whose input has the shape of its output needs no projection.
    expected += [f"stage_1_unit_2/{part}" for part in parts if "_proj" not in part]
    model = tiny_bit(blocks=(2,), version=version)
    assert sorted(v.path for v in model.weights) == sorted(expected)


def bit_v2(weights, x, stages):
    """The paper's network with one unit per stage, in NumPy."""
    x = root("v2", "bit")(below(weights, "root"), x)
    for stage in range(1, stages + 1):
        unit = bottleneck(1 if stage == 1 else 2, "v2", "bit")
        x = unit(below(weights, f"stage_{stage}_unit_1"), x)
    features = relu(group_norm(below(weights, "norm"), x, 1e-5)).mean(axis=(1, 2))
    return features @ weights["head/kernel"] + weights["head/bias"]


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5)])
def test_equals_the_paper_in_numpy(dtype, tolerance):
    with precision(dtype):
        model = randomize(tiny_bit(channels=2, dtype=dtype))
        x = images((2, 23, 30, 2))
        outputs = forward(model, x.astype(dtype))
        assert dtype_of(outputs) == dtype
        assert {dtype_of(v) for v in model.weights} == {dtype}
        weights = {v.path: to_numpy(v).astype("float64") for v in model.weights}
    expected = bit_v2(weights, x.astype("float64"), 2)
    assert_close(outputs, expected, tolerance * max(largest(expected), 1))


def test_half_precision_keeps_norms_and_logits_in_float32():
    model, exact = (randomize(tiny_bit(dtype=dtype)) for dtype in ("mixed_bfloat16", "float32"))
    inner = keras.Model(model.input, [model.output, model.get_layer("stage_2_unit_1").output])
    logits, features = forward(inner, images())
    assert (dtype_of(logits), dtype_of(features)) == ("float32", "bfloat16")
    assert {dtype_of(v) for v in model.weights} == {"float32"}
    assert 0 < largest(to_numpy(logits) - to_numpy(forward(exact, images()))) < 0.2


def test_half_precision_rounds_kernels_behind_their_standardisation():
    """In front of it, a mean that the standardisation takes away would cost the digits."""
    layer = StdConv2D(8, 3, numerics="google", dtype="mixed_bfloat16")
    layer.build((None, 16, 16, 3))
    before = to_numpy(forward(layer, images()))
    layer.kernel.assign(layer.kernel + 16.0)
    assert_close(forward(layer, images()), before, 0.02 * largest(before))


# TensorFlow's own convolution of no images on a CPU gives another shape.
NO_IMAGES = () if BACKEND == "tensorflow" else ((0, 16, 16, 3),)


@pytest.mark.parametrize("shape", [(1, 33, 47, 3), (3, 1, 5, 3), *NO_IMAGES])
def test_images_of_any_size_give_logits(shape):
    logits = forward(randomize(tiny_bit(version="v1")), images(shape))
    assert tuple(logits.shape) == (shape[0], 3)


def test_features_without_a_head():
    model = randomize(tiny_bit(include_top=False))
    assert model.num_classes == 0
    assert model.output_shape == (None, 256)
    assert tuple(forward(model, images()).shape) == (4, 256)


def test_a_fresh_model_has_a_head_of_zeros_and_its_facts():
    model = tiny_bit()
    assert_close(forward(model, images()), np.zeros((4, 3)), 0)
    assert (model.preprocessing, model.class_names, model.label_set) == (BIT, None, None)
    assert (model.image_size, model.channels, model.num_classes) == ((16, 16), 3, 3)


EVERYTHING = {"image_size": (16, 24), "channels": 1, "num_classes": 7, "version": "v1"}
EVERYTHING |= {"numerics": "google", "blocks": (2, 1), "name": "everything"}
EVERYTHING |= {"dtype": "mixed_bfloat16"}


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"num_classes": 0, "numerics": "bit_paper"}])
def test_config_round_trip(options):
    model = tiny_bit(**options)
    model.preprocessing = Preprocessing(crop_fraction=0.875, resize="shortest")
    model.class_names = tuple("abcdefghij"[: model.num_classes]) or None
    model.label_set = "abc"
    model.weights_from = "BiT-M-R50x1"
    model.get_layer("root").trainable = False
    config = json.loads(json.dumps(model.get_config()))
    twin = BiT.from_config(config)
    assert json.loads(json.dumps(twin.get_config())) == config
    assert (twin.variant, twin.preprocessing) == (model.variant, model.preprocessing)
    assert (twin.class_names, twin.label_set) == (model.class_names, model.label_set)
    assert twin.weights_from == "BiT-M-R50x1"
    theirs, ours = ([(v.path, v.shape, v.trainable) for v in m.weights] for m in (twin, model))
    assert theirs == ours
    assert not twin.get_layer("root").trainable
    for name in set(options) - {"dtype"}:
        assert model.get_config()[name] == options[name], name


def test_one_step_of_training():
    model = tiny_bit(blocks=(1,))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    labels = np.arange(4) % 3
    before = model.evaluate(images(), labels, verbose=0)
    assert before == pytest.approx(np.log(3), abs=1e-5)
    model.fit(images(), labels, epochs=2, verbose=0)
    assert model.evaluate(images(), labels, verbose=0) < before
    assert model.predict(images(), verbose=0).shape == (4, 3)


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (2, 16, 16, 1)], ids=str)
def test_wrong_images(shape):
    """Of any size, but channels last and as many as the model has; see `test_vit_errors.py`."""
    x, model = np.zeros(shape, "float32"), tiny_bit()
    message = r"of shape \('batch', 'height', 'width', 3\), channels last. Received: shape"
    refuses(message, model, x)
    refuses(message, model.predict, x, verbose=0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the other backends know every shape")
def test_a_pipeline_that_does_not_know_its_shapes():
    import tensorflow as tf

    model, x = randomize(tiny_bit()), images()
    signature = tf.TensorSpec((None, None, None, None), "float32")
    compute = tf.function(lambda images: model(images), input_signature=[signature])
    assert_close(compute(x), model(x), 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        compute(x[..., :1])


WRONG_ARGUMENTS = [
    ({"variant": "R34x1"}, "variant='R34x1'", "'R50x1'"),
    ({"variant": 224}, "variant=224", "'R152x4'"),
    ({"depth": 3}, "argument='depth'", "'blocks'"),
    ({"blocks": ()}, "blocks=()", "(3, 4, 6, 3)"),
    ({"blocks": 50}, "blocks=50", "(3, 4, 6, 3)"),
    ({"blocks": (1, 0)}, "each number of blocks=0", "positive integer"),
    ({"width": 0.3}, "width=0.3", "multiple of 0.5"),
    ({"width": -1}, "width=-1", "positive number"),
    ({"version": "v3"}, "version='v3'", "('v1', 'v2')"),
    ({"numerics": "float"}, "numerics='float'", "'bit_paper'"),
]


@pytest.mark.parametrize("options, received, remedy", WRONG_ARGUMENTS, ids=lambda x: str(x)[:40])
def test_wrong_arguments(options, received, remedy):
    with pytest.raises(ValueError, match=re.escape(received)) as error:
        tiny_bit(**options)
    assert remedy in str(error.value)
