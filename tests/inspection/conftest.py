"""The model and the images of the explorer's page, and the page itself."""

import pytest

from keras_vit.inspection import explore
from tests.inspection.cases import CLASSES, WIDE, random_vit
from tests.support import images


@pytest.fixture(scope="module")
def model():
    return random_vit(**WIDE)


@pytest.fixture(scope="module")
def x():
    return images((2, 16, 24, 3))


@pytest.fixture(scope="module")
def page(model, x, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert explore(model, x, str(path), class_names=CLASSES) == path
    return path
