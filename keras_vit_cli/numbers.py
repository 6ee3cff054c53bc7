"""Numbers on the command line, as types for argparse, whose errors name the flag."""

import argparse
import math
import re


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
