"""What is wrong with a wheel and an sdist: `python tests/distributions.py dist` names it.

It needs nothing but Python, because `.ci/release` runs it before anything is installed.
"""

import pathlib
import re
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("keras_vit", "keras_vit_cli")
LARGEST = 1_500_000  # bytes of the wheel
BESIDE = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")  # the package, in the sdist
# Made when it is built, and by builds before.
MADE = re.compile(r".*\.egg-info/|PKG-INFO$|setup\.cfg$|MANIFEST\.in$")


def package_files():
    """The files of the packages in this checkout, which both must have, no more and no less."""
    files = (p for name in PACKAGES for p in (ROOT / name).rglob("*") if p.is_file())
    return {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}


def mistakes(folder):
    """What is wrong with the wheel and the sdist in a folder, a line each."""
    (wheel,), (sdist,) = (sorted(pathlib.Path(folder).glob(f"*{end}")) for end in (".whl", ".gz"))
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    found = _compare(wheel.name, {n for n in names if ".dist-info/" not in n}, package_files())
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        found.append(f"{wheel.name} has no licence")
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {LARGEST}")
    with tarfile.open(sdist) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    own = {name for name in names if not MADE.match(name)}
    return found + _compare(sdist.name, own, package_files() | set(BESIDE))


def _compare(archive, there, expected):
    lacks, adds = sorted(expected - there), sorted(there - expected)
    return [f"{archive} lacks {n}" for n in lacks] + [f"{archive} has also {n}" for n in adds]


def example():
    """The first Python of README.md, and a look at what it has learned."""
    code = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    look = """
accuracy = model.history.history["val_accuracy"][-1]
if accuracy < 0.8:  # 93 % is usual; no seed is set
    raise SystemExit(f"The example should recognise digits, and ends at {accuracy:.1%}.")
"""
    return code + look


if __name__ == "__main__":
    if sys.argv[1:] == ["--example"]:
        print(example())
    else:
        sys.exit("\n".join(mistakes(sys.argv[1])) or 0)
