"""What a stream of batches is made of, and the engine that makes it."""

import dataclasses
import importlib.util

from keras_vit.data import stream_numpy
from keras_vit.data.examples import Examples
from keras_vit.data.schedule import Schedule
from keras_vit.data.transform import Transform

ENGINES = ("auto", "tensorflow", "grain", "numpy")


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """Everything that decides about the batches of a pipeline.

    Attributes:
        examples: where images and labels come from.
        schedule: which of them make which batch.
        transform: what happens to each image.
        mixup, cutmix: parameters of the beta distributions, 0 for none.
        channels: 3 or 1, what encoded images are decoded to.
        threads: how many examples are read at a time.
    """

    examples: Examples
    schedule: Schedule
    transform: Transform
    mixup: float
    cutmix: float
    channels: int
    threads: int

    @property
    def mixes(self):
        """Whether images of a batch are mixed with each other."""
        return self.mixup > 0 or self.cutmix > 0

    def batches(self, start, engine):
        """The batches from a step on: endless in training, else up to the end of the split.

        Args:
            start: the step, counted from the first batch of epoch 0.
            engine: `"tensorflow"`, `"grain"` or `"numpy"`.

        Returns:
            iterator of (images, labels): float32 of shape (batch, height, width, channels);
            float32 one-hot labels of shape (batch, classes) in training, else int32 (batch,).
        """
        if engine == "tensorflow":
            from keras_vit.data.stream_tf import tensorflow_batches

            return tensorflow_batches(self, start)
        if engine == "numpy":
            return stream_numpy.numpy_batches(self, start)
        from keras_vit.data.stream_grain import grain_batches

        return grain_batches(self, start)


def choose_engine(engine, stream):
    """`engine`, or for `"auto"` NumPy for small images in memory, else the one that is installed.

    Raises:
        ValueError: another name.
        ImportError: it is not installed.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {ENGINES}. Received: engine={engine!r}")
    if engine == "numpy" or (engine == "auto" and stream_numpy.is_for(stream)):
        return "numpy"
    if engine == "auto":
        engine = "tensorflow" if _installed("tensorflow") else "grain"
    if not _installed(engine):
        how = 'pip install "keras3-vit[data]"'
        if engine == "tensorflow":
            how = 'pip install "keras3-vit[tensorflow]", or use engine="grain"'
        raise ImportError(f"engine={engine!r} needs the package {engine}. Install it with: {how}")
    return engine


def _installed(package):
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # hidden from imports, such as by sys.modules[name] = None
        return False
