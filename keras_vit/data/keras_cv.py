"""Augmentation layers of KerasCV and of Keras as functions of a batch of images.

The recipes need neither: their augmentations are `randaugment` and `mixing`. KerasCV is an extra,
because importing it takes ten seconds and TensorFlow, on every backend.
"""

import difflib
import importlib
import inspect

import keras
import numpy as np

from keras_vit.data.arrays import is_tensorflow, tf

# What is tested: layers that map images alone to images. Others mix labels (`mixing` does) or
# fail outside TensorFlow.
LAYERS = {
    "keras_cv": (
        "AugMix",
        "Grayscale",
        "GridMask",
        "RandAugment",
        "RandomColorJitter",
        "RandomCropAndResize",
        "RandomCutout",
        "RandomFlip",
    ),
    "keras": (
        "AugMix",
        "AutoContrast",
        "Equalization",
        "RandAugment",
        "RandomBrightness",
        "RandomColorJitter",
        "RandomContrast",
        "RandomErasing",
        "RandomFlip",
        "RandomGrayscale",
        "RandomRotation",
        "RandomSharpness",
        "RandomTranslation",
        "RandomZoom",
        "Solarization",
    ),
}
_NEEDED = {  # options without a default, and the one that the authors' Inception crop has
    "Grayscale": {"output_channels": 3},
}


def augmentation(name, *, seed=0, **options):
    """Makes an augmentation of a layer of KerasCV or Keras.

    ```python
    augment = augmentation("keras_cv:RandAugment", magnitude=0.5)
    images = augment(images)                                   # an array, on any backend
    dataset = dataset.batch(64).map(lambda x, y: (augment(x), y))  # tf.data, on any backend
    ```

    Args:
        name: the package and the layer, such as `"keras_cv:RandAugment"` or
            `"keras:RandomErasing"`; see `LAYERS`.
        seed: int, for the layer's own generator.
        **options: of the layer. `value_range` is (0, 255) unless given.

    Returns:
        A callable of uint8 images, shape (batch, height, width, channels), before the value range
        is set; an array gives an array, a tensor of TensorFlow a tensor. A second argument, the
        generator that `Batches` passes, is accepted and not used: the layers have their own
        generators, so that a resumed run does not repeat the images of an uninterrupted one, and
        in tf.data only a sequential map repeats them at all. Use `Transform(randaugment=...)`
        where that matters. On JAX, Keras's RandAugment and Equalization take 20 seconds before
        the first batch.

    Raises:
        ValueError: an unknown name; the nearest ones are listed. Or options that the layer does
            not take.
        ImportError: KerasCV is not installed.
    """
    package, layer_name = _checked(name)
    layer_class = getattr(_layers_of(package), layer_name)
    parameters = inspect.signature(layer_class.__init__).parameters
    defaults = {"seed": seed, "value_range": (0, 255)}
    defaults = {option: value for option, value in defaults.items() if option in parameters}
    try:
        layer = layer_class(**{**defaults, **_NEEDED.get(layer_name, {}), **options})
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} does not take these options. Received: {options} ({error})"
        ) from error
    return _LayerAugmentation(name, layer, takes_dict=package == "keras_cv")


class _LayerAugmentation:
    """Runs a layer on batches of bytes."""

    def __init__(self, name, layer, takes_dict):
        self.name, self.layer, self.takes_dict = name, layer, takes_dict

    def __repr__(self):
        return f"<augmentation {self.name}>"

    def __call__(self, images, rng=None):
        if is_tensorflow(images) and not tf.is_symbolic_tensor(images):
            return tf.constant(self(images.numpy()))
        self._check(images)
        if is_tensorflow(images):
            pixels = self._run(tf.cast(images, tf.float32))
            return tf.cast(tf.clip_by_value(tf.round(pixels), 0.0, 255.0), tf.uint8)
        pixels = keras.ops.convert_to_numpy(self._run(images.astype(np.float32)))
        return np.rint(pixels).clip(0, 255).astype(np.uint8)

    def _run(self, pixels):
        if self.takes_dict:
            return self.layer({"images": pixels}, training=True)["images"]
        return self.layer(pixels, training=True)

    def _check(self, images):
        if str(getattr(images.dtype, "name", images.dtype)) != "uint8" or len(images.shape) != 4:
            raise ValueError(
                f"{self.name} needs uint8 images of shape (batch, height, width, channels), so it "
                "comes after batching and before the value range. Received: "
                f"{images.dtype} of shape {tuple(images.shape)}"
            )


def _checked(name):
    """(package, layer) of a name, or a ValueError that lists the nearest."""
    known = [f"{package}:{layer}" for package, layers in LAYERS.items() for layer in layers]
    if name in known:
        return name.split(":")
    nearest = difflib.get_close_matches(str(name), known, n=3, cutoff=0.3) or known
    raise ValueError(
        f"Unknown augmentation. Received: {name!r}; the nearest are {', '.join(nearest)}. "
        "Labels are mixed by keras_vit.data.mixing; any function of images can be used as well."
    )


def _layers_of(package):
    if package == "keras":
        return keras.layers
    try:
        return importlib.import_module("keras_cv").layers
    except ImportError as error:
        raise ImportError(
            "The augmentations keras_cv:... need KerasCV. Install it with: "
            f'pip install "keras3-vit[keras-cv]" ({error})'
        ) from error
