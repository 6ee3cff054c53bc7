"""`keras-vit sweep`: training at several learning rates, and which does best."""

import sys

from keras_vit_cli import train_command
from keras_vit_cli.arguments import count, positive

HELP = "train at several learning rates, and tell which does best on images held out"
EXAMPLE = "keras-vit sweep --dataset photos --image-size 64 --epochs 10 --learning-rates 1e-4 1e-3"
# What `train` alone has; some are later than this list, or are the sweep's own.
OF_TRAINING = """--list --show --dry-run --evaluate --save-every --distribute --learning-rate
    --test-split -o""".split()


DEFAULTS = train_command.DEFAULTS


def add_arguments(add):
    train_command.add_arguments(lambda *names, **options: _add(add, names, options))
    text = "rates to try (default: the recipe's, or a third, once and three times its rate)"
    add("--learning-rates", type=positive, nargs="+", metavar="RATE", help=text)
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
    options = {"early_stop": args.early_stop, "path": args.output}
    rates, verbose = args.learning_rates, int(sys.stdout.isatty())
    result = sweep(job, rates, args.validation_split, verbose=verbose, **options)
    print(result)
    if not result.learning_rate:
        print("No rate had a finite loss: try lower ones.")
        return 1
    print(f"best: --learning-rate {result.learning_rate:.6g}")
