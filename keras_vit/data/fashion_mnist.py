"""Fashion-MNIST from files that are already on disk. Nothing here uses the network."""

import os
from pathlib import Path

import numpy as np

from keras_vit.data.dataset import ImageDataset
from keras_vit.data.idx import read_idx

CLASS_NAMES = (
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

# Name of the file, and the rank of the array inside.
_IDX_FILES = {
    "train_images": ("train-images-idx3-ubyte", 3),
    "train_labels": ("train-labels-idx1-ubyte", 1),
    "test_images": ("t10k-images-idx3-ubyte", 3),
    "test_labels": ("t10k-labels-idx1-ubyte", 1),
}


def load_fashion_mnist(data_dir):
    """Reads Fashion-MNIST from IDX files, or else as prepared by TensorFlow Datasets.

    Args:
        data_dir: the folder that holds the four IDX files (or holds them in a folder
            `fashion_mnist` or `fashion-mnist`), or the data folder of TensorFlow Datasets.

    Returns:
        An `ImageDataset` of 28x28x1 uint8 images.

    Raises:
        ValueError: nothing found, or a damaged file.
        ImportError: prepared by TensorFlow Datasets, and that is not installed.
    """
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
            return _from_arrays(
                {part: read_idx(found[part], rank) for part, (_, rank) in _IDX_FILES.items()}
            )
    # Looked for on disk first: asking TensorFlow Datasets for a set that is not there makes
    # it try the network, for minutes where there is none.
    prepared = sorted(data_dir.glob("fashion_mnist/*/dataset_info.json"))
    if prepared:
        return _from_arrays(_read_tfds(prepared[-1].parent))
    raise ValueError(_not_found(data_dir, folders))


def _idx_paths(folder):
    """The IDX files present in a folder, by part; plain files win over gzipped ones."""
    found = {}
    for part, (name, _) in _IDX_FILES.items():
        for path in (folder / name, folder / f"{name}.gz"):
            if os.path.isfile(path):
                found[part] = path
                break
    return found


def _read_tfds(version_dir):
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            f"{version_dir} was prepared by TensorFlow Datasets, which is not installed. "
            'Install it with: pip install "keras3-vit[data]"'
        ) from error
    # Reads this folder only, whereas tfds.load may download.
    builder = tfds.builder_from_directory(str(version_dir))
    arrays = {}
    for split in ("train", "test"):
        if "array_record" in str(builder.info.file_format).lower():
            examples = list(builder.as_data_source(split=split))
            columns = {key: np.stack([e[key] for e in examples]) for key in ("image", "label")}
        else:
            columns = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
        arrays[f"{split}_images"] = np.asarray(columns["image"])
        arrays[f"{split}_labels"] = np.asarray(columns["label"])
    return arrays


def _from_arrays(arrays):
    for part in ("train_images", "test_images"):
        if arrays[part].ndim == 3:
            arrays[part] = arrays[part][..., None]
    for part in ("train_labels", "test_labels"):
        arrays[part] = arrays[part].astype(np.int32)
    return ImageDataset(name="fashion_mnist", class_names=CLASS_NAMES, **arrays)


def _not_found(data_dir, folders):
    lines = [f"Fashion-MNIST was not found in data_dir. Received: data_dir={str(data_dir)!r}."]
    lines.append("Looked for these files, plain or with .gz:")
    lines += [f"  {name}" for name, _ in _IDX_FILES.values()]
    lines.append("in these folders:")
    for folder in folders:
        if not os.path.isdir(folder):
            state = "no such folder"
        else:
            found = _idx_paths(folder)
            missing = [name for part, (name, _) in _IDX_FILES.items() if part not in found]
            state = f"missing {', '.join(missing)}" if found else "none of them"
        lines.append(f"  {folder}: {state}")
    lines.append(f"and for {data_dir / 'fashion_mnist' / '<version>' / 'dataset_info.json'}.")
    return "\n".join(lines) + _how_to_get(data_dir)


def _how_to_get(data_dir):
    return (
        "\nOn a machine with network, fetch it with\n"
        '  python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder('fashion_mnist', data_dir='{data_dir}').download_and_prepare()\"\n"
        "or put the four IDX files there, and pass that folder as data_dir."
    )
