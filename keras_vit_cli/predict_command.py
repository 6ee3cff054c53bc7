"""`keras-vit predict`: the classes that images show."""

import os

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
OF_VALUES = ("image", "output", "index", "value")


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
    from keras_vit.data.predict import reading_and_names

    names, files = read_names(args.class_names), image_files(args.images or images_of(args.model))
    model = open_model(args.model, args.reading)
    is_regression = reading_and_names(model, names)[0].name == "values"
    is_table = not (args.csv or args.json)
    most = model.output_shape[-1] if args.threshold is not None else 1 if is_table else 5
    found = keras_vit.predict(
        model,
        files,
        args.top or most,
        names,
        args.batch_size,
        args.threshold,
        skip_corrupt=True,
        progress=None,
    )
    readable = [(file, best) for file, best in zip(files, found) if best is not None]
    if is_table and readable:
        _print_table(readable, is_regression)
    elif not is_table:
        rows = [row for file, best in readable for row in _rows(file, best)]
        print_rows(rows, OF_VALUES if is_regression else COLUMNS, args)
    return unreadable(found.count(None), len(files))


def _print_table(found, is_regression):
    """A line for each image, which is named below the folder that all are in."""
    from keras_vit.text import table

    places = [os.path.abspath(file) for file, _ in found]
    above = os.path.commonpath([os.path.dirname(place) for place in places])
    width = max(len(best) for _, best in found)
    rows = [
        [os.path.relpath(place, above), *map(str, best), *[""] * (width - len(best))]
        for place, (_, best) in zip(places, found)
    ]
    ranks = ["class", *(f"{rank}." for rank in range(2, width + 1))] if width else []
    print(
        table(
            rows,
            ["image", *(["value"] + [""] * (width - 1) if is_regression else ranks)],
            width + 1,
        )
    )


def _rows(file, predictions):
    for rank, one in enumerate(predictions, 1):
        if hasattr(one, "value"):
            yield dict(zip(OF_VALUES, (file, one.label, one.index, float(f"{one.value:.6g}"))))
        else:
            values = (file, rank, one.label, one.index, round(one.probability, 6))
            yield dict(zip(COLUMNS, values))
