"""Layers of Keras and KerasCV that augment the batches of a pipeline.

A recipe keeps them as text, so that it stays a value: each layer's Keras config as JSON, without
name, dtype and seed. What they draw is a function of (seed, step), as everywhere in a pipeline.
"""

import concurrent.futures
import functools
import json
import re

import keras
import numpy as np

from keras_vit.checks import needs_extra
from keras_vit.text import abridged, brief
from keras_vit.workarounds import draw_apart, python_random

# One thread computes with the layers, whoever asks. They keep state, and here neither a `strategy`,
# a `distribution` nor a dtype policy that a caller has set reaches them.
_THREAD = concurrent.futures.ThreadPoolExecutor(1, "keras_layers")
_TRIED = 64  # images of a trial, at most


def layer_configs(layers, name="augment_layers"):
    """The configs of layers, a tuple of JSON texts, or a ValueError.

    Layers may be such configs already; a `Sequential` stands for its layers. `name` is the
    argument that received them.
    """
    if isinstance(layers, (str, keras.Layer)) or not hasattr(layers, "__iter__"):
        layers = [layers]
    configs = []
    for layer in layers:
        # KerasCV's Augmenter is no complete layer: it has no name and no config.
        if isinstance(layer, keras.Sequential) or type(layer).__name__ == "Augmenter":
            configs += layer_configs(layer.layers, name)
            continue
        config = cause = None
        try:
            is_made = isinstance(layer, keras.Layer)
            config = keras.saving.serialize_keras_object(layer) if is_made else json.loads(layer)
            config = json.loads(json.dumps(config))
        except Exception as error:  # of any kind: a layer of a user writes its config itself
            cause = error
        if cause or not _is_layer(config):
            raise ValueError(
                f"{name} must be layers of Keras or KerasCV, such as keras.layers.RandAugment() or "
                f"keras_cv.layers.MixUp(). Received: {brief(layer)}; functions of one image are "
                "augmentations by name, see keras_vit.data.augmentation."
            ) from cause
        configs.append(json.dumps(_plain(config, name), sort_keys=True))
    return tuple(configs)


def _plain(value, name):
    """A config, or a part of it, without what tells two equal layers apart."""
    if isinstance(value, list):
        return [_plain(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    if list(value.get("value_range", (0, 255))) != [0, 255]:
        raise ValueError(
            f"The layers of {name} see pixels of 0..255; the pipeline scales them afterwards. "
            f"Received: value_range={tuple(value['value_range'])}; take value_range=(0, 255)."
        )
    dropped = ("name", "trainable", "build_config", "compile_config")
    plain = {key: _plain(part, name) for key, part in value.items() if key not in dropped}
    return plain | {key: of for key, of in (("seed", None), ("dtype", "float32")) if key in plain}


def described(configs):
    """Layers as people write them, a text."""
    shown = []
    for text in configs:
        layer = json.loads(text)
        options = [
            f"{key}={described([json.dumps(part)]) if _is_layer(part) else part}"
            for key, part in layer["config"].items()
            if part is not None and key not in ("dtype", "data_format", "value_range")
        ]
        package = "keras_cv." if "keras_cv" in f"{layer['registered_name']}" else ""
        shown.append(f"{package}{layer['class_name']}({', '.join(options)})")
    return ", ".join(shown)


def _is_layer(value):
    return isinstance(value, dict) and {"class_name", "config", "registered_name"} <= value.keys()


def augment(batch, rng, configs):
    """(images, labels, notes) after the layers: float32 pixels of 0..255, and labels mixed alike.

    Shapes: images (batch, height, width, channels) of 0..255, float32 labels (batch, width). The
    `numpy.random.Generator` decides all that the layers draw.
    """
    images, labels, notes = batch
    if not len(images):  # none of them could be read
        return batch
    return *_THREAD.submit(_apply, configs, images, labels, rng).result(), notes


@functools.cache
def check(configs, batch_shape, label_width):
    """Tries the layers on a batch of noise of such a shape, and raises what a run would end with.

    Raises:
        ImportError: KerasCV is not installed.
        ValueError: a layer fails, changes the shape of a batch, returns other values than 0..255
            or draws random numbers that no seed decides.
    """
    count = min(batch_shape[0], _TRIED)
    batch = (_noise((count, *batch_shape[1:])), _noise((count, label_width)) / 255, None)
    for config in configs:
        try:
            first, again = (augment(batch, np.random.default_rng(1), (config,)) for _ in range(2))
            fault = _fault(batch[:2], first[:2], again[:2])
        except ImportError:
            raise
        except Exception as error:  # of any kind, from any layer
            text = " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split())  # no Keras colours
            fault = f"it fails with {type(error).__name__}: {abridged(text, 300)}"
        if fault:
            raise ValueError(
                "A layer of augment_layers does not fit a pipeline. Received: "
                f"{described((config,))}; {fault}. Leave it out or take another one."
            )


def _fault(batch, first, again):
    """What is wrong with a layer that has made these of a batch, or None."""
    pixels = first[0]
    if [x.shape for x in first] != [x.shape for x in batch]:
        return (
            f"it makes images of shape {pixels.shape} from {batch[0].shape}, and the size of "
            "images is the recipe's: recipe.replace(image_size=...)"
        )
    if not np.isfinite(pixels).all() or pixels.max() < 16:
        return (
            f"it makes values of {pixels.min():g}..{pixels.max():g} from 0..255, and the pipeline "
            "scales the pixels after it"
        )
    if not all(map(np.array_equal, first, again)):
        return (
            f"on {keras.backend.backend()} it draws random numbers that no seed decides, so that "
            "no run could be repeated or continued"
        )
    return None


def _noise(shape):
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.float32)


def _apply(configs, images, labels, rng):
    images = images.astype(np.float32)
    with keras.device("cpu"):
        for config in configs:
            images, labels = _Layer(config, images.shape, labels.shape)(images, labels, rng)
            images = images.clip(0, 255)
    return images, labels


@functools.lru_cache(64)
class _Layer:
    """A layer on arrays, whose random numbers all follow from a generator of NumPy."""

    def __init__(self, config, image_shape, label_shape):
        if "keras_cv" in config:
            computes = "which computes with TensorFlow on every backend"
            with needs_extra("cv", f"Layers of keras_cv need KerasCV, {computes}"):
                import keras_cv  # noqa: F401
            _tensorflow()
        self.layer = keras.saving.deserialize_keras_object(json.loads(config))
        draw_apart(self.layer)
        ancestors = type(self.layer).__mro__
        self.is_keras_cv = any(each.__module__.startswith("keras_cv.") for each in ancestors)
        self.takes_labels = True
        # The first call is none that counts: it may draw more random numbers than the next ones.
        first = _noise(image_shape), _noise(label_shape) / 255, np.random.default_rng(0)
        try:
            self(*first)
        except Exception as error:  # of any kind: some layers take images alone
            self.takes_labels = False
            try:
                self(*first)
            except Exception:
                raise error from None

    def __call__(self, images, labels, rng):
        to_tensor, to_numpy = keras.ops.convert_to_tensor, keras.ops.convert_to_numpy
        if self.is_keras_cv:
            to_tensor, to_numpy = _tensorflow()[0].constant, np.asarray
        inputs = {"images": to_tensor(images), "labels": to_tensor(labels)}
        with python_random(self._seed(rng)):
            outputs = self.layer(inputs if self.takes_labels else inputs["images"], training=True)
        if not self.takes_labels:
            return to_numpy(outputs).astype(np.float32), labels
        return tuple(to_numpy(outputs[name]).astype(np.float32) for name in inputs)

    def _seed(self, rng):
        """Sets all that the layer draws from, and returns a seed for Python's own generator."""
        for variable in self.layer.variables:
            if variable.name == "seed_generator_state":
                variable.assign(np.array([rng.integers(2**31 - 1), 0]))
        seed = int(rng.integers(2**31 - 1))
        if self.is_keras_cv:
            tf, generator = _tensorflow()
            tf.random.set_seed(seed)
            generator.reset_from_seed(seed)
        return seed


@functools.cache
def _tensorflow():
    """TensorFlow, and its global generator, which a layer of KerasCV keeps when it is made."""
    import tensorflow as tf

    generator = tf.random.Generator.from_seed(0)
    tf.random.set_global_generator(generator)
    return tf, generator
