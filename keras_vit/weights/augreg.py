"""The more than 50 000 checkpoints of "How to train your ViT?" (Steiner et al., 2022).

They lie in gs://vit_models/augreg under names that spell out their training, and index.csv beside
them holds the accuracies. Here are the grammar of the names, the index, and the authors' rule for
the best model.

Source: google-research/vision_transformer, README and vit_jax_augreg.ipynb.
"""

import csv
import dataclasses
import re

from keras_vit.checks import check_choice

BUCKET = "gs://vit_models/augreg/"
NAMES = "Ti/16 S/32 S/16 B/32 B/16 B/8 L/16 R+Ti/16 R26+S/32 R50+L/32".split()
DATA_SETS = ("i1k", "i21k", "i21k_30")
AUGMENTATIONS = ("none", "light0", "light1", "medium1", "medium2", "strong1", "strong2")
RESOLUTIONS = (224, 384)

_IN_FILE = {re.sub(r"[/+]", "_", name): name for name in NAMES}
_NUMBER = r"\d+\.\d+|\d+(?:e-\d+)?"
_PATTERN = re.compile(
    rf"(?P<name>{'|'.join(_IN_FILE)})-(?P<ds>{'|'.join(DATA_SETS)})-(?P<epochs>\d+)ep"
    rf"-lr_(?P<lr>{_NUMBER})-aug_(?P<aug>{'|'.join(AUGMENTATIONS)})-wd_(?P<wd>{_NUMBER})"
    rf"-do_(?P<do>{_NUMBER})-sd_(?P<sd>{_NUMBER})"
    rf"(?:--(?P<adapt_ds>[a-z0-9_]+)-steps_(?P<adapt_steps>\d+)k-lr_(?P<adapt_lr>{_NUMBER})"
    rf"-res_(?P<adapt_resolution>{'|'.join(map(str, RESOLUTIONS))}))?"
)
_EXAMPLE = (
    "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0, with --imagenet2012-steps_20k-"
    "lr_0.03-res_384 after it where it is fine-tuned"
)
_STEPS = {0: 500, 2: 2500}  # thousands as written, which are rounded down
_SHOWN = 20  # values in an error
COLUMNS = (
    "name ds epochs lr aug wd do sd best_val final_val final_test adapt_ds adapt_lr adapt_steps "
    "adapt_resolution adapt_final_val adapt_final_test params infer_samples_per_sec filename "
    "adapt_filename"
).split()
_TYPES = {
    **dict.fromkeys(COLUMNS, float),
    **dict.fromkeys("name ds aug adapt_ds filename adapt_filename".split(), str),
    **dict.fromkeys("epochs adapt_steps adapt_resolution params".split(), int),
}


@dataclasses.dataclass(frozen=True)
class AugregName:
    """What the name of a file says; `str()` gives the name back, without folder and `.npz`.

    Attributes:
        name: the model, such as `"B/16"` or `"R26+S/32"`.
        ds: the pre-training data, one of `DATA_SETS`: ImageNet, or ImageNet-21k in two ways.
        epochs, lr: of pre-training, the latter its learning rate.
        aug: the augmentation, one of `AUGMENTATIONS`.
        wd, do, sd: the weight decay, the dropout rate and the stochastic depth rate.
        adapt_ds: the data set of fine-tuning, or `None` for a pre-trained file, as in the rest.
        adapt_steps, adapt_lr: the steps and the learning rate of fine-tuning.
        adapt_resolution: the image size of fine-tuning, one of `RESOLUTIONS`.

    Raises:
        ValueError: values that no file name can hold.
    """

    name: str
    ds: str
    epochs: int
    lr: float
    aug: str
    wd: float
    do: float
    sd: float
    adapt_ds: str | None = None
    adapt_steps: int | None = None
    adapt_lr: float | None = None
    adapt_resolution: int | None = None

    def __post_init__(self):
        if _values_in(str(self)) != dataclasses.asdict(self):
            raise ValueError(
                f"No file name can hold these values. Received: {dataclasses.asdict(self)}; "
                f"expected such as {_EXAMPLE}."
            )

    def __str__(self):
        stem = (
            f"{re.sub('[/+]', '_', self.name)}-{self.ds}-{self.epochs}ep-lr_{self.lr}"
            f"-aug_{self.aug}-wd_{self.wd}-do_{self.do}-sd_{self.sd}"
        )
        adapt = (self.adapt_ds, self.adapt_steps, self.adapt_lr, self.adapt_resolution)
        if adapt == (None,) * 4:
            return stem
        steps = self.adapt_steps // 1000 if self.adapt_steps else None
        return f"{stem}--{adapt[0]}-steps_{steps}k-lr_{adapt[2]}-res_{adapt[3]}"

    @property
    def url(self):
        """Where the file lies."""
        return f"{BUCKET}{self}.npz"


def parse_name(filename):
    """Takes the name of a file apart.

    Args:
        filename: the name, with or without its folder or URL and `.npz`.

    Returns:
        An `AugregName`.

    Raises:
        ValueError: the name is none of these.
    """
    stem = str(filename).split("/")[-1].removesuffix(".npz")
    values = _values_in(stem)
    parsed = values and AugregName(**values)
    if str(parsed) != stem:  # no name, or a number that is written otherwise
        raise ValueError(
            f"This is no name of an AugReg file. Received: {filename!r}; expected such as "
            f"{_EXAMPLE}."
        )
    return parsed


def _values_in(stem):
    """The fields of an `AugregName` that a name holds, or `None` for another name."""
    match = _PATTERN.fullmatch(stem)
    if match is None:
        return None
    values = {name: text and _TYPES[name](text) for name, text in match.groupdict().items()}
    thousands = values["adapt_steps"]
    if thousands is not None:
        values["adapt_steps"] = _STEPS.get(thousands, thousands * 1000)
    return {**values, "name": _IN_FILE[values["name"]]}


def read_index(path):
    """Reads a copy of gs://vit_models/augreg/index.csv.

    A row is a fine-tuned file together with the pre-trained file it comes from, so a pre-trained
    file has many rows.

    Args:
        path: the file.

    Returns:
        A list of dicts with the keys `COLUMNS`: texts, numbers, and `None` for an empty cell.

    Raises:
        FileNotFoundError: there is no such file.
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
    try:
        # Counts may be written 500.0, as in a table where other cells of the column are empty.
        number = text if _TYPES[column] is str else float(text)
        if _TYPES[column] is not int or number == int(number):
            return _TYPES[column](number)
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"A cell of the index is damaged. Received: {column}={text!r} in line {line} of "
        f"{str(path)!r}; expected a number ({_TYPES[column].__name__})."
    )


def choose(rows, name="B/16", adapt_ds=None, best_by="final_val", **filters):
    """The best checkpoint by the authors' rule.

    That is the pre-trained file with the highest `best_by`, on ImageNet-21k unless a filter says
    otherwise; with `adapt_ds`, of its fine-tunes on that data set the one with the highest
    `adapt_final_val`. Where values tie, the first file name in alphabetical order wins.

    Args:
        rows: from `read_index`.
        name: the model, one of `NAMES`.
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
    numeric = [column for column in COLUMNS if _TYPES[column] is float and "_" in column]
    check_choice("best_by", best_by, numeric)
    if best_by.startswith("adapt_") and adapt_ds is None:
        raise ValueError(
            f"Accuracies on different data sets do not compare. Received: best_by={best_by!r} "
            "without adapt_ds; name the data set of fine-tuning."
        )
    wanted = {"name": name, "ds": "i21k", **filters}
    wanted |= {} if adapt_ds is None else {"adapt_ds": adapt_ds}
    for column, value in wanted.items():
        check_choice("column", column, COLUMNS)
        rows = _keep(rows, column, value)
    row = _best(rows, best_by, "filename")
    if adapt_ds is None:
        adapt = {column: None for column in COLUMNS if column.startswith("adapt_")}
        return {**row, **adapt, "url": f"{BUCKET}{row['filename']}.npz"}
    tunes = [other for other in rows if other["filename"] == row["filename"]]
    by_tune = best_by if best_by.startswith("adapt_") else "adapt_final_val"
    row = _best(tunes, by_tune, "adapt_filename")
    return {**row, "url": f"{BUCKET}{row['adapt_filename']}.npz"}


def _keep(rows, column, value):
    allowed = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    kept = [row for row in rows if row[column] in allowed]
    if not kept:
        there = sorted({row[column] for row in rows}, key=lambda cell: (cell is None, cell))
        raise ValueError(
            f"No checkpoint is left. Received: {column}={value!r}; of the {len(rows)} rows that "
            f"the filters before it left, {column} is one of {there[:_SHOWN]}"
            f"{' and more' if len(there) > _SHOWN else ''}."
        )
    return kept


def _best(rows, column, tie):
    scored = [row for row in rows if row[column] is not None]
    if not scored:
        raise ValueError(
            f"None of the {len(rows)} checkpoints left has a value to choose by. Received: "
            f"{column!r}; choose by another column."
        )
    return min(scored, key=lambda row: (-row[column], row[tie] or ""))
