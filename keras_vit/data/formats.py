"""Datasets of arrays in memory: digits, .npz archives, Fashion-MNIST. Nothing is downloaded."""

import gzip
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from keras_vit.data import dataset as limits
from keras_vit.data import tfds
from keras_vit.data.checks import count_classes, whole_numbers
from keras_vit.data.dataset import ImageDataset, split_dataset
from keras_vit.data.images import open_image, pixels_of

FASHION_MNIST_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
# Part -> name of the IDX file, and the rank of the array inside.
_IDX_FILES = {
    "train_images": ("train-images-idx3-ubyte", 3),
    "train_labels": ("train-labels-idx1-ubyte", 1),
    "test_images": ("t10k-images-idx3-ubyte", 3),
    "test_labels": ("t10k-labels-idx1-ubyte", 1),
}
# Arrays of an archive; names of a train/test pair come before names of one undivided set.
_NPZ_KEYS = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("x", "y"),
    ("images", "labels"),
)
_MOST_DEFLATED = 250  # times; more is an archive made to fill the memory


def load_digits(test_fraction, seed):
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            "'digits' comes with scikit-learn, which is not installed. Install it with: "
            'pip install "keras3-vit[data]"'
        ) from error
    digits = datasets.load_digits()
    # 17 gray levels, 0..16, spread over the range that every other source has.
    images = np.round(digits.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    names = tuple(str(name) for name in digits.target_names)
    return split_dataset("digits", images, digits.target, names, test_fraction, seed)


# --- Archives of arrays ---


def load_npz(path, test_fraction, seed):
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
    labels = [whole_numbers(y, f"{key} in {path}") for y, key in zip(labels, keys[1::2])]
    for x, y, key in zip(images, labels, keys[::2]):
        if x.ndim == 0 or len(x) != len(y):
            raise ValueError(
                f"{key} in {path} must have as many images as there are labels. Received: "
                f"{x.shape[:1]} images and {y.shape} labels"
            )
    names = arrays.get("class_names")
    if names is None:
        if not len(labels[0]):
            raise ValueError(f"{path} must hold at least one training image. Received: none")
        names = np.arange(count_classes(labels[:1], f"{keys[1]} in {path}")).astype(str)
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise ValueError(
            f"class_names in {path} must be a list of text. Received: shape {names.shape}, "
            f"dtype {names.dtype}"
        )
    names = tuple(n.decode("utf-8") if isinstance(n, bytes) else str(n) for n in names.tolist())
    if len(keys) == 2:
        return split_dataset(path.stem, images[0], labels[0], names, test_fraction, seed)
    return ImageDataset(path.stem, images[0], labels[0], images[1], labels[1], names)


def _read_npz(path):
    """The arrays of an archive, whose sizes are compared before memory is taken."""
    try:
        # Asked first, since np.load would take a .npy file too, whatever its name.
        if not zipfile.is_zipfile(path):
            raise ValueError("not a zip archive")
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > limits.MAX_BYTES or size > _MOST_DEFLATED * path.stat().st_size:
                raise ValueError(f"{path.stat().st_size} bytes that claim to hold {size}")
            for info in archive.infolist():
                _check_header(archive, info)
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        hint = "save it with numpy.savez"
        if "allow_pickle" in str(error):
            hint = "object arrays are not read; save arrays of numbers, and names as text"
        raise ValueError(
            f"{path} cannot be read as a .npz archive: {hint}. Received: {error}"
        ) from error


def _check_header(archive, info):
    """Raises ValueError where an array's header claims more bytes than there are."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}
        shape, _, dtype = read.get(version, np.lib.format.read_array_header_2_0)(file)
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize > info.file_size:
            raise ValueError(
                f"{info.filename} has {info.file_size} bytes and claims {shape} {dtype}"
            )


# --- Fashion-MNIST ---


def load_fashion_mnist(data_dir):
    """From IDX files, or else as prepared by TensorFlow Datasets."""
    if data_dir is None:
        raise ValueError(
            "'fashion_mnist' needs data_dir, the folder that holds it. Received: data_dir=None."
            + _how_to_get("DIR")
        )
    data_dir = Path(data_dir).expanduser()
    folders = [data_dir, data_dir / "fashion_mnist", data_dir / "fashion-mnist"]
    for folder in folders:
        found = _idx_paths(folder)
        if len(found) == len(_IDX_FILES):
            arrays = {part: read_idx(found[part], rank) for part, (_, rank) in _IDX_FILES.items()}
            return _fashion_mnist(arrays)
    # Looked for on disk first: asking TensorFlow Datasets for a set that is not there makes
    # it try the network, for minutes where there is none.
    if any(data_dir.glob("fashion_mnist/*/dataset_info.json")):
        prepared = tfds.Prepared(tfds.find_prepared("fashion_mnist", data_dir))
        arrays = {}
        for part in ("train", "test"):
            examples = list(prepared.examples(part))
            images = [pixels_of(open_image(example["image"]), 1) for example in examples]
            arrays[f"{part}_images"] = np.stack(images)
            arrays[f"{part}_labels"] = np.array([example["label"] for example in examples])
        return _fashion_mnist(arrays)
    raise ValueError(_no_fashion_mnist(data_dir, folders))


def _fashion_mnist(arrays):
    for part in ("train_images", "test_images"):
        if arrays[part].ndim == 3:
            arrays[part] = arrays[part][..., None]
    return ImageDataset("fashion_mnist", **arrays, class_names=FASHION_MNIST_CLASSES)


def _idx_paths(folder):
    """The IDX files present in a folder, by part; plain files win over gzipped ones."""
    found = {}
    for part, (name, _) in _IDX_FILES.items():
        paths = [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]
        found |= {part: paths[0]} if paths else {}
    return found


def read_idx(path, rank):
    """Reads one IDX file of unsigned bytes, gzipped if its name ends in .gz.

    The layout is two zero bytes, the type code 8, the rank, then the rank big-endian 32-bit
    sizes and the bytes in row-major order.

    Args:
        path: the file.
        rank: the rank expected: 3 for images, 1 for labels.

    Returns:
        uint8 array of that rank.

    Raises:
        ValueError: unreadable, not IDX, another type or rank, truncated, or too long.
    """
    path = Path(path)
    magic, header = bytes([0, 0, 8, rank]), 4 + 4 * rank
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            start = file.read(header)
            sizes = struct.unpack(f">{rank}I", start[4:]) if len(start) == header else ()
            wanted = math.prod(sizes)
            if start[:4] == magic and wanted > _MOST_DEFLATED * path.stat().st_size:
                raise OSError(f"{path.stat().st_size} bytes that claim to hold {wanted}")
            content = file.read(wanted + 1) if start[:4] == magic else b""
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read; it may be truncated or damaged, fetch it again. "
            f"Received: {error}"
        ) from error
    if start[:4] != magic:
        raise ValueError(
            f"{path} is not an IDX file of {rank}-dimensional unsigned bytes: it must begin "
            f"with {magic.hex(' ')}. Received: {start[:4].hex(' ') or 'an empty file'}"
        )
    if len(start) < header:
        raise ValueError(
            f"{path} is truncated inside its header of {header} bytes; fetch it again. "
            f"Received: {len(start)} bytes"
        )
    if len(content) != wanted:
        kind = "truncated" if len(content) < wanted else "too long"
        raise ValueError(
            f"{path} is {kind}: its header promises sizes {sizes}, {wanted} bytes; fetch it again. "
            f"Received: {len(content)} bytes after the header{' or more' * (len(content) > wanted)}"
        )
    # A copy, since an array over bytes is read-only.
    return np.frombuffer(content, dtype=np.uint8).reshape(sizes).copy()


def _no_fashion_mnist(data_dir, folders):
    lines = [f"Fashion-MNIST was not found in data_dir. Received: data_dir={str(data_dir)!r}."]
    lines.append("Looked for these files, plain or with .gz:")
    lines += [f"  {name}" for name, _ in _IDX_FILES.values()]
    lines.append("in these folders:")
    for folder in folders:
        found = _idx_paths(folder)
        missing = [name for part, (name, _) in _IDX_FILES.items() if part not in found]
        state = f"missing {', '.join(missing)}" if found else "none of them"
        lines.append(f"  {folder}: {state if folder.is_dir() else 'no such folder'}")
    lines.append(f"and for {data_dir / 'fashion_mnist' / '<version>' / 'dataset_info.json'}.")
    return "\n".join(lines) + _how_to_get(data_dir)


def _how_to_get(data_dir):
    return (
        "\nOn a machine with network, fetch it with\n"
        '  python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('fashion_mnist', data_dir='{data_dir}').download_and_prepare()\"\n"
        "or put the four IDX files there, and pass that folder as data_dir."
    )
