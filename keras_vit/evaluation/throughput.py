"""How many images per second a model classifies here."""

import dataclasses
import time

import keras
import numpy as np

from keras_vit.checks import positive_int
from keras_vit.data.preprocess import input_of
from keras_vit.evaluation.result import Result


@dataclasses.dataclass(frozen=True)
class Throughput(Result):
    """Measured speed of a model's forward pass.

    Attributes:
        model, backend: what was measured, and on which backend of Keras.
        batch_size: images per call.
        image_size: (height, width) in pixels.
        seconds: what each measured call took.
        first_seconds: what the first call took, which compiles.
    """

    model: str
    backend: str
    batch_size: int
    image_size: tuple
    seconds: tuple
    first_seconds: float

    @property
    def images_per_second(self):
        """By the median call."""
        return self.batch_size / float(np.median(self.seconds))

    @property
    def quartiles(self):
        """(low, high) images per second, by the slower and the faster quarter of the calls."""
        slow, fast = np.quantile(self.seconds, (0.75, 0.25))
        return self.batch_size / float(slow), self.batch_size / float(fast)

    def to_dict(self):
        return {
            "images_per_second": self.images_per_second,
            "quartiles": list(self.quartiles),
            **dataclasses.asdict(self),
            "image_size": list(self.image_size),
            "seconds": list(self.seconds),
        }

    def __str__(self):
        low, high = self.quartiles
        height, width = self.image_size
        return (
            f"{self.model} on {self.backend}: {self.images_per_second:.4g} images/s (quartiles "
            f"{low:.4g} to {high:.4g}), {len(self.seconds)} calls of {self.batch_size} images of "
            f"{height}x{width}; first call {self.first_seconds:.2f} s"
        )


def throughput(model, batch_size=32, image_size=None, repeats=10, warmup=2):
    """Measures images per second of the compiled forward pass.

    A call begins with the images where the backend computes and ends when the outputs are NumPy
    arrays, so nothing is still under way when the clock is read.

    Args:
        model: a Keras model of images.
        batch_size: images per call.
        image_size: int or (height, width) in pixels; by default the model's.
        repeats: measured calls.
        warmup: calls before them, at least the one that compiles.

    Returns:
        A `Throughput`.

    Raises:
        ValueError: the model does not tell the size of its images and neither does `image_size`,
            or a number below 1.
    """
    batch_size, repeats = positive_int(batch_size, "batch_size"), positive_int(repeats, "repeats")
    warmup = positive_int(warmup, "warmup")
    size, channels, _ = input_of(model, image_size=image_size)
    images = np.random.default_rng(0).uniform(-1, 1, (batch_size, *size, channels))
    images = keras.ops.convert_to_tensor(images.astype("float32"))
    seconds = []
    for _ in range(warmup + repeats):
        start = time.perf_counter()
        outputs = model.predict_on_batch(images)
        keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)
        seconds.append(time.perf_counter() - start)
    backend = keras.backend.backend()
    measured = tuple(seconds[warmup:])
    return Throughput(model.name, backend, batch_size, tuple(size), measured, seconds[0])
