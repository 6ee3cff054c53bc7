"""What a page of docs/guides shows, block by block, and whether it comes out as shown.

A fence with `python` or `bash` is a block. An HTML comment in the line before it, which readers do
not see, says when it is not run: `<!-- slow -->` in the fast test, `<!-- not run: why -->` never,
`<!-- jax -->` and so on but on that backend.
A fence with `text` after a block holds what the block prints; "..." stands for anything.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
import subprocess
import sys

from tests.support import ROOT

FOLDER = ROOT / "docs" / "guides"
FENCE = r"(?:^<!-- (?P<mark>[^\n]*) -->\n+)?^```(?P<language>\w+)\n(?P<code>.*?)^```$"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclasses.dataclass
class Block:
    """A piece of code of a page: its language, its mark, and what it prints, or `None`."""

    language: str
    mark: str
    code: str
    shown: str | None = None


def blocks(text):
    """The blocks of a page, in order."""
    found = []
    for match in re.finditer(FENCE, text, re.MULTILINE | re.DOTALL):
        language, code = match["language"], match["code"]
        if language in ("python", "bash"):
            found.append(Block(language, match["mark"] or "", code))
        elif language == "text" and found:
            found[-1].shown = code
    return found


def of_backend(text, backend):
    """The sections of a page that have blocks of a backend, and what is before all sections."""
    first, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join([first, *(part for part in sections if f"<!-- {backend} -->" in part)])


def run(block, names, environment=None):
    """Runs a block, Python in the namespace `names`, and returns what it prints."""
    if block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(block.code, names)
        return printed.getvalue()
    done = subprocess.run(
        ["bash", "-ec", block.code], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise AssertionError(f"{block.code}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def environment_with_commands(folder):
    """Environment variables in which `keras-vit` and `python` are those of this checkout."""
    folder.mkdir()
    (folder.parent / "tutorials").symlink_to(ROOT / "tutorials")
    for name, called in (("keras-vit", "-m keras_vit_cli "), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {called}"$@"\n')
        (folder / name).chmod(0o755)
    places = (str(folder), str(pathlib.Path(sys.executable).parent), os.environ["PATH"])
    path = os.pathsep.join(places)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "COLUMNS": "200"}
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **quiet}


def agrees(shown, printed, tolerance):
    """Whether a block printed what the page shows; numbers may differ by a share of themselves.

    How many seconds something took depends on what else the machine does.
    """
    skeletons = [NUMBER.sub("#", " ".join(text.split())) for text in (shown, printed)]
    pattern = re.escape(skeletons[0]).replace(re.escape("..."), ".*")
    if not re.fullmatch(pattern, skeletons[1]):
        return False
    if "..." in shown:
        return True
    texts = (re.sub(r"[\d.,]+ s\b", "", text) for text in (shown, printed))
    pairs = zip(*([float(n.replace(",", "")) for n in NUMBER.findall(t)] for t in texts))
    return all(abs(a - b) <= tolerance * max(a, b) + 1e-5 for a, b in pairs)


if __name__ == "__main__":  # python -m tests.guides PAGE: its Python, for its figures and pictures
    page, names = pathlib.Path(sys.argv[1]), {}
    for block in blocks(page.read_text()):
        if block.language == "python" and not block.mark.startswith("not run"):
            print(run(block, names), end="", flush=True)
