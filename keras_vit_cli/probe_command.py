"""`keras-vit probe`: how good the frozen features of a model are for labelled images."""

from keras_vit_cli.arguments import count, seed, several
from keras_vit_cli.evaluate_command import Batches
from keras_vit_cli.models import open_model
from keras_vit_cli.output import print_json, unreadable

HELP = "fit a linear classifier on the frozen features of labelled images, and test it"
EXAMPLE = "keras-vit probe facebook/dinov2-small photos/ --shots 1 5 10"


def add_arguments(add):
    add("model")
    add("data")
    add("--labels")
    text = "images of each class to learn from, one or several numbers (default: all of them)"
    add("--shots", help=text, **several(count, "K"))
    add("--seed", type=seed, default=0, help="what draws images for --shots (default: 0)")
    add("--split", default="train", help="images to learn from")
    add("--test-split", default="test", metavar="SPLIT", help="images to test on")
    add("--data-dir")
    add("--layer")
    add("--batch-size", default=64)
    add("--json")


def run(args):
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
