"""The benchmarks are scripts that import each other by name from their own folder."""

import keras
import pytest

from tests.support import ROOT


@pytest.fixture(autouse=True)
def scripts_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture(autouse=True)
def settings_stay():
    """What a process of a benchmark changes for itself."""
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)
    keras.config.enable_flash_attention()  # Keras's default
