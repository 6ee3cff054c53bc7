"""Layers of Keras and KerasCV as augmentations of batches, in NumPy and tf.data."""

import importlib.util
import inspect
import sys

import keras
import numpy as np
import pytest

from keras_vit.data import Batches
from keras_vit.data.keras_cv import LAYERS, augmentation
from tests.support import run_in_fresh_process

OPTIONS = {
    "RandomBrightness": {"factor": 0.2},
    "RandomColorJitter": {"brightness_factor": 0.3, "contrast_factor": 0.3},
    "RandomContrast": {"factor": 0.2},
    "RandomRotation": {"factor": 0.1},
    "RandomSharpness": {"factor": 0.5},
    "RandomTranslation": {"height_factor": 0.1, "width_factor": 0.1},
    "RandomZoom": {"height_factor": 0.1},
    "RandomCutout": {"height_factor": 0.3, "width_factor": 0.3},
    "RandomCropAndResize": {
        "target_size": (24, 32),
        "crop_area_factor": (0.5, 1.0),
        "aspect_ratio_factor": (0.75, 1.33),
    },
}
CV_JITTER = {"saturation_factor": 0.2, "hue_factor": 0.1}
# On JAX their histograms take many seconds to compile; they are tested with -m slow.
HEAVY = ("AugMix", "Equalization", "RandAugment")
KERAS = [name for name in LAYERS["keras"] if name not in HEAVY]


def pictures():
    return np.random.default_rng(0).integers(0, 256, (4, 24, 32, 3), dtype=np.uint8)


def check(name, **options):
    """Bytes come out of an array and of a dataset, of the same shape, and something changed."""
    images = pictures()
    before = images.copy()
    augmented = augmentation(name, seed=1, **options)(images)
    assert isinstance(augmented, np.ndarray) and augmented.dtype == np.uint8
    assert augmented.shape == images.shape
    np.testing.assert_array_equal(images, before)
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensors(images).map(augmentation(name, seed=1, **options))
    in_graph = next(iter(dataset))
    assert in_graph.dtype == tf.uint8 and in_graph.shape == images.shape
    if name not in ("keras:AutoContrast", "keras_cv:RandomCutout"):
        assert (augmented != images).any() or (in_graph.numpy() != images).any()


@pytest.mark.parametrize("name", KERAS)
def test_layers_of_keras(name):
    check(f"keras:{name}", **OPTIONS.get(name, {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", HEAVY)
def test_layers_of_keras_that_compile_long(name):
    check(f"keras:{name}")


@pytest.mark.skipif(not importlib.util.find_spec("keras_cv"), reason="KerasCV is not installed")
@pytest.mark.parametrize("name", LAYERS["keras_cv"])
def test_layers_of_keras_cv(name):
    options = OPTIONS.get(name, {}) | (CV_JITTER if name == "RandomColorJitter" else {})
    check(f"keras_cv:{name}", **options)


def test_a_layer_repeats_itself_with_its_seed_and_only_then():
    first, again, other = (augmentation("keras:RandomErasing", seed=seed) for seed in (1, 1, 2))
    images = pictures()
    np.testing.assert_array_equal(first(images), again(images))
    assert not np.array_equal(augmentation("keras:RandomErasing", seed=1)(images), other(images))


def test_batches_take_it_as_their_augmentation():
    labels = np.arange(4)
    augment = augmentation("keras:Solarization", addition_factor=0.0, threshold_factor=0.0)
    images, _ = Batches(pictures(), labels, 4, augment=augment)[0]
    assert images.shape == (4, 24, 32, 3) and images.min() >= -1 and images.max() <= 1


@pytest.mark.any_backend
def test_every_layer_exists_in_keras():
    assert all(inspect.isclass(getattr(keras.layers, name)) for name in LAYERS["keras"])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("keras_cv:RandomAugment", "keras_cv:RandAugment"),
        ("RandAugment", "keras:RandAugment"),
        ("keras:MixUp", "keras_vit.data.mixing"),
        (7, "keras:RandomFlip"),
    ],
)
def test_an_unknown_name_lists_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=nearest) as caught:
        augmentation(name)
    assert f"Received: {name!r}" in str(caught.value)


@pytest.mark.any_backend
def test_an_unknown_option_is_named():
    with pytest.raises(ValueError, match=r"keras:RandomFlip.*strength"):
        augmentation("keras:RandomFlip", strength=3)


@pytest.mark.any_backend
@pytest.mark.parametrize("change", [lambda x: x / 255, lambda x: x[0]])
def test_floats_and_single_images_are_refused(change):
    with pytest.raises(ValueError, match=r"uint8 .* Received"):
        augmentation("keras:RandomFlip")(change(pictures()))


@pytest.mark.any_backend
def test_without_keras_cv_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_cv", None)
    with pytest.raises(ImportError, match=r"keras3-vit\[keras-cv\]"):
        augmentation("keras_cv:RandAugment")


@pytest.mark.any_backend
def test_keras_cv_is_not_imported_by_default():
    code = "import sys, keras_vit.data.keras_cv; print('keras_cv' in sys.modules)"
    assert run_in_fresh_process(code, "numpy").split()[-1] == "False"
