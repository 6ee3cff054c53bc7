"""`keras-vit list`: published weights, as a table, CSV or JSON."""

from keras_vit_cli.arguments import count, not_negative, positive
from keras_vit_cli.backend import without_keras
from keras_vit_cli.output import print_rows

HELP = "list published weights that the names of other commands mean"
EXAMPLE = "keras-vit list --family dinov2 --max-size 400"
NEEDS_BACKEND = False
COLUMNS = ("name", "family", "variant", "px", "classes", "pretrained on", "finetuned on")
COLUMNS += ("MB", "top-1", "licence")


def add_arguments(add):
    add("--variant", help="one architecture, such as B/16 or DINOv2-S/14")
    add("--family", help="architectures, such as dino, clip or mae; or who published it: timm, ...")
    add("--data", help="the data set of the last training, such as imagenet-1k")
    add("--image-size", type=count, metavar="PX", help="resolution")
    add("--max-size", type=positive, metavar="MB", help="no larger files than that")
    text = "least published ImageNet top-1"
    add("--min-accuracy", type=not_negative, metavar="PERCENT", help=text)
    add("--csv")
    add("--json")


def run(args):
    with without_keras():
        from keras_vit.weights.catalog import checkpoints

        rows = [
            row
            for row in map(_row, checkpoints(args.variant, args.family, args.data, args.image_size))
            if (args.max_size is None or (row["MB"] is not None and row["MB"] <= args.max_size))
            and (args.min_accuracy is None or (row["top-1"] or 0) >= args.min_accuracy)
        ]
        if not rows:
            raise ValueError("No published weights are so; leave out one of the filters.")
        print_rows(rows, COLUMNS, args, left=3)


def _row(c):
    """What the catalogue says; the size is the published one, or that of float32 parameters."""
    size = c.size or (c.approximate_mib and c.approximate_mib * 2**20)
    size = size or (c.parameters and c.parameters * 4)
    values = (
        c.name,
        c.family,
        c.variant,
        c.image_size,
        c.num_classes,
        c.pretrained_on or None,
        c.finetuned_on,
        size and round(size / 1e6, 1),
        dict(c.accuracy).get("imagenet top-1"),
        c.licence,
    )
    return dict(zip(COLUMNS, values))
