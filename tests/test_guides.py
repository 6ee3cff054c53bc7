"""The guides: what they show runs and prints what they say, and their links lead somewhere."""

import re

import pytest

from tests.guides import FOLDER, agrees, blocks, environment_with_commands, run
from tests.support import ROOT

PAGES = sorted(FOLDER.glob("*.md"))
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def by_name(page):
    return page.name


@pytest.mark.any_backend
@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_the_python_of_a_guide_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks(page):
        if block.language == "python" and not block.mark:
            printed = run(block, names)
            if block.shown is not None:
                assert agrees(block.shown, printed, 0.01), f"{block.code}\nprinted:\n{printed}"


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_a_guide_followed_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, environment = {}, environment_with_commands(tmp_path / ".bin")
    for block in blocks(page):
        if not block.mark.startswith("not run"):
            printed = run(block, names, environment)
            if block.shown is not None:
                assert agrees(block.shown, printed, 0.2), f"{block.code}\nprinted:\n{printed}"
