"""Runs a script without what Keras imports wherever it is installed, though the script has no use.

python -m tests.bare SCRIPT [ARGUMENTS], or `import tests.bare` before Keras.

Half of the time of a small process goes into such imports: Scikit-learn and Matplotlib for Keras's
own wrappers and plots, TensorFlow at the first saved model, JAX beside another backend.
"""

import os
import pathlib
import runpy
import sys

LEFT_OUT = {"jax", "matplotlib", "sklearn", "tensorflow"} - {os.environ.get("KERAS_BACKEND")}
NEEDED = set(os.environ.get("KERAS_VIT_NEEDED", "").split())
sys.modules.update(dict.fromkeys(LEFT_OUT - NEEDED))  # a module that is None cannot be imported

if __name__ == "__main__":
    sys.argv.pop(0)
    sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
