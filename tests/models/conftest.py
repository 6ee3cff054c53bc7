"""Models without values, and models that come back from their files."""

import keras
import pytest

from tests.support import without_values


@pytest.fixture
def no_memory():
    with without_values():
        yield


@pytest.fixture
def reopened(tmp_path):
    """Saves a model, and opens the file."""

    def save_and_open(model, **options):
        model.save(tmp_path / "model.keras")
        return keras.saving.load_model(tmp_path / "model.keras", **options)

    return save_and_open
