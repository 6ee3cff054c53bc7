"""The wheel and the sdist hold the package, its licence, and nothing else."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

import keras_vit
from tests import distributions
from tests.support import ROOT

pytestmark = pytest.mark.any_backend


@pytest.fixture
def folder(tmp_path):
    """A wheel and an sdist as they should be, without contents."""

    def write(*more, without=(), size=0):
        files = [*distributions.package_files() - set(without), *more]
        with zipfile.ZipFile(tmp_path / "keras3_vit-1-py3-none-any.whl", "w") as wheel:
            for name in (*files, "keras3_vit-1.dist-info/licenses/LICENSE"):
                wheel.writestr(name, b"")
            wheel.writestr(files[0] + "c", b"0" * size) if size else None
        with tarfile.open(tmp_path / "keras3_vit-1.tar.gz", "w:gz") as sdist:
            for name in (*files, *distributions.BESIDE, "PKG-INFO", "keras3_vit.egg-info/x"):
                sdist.addfile(tarfile.TarInfo(f"keras3_vit-1/{name}"))
        return tmp_path

    return write


def test_what_is_missing_too_much_or_too_large_is_named(folder):
    assert distributions.mistakes(folder()) == []
    assert "keras_vit/py.typed" in distributions.package_files()
    lacking = distributions.mistakes(folder(without=["keras_vit/py.typed"]))
    assert lacking[0] == "keras3_vit-1-py3-none-any.whl lacks keras_vit/py.typed"
    assert lacking[1] == "keras3_vit-1.tar.gz lacks keras_vit/py.typed"
    adding = distributions.mistakes(folder("tests/test_text.py"))
    assert [line.split(" has ")[1] for line in adding] == ["also tests/test_text.py"] * 2
    assert "bytes, more than 1500000" in distributions.mistakes(folder(size=1_600_000))[-1]


def test_the_example_of_the_readme_is_a_whole_program():
    code = distributions.example()
    compile(code, "README.md", "exec")
    assert "import keras_vit" in code and ".fit(" in code


def test_changelog_and_citation_name_the_version():
    version = keras_vit.__version__
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert f"\n## [{version}] - 20" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_what_is_built_has_the_right_files(tmp_path):
    """It asks the package index for setuptools."""
    command = [sys.executable, "-m", "build", "--outdir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert distributions.mistakes(tmp_path) == []


def extras():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_extras_that_are_named_exist_and_all_are_told():
    """In errors, docstrings, pages and notebooks."""
    named = {}
    for folder in ("keras_vit", "keras_vit_cli", "docs", "tutorials", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md", ".ipynb"):
                for found in re.findall(r"keras3-vit\[([a-z,]+)\]", path.read_text("utf-8")):
                    named |= dict.fromkeys(found.split(","), path)
    assert {name: path for name, path in named.items() if name not in extras()} == {}
    assert {"data", "tfds", "plot", "export"} <= set(named)
    # The page on installing has every extra.
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "installing.md").read_text(), re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(extras())
    # Folders and pipelines need no package of TensorFlow.
    assert not [name for name in extras()["data"] if "tensorflow" in name or "pyarrow" in name]
    assert "keras3-vit[data]" in extras()["tfds"]
