"""`keras-vit explore`: a page that shows what a model attends to."""

import argparse

from keras_vit_cli.arguments import count, positive, several
from keras_vit_cli.models import files_of, open_model, read_names
from keras_vit_cli.output import unreadable

HELP = "write a page that shows what a model attends to"
EXAMPLE = "keras-vit explore output cat.jpg dog.jpg -o report.html"


def add_arguments(add):
    add("model")
    add("images")
    add("--compare", metavar="MODEL", help="another model, to stand beside it")
    add("-o", "--output", default="report.html", help="the page")
    text = "indices of the blocks to show (default: all)"
    add("--blocks", help=text, **several(int, "BLOCK"))
    add("--top", type=count, default=5, help="classes to tell")
    add("--class-names")
    add("--reading")
    add("--megabytes", type=positive, default=5.0, help="largest size for each image")


def run(args):
    from keras_vit import inspection
    from keras_vit.data.preprocess import preprocess_readable
    from keras_vit.text import visible

    if args.compare == args.model:
        text = f"--compare: takes another model than the first. Received: {args.model!r} twice."
        raise argparse.ArgumentError(None, text)
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
