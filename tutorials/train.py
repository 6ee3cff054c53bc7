"""Trains a Vision Transformer by a recipe, and shows what it has learned.

    KERAS_BACKEND=jax python tutorials/train.py            (or tensorflow, or torch)

It is `keras-vit train` from a checkout, see docs/command_line.md. Without arguments it trains on
scikit-learn's handwritten digits, which need no network, and leaves all it made in `output/`.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # run from a checkout
from keras_vit_cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
