"""`keras-vit sweep`: training at several learning rates, and which does best."""

import sys

from keras_vit_cli import train_command
from keras_vit_cli.numbers import count, positive

HELP = "train at several learning rates, and tell which does best on images held out"
EXAMPLE = "keras-vit sweep --dataset photos --image-size 64 --epochs 10 --learning-rates 1e-4 1e-3"
# What `train` alone has; some are later than this list, or are the sweep's own.
OF_TRAINING = """--list --show --dry-run --evaluate --save-every --distribute --learning-rate
    --test-split -o""".split()


DEFAULTS = train_command.DEFAULTS


def add_arguments(add):
    train_command.add_arguments(lambda *names, **options: _add(add, names, options))
    add(
        "--learning-rates",
        type=positive,
        nargs="+",
        metavar="RATE",
        help="rates to try (default: the recipe's, or a third, once and three times its rate)",
    )
    text = "images to choose by (default: the part validation, or the last tenth of train)"
    add("--validation-split", metavar="SPLIT", help=text)
    text = "end a run after so many epochs without a better score (default: never)"
    add("--early-stop", type=count, metavar="EPOCHS", help=text)
    text = "the result as a .json file, written after each rate (default: none)"
    add("-o", "--output", metavar="FILE", help=text)


def _add(add, names, options):
    if not {*OF_TRAINING} & {*names}:
        add(*names, **options)


def run(args):
    from keras_vit.job import configure
    from keras_vit.plan import sweep

    for name, value in {"learning_rate": None, "test_split": None, "save_every": "600s"}.items():
        setattr(args, name, value)
    job = train_command.make_job(args)
    configure(job.recipe)
    result = sweep(
        job,
        args.learning_rates,
        args.validation_split,
        early_stop=args.early_stop,
        path=args.output,
        verbose=int(sys.stdout.isatty()),
    )
    print(result)
    best = result.learning_rate
    print(
        f"best: --learning-rate {best:.6g}"
        if best
        else "No rate had a finite loss: try lower ones."
    )
    return 0 if best else 1
