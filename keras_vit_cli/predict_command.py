"""`keras-vit predict`: the classes that images show."""

import os
import sys

from keras_vit_cli.models import (
    IMAGES,
    MODEL,
    NAMES,
    READING,
    READINGS,
    images_of,
    open_model,
    read_names,
)
from keras_vit_cli.numbers import count, probability
from keras_vit_cli.output import add_forms, print_rows, unreadable

HELP = "tell which classes images show"
EXAMPLE = "keras-vit predict output photos/ cat.jpg --top 3"
COLUMNS = ("image", "rank", "class", "index", "probability")


def add_arguments(add):
    add("model", help=MODEL)
    add("images", nargs="*", help=IMAGES)
    text = "classes for each image (default: 1 in the table; 5 in CSV and JSON)"
    add("--top", type=count, metavar="K", help=text)
    help = "classes of at least this probability alone, all of them without --top"
    add("--threshold", type=probability, metavar="P", help=help)
    add("--reading", choices=READINGS, help=READING)
    add("--class-names", metavar="FILE", help=NAMES)
    add("--batch-size", type=count, default=32, help="images at once (default: 32)")
    add_forms(add)


def run(args):
    import keras_vit
    from keras_vit.data import image_files
    from keras_vit.heads import heads_of

    names, files = read_names(args.class_names), image_files(args.images or images_of(args.model))
    model, is_table = open_model(args.model, args.reading), not (args.csv or args.json)
    usual = sys.maxsize if args.threshold is not None else 1 if is_table else 5
    found = keras_vit.predict(
        model,
        files,
        args.top or usual,
        names,
        args.batch_size,
        args.threshold,
        skip_corrupt=True,
        progress=None,
    )
    heads = found if heads_of(model) else {None: found}
    told = [
        (file, dict(zip(heads, best)))
        for file, *best in zip(files, *heads.values())
        if None not in best
    ]
    if is_table and told:
        _print_table(told)
    elif not is_table:
        rows = [row for file, best in told for row in _rows(file, best)]
        columns = dict.fromkeys(name for row in rows for name in row) or COLUMNS
        print_rows([{**dict.fromkeys(columns), **row} for row in rows], columns, args)
    return unreadable(len(files) - len(told), len(files))


def _print_table(told):
    """A line for each image, which is named below the folder that all are in."""
    from keras_vit.text import table

    places = [os.path.abspath(file) for file, _ in told]
    above = os.path.commonpath([os.path.dirname(place) for place in places])
    first = told[0][1]
    if None in first:
        cells = [[str(one) for one in best[None]] for _, best in told]
        width = max(map(len, cells))
        is_regression = any(hasattr(one, "value") for one in first[None])
        ranks = [f"{rank}." for rank in range(2, width + 1)]
        header = ["value", *[""] * (width - 1)] if is_regression else ["class", *ranks][:width]
    else:
        cells = [[", ".join(map(str, one)) for one in best.values()] for _, best in told]
        width, header = len(first), list(first)
    rows = [
        [os.path.relpath(place, above), *row, *[""] * (width - len(row))]
        for place, row in zip(places, cells)
    ]
    print(table(rows, ["image", *header], width + 1))


def _rows(file, predictions):
    for head, best in predictions.items():
        start = {"image": file} if head is None else {"image": file, "head": head}
        for rank, one in enumerate(best, 1):
            yield start | (
                {"output": one.label, "index": one.index, "value": float(f"{one.value:.6g}")}
                if hasattr(one, "value")
                else {
                    "rank": rank,
                    "class": one.label,
                    "index": one.index,
                    "probability": round(one.probability, 6),
                }
            )
