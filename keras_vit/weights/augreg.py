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
# What stands between the hyphens of a file name, in order: field, what it means, pattern.
_PRETRAINING = (
    ("name", "the model, one of " + ", ".join(_IN_FILE), "|".join(_IN_FILE)),
    ("ds", "the data set, one of " + ", ".join(DATA_SETS), "|".join(DATA_SETS)),
    ("epochs", "the epochs, such as 300ep", r"(\d+)ep"),
    ("lr", "the learning rate, such as lr_0.001", f"lr_({_NUMBER})"),
    ("aug", f"aug_ and one of {', '.join(AUGMENTATIONS)}", f"aug_({'|'.join(AUGMENTATIONS)})"),
    ("wd", "the weight decay, such as wd_0.03", f"wd_({_NUMBER})"),
    ("do", "the dropout, such as do_0.0", f"do_({_NUMBER})"),
    ("sd", "the stochastic depth, such as sd_0.1", f"sd_({_NUMBER})"),
)
_FINE_TUNING = (
    ("adapt_ds", "the data set, such as imagenet2012", r"[a-z0-9_]+"),
    ("adapt_steps", "the steps in thousands, such as steps_20k", r"steps_(\d+k)"),
    ("adapt_lr", "the learning rate, such as lr_0.03", f"lr_({_NUMBER})"),
    ("adapt_resolution", "res_224 or res_384", "res_(224|384)"),
)
_SHOWN = 20  # values in an error
_STEPS = {"0k": 500, "2k": 2500}  # written rounded down
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
        for field, choices in (("name", NAMES), ("ds", DATA_SETS), ("aug", AUGMENTATIONS)):
            check_choice(field, getattr(self, field), choices)
        adapt = {field: getattr(self, field) for field, _, _ in _FINE_TUNING}
        missing = [field for field, value in adapt.items() if value is None]
        if missing and len(missing) < len(adapt):
            raise ValueError(
                "A fine-tuned file needs all of its fields and a pre-trained one has none. "
                f"Received: {adapt}."
            )
        if not missing:
            check_choice("adapt_resolution", self.adapt_resolution, RESOLUTIONS)
            _steps_in_file(self.adapt_steps)

    def __str__(self):
        stem = (
            f"{re.sub('[/+]', '_', self.name)}-{self.ds}-{self.epochs}ep-lr_{self.lr}"
            f"-aug_{self.aug}-wd_{self.wd}-do_{self.do}-sd_{self.sd}"
        )
        if self.adapt_ds is None:
            return stem
        return (
            f"{stem}--{self.adapt_ds}-steps_{_steps_in_file(self.adapt_steps)}"
            f"-lr_{self.adapt_lr}-res_{self.adapt_resolution}"
        )

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
        ValueError: the name is none of these; names the part that does not fit.
    """
    stem = str(filename).split("/")[-1].removesuffix(".npz")
    pretraining, mark, fine_tuning = stem.partition("--")
    values = _parse(pretraining, _PRETRAINING, filename)
    if mark:
        values |= _parse(fine_tuning, _FINE_TUNING, filename)
        values["adapt_steps"] = _steps(values["adapt_steps"])
    values["name"] = _IN_FILE[values["name"]]
    parsed = AugregName(**{field: _TYPES[field](value) for field, value in values.items()})
    if str(parsed) != stem:
        raise ValueError(
            f"A number in this name is not written as in the published files. Received: "
            f"{filename!r}; expected {str(parsed)!r}."
        )
    return parsed


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
    _check_best_by(best_by, adapt_ds)
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


def _parse(text, grammar, filename):
    # A negative exponent is the one hyphen inside a part.
    parts = re.split(r"(?<!\de)-", text)
    values = {}
    for (field, meaning, pattern), part in zip(grammar, parts):
        match = re.fullmatch(pattern, part)
        if not match:
            raise ValueError(
                f"This is no name of an AugReg file. Received: {filename!r}, where {part!r} "
                f"should be {meaning}."
            )
        values[field] = match[match.lastindex or 0]
    if len(parts) != len(grammar):
        meanings = "; ".join(meaning for _, meaning, _ in grammar)
        what = f"{parts[len(grammar) :]} is too much" if len(parts) > len(grammar) else "it ends"
        raise ValueError(
            f"This is no name of an AugReg file. Received: {filename!r}, where {what} after "
            f"{parts[min(len(parts), len(grammar)) - 1]!r}; expected, with hyphens: {meanings}."
        )
    return values


def _steps(text):
    return _STEPS.get(text, int(text[:-1]) * 1000)


def _steps_in_file(steps):
    for text in (*_STEPS, f"{steps // 1000}k"):
        if _steps(text) == steps:
            return text
    raise ValueError(
        "No file name can say this number of steps. Received: "
        f"adapt_steps={steps!r}; expected 500, 2500 or another multiple of 1000 than 2000."
    )


def _cell(text, column, line, path):
    if text in (None, "", "nan", "NaN"):
        return None
    try:
        # Counts may be written 500.0, as in a table where other cells of the column are empty.
        number = text if _TYPES[column] is str else float(text)
        if _TYPES[column] is not int:
            return number
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"A cell of the index is damaged. Received: {column}={text!r} in line {line} of "
        f"{str(path)!r}; expected a number ({_TYPES[column].__name__})."
    )


def _check_best_by(best_by, adapt_ds):
    numeric = [column for column in COLUMNS if _TYPES[column] is float and "_" in column]
    check_choice("best_by", best_by, numeric)
    if best_by.startswith("adapt_") and adapt_ds is None:
        raise ValueError(
            f"Accuracies on different data sets do not compare. Received: best_by={best_by!r} "
            "without adapt_ds; name the data set of fine-tuning."
        )


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
