"""`keras-vit predict`: the classes that images show."""

import sys

from keras_vit_cli.models import (
    IMAGES,
    MODEL,
    NAMES,
    READING,
    READINGS,
    images_of,
    list_files,
    open_model,
    read_names,
)
from keras_vit_cli.numbers import count, probability
from keras_vit_cli.output import add_forms, print_rows

HELP = "tell which classes images show"
EXAMPLE = "keras-vit predict output photos/ cat.jpg --top 3"
COLUMNS = ("image", "rank", "class", "index", "probability")
OF_VALUES = ("image", "output", "index", "value")


def add_arguments(add):
    add("model", help=MODEL)
    add("images", nargs="*", help=IMAGES)
    add("--top", type=count, default=5, help="classes for each image (default: 5)")
    help = "classes of at least this probability alone"
    add("--threshold", type=probability, metavar="P", help=help)
    add("--reading", choices=READINGS, help=READING)
    add("--class-names", metavar="FILE", help=NAMES)
    add("--batch-size", type=count, default=32, help="images at once (default: 32)")
    add_forms(add)


def run(args):
    from tqdm import tqdm

    import keras_vit
    from keras_vit.data.predict import reading_and_names

    names, files = read_names(args.class_names), list_files(args.images or images_of(args.model))
    model = open_model(args.model, args.reading)
    is_regression = reading_and_names(model, names)[0].name == "values"
    rows, broken = [], 0
    starts = range(0, len(files), args.batch_size)
    for start in tqdm(starts, unit="batch", leave=False, disable=None):  # None: on a terminal alone
        batch = files[start : start + args.batch_size]
        options = {"class_names": names, "threshold": args.threshold, "skip_corrupt": True}
        found = keras_vit.predict(model, batch, args.top, batch_size=args.batch_size, **options)
        broken += found.count(None)
        rows += [row for file, best in zip(batch, found) for row in _rows(file, best or ())]
    if rows or args.csv or args.json:
        columns, left = (OF_VALUES, 2) if is_regression else (COLUMNS, 3)
        print_rows(rows, columns, args, left)
    if broken:
        print(f"error: {broken} of {len(files)} images could not be read", file=sys.stderr)
    return 1 if broken else 0


def _rows(file, predictions):
    for rank, one in enumerate(predictions, 1):
        if hasattr(one, "value"):
            yield dict(zip(OF_VALUES, (file, one.label, one.index, float(f"{one.value:.6g}"))))
        else:
            values = (file, rank, one.label, one.index, round(one.probability, 6))
            yield dict(zip(COLUMNS, values))
