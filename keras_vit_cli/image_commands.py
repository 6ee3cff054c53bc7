"""`keras-vit predict`, `embed` and `explore`: what a model makes of images."""

import os
import sys

from keras_vit_cli.arguments import FLAG, count, positive, probability, several
from keras_vit_cli.models import files_of, open_model, read_names
from keras_vit_cli.output import print_rows, unreadable

COLUMNS = ("image", "rank", "class", "index", "probability")
OF_VALUES = ("image", "output", "index", "value")


def add_predict(add):
    add("model images")
    text = "classes for each image (default: 1 in the table; 5 in CSV and JSON)"
    add("--top", text, type=count, metavar="K")
    text = "classes of at least this probability alone, all of them without --top"
    add("--threshold", text, type=probability, metavar="P")
    add("--reading --class-names --batch-size --csv --json")


def run_predict(args):
    """Tell which classes images show.

    keras-vit predict output photos/ cat.jpg --top 3
    """
    import keras_vit
    from keras_vit.data.predict import reading_and_names
    from keras_vit.heads import check_one_head, errors_of, heads_of

    names, files = read_names(args.class_names), files_of(args)
    model = open_model(args.model, args.reading)
    if names:
        check_one_head(model, "--class-names")
    heads, of_values, is_table = heads_of(model), {}, not (args.csv or args.json)
    for head, one in (heads or {None: model}).items():
        with errors_of(head):
            of_values[head] = reading_and_names(one, names)[0].name == "values"
    usual = 1 if is_table else 5
    most = args.top or (usual if args.threshold is None else sys.maxsize)
    threshold = args.threshold
    if heads:  # a head of values has no probabilities
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
        # Nine digits hold a float32 number.
        if hasattr(one, "value"):
            columns, values = OF_VALUES, (one.label, one.index, float(f"{one.value:.9g}"))
        else:
            columns = COLUMNS
            values = (rank, one.label, one.index, float(f"{one.probability:.9g}"))
        yield of_image | dict(zip(columns[1:], values))


def add_embed(add):
    add("model images")
    text = "the file: .npz with the arrays paths and features, or .csv"
    add("-o --output", text, default="features.npz")
    add("--normalize", "vectors of length 1, as CLIP compares them", **FLAG)
    add("--layer --batch-size")


def run_embed(args):
    """Write the features that a model makes of images, with their paths.

    keras-vit embed facebook/dinov2-small photos/ -o features.npz
    """
    from keras_vit import evaluation
    from keras_vit.evaluation.features import output_of_features
    from keras_vit.text import visible

    output_of_features(args.output)
    files, model = files_of(args), open_model(args.model)
    vectors = evaluation.embed(
        model, files, args.normalize, args.layer, args.batch_size, skip_corrupt=True, progress=None
    )
    broken = evaluation.save_features(args.output, files, vectors)
    shape = f"{len(files) - broken} images, {vectors.shape[1]} numbers each"
    print(f"{visible(args.output)}: {shape}")
    return unreadable(broken, len(files))


def add_explore(add):
    add("model images")
    add("--compare", "another model, to stand beside it", metavar="MODEL")
    add("-o --output", "the page", default="report.html")
    add("--blocks", "indices of the blocks to show (default: all)", **several(int, "BLOCK"))
    add("--top", "classes to tell", type=count, default=5)
    add("--class-names --reading")
    add("--megabytes", "largest size for each image", type=positive, default=5.0)


def run_explore(args):
    """Write a page that shows what a model attends to.

    keras-vit explore output cat.jpg dog.jpg -o report.html
    """
    from keras_vit import inspection
    from keras_vit.data.preprocess import preprocess_readable
    from keras_vit.text import visible

    if args.compare == args.model:
        args.refuse(f"--compare: takes another model. Received: {args.model!r} twice.")
    options = {name: getattr(args, name) for name in ("blocks", "top", "megabytes")}
    names, files = read_names(args.class_names), files_of(args)
    model = open_model(args.model, args.reading)
    _, broken = preprocess_readable(files, model)
    shown = [file for index, file in enumerate(files) if index not in broken]
    if args.compare:
        model = {args.model: model, args.compare: open_model(args.compare, args.reading)}
    if shown:
        path = inspection.explore(model, shown, args.output, class_names=names, **options)
        print(f"{visible(path)} ({path.stat().st_size / 1e6:.2f} MB)")
    return unreadable(len(broken), len(files))
