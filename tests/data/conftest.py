"""What the tests of data share."""

import pytest


@pytest.fixture(scope="session")
def tf():
    """TensorFlow, whose arithmetic the authors used; a test is skipped without it."""
    return pytest.importorskip("tensorflow")
