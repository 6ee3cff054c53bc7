"""`ImageDataset`: the value that every dataset in memory is."""

import dataclasses
import math

import numpy as np

from keras_vit.data.splits import stratified_split

MAX_BYTES = 4 * 2**30  # past this the user is told before memory runs out


# eq=False: comparing arrays field by field has no single truth value.
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """An image classification dataset held in memory.

    Attributes:
        name: what the dataset is called in reports and file names.
        train_images, test_images: shape (images, height, width, channels); uint8 in
            0..255 or float32 in [0, 1].
        train_labels, test_labels: int32, shape (images,), in 0..num_classes - 1.
        class_names: the name of each label, in label order.
        skipped: paths of the corrupt images that were left out.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    @property
    def num_classes(self):
        """Number of classes, with or without test images."""
        return len(self.class_names)

    @property
    def image_shape(self):
        """(height, width, channels) of every image, in pixels."""
        return tuple(self.train_images.shape[1:])

    def __repr__(self):
        height, width, channels = self.image_shape
        return (
            f"ImageDataset({self.name!r}, train={len(self.train_images)}, "
            f"test={len(self.test_images)}, image={height}x{width}x{channels} "
            f"{self.train_images.dtype}, classes={self.num_classes}, "
            f"skipped={len(self.skipped)})"
        )


def split_dataset(name, images, labels, class_names, test_fraction, seed, skipped=()):
    """An `ImageDataset` of one undivided set."""
    train, test = stratified_split(labels, test_fraction, seed)
    arrays = images[train], labels[train], images[test], labels[test]
    return ImageDataset(name, *arrays, class_names, skipped)


def check_memory(shape, itemsize=1):
    """Raises ValueError if an array of (images, height, width, channels) would pass `MAX_BYTES`."""
    count, height, width, channels = shape
    size = math.prod(shape) * itemsize
    if size > MAX_BYTES:
        raise ValueError(
            f"The dataset is held in memory and may take at most {MAX_BYTES / 2**30:.3g} GiB. "
            f"Received: {count} images of {height}x{width}x{channels}, which is "
            f"{size / 2**30:.3g} GiB. Lower image_size, use fewer images, or read it as batches: "
            "keras_vit.data.pipeline"
        )
