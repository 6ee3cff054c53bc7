"""`keras-vit evaluate`: how well a classifier does on labelled images."""

import argparse
import json
import os
import sys

from keras_vit_cli.models import MODEL, in_the_package, open_model
from keras_vit_cli.numbers import count

HELP = "measure a classifier on labelled images"
EXAMPLE = "keras-vit evaluate output digits"


def add_arguments(add):
    add("model", help=MODEL)
    data = "digits, an .npz file, a set of TFDS, or a folder with a subfolder per class"
    add("data", nargs="?", help=f"{data} (default: what the model was trained on, if known)")
    add("--split", help="which images (default: test, or those that the run tested on)")
    add("--data-dir", help="where fashion_mnist or the prepared sets of TFDS lie")
    add(
        "--top",
        type=count,
        nargs="+",
        metavar="K",
        help="count images whose class is among K best",
    )
    add("--batch-size", type=count, default=64, help="images at once (default: 64)")
    add("--json", action="store_true", help="the whole report as JSON instead of a table")


def run(args):
    import numpy as np

    from keras_vit import evaluation
    from keras_vit.data.load import open_source

    size = args.batch_size
    if args.data is None:
        take_data_of_run(args)
    source = open_source(args.data, args.data_dir)
    rows = source.rows(args.split or "test")
    model = open_model(args.model)
    numbers = class_map(getattr(model, "class_names", None), source.class_names, model.num_classes)

    def batches():
        from keras_vit.data import preprocess
        from keras_vit.data.pixels import pixels_of

        for start in range(0, len(rows), size):
            found = [source[row] for row in rows[start : start + size]]
            images = [pixels_of(image, model.channels, source.upright) for image, _ in found]
            labels = np.array([int(label) for _, label in found])
            yield preprocess(images, model), labels if numbers is None else numbers[labels]

    steps = -(-len(rows) // size)
    names = getattr(model, "class_names", None) or source.class_names
    report = evaluation.evaluate(model, batches(), args.top, class_names=names, steps=steps)
    print(json.dumps(report.to_dict(), indent=1, allow_nan=False) if args.json else report)


def take_data_of_run(args):
    """Lets `args` name the images that the run tested its model on."""
    from keras_vit.job import Job

    if record := in_the_package(args.model):
        args.data = record.pretrained_on
        return
    if not os.path.isfile(os.path.join(args.model, "settings.json")):
        text = "data: it is needed where the model is not the folder of a finished run, or digits"
        raise argparse.ArgumentError(None, text)
    job = Job.read(args.model)
    args.data, args.data_dir = job.dataset or job.recipe.dataset, args.data_dir or job.data_dir
    args.split = args.split or job.test_split or job.recipe.test_split


def class_map(of_model, of_data, num_classes):
    """The model's number of each class of the data; `None` if they are numbered alike.

    Names decide where the model has them and all of the data's are among them; else the order.

    Raises:
        ValueError: the order cannot decide, because there are not as many classes.
    """
    import numpy as np

    places = {name: number for number, name in enumerate(of_model or ())}
    if set(of_data) <= set(places):
        return np.array([places[name] for name in of_data])
    if len(of_data) != num_classes:
        unknown = [name for name in of_data if name not in places]
        which = (
            f"has classes that the model does not know, {unknown[:5]}"
            if places
            else "has other classes"
        )
        raise ValueError(
            f"The data {which}: the data has {len(of_data)} and the model {num_classes}. Rename "
            "the classes of the data, or train the model on them."
        )
    if places:
        print(
            "warning: the classes have other names in the data, so their order decides: "
            f"{of_data[0]!r} is taken for {of_model[0]!r}",
            file=sys.stderr,
        )
    return None
