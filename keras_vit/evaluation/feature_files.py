"""Features of images in a file, each with the path of its image."""

import csv
import io
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_vit.evaluation.metrics import check_same_length
from keras_vit.text import csv_cell
from keras_vit.writing import output_place, replacing, write_text


def output_of_features(path: str | os.PathLike[str]) -> pathlib.Path:
    """The place where `save_features` may write, or an error before the work begins."""
    path = pathlib.Path(path)
    if path.suffix.lower() not in (".npz", ".csv"):
        raise ValueError(f"Features are written as .npz or .csv. Received: {str(path)!r}")
    return output_place(path)


def save_features(
    path: str | os.PathLike[str], files: Sequence[str | os.PathLike[str]], vectors: np.ndarray
) -> int:
    """Writes features with the paths of their images, but for rows of NaN.

    Args:
        path: a .npz file, with the arrays `paths` (images,) and `features` (images, features); or
            a .csv file, with the columns path, 0, 1, 2 and so on.
        files: paths of the images.
        vectors: (images, features), as `embed` returns them for these files.

    Returns:
        How many images were left out.

    Raises:
        ValueError: another suffix, or other numbers of files and rows.
    """
    path, paths = output_of_features(path), np.array(list(map(str, files)))
    check_same_length(vectors, paths, ("vectors", "files"))
    kept = ~np.isnan(vectors).all(axis=1)
    paths, vectors = paths[kept], vectors[kept]
    if path.suffix.lower() == ".npz":
        with replacing(path) as stream:
            np.savez(stream, paths=paths, features=vectors)
    else:
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["path", *range(vectors.shape[1])])
        writer.writerows([csv_cell(file), *row] for file, row in zip(paths.tolist(), vectors))
        write_text(path, lines.getvalue())
    return len(kept) - len(paths)
