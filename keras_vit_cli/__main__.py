"""`python -m keras_vit_cli COMMAND ...`, which is `keras-vit COMMAND ...`."""

import sys

from keras_vit_cli import main

if __name__ == "__main__":
    sys.exit(main())
