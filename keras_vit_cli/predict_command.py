"""`keras-vit predict`: the classes that images show."""

import sys

from keras_vit_cli.models import IMAGES, MODEL, NAMES, images_of, list_files, open_model, read_names
from keras_vit_cli.numbers import count
from keras_vit_cli.output import add_forms, print_rows

HELP = "tell which classes images show"
EXAMPLE = "keras-vit predict output photos/ cat.jpg --top 3"
COLUMNS = ("image", "rank", "class", "index", "probability")


def add_arguments(add):
    add("model", help=MODEL)
    add("images", nargs="*", help=IMAGES)
    add("--top", type=count, default=5, help="classes for each image (default: 5)")
    add("--class-names", metavar="FILE", help=NAMES)
    add("--batch-size", type=count, default=32, help="images at once (default: 32)")
    add_forms(add)


def run(args):
    from tqdm import tqdm

    import keras_vit

    names, files = read_names(args.class_names), list_files(args.images or images_of(args.model))
    model = open_model(args.model)
    rows, broken = [], 0
    starts = range(0, len(files), args.batch_size)
    for start in tqdm(starts, unit="batch", leave=False, disable=None):  # None: on a terminal alone
        batch = files[start : start + args.batch_size]
        images = {file: pixels for file in batch if (pixels := _read(file, model)) is not None}
        broken += len(batch) - len(images)
        if images:
            found = keras_vit.predict(model, list(images.values()), args.top, names)
            rows += [row for file, best in zip(images, found) for row in _rows(file, best)]
    if rows or args.csv or args.json:
        print_rows(rows, COLUMNS, args, left=3)
    if broken:
        print(f"error: {broken} of {len(files)} images could not be read", file=sys.stderr)
    return 1 if broken else 0


def _read(file, model):
    """The pixels of a file; `None`, and a line on stderr, if it cannot be read."""
    from tqdm import tqdm

    from keras_vit.data.pixels import pixels_of

    try:
        return pixels_of(file, getattr(model, "channels", 3))
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise errors of many kinds
        tqdm.write(f"error: {file}: {' '.join(str(error).split())}", file=sys.stderr)
        return None


def _rows(file, predictions):
    for rank, one in enumerate(predictions, 1):
        values = (file, rank, one.label, one.index, round(one.probability, 6))
        yield dict(zip(COLUMNS, values))
