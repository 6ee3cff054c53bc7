"""`keras-vit predict`: the classes that images show."""

import os

from keras_vit_cli.arguments import count, probability
from keras_vit_cli.models import files_of, open_model, read_names
from keras_vit_cli.output import print_rows, unreadable

HELP = "tell which classes images show"
EXAMPLE = "keras-vit predict output photos/ cat.jpg --top 3"
COLUMNS = ("image", "rank", "class", "index", "probability")
OF_VALUES = ("image", "output", "index", "value")


def add_arguments(add):
    add("model")
    add("images")
    text = "classes for each image (default: 1 in the table; 5 in CSV and JSON)"
    add("--top", type=count, metavar="K", help=text)
    text = "classes of at least this probability alone, all of them without --top"
    add("--threshold", type=probability, metavar="P", help=text)
    add("--reading")
    add("--class-names")
    add("--batch-size")
    add("--csv")
    add("--json")


def run(args):
    import keras_vit
    from keras_vit.data.predict import reading_and_names
    from keras_vit.heads import check_one_head, errors_of, heads_of

    names, files = read_names(args.class_names), files_of(args)
    model = open_model(args.model, args.reading)
    if names:
        check_one_head(model, "--class-names")
    heads, of_values, most = heads_of(model), {}, {}
    is_table = not (args.csv or args.json)
    for head, one in (heads or {None: model}).items():
        with errors_of(head):
            of_values[head] = reading_and_names(one, names)[0].name == "values"
        usual = 1 if is_table else 5
        most[head] = args.top or (usual if args.threshold is None else one.output_shape[-1])
    threshold = args.threshold
    if heads:  # values have no probability that it could be one of
        threshold = {head: threshold for head, is_values in of_values.items() if not is_values}
    options = {"top": most, "threshold": threshold, "skip_corrupt": True, "progress": None}
    predictions = keras_vit.predict(
        model, files, class_names=names, batch_size=args.batch_size, **options
    )
    predictions = predictions if heads else {None: predictions}
    first = next(iter(predictions.values()))
    readable = [i for i, best in enumerate(first) if best is not None]
    if is_table and readable:
        _print_table(files, predictions, readable, of_values)
    elif not is_table:
        columns = ["image", "head"] if heads else ["image"]
        columns += [] if all(of_values.values()) else COLUMNS
        columns += OF_VALUES if any(of_values.values()) else []
        columns = list(dict.fromkeys(columns))
        rows = [
            dict.fromkeys(columns if args.csv else ()) | row
            for i in readable
            for head in predictions
            for row in _rows(files[i], predictions[head][i], head)
        ]
        print_rows(rows, columns, args)
    return unreadable(len(files) - len(readable), len(files))


def _print_table(files, predicted, readable, of_values):
    """A line for each image, which is named below the folder that all are in."""
    from keras_vit.text import table

    places = [os.path.abspath(files[i]) for i in readable]
    above = os.path.commonpath([os.path.dirname(place) for place in places])
    rows, header = [[os.path.relpath(place, above)] for place in places], ["image"]
    for head, predictions in predicted.items():
        width = max(len(predictions[i]) for i in readable)
        for row, i in zip(rows, readable):
            row += [*map(str, predictions[i]), *[""] * (width - len(predictions[i]))]
        first = head or ("value" if of_values[head] else "class")
        ranks = ("" if of_values[head] else f"{rank}." for rank in range(2, width + 1))
        header += [first, *ranks][:width]
    print(table(rows, header, len(header)))


def _rows(file, predictions, head):
    of_image = {"image": file} if head is None else {"image": file, "head": head}
    for rank, one in enumerate(predictions, 1):
        if hasattr(one, "value"):
            values = dict(zip(OF_VALUES[1:], (one.label, one.index, float(f"{one.value:.6g}"))))
        else:
            values = (rank, one.label, one.index, round(one.probability, 6))
            values = dict(zip(COLUMNS[1:], values))
        yield of_image | values
