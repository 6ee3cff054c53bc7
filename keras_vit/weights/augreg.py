"""The more than 50 000 checkpoints of "How to train your ViT?" (Steiner et al., 2022).

They lie in gs://vit_models/augreg under names that spell out their training, and index.csv beside
them holds the accuracies.

Source: google-research/vision_transformer, README and vit_jax_augreg.ipynb.
"""

import csv
import os
import re
from typing import Any

from keras_vit.checks import check_choice
from keras_vit.text import shortened

BUCKET = "gs://vit_models/augreg/"
_NUMBER = r"(\d+\.\d+|\d+(e-\d+)?)"
NAME = re.compile(
    r"(Ti_16|S_32|S_16|B_32|B_16|B_8|L_16|R_Ti_16|R26_S_32|R50_L_32)-(i1k|i21k|i21k_30)-\d+ep"
    rf"-lr_{_NUMBER}-aug_(none|light[01]|medium[12]|strong[12])-wd_{_NUMBER}-do_{_NUMBER}"
    rf"-sd_{_NUMBER}(--[a-z0-9_]+-steps_\d+k-lr_{_NUMBER}-res_(224|384))?"
)
# What the cells of index.csv hold, by the names of its columns.
COLUMNS = {
    **dict.fromkeys("name ds aug adapt_ds filename adapt_filename".split(), str),
    **dict.fromkeys("epochs adapt_steps adapt_resolution params".split(), int),
    **dict.fromkeys("lr wd do sd best_val final_val final_test adapt_lr".split(), float),
    **dict.fromkeys("adapt_final_val adapt_final_test infer_samples_per_sec".split(), float),
}
ACCURACIES = [name for name in COLUMNS if name.endswith(("_val", "_test"))]


def augreg_url(name):
    """Where the file of a name lies, with or without its folder and `.npz`; `None` if it is none.

    A name spells out the training, such as
    B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0, with
    --imagenet2012-steps_20k-lr_0.03-res_384 after it where the model is fine-tuned.
    """
    stem = name.removeprefix(BUCKET).removeprefix("augreg/").removesuffix(".npz")
    return f"{BUCKET}{stem}.npz" if NAME.fullmatch(stem) else None


def read_augreg_index(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads a copy of gs://vit_models/augreg/index.csv.

    A row is a fine-tuned file together with the pre-trained file it comes from, so a pre-trained
    file has many rows.

    Returns:
        A list of dicts from column to text, number, or `None` for an empty cell.

    Raises:
        ValueError: a column is missing, or a cell does not hold the number it should.
    """
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(
                f"This is not the index of the AugReg checkpoints. Received: {str(path)!r} "
                f"without the columns {missing}; it has {reader.fieldnames or []}."
            )
        return [
            {column: _cell(row[column], column, reader.line_num, path) for column in COLUMNS}
            for row in reader
        ]


def _cell(text, column, line, path):
    if text in (None, "", "nan", "NaN"):
        return None
    of_column = COLUMNS[column]
    try:  # counts may be written 500.0, as in a table where other cells of the column are empty
        if of_column is int and not float(text).is_integer():
            raise ValueError("it is no count")
        return text if of_column is str else of_column(float(text))
    except ValueError as error:
        raise ValueError(
            f"A cell of the index is damaged. Received: {column}={text!r} in line {line} of "
            f"{str(path)!r}; expected a number ({of_column.__name__})."
        ) from error


def choose_augreg(
    rows: list[dict[str, Any]],
    name: str = "B/16",
    adapt_ds: str | None = None,
    best_by: str = "final_val",
    **filters: Any,
) -> dict[str, Any]:
    """The best checkpoint by the authors' rule.

    That is the pre-trained file with the highest `best_by`, on ImageNet-21k unless a filter says
    otherwise; with `adapt_ds`, of its fine-tunes on that data set the one with the highest
    `adapt_final_val`. Where values tie, the first file name in alphabetical order wins.

    Args:
        rows: from `read_augreg_index`.
        name: the model, such as `"B/16"` or `"R26+S/32"`.
        adapt_ds: the data set of fine-tuning, or `None` for a pre-trained file.
        best_by: the column to choose by. One of the fine-tunes (`"adapt_final_val"` or
            `"adapt_final_test"`) finds the best fine-tune of any pre-training.
        filters: values of any other columns, or tuples of allowed values, such as
            `adapt_resolution=224` or `ds=("i1k", "i21k")`.

    Returns:
        The row as a dict, with the key `url` added. Without `adapt_ds` what is about a fine-tune
        is `None`.

    Raises:
        ValueError: an unknown column, or no row is left; says which filter left none, and the
            values that there were.
    """
    check_choice("best_by", best_by, ACCURACIES)
    by_tune = best_by.startswith("adapt_")
    if by_tune and adapt_ds is None:
        raise ValueError(
            f"Accuracies on different data sets do not compare. Received: best_by={best_by!r} "
            "without adapt_ds; name the data set of fine-tuning."
        )
    wanted = {"name": name, "ds": "i21k", **filters}
    wanted |= {} if adapt_ds is None else {"adapt_ds": adapt_ds}
    for column, value in wanted.items():
        check_choice("column", column, tuple(COLUMNS))
        allowed = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
        kept = [row for row in rows if row[column] in allowed]
        if not kept:
            cells = sorted({row[column] for row in rows}, key=lambda cell: (cell is None, cell))
            raise ValueError(
                f"No checkpoint is left. Received: {column}={value!r}; of the {len(rows)} rows "
                f"that the filters before it left, {column} is one of {shortened(cells, 20)}."
            )
        rows = kept
    row = _highest(rows, best_by, "filename")
    if adapt_ds is None:
        row |= {column: None for column in COLUMNS if column.startswith("adapt_")}
        return {**row, "url": f"{BUCKET}{row['filename']}.npz"}
    tunes = [other for other in rows if other["filename"] == row["filename"]]
    row = _highest(tunes, best_by if by_tune else "adapt_final_val", "adapt_filename")
    return {**row, "url": f"{BUCKET}{row['adapt_filename']}.npz"}


def _highest(rows, column, tie):
    """A copy of the row with the highest value."""
    scored = [row for row in rows if row[column] is not None]
    if not scored:
        raise ValueError(
            f"None of the {len(rows)} checkpoints left has a value to choose by. Received: "
            f"{column!r}; choose by another column."
        )
    return dict(min(scored, key=lambda row: (-row[column], row[tie] or "")))
