"""`keras-vit evaluate` and `probe`: how well a model, or its features, do on labelled images."""

import json
import os

from keras_vit_cli.arguments import ARGUMENTS, count, seed, several
from keras_vit_cli.models import file_of, in_the_package, open_model, settings_of_run, use_precision
from keras_vit_cli.output import print_json, unreadable


def add_evaluate(add):
    add("model")
    text = f"{ARGUMENTS['data']['help']} (default: what the model was trained on, if known)"
    add("data", text, nargs="?")
    add("--labels --problem --reading")
    add("--split", "which images (default: test, or those that the run tested on)")
    add("--data-dir")
    text = "count images whose class is among K best (default: 1, and 5 of more than 5 classes)"
    add("--top", text, **several(count, "K"))
    add("--batch-size", "images at once (default: those of the run, or 64)", default=None)
    add("--json", "the whole report as JSON instead of a table")


def run_evaluate(args):
    """Measure a classifier on labelled images.

    keras-vit evaluate output digits
    """
    from keras_vit import evaluation, results
    from keras_vit.data.load import open_source
    from keras_vit.heads import heads_of
    from keras_vit.outputs import PROBLEMS, reading_of

    # Sums of floats depend on the batch: as in its run, a model has the run's figures.
    settings = settings_of_run(args.model)
    recipe = settings.get("recipe") or {"batch_size": 64, "accumulate": 1}
    use_precision(recipe.get("precision"))
    size = args.batch_size or recipe["batch_size"] // recipe["accumulate"]
    if args.data is None:
        take_data_of_run(args)
    model = open_model(args.model, args.reading)
    heads = heads_of(model)
    if heads and args.labels and args.problem is None:
        problems = {reading: problem for problem, reading in PROBLEMS.items()}
        args.problem = {head: problems[reading_of(one).name] for head, one in heads.items()}
    source = open_source(args.data, args.data_dir, args.labels, args.problem)
    split, top = args.split or "test", args.top
    if source.name == recipe.get("dataset"):  # parts are those that the run had
        fallbacks = {part: recipe.get(f"{part}_split") for part in ("test", "validation")}
        of_run = settings["test_split"] or recipe["test_split"]
        split, of_run = (source.with_fallbacks(each, fallbacks) for each in (split, of_run))
        if split == of_run:
            folder = os.path.dirname(file_of(args.model))
            results.compare_test(folder, source, source.rows(split))
    rows = source.rows(split)
    if isinstance(source.problem, dict):
        if set(source.problem) != set(heads):
            raise ValueError(
                f"The labels must be those of the heads of the model, {', '.join(heads) or 'one'}. "
                f"Received: {', '.join(source.problem)}; name the columns as the heads, and say "
                "--problem HEAD=PROBLEM,HEAD=PROBLEM"
            )
        top = top and {head: top for head, each in source.problem.items() if each == "single_label"}
    report = evaluation.evaluate(model, Batches(source, rows, model=model, size=size), top)
    print(json.dumps(report.to_dict(), indent=1, allow_nan=False) if args.json else report)
    return unreadable(report.skipped, len(rows))


def take_data_of_run(args):
    """Lets `args` name the images that the run tested its model on."""
    from keras_vit.job import Job

    if record := in_the_package(args.model):
        args.data = record.pretrained_on
        return
    if not os.path.isfile(os.path.join(args.model, "settings.json")):
        args.refuse("data: needed where the model is not the folder of a finished run, or digits")
    job = Job.read(args.model)
    args.data, args.data_dir = job.dataset or job.recipe.dataset, args.data_dir or job.data_dir
    args.labels, args.problem = args.labels or job.labels, args.problem or job.problem
    args.split = args.split or job.test_split or job.recipe.test_split


class Batches:
    """The images of a source as a model wants them, for `evaluate`; one is at its full size.

    `skipped` tells where those images lie that could not be read.
    """

    def __init__(self, source, rows, *, model, size):
        self.source, self.rows, self.model, self.size = source, rows, model, size
        self.class_names, self.problem, self.skipped = source.class_names, source.problem, []

    def __len__(self):
        return -(-len(self.rows) // self.size)

    def __iter__(self):
        import numpy as np

        from keras_vit.data.label_rows import LabelRows
        from keras_vit.data.pixels import pixels_of
        from keras_vit.data.preprocess import input_of, prepare, warn_of_unreadable

        wanted, weighted = input_of(self.model), isinstance(self.problem, dict)
        label_rows = LabelRows(self.source, weighted=weighted)
        labels = {}  # of the rows of a batch

        def read(row):
            image, label = self.source[row]
            labels[row] = label_rows.row(label)
            return pixels_of(image, wanted[1], self.source.upright)

        for start in range(0, len(self.rows), self.size):
            rows = self.rows[start : start + self.size]
            images, errors = prepare(rows, read, *wanted)
            places = {index: self.source.place(rows[index]) for index in errors}
            warn_of_unreadable([f"{places[index]}: {errors[index]}" for index in errors])
            self.skipped += places.values()
            kept = np.delete(np.arange(len(rows)), [*errors])  # as a pipeline leaves others out
            if len(kept):
                of_batch = np.stack([labels[row] for row in rows[kept]])
                yield images[kept], *label_rows.labels(of_batch)
            labels.clear()


def add_probe(add):
    add("model data --labels")
    text = "images of each class to learn from, one or several numbers (default: all of them)"
    add("--shots", text, **several(count, "K"))
    add("--seed", "what draws images for --shots (default: 0)", type=seed, default=0)
    add("--split", "images to learn from", default="train")
    add("--test-split", "images to test on", default="test", metavar="SPLIT")
    add("--data-dir --layer")
    add("--batch-size", default=64)
    add("--json")


def run_probe(args):
    """Fit a linear classifier on the frozen features of labelled images, and test it.

    keras-vit probe facebook/dinov2-small photos/ --shots 1 5 10
    """
    from keras_vit import evaluation
    from keras_vit.data.load import open_source

    source = open_source(args.data, args.data_dir, args.labels, "single_label")
    rows = [source.rows(split) for split in (args.split, args.test_split)]
    model = open_model(args.model)
    parts = [Batches(source, part, model=model, size=args.batch_size) for part in rows]
    options = {"shots": args.shots, "seed": args.seed, "layer": args.layer}
    result = evaluation.probe(model, *parts, **options)
    if args.json:
        print_json(result.to_dict())
    else:
        print(result)
    return unreadable(sum(len(part.skipped) for part in parts), sum(map(len, rows)))
