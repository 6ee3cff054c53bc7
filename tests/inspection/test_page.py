"""docs/inspection.md: its snippets run, and every function stands in it."""

import re

import numpy as np
import pytest

from keras_vit import inspection
from tests.inspection.cases import random_vit
from tests.recipes.snippets import snippets
from tests.support import ROOT, images

pytestmark = pytest.mark.any_backend

PAGE = ROOT / "docs" / "inspection.md"


def test_the_snippets_run(tmp_path, monkeypatch, capsys):
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    pillow.fromarray(np.zeros((20, 30, 3), np.uint8)).save("cat.jpg")
    model = random_vit(image_size=32, depth=6)
    names = {"model": model, "images": images((4, 32, 32, 3)), "inspection": inspection}
    for code in snippets(PAGE):
        exec(code, names)
    written = {path.name for path in tmp_path.iterdir()} - {"cat.jpg"}
    assert written == set(re.findall(r'"(\w+\.(?:png|html))"', "".join(snippets(PAGE))))
    assert names["overlay"].shape == (4, 2, 32, 32)


def test_every_function_is_in_the_page():
    functions = {name for name in inspection.__all__ if name.islower()}
    text = PAGE.read_text("utf-8")
    assert [name for name in functions if not re.search(rf"\b{name}\b", text)] == []
