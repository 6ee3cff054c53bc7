"""Makes the notebooks from their scripts: executes each one and stores it with its outputs.

    python tutorials/build_notebooks.py                             # all of them
    python tutorials/build_notebooks.py 06_scale_out --backend jax  # one, on another backend
    python tutorials/build_notebooks.py --text                      # text alone: outputs stay
    python tutorials/build_notebooks.py --check                     # which are out of step?

`NAME.py` is the source, a percent script of jupytext. `NAME.ipynb` and `images/NAME.png` are made
from it; the picture is the last of the cell with the tag "cover", or of the whole notebook. A
notebook has more than its script: a first cell that installs the library where it is missing, a
badge that opens it on Colab (see `REPOSITORY`), and how long its cells took.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import sys
import tempfile
import time

import jupytext
import nbclient
import nbformat
import psutil
import traitlets.config

FOLDER = pathlib.Path(__file__).resolve().parent
BACKENDS = ("torch", "jax", "tensorflow")
# "OWNER/NAME" on GitHub. There is no public repository yet, and so no badge.
REPOSITORY = ""
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({})"
COLAB = "https://colab.research.google.com/github/{}/blob/main/tutorials/{}.ipynb"
INSTALL = """\
# Installs the library where it is missing, as on Colab, from its wheel beside the notebook.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("keras_vit") is None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--find-links", "."]
    subprocess.run([*pip, "keras3-vit[{backend},data,plot]"], check=True)"""
TIME = "# {} about {} s of CPU time.\n"
TIMES = re.compile(r"^# (Takes|The whole notebook takes) about \d+ s of CPU time\.\n")
SHORTEST = 3  # seconds; of quicker cells nothing is said
SECONDS = 600  # that neither a cell nor the start may take
FAILURES = (nbclient.exceptions.CellControlSignal, nbclient.exceptions.DeadKernelError)
# What TensorFlow's C++ code logs at the start, with time and process, whatever level is set.
GREETING = re.compile(r"^(WARNING: All log messages before absl|[IWE]\d{4} \d\d:).*\n?", re.M)
# The kernel warns, in every run, of connections that are not encrypted.
ENCRYPTED = traitlets.config.Config({"KernelManager": {"transport_encryption": "auto"}})


class NotebookError(Exception):
    """A notebook that does not run; the text names it, the cell and the error."""


def scripts(names=()):
    """The percent scripts of the tutorials, or those of these names, in order.

    Raises:
        ValueError: there is no script of a name.
    """
    found = {path.stem: path for path in sorted(FOLDER.glob("0*.py"))}
    unknown = sorted(set(names) - set(found))
    if unknown:
        raise ValueError(f"There are no such tutorials. Received: {unknown}; there are {[*found]}.")
    return [path for name, path in found.items() if name in names or not names]


def read(script):
    """The notebook of a script, not executed: with the cell that installs, and the badge."""
    notebook = jupytext.read(script)
    chosen = re.search(r'"KERAS_BACKEND", "(\w+)"', script.read_text("utf-8"))
    install = INSTALL.format(backend=chosen[1] if chosen else BACKENDS[0])
    has_title = notebook.cells[0].cell_type == "markdown"
    notebook.cells.insert(int(has_title), nbformat.v4.new_code_cell(install))
    if REPOSITORY and has_title:
        badge = BADGE.format(COLAB.format(REPOSITORY, script.stem))
        notebook.cells[0].source = notebook.cells[0].source.replace("\n", f"\n\n{badge}\n", 1)
    return notebook


class Clock:
    """The CPU time of the kernel in each cell, which other work on the machine hardly changes.

    Attributes:
        index: number of the cell that runs.
        seconds: cell number -> seconds, of all cores together.
    """

    def __init__(self):
        self.index, self.seconds = 0, {}

    def start(self, client, index):
        self.index, self.seconds[index] = index, -self._now(client)

    def stop(self, client, index):
        self.seconds[index] += self._now(client)

    def _now(self, client):
        return sum(psutil.Process(client.km.provisioner.pid).cpu_times()[:4])  # with its children

    def write(self, notebook):
        """Puts a comment into each cell that takes long, and into the first one for all."""
        code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        slow = {i: ("Takes", s) for i, s in self.seconds.items() if s >= SHORTEST}
        slow[code[0]] = ("The whole notebook takes", sum(self.seconds.values()))
        for i, (what, seconds) in slow.items():
            rounded = 5 if seconds < 7.5 else round(seconds, -1)
            text = TIME.format(what, f"{rounded:.0f}")
            notebook.cells[i].source = text + notebook.cells[i].source


def execute(script, backend=None):
    """Runs a script as a notebook, in a process of its own and an empty folder.

    Args:
        script: path of a percent script.
        backend: of Keras; by default the one that the script chooses.

    Returns:
        The notebook as it is stored: with its outputs, and nothing that tells when or where.

    Raises:
        NotebookError: a cell fails, takes too long, or ends the process.
    """
    notebook, clock = read(script), Clock()
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        startup_timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # else prints are cut where the clock wants it
        on_cell_execute=lambda cell, cell_index: clock.start(client, cell_index),
        on_cell_executed=lambda cell, cell_index, execute_reply: clock.stop(client, cell_index),
        config=ENCRYPTED,
    )
    with tempfile.TemporaryDirectory() as folder:
        client.resources["metadata"] = {"path": folder}
        try:
            client.execute(env=_environment(folder, backend))
        except FAILURES as error:
            raise NotebookError(_describe(script, notebook, clock.index, error)) from error
    clock.write(notebook)
    return without_traces(notebook)


def _environment(folder, backend):
    """The variables of the process that computes."""
    chosen = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    if backend:
        chosen["KERAS_BACKEND"] = backend
    others = os.environ.get("PYTHONPATH")
    return {
        **chosen,
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *([others] if others else [])]),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": folder,  # no start-up files of the user
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def _describe(script, notebook, index, error):
    first_line = notebook.cells[index].source.partition("\n")[0]
    told = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colours
    return f"{script.stem}: cell {index + 1}, which begins {first_line!r}, failed.\n{told}"


def without_traces(notebook):
    """The same notebook, such that only another source or result makes another file."""
    known = {}
    for cell in notebook.cells:
        same = known[cell.source] = known.get(cell.source, 0) + 1
        cell.id = hashlib.sha256(f"{same} {cell.source}".encode()).hexdigest()[:8]
        kept = {"tags", "caption"} & cell.metadata.keys()
        cell.metadata = {name: cell.metadata[name] for name in sorted(kept)}
        for output in list(cell.get("outputs", ())):
            if output.get("name") == "stderr":
                output.text = GREETING.sub("", output.text)
                if not output.text.strip():
                    cell.outputs.remove(output)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def picture(notebook):
    """The PNG that stands for a notebook, as bytes, or None where it shows none."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tagged = [cell for cell in cells if "cover" in cell.metadata.get("tags", ())]
    images = [
        output.data["image/png"]
        for cell in tagged or cells
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    return base64.b64decode(images[-1]) if images else None


def files(script):
    """Where the notebook of a script and its picture lie."""
    return script.with_suffix(".ipynb"), script.parent / "images" / f"{script.stem}.png"


def out_of_step(script):
    """What of a script's notebook and picture is missing or from another source, in words."""
    path, image = files(script)
    if not path.exists():
        return f"{path.name} is missing"
    stored = nbformat.read(path, as_version=4)
    if sources(stored) != sources(read(script)):
        return f"{path.name} has other cells than {script.name}"
    if picture(stored) != (image.read_bytes() if image.exists() else None):
        return f"images/{image.name} is not the picture of {path.name}"
    return None


def sources(notebook):
    """Kind, caption and text of every cell, without what the clock wrote."""
    return [
        (cell.cell_type, cell.metadata.get("caption"), TIMES.sub("", cell.source))
        for cell in notebook.cells
    ]


def with_stored_outputs(script):
    """The notebook of a script with the outputs and times that are stored, where no code changed.

    Raises:
        NotebookError: there is a cell whose outputs are not stored.
    """
    notebook, path = read(script), files(script)[0]
    stored = nbformat.read(path, as_version=4) if path.exists() else nbformat.v4.new_notebook()
    found = [cell for cell in stored.cells if cell.cell_type == "code"]
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        same = next((old for old in found if TIMES.sub("", old.source) == cell.source), None)
        if same is not None:
            found.remove(same)  # of two equal cells each has its own
            cell.source, cell.outputs = same.source, same.outputs
        elif number > 1:  # the first one, which installs, has none
            first_line = cell.source.partition("\n")[0]
            raise NotebookError(
                f"{script.stem}: no stored cell is the one that begins {first_line!r}."
            )
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    return without_traces(notebook)


def build(script, backend=None, text=False):
    """Executes a script and stores notebook and picture; where it fails, the old ones stay.

    With `text` nothing is executed, and the stored outputs stay.
    """
    notebook = with_stored_outputs(script) if text else execute(script, backend)
    path, image = files(script)
    nbformat.write(notebook, path)
    image.parent.mkdir(exist_ok=True)
    image.unlink(missing_ok=True)
    if picture(notebook):
        image.write_bytes(picture(notebook))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as 06_scale_out; all else")
    parser.add_argument("--backend", choices=BACKENDS, help="another than the script's own")
    parser.add_argument("--check", action="store_true", help="execute nothing, compare sources")
    add = parser.add_argument
    add(
        "--text", action="store_true", help="execute nothing, keep the outputs: for text and badges"
    )
    args = parser.parse_args(arguments)
    try:
        chosen = scripts(args.names)
    except ValueError as error:
        parser.error(str(error))
    failed = []
    for script in chosen:
        begin = time.perf_counter()
        if args.check:
            found = out_of_step(script)
        else:
            try:
                found = build(script, args.backend, args.text)
            except NotebookError as error:
                found = str(error)
        if found:
            failed.append(script.stem)
        print(found or f"{script.stem}: {time.perf_counter() - begin:.0f} s", flush=True)
    return f"{len(failed)} of {len(chosen)} failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
