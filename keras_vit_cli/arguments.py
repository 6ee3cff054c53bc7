"""What several commands take: their arguments by name, and the types that read them."""

import argparse
import ast
import contextlib
import math
import re

MODEL = "a .keras file, the folder of a run, or a checkpoint: name, file, folder or URL"
PROBLEMS = ("single_label", "multi_label", "regression")
READINGS = ("softmax", "sigmoid", "values")
IMAGES = "image files, and folders of them at any depth (optional for digits, which has its own)"
PROBLEM = "what labels are: single_label, multi_label or regression; of several columns of a file, "
PROBLEM += "each a head of the model, COLUMN=PROBLEM,COLUMN=PROBLEM"
READING = (
    "how outputs are read, as softmax or HEAD=softmax,HEAD=values (default: as the model says)"
)


def _number(convert, fits, wanted):
    def read(text):
        try:
            value = convert(text)
        except ValueError:
            value = math.nan
        if not fits(value):
            raise argparse.ArgumentTypeError(f"takes {wanted}. Received: {text!r:.40}.")
        return value

    return read


count = _number(int, lambda v: 1 <= v < 2**32, "a whole number from 1 to 2**32 - 1")
seed = _number(int, lambda v: 0 <= v < 2**32, "a whole number from 0 to 2**32 - 1")
positive = _number(float, lambda v: 0 < v < math.inf, "a number above 0")
passes = _number(float, lambda v: 0 < v < 1e9, "a number above 0 and below 1e9")
not_negative = _number(float, lambda v: 0 <= v < math.inf, "a number of at least 0")
share = _number(float, lambda v: 0 <= v < 1, "a share in [0, 1)")
probability = _number(float, lambda v: 0 <= v <= 1, "a probability in [0, 1]")


def interval(text):
    """Updates as an int above 0, or seconds as text, such as "600s"."""
    if text.isascii() and text.isdigit():
        return count(text)
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?s", text):
        wanted = "a number of updates, such as 500, or seconds, as 600s"
        raise argparse.ArgumentTypeError(f"takes {wanted}. Received: {text!r:.40}.")
    return text


def by_head(convert):
    """The type of a value, or of `HEAD=VALUE,HEAD=VALUE`, which becomes a dict."""

    def read(text):
        if "=" not in text:
            return convert(text)
        values = {}
        for part in text.split(","):
            head, equals, value = part.rpartition("=")
            if not (head := head.strip()) or not equals or head in values:
                text = "takes a value, or HEAD=VALUE,HEAD=VALUE with each head once. Received: "
                raise argparse.ArgumentTypeError(f"{text}{part!r}")
            values[head] = convert(value.strip())
        return values

    return read


def one_of(*values):
    """The type of one of some words."""

    def read(text):
        if text not in values:
            raise argparse.ArgumentTypeError(f"takes {', '.join(values)}. Received: {text!r}")
        return text

    return read


class Settings(argparse.Action):
    """Collects every `NAME=VALUE` of a flag in a dict; text needs no quotation marks."""

    def __init__(self, **options):
        super().__init__(nargs="+", default={}, metavar="NAME=VALUE", **options)

    def __call__(self, parser, namespace, values, option_string=None):
        settings = dict(getattr(namespace, self.dest))
        for text in values:
            name, equals, value = text.partition("=")
            if not equals:
                rule = "takes NAME=VALUE, such as image_size=224."
                raise argparse.ArgumentError(self, f"{rule} Received: {text!r}")
            with contextlib.suppress(ValueError, SyntaxError):
                value = ast.literal_eval(value)
            if name in settings:
                received = f"Received: {name}={settings[name]!r} and {name}={value!r}"
                raise argparse.ArgumentError(self, f"takes each name once. {received}")
            settings[name] = value
        setattr(namespace, self.dest, settings)


def several(convert, metavar):
    """The options of a flag that takes one value or more, and adds to those given before."""
    return {"action": "extend", "nargs": "+", "type": convert, "metavar": metavar}


FLAG = {"action": "store_true"}  # the options of a flag without a value

# The arguments that mean the same in all commands which take them.
ARGUMENTS = {
    "model": {"help": MODEL},
    "images": {"nargs": "*", "help": IMAGES},
    "data": {"help": "digits, an .npz file, a set of TFDS, or a folder with a subfolder per class"},
    "--labels": {"metavar": "FILE", "help": "labels of the images in the folder: .csv or .json"},
    "--problem": {"metavar": "PROBLEM", "type": by_head(one_of(*PROBLEMS)), "help": PROBLEM},
    "--reading": {"metavar": "READING", "type": by_head(one_of(*READINGS)), "help": READING},
    "--class-names": {"metavar": "FILE", "help": "text with one name a line, in the model's order"},
    "--data-dir": {"help": "where fashion_mnist or the prepared sets of TFDS lie"},
    "--layer": {"metavar": "NAME", "help": "layer to take (default: what the head reads)"},
    "--batch-size": {"type": count, "default": 32, "help": "images at once"},
    "--csv": {"help": "CSV instead of a table", **FLAG},
    "--json": {"help": "JSON instead of a table", **FLAG},
}
