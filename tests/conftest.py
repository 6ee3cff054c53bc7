"""What holds for every test: a quiet backend, one that is named, and repeatable random numbers."""

import gc
import importlib.metadata
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# On JAX nearly all the time of these tests goes into compiling tiny programs that run once.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import numpy as np
import pytest

# Keras comes with the first test: the process that only hands tests out does not wait for it.


def backend():
    import keras

    return keras.backend.backend()


def pytest_report_header():
    name = os.environ.get("KERAS_BACKEND") or backend()
    return f"keras {importlib.metadata.version('keras')}, backend {name}"


def runs_once(item):
    """Whether any backend will do; `every_backend` at a test goes before what its file says."""
    mark = item.get_closest_marker("any_backend")
    return mark is not None and mark.args != (False,)


def pytest_collection_modifyitems(config, items):
    """The longest come first, so that two processes end together.

    What computes nothing on a backend is left out where another backend has run it.
    """
    items.sort(key=lambda item: not {"tutorials", "training"} & set(item.path.parts))
    if os.environ.get("KERAS_VIT_SKIP_ANY_BACKEND") == "1":
        left_out = [item for item in items if runs_once(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish():
    """Keras collects garbage at every kernel that it quantises: 0.3 s with all these objects."""
    gc.freeze()
    if backend() == "torch":
        import torch

        torch.set_num_threads(1)  # the tensors are tiny: more threads only wait for each other


@pytest.fixture(autouse=True)
def fixed_seed():
    """The result of a test does not depend on which tests ran before it.

    `keras.utils.set_random_seed` would do the same, but imports TensorFlow under every backend.
    """
    random.seed(0)  # where Keras takes the seeds that nobody gave
    np.random.seed(0)
    if backend() == "torch":
        import torch

        torch.manual_seed(0)
