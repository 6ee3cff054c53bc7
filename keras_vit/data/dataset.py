"""`ImageDataset`, what every dataset in memory is: its checks, and how files of arrays are read."""

import dataclasses
import gzip
import math
import struct
import zipfile
import zlib

import numpy as np

MAX_BYTES = 4 * 2**30  # of a dataset: a larger one is refused before memory runs out
MOST_CLASSES = 100_000  # labels beyond it are identifiers
_MOST_DEFLATED = 250  # times: an archive that deflates more is made to fill the memory
_UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)
_TOLERANCE = 1e-6  # a resize of floats can overshoot 1 by a few units in the last place
# Arrays of an archive; names of a train/test pair come before names of one undivided set.
_NPZ_KEYS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x", "y"),
    ("images", "labels"),
)


# eq=False: comparing arrays field by field has no single truth value.
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """An image classification dataset held in memory, whose arrays are checked when it is made.

    Attributes:
        name: what the dataset is called in reports and file names.
        train_images, test_images: shape (images, height, width, channels); uint8 in
            0..255, or floats in [0, 1], which become float32.
        train_labels, test_labels: shape (images,), whole numbers in 0..num_classes - 1, which
            become int32.
        class_names: the name of each label, in label order.
        skipped: paths of the corrupt images that were left out.

    Raises:
        ValueError: an array of another shape, dtype or range, images and labels of different
            lengths, training and test images of different shapes, or no class names.
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    skipped: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.class_names:
            raise ValueError(
                f"class_names of {self.name!r} must name at least one class. "
                f"Received: {self.class_names!r}"
            )
        for part in ("train", "test"):
            images = check_images(getattr(self, f"{part}_images"), f"{part}_images")
            labels = getattr(self, f"{part}_labels")
            labels = check_labels(labels, images, f"{part}_labels", self.num_classes)
            object.__setattr__(self, f"{part}_images", images)
            object.__setattr__(self, f"{part}_labels", labels)
        shapes = [images.shape[1:] for images in (self.train_images, self.test_images)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                "train_images and test_images must have the same (height, width, channels). "
                f"Received: {shapes[0]} and {shapes[1]}; resize one of them"
            )

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


def stratified_split(labels, test_fraction, seed):
    """Splits examples so that each class keeps its share in both parts.

    A class with two or more examples has at least one on each side; the only example of a
    class goes to training, since a class cannot be learned from the test set.

    Returns:
        (train, test): two sorted int64 index arrays, disjoint and together complete.
    """
    rng = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) >= 2:
            wanted = int(len(members) * test_fraction + 0.5)
            is_test[members[: min(max(wanted, 1), len(members) - 1)]] = True
    if not is_test.any():
        raise ValueError(
            "A train/test split needs a class with at least two images. Received: "
            f"{len(labels)} images, no two of the same class; add images or supply a test set"
        )
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def check_images(images, name="images"):
    """`images` as uint8 or float32 of shape (images, height, width, channels), or a ValueError."""
    images = np.asarray(images)
    if images.ndim != 4 or not images.size:
        raise ValueError(
            f"{name} must have shape (images, height, width, channels), and none of them may be 0; "
            f"a channel axis is added by images[..., None]. Received: shape {images.shape}"
        )
    check_pixels(images, name)
    return images if images.dtype == np.uint8 else images.astype(np.float32, copy=False)


def check_pixels(images, name):
    """Raises ValueError unless an array is uint8, or of floats in [0, 1]."""
    if images.dtype == np.uint8:
        return
    if images.dtype.kind != "f":
        raise ValueError(
            f"{name} must be uint8 in 0..255 or float in [0, 1]; convert with "
            f"images.astype('uint8') if the values are 0..255. Received: dtype {images.dtype}"
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):  # also where they are not numbers
        fits = (images >= -_TOLERANCE) & (images <= 1 + _TOLERANCE)
        raise ValueError(
            f"{name} of a float dtype must lie in [0, 1]. Received: values from {low:g} to "
            f"{high:g}, the first outside at index {np.argwhere(~fits)[0].tolist()}; divide by 255 "
            "if they are 0..255, use (images + 1) / 2 if they are -1..1, and repair what is NaN"
        )


def check_labels(labels, images, name="labels", num_classes=None):
    """`labels` as int32, one for each image, or a ValueError."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must have shape (images,), one class number per image, counted from 0; take "
            "labels.argmax(axis=-1) of one-hot labels, and labels.reshape(-1) of a column. "
            f"Received: shape {labels.shape}, dtype {labels.dtype}"
        )
    if np.ndim(images) == 0 or len(labels) != len(images):
        raise ValueError(
            f"{name} must have one label for each image. Received: {len(labels)} labels, and "
            f"images of shape {np.shape(images)}"
        )
    most = num_classes or MOST_CLASSES
    fits = (labels >= 0) & (labels < most) & (labels == np.floor(labels))  # NaN does not
    if not fits.all():
        first = int(np.argmin(fits))
        raise ValueError(
            f"{name} must be whole numbers in 0..{most - 1}. Received: {int((~fits).sum())} "
            f"others, the first is {labels[first]} at index {first}. Give every class a name, or "
            "number the classes with numpy.unique(labels, return_inverse=True)[1]"
        )
    return labels.astype(np.int32)


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


def load_npz(path, test_fraction, seed):
    """The `ImageDataset` of an archive of arrays."""
    arrays = _read_npz(path)
    keys = next((keys for keys in _NPZ_KEYS if set(keys) <= set(arrays)), None)
    if keys is None:
        expected = " or ".join(", ".join(keys) for keys in _NPZ_KEYS)
        raise ValueError(
            f"{path} must hold the arrays {expected}. Received: keys "
            f"{', '.join(sorted(arrays)) or 'none'}; rename them and save again"
        )
    images = [arrays[key][..., None] if arrays[key].ndim == 3 else arrays[key] for key in keys[::2]]
    labels = [arrays[key] for key in keys[1::2]]
    labels = [y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y for y in labels]
    for index, key in enumerate(keys[1::2]):
        labels[index] = check_labels(labels[index], images[index], f"{key} in {path}")
    names = arrays.get("class_names")
    if names is None:
        if not len(labels[0]):
            raise ValueError(f"{path} must hold at least one training image. Received: none")
        names = np.arange(labels[0].max() + 1).astype(str)
    if names.ndim != 1 or names.dtype.kind not in "US" or len(names) > MOST_CLASSES:
        raise ValueError(
            f"class_names in {path} must be a list of at most {MOST_CLASSES} names. Received: "
            f"shape {names.shape}, dtype {names.dtype}"
        )
    names = tuple(n.decode("utf-8") if isinstance(n, bytes) else str(n) for n in names.tolist())
    if len(keys) == 2:
        return split_dataset(path.stem, images[0], labels[0], names, test_fraction, seed)
    return ImageDataset(path.stem, images[0], labels[0], images[1], labels[1], names)


def _read_npz(path):
    """The arrays of an archive, which must be about as large as it says."""
    try:
        # Asked first, since np.load would take a .npy file too, whatever its name.
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip archive")
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > MAX_BYTES or size > _MOST_DEFLATED * path.stat().st_size:
            raise ValueError(f"{path.stat().st_size} bytes that claim to hold {size}")
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    # A header that claims more than its file holds ends in a MemoryError, or in a ValueError.
    except (*_UNREADABLE, MemoryError, RuntimeError) as error:
        raise ValueError(
            f"{path} cannot be read as a .npz archive of numbers and text; save it with "
            f"numpy.savez, without object arrays. Received: {error}"
        ) from error


def read_idx(path, rank):
    """Reads one IDX file of unsigned bytes, gzipped if its name ends in .gz.

    The layout is two zero bytes, the type code 8, the rank, then the rank big-endian 32-bit
    sizes and the bytes in row-major order.

    Returns:
        uint8 array of the rank given: 3 for images, 1 for labels.

    Raises:
        ValueError: unreadable, not IDX, another type or rank, truncated, or too long.
    """
    magic, most = bytes([0, 0, 8, rank]), _MOST_DEFLATED * path.stat().st_size
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            start = file.read(4 + 4 * rank)
            if start[:4] != magic or len(start) != 4 + 4 * rank:
                raise ValueError(f"it begins with {start[:4].hex(' ')}, not {magic.hex(' ')}")
            sizes = struct.unpack(f">{rank}I", start[4:])
            wanted = math.prod(sizes)
            if wanted > most:
                raise ValueError(f"{path.stat().st_size} bytes that claim to hold {wanted}")
            content = file.read(wanted + 1)
        if len(content) != wanted:
            more = " or more" * (len(content) > wanted)
            raise ValueError(f"sizes {sizes}, {wanted} bytes, and {len(content)}{more} after them")
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} cannot be read as an IDX file of {rank}-dimensional unsigned bytes; it may be "
            f"truncated or damaged, fetch it again. Received: {error}"
        ) from error
    # A copy, since an array over bytes is read-only.
    return np.frombuffer(content, dtype=np.uint8).reshape(sizes).copy()
