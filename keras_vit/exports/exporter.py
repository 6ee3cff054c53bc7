"""Models as files that run without this library, and without Keras."""

import dataclasses
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import keras

from keras_vit.checks import check_choice
from keras_vit.data.layout import quoted
from keras_vit.exports.formats import FORMATS, check_beside, is_installed, quiet
from keras_vit.exports.graph import ExportError, compare, real_images, served, told
from keras_vit.layers.changed_layers import changed_layers
from keras_vit.models import BiT, VisionTransformer
from keras_vit.models.classifier import Classifier
from keras_vit.text import visible
from keras_vit.training import merge_lora
from keras_vit.training.lora import adapted_layers
from keras_vit.workarounds import policies_in
from keras_vit.writing import output_place, replacing_files, replacing_folder

_ELSEWHERE = """
import json, sys, keras
from keras_vit.exports.exporter import write
from keras_vit.exports.graph import Graph
saved, path, format, options = sys.argv[1:]
strides, size, texts = json.loads(options)
write(Graph(keras.saving.load_model(saved, compile=False), strides, size, texts), path, format)
"""
_SAVED_MODEL = {"saved_model.pb", "fingerprint.pb", "keras_metadata.pb"}  # what its folder holds
_SAVED_MODEL |= {"variables", "assets", "assets.extra"}
# What file managers and Git leave: other hidden files and folders, such as .git, are the user's.
_LEFT_BY_SYSTEMS = {".ds_store", ".gitkeep", "thumbs.db", "desktop.ini"}


@dataclasses.dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        path: the file or folder.
        format: its format.
        backend: of Keras that wrote it.
        size: bytes in all.
        difference: the largest one of an output from the model's, or `None` if it was not checked.
    """

    path: pathlib.Path
    format: str
    backend: str
    size: int
    difference: float | None = None

    def __str__(self):
        checked = "not checked: check=True, or --check, compares its outputs with the model's"
        if self.difference is not None:
            checked = f"largest difference {self.difference:.1e} from the model"
        file = f"{visible(self.path)}: {self.format}, {self.size / 1e6:.1f} MB"
        return f"{file}, by {self.backend}; {checked}"


def export(
    model: VisionTransformer | BiT | keras.Model,
    path: str | os.PathLike[str],
    format: str | None = None,
    preprocess: bool = False,
    check: bool = False,
    images: Any = None,
) -> Export:
    """Writes a model as a file that other programs run; returns an `Export`.

    The batch stays open, and so do height and width where the model takes any size. The file
    computes in float32; LoRA is merged into the kernels. What the backend that runs cannot write,
    another installed one writes in a process of its own.

    The formats are `"onnx"` (.onnx), `"openvino"` (.xml and .bin), `"tf_saved_model"` (a folder),
    `"litert"` (.tflite), `"torch"` (.pt2) and `"stablehlo"` (.stablehlo). Class names,
    preprocessing and image size are metadata of the file. docs/export.md reads and runs each.

    Args:
        model: a `VisionTransformer` or a `BiT`; it stays as it is. Or a Functional model of images
            of one size, in float32, such as one of several heads: each is an output of its name.
        path: the file or folder, which appears whole or not at all, in place of an older one.
            OpenVINO, and ONNX from 2 GB on, keep weights in a second file beside it; what a killed
            process left is then the old files, the new ones, or no `path`.
        format: one of the six; `None` to tell by the suffix of `path`.
        preprocess: whether the file takes uint8 pixels of the model's size and gives what
            `keras_vit.predict` reads: probabilities, of a regression values, of a model without
            classes features. Otherwise it takes and gives what the model does.
        check: whether to open the file in its own runtime and to compare it with the model, for
            random images and, if scikit-learn is installed, its two photographs.
        images: what to compare instead of these photographs, as `keras_vit.preprocess` takes it;
            they imply `check`.

    Raises:
        TypeError: the model is no Functional model of images.
        ValueError: a format or a path that does not fit; an output that nothing says how to read.
        OSError, ModuleNotFoundError: the disk is full, say; a package is missing, which it names.
        ExportError: the tool refused the model, or the file's outputs differ from the model's by
            more than 1e-4 of the largest of them, or of 1.
    """
    _check(model)
    path = pathlib.Path(path)
    format = _format(path, format)
    backends, check = _backends(format), check or images is not None
    if check and not is_installed(FORMATS[format].runtime):
        raise _missing(FORMATS[format].runtime, f"To check the format {format!r}")
    model = prepared(model)
    graph = served(model, preprocess)
    refusals, real = [], real_images(graph, images) if check else None
    with (replacing_files if FORMATS[format].suffix else replacing_folder)(path) as draft:
        for backend in backends:
            try:
                if backend == keras.backend.backend():
                    write(graph, str(draft), format)
                else:
                    _write_elsewhere(graph, str(draft), format, backend)
                difference = compare(graph, draft, format, real, model) if check else None
                break
            except ExportError as error:
                refusals.append(str(error))
                if (free := shutil.disk_usage(draft.parent).free) < 4 * model.count_params():
                    reason = f"{os.strerror(errno.ENOSPC)}, {free} bytes are free: {error}"
                    raise OSError(errno.ENOSPC, reason, os.fspath(path)) from error
                shutil.rmtree(draft.parent)
                draft.parent.mkdir()
        else:
            modes = sorted({policy.quantization_mode for policy in _policies(model)} - {None})
            advice = "docs/export.md lists which backend writes which model in which format."
            if modes:
                advice = (
                    f"The model is quantised, to {' and '.join(modes)}, which {format!r} may not "
                    "hold. Export it as it was before; the format's own tools quantise the file."
                )
            raise ExportError(" ".join([*refusals, advice]))
        size = sum(file.stat().st_size for file in draft.parent.rglob("*") if file.is_file())
    return Export(path, format, backend, size, difference)


def _check(model):
    """Raises an error where a model is none that can be exported."""
    inputs = getattr(model, "inputs", None) or ()
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        raise TypeError(
            "Expected a VisionTransformer, a BiT, or a Functional model of images. Received: "
            f"{type(model).__name__} with the inputs {[tuple(x.shape) for x in inputs]}; Keras's "
            "own model.export(path, format=...) takes any model."
        )
    if isinstance(model, Classifier):
        return
    types = {policy.compute_dtype for policy in _policies(model)}
    if None in inputs[0].shape[1:] or types != {"float32"}:
        raise ValueError(
            "A model made around a VisionTransformer or a BiT is exported for images of one size "
            f"and in float32. Received: images of shape {inputs[0].shape[1:]}, {sorted(types)}; "
            "build it with an image_size and dtype='float32'."
        )


def _policies(model):
    """The dtype policies of the model and of the layers that have another one."""
    if not isinstance(model, Classifier):
        return [policy for layer in model.layers for policy in policies_in(layer.dtype_policy)]
    changed = [keras.dtype_policies.get(each["dtype"]) for each in changed_layers(model).values()]
    return policies_in(model.dtype_policy) + changed


def _format(path, format):
    by_suffix = {each.suffix: name for name, each in FORMATS.items() if each.suffix}
    format = format or by_suffix.get(path.suffix)
    if format is None:
        suffixes = ", ".join(f"{suffix} ({name})" for suffix, name in by_suffix.items())
        raise ValueError(
            "The format follows from the suffix of the path, or is given. Received: "
            f"path={str(path)!r}, format=None; expected one of {suffixes}."
        )
    check_choice("format", format, tuple(FORMATS))
    suffix = FORMATS[format].suffix
    if suffix not in ("", path.suffix):
        raise ValueError(
            f"A file of the format {format!r} ends in {suffix}. Received: path={str(path)!r}."
        )
    output_place(path, folder=not suffix)
    check_beside(path)
    names = {file.name for file in path.iterdir()} if path.is_dir() else set()
    own = _SAVED_MODEL if "saved_model.pb" in names else set()
    if others := {name for name in names - own if name.lower() not in _LEFT_BY_SYSTEMS}:
        raise ValueError(
            "A folder is replaced as a whole, and there is something else at the path. Received: "
            f"path={str(path)!r}, which holds {quoted(others)}; choose another, or a new folder."
        )
    return format


def _backends(format):
    """The backends that can write a format: the one that runs, then others that are installed."""
    writers = FORMATS[format].writers
    ready = [name for name, tools in writers.items() if all(map(is_installed, (name, *tools)))]
    if ready:
        return sorted(ready, key=lambda name: name != keras.backend.backend())
    first = min(writers, key=lambda name: not is_installed(name))
    lacking = [module for module in (first, *writers[first]) if not is_installed(module)]
    raise _missing(lacking[0], f"To write the format {format!r}")


def _missing(module, purpose):
    package, backend = module.replace("_", "-"), module in ("jax", "tensorflow", "torch")
    extra = f'"keras3-vit[{module}]"' if backend else '"keras3-vit[export]", which has all tools'
    return ModuleNotFoundError(
        f"{purpose} the package {package} is needed, which is not installed: "
        f"pip install {package}, or {extra}.",
        name=module,
    )


def prepared(model):
    """The model as it is exported: in float32 and without LoRA; itself where it is so already."""
    if adapted_layers(model):
        model = merge_lora(model)
    quantized = any(policy.quantization_mode for policy in _policies(model))
    if quantized or not isinstance(model, Classifier) or model.dtype_policy.name == "float32":
        return model
    changes = {"dtype": "float32", "changed_layers": {}}
    twin = type(model).from_config(model.get_config() | changes)
    twin.set_weights(model.get_weights())
    return twin


def write(graph, path, format):
    """Writes a `Graph` by the backend that runs."""
    try:
        with quiet():
            FORMATS[format].write(graph, path)
    except OSError:  # of the disk
        raise
    except Exception as error:  # the tools raise what they like
        raise ExportError(
            f"The tools of {format!r} refused {graph.model.name!r} on "
            f"{keras.backend.backend()}: {told(error)}"
        ) from error


def _write_elsewhere(graph, path, format, backend):
    with tempfile.TemporaryDirectory() as folder:
        saved = os.path.join(folder, "model.keras")
        graph.model.save(saved)
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-c", _ELSEWHERE, saved, path, format]
        command.append(json.dumps([graph.strides, graph.size, graph.texts]))
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        reason = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise ExportError(f"{backend}, which writes {format!r}, could not: {reason[-1]}")
