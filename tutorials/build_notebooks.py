"""Makes the notebooks from their scripts: executes each one and stores it with its outputs.

    python tutorials/build_notebooks.py                             # all of them
    python tutorials/build_notebooks.py 06_scale_out --backend jax  # one, on another backend
    python tutorials/build_notebooks.py --check                     # which are out of step?

`NAME.py` is the source, a percent script of jupytext. `NAME.ipynb` and `images/NAME.png` are made
from it; the picture is the last of the cell with the tag "cover", or of the whole notebook.
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
import traitlets.config

FOLDER = pathlib.Path(__file__).resolve().parent
BACKENDS = ("torch", "jax", "tensorflow")
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
    notebook = jupytext.read(script)
    current = {"index": 0}
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        startup_timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # else prints are cut where the clock wants it
        on_cell_start=lambda cell, cell_index: current.update(index=cell_index),
        config=ENCRYPTED,
    )
    with tempfile.TemporaryDirectory() as folder:
        client.resources["metadata"] = {"path": folder}
        try:
            client.execute(env=_environment(folder, backend))
        except FAILURES as error:
            raise NotebookError(_describe(script, notebook, current["index"], error)) from error
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
        cell.metadata = {name: cell.metadata[name] for name in ("tags",) if name in cell.metadata}
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
    if sources(stored) != sources(jupytext.read(script)):
        return f"{path.name} has other cells than {script.name}"
    if picture(stored) != (image.read_bytes() if image.exists() else None):
        return f"images/{image.name} is not the picture of {path.name}"
    return None


def sources(notebook):
    """Kind and text of every cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def build(script, backend=None):
    """Executes a script and stores notebook and picture; where it fails, the old ones stay."""
    notebook = execute(script, backend)
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
                found = build(script, args.backend)
            except NotebookError as error:
                found = str(error)
        if found:
            failed.append(script.stem)
        print(found or f"{script.stem}: {time.perf_counter() - begin:.0f} s", flush=True)
    return f"{len(failed)} of {len(chosen)} failed: {', '.join(failed)}" if failed else 0


if __name__ == "__main__":
    sys.exit(main())
