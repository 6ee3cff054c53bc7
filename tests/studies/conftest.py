"""The studies are scripts that import each other by name from their own folder."""

import pytest

from tests.support import ROOT


@pytest.fixture(autouse=True)
def scripts_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
