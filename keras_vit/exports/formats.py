"""The formats of exported models: how each is written, and how its own runtime opens it.

Each is written by the public tools of those who made it.
"""

import contextlib
import importlib
import io
import logging
import pathlib
import tempfile
import warnings
import zipfile

import keras

from keras_vit.checks import to_array
from keras_vit.writing import UNFINISHED

LEAST_SIDE = 33  # of BiT's open images: smaller ones end as one pixel, which PyTorch would fix
_PROTOBUF_LIMIT = 2**31 - 2**24  # larger ONNX models keep their weights in a file of their own


class Format:
    """How a format is written and opened.

    `write(graph, path)` writes a `Graph` by the backend that runs. `open(path)` gives the function
    of images in a file, NumPy in and out; of several heads it returns {head: outputs}.

    Attributes:
        suffix: of the file, "" for a folder.
        runtime: module that opens the file.
        writers: backend of Keras -> modules that it takes besides, the best backend first.
    """

    def __init__(self, suffix, runtime, **writers):
        self.suffix, self.runtime, self.writers = suffix, runtime, writers


class Onnx(Format):
    def write(self, graph, path):
        if keras.backend.backend() == "torch":
            import torch

            program, names = _torch_program(graph)
            program = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=["images"], output_names=names
            )
            program.model.metadata_props.update(graph.texts)
            program.save(path, external_data=4 * graph.model.count_params() > _PROTOBUF_LIMIT)
            return
        import onnx

        graph.model(graph.images(1))  # Keras refuses a model that was never called
        graph.model.export(path, format="onnx", verbose=False)
        model = onnx.load(path)
        onnx.checker.check_model(model)  # tf2onnx only logs an operation that it cannot convert
        onnx.helper.set_model_props(model, graph.texts)
        onnx.save(model, path)

    def open(self, path):
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (images,) = session.get_inputs()
        names = [output.name for output in session.get_outputs()]
        return lambda x: _alone(dict(zip(names, session.run(None, {images.name: x}))))


class OpenVINO(Format):
    def write(self, graph, path):
        import openvino

        if keras.backend.backend() == "torch":
            program, names = _torch_program(graph)
            model = openvino.convert_model(program)
        else:
            names = [None] if len(graph.model.outputs) > 1 else graph.model.output_names
            with tempfile.TemporaryDirectory() as folder:
                FORMATS["tf_saved_model"].write(graph, folder)
                model = openvino.convert_model(folder)
        model.inputs[0].get_tensor().set_names({"images"})
        for output, name in zip(model.outputs, names):
            if name:  # TensorFlow has named the outputs of several heads
                output.get_tensor().set_names({name})
        for name, text in graph.texts.items():
            model.set_rt_info(text, ["keras_vit", name])
        save_openvino(model, path, compress_to_fp16=False)

    def open(self, path):
        import openvino

        # By itself OpenVINO computes in bfloat16 where the CPU has it.
        model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        names = [output.get_any_name() for output in model.outputs]
        return lambda x: _alone(dict(zip(names, model(x).values())))


class SavedModel(Format):
    def write(self, graph, path):
        options = {}
        if keras.backend.backend() == "jax" and graph.is_open:
            options = {"jax2tf_kwargs": {"polymorphic_shapes": [f"({_jax_shape(graph)})"]}}
        graph.model.export(path, format="tf_saved_model", verbose=False, **options)
        # The place that TensorFlow gives to the files of others.
        extra = pathlib.Path(path) / "assets.extra"
        extra.mkdir()
        for name, text in graph.texts.items():
            (extra / name).write_text(text, encoding="utf-8")

    def open(self, path):
        import tensorflow as tf

        loaded = tf.saved_model.load(path)  # which the function below keeps alive
        return lambda x: keras.tree.map_structure(to_array, loaded.serve(tf.constant(x)))


class LiteRT(Format):
    def write(self, graph, path):
        graph.model.export(path, format="litert", verbose=False)
        _append(path, graph.texts)

    def open(self, path):
        from ai_edge_litert.interpreter import Interpreter

        signature = Interpreter(model_path=path).get_signature_runner()
        (name,) = signature.get_input_details()
        return lambda x: _alone(signature(**{name: x}))


class TorchExport(Format):
    def write(self, graph, path):
        import torch

        # PyTorch's own writer of files aborts the process where the disk is full.
        torch.export.save(_torch_program(graph)[0], packed := io.BytesIO(), extra_files=graph.texts)
        pathlib.Path(path).write_bytes(packed.getbuffer())

    def open(self, path):
        import torch

        program = torch.export.load(path).module()
        return lambda x: keras.tree.map_structure(to_array, program(torch.from_numpy(x)))


class StableHLO(Format):
    def write(self, graph, path):
        import jax

        shape = jax.export.symbolic_shape(_jax_shape(graph))
        images = jax.ShapeDtypeStruct(shape, graph.model.inputs[0].dtype)
        function = jax.jit(lambda x: graph.model(x, training=False))
        exported = jax.export.export(function, platforms=("cpu", "cuda", "tpu"))(images)
        pathlib.Path(path).write_bytes(exported.serialize())
        _append(path, graph.texts)

    def open(self, path):
        import jax

        call = jax.jit(jax.export.deserialize(pathlib.Path(path).read_bytes()).call)
        return lambda x: keras.tree.map_structure(to_array, call(x))


FORMATS = {
    "onnx": Onnx(
        ".onnx", "onnxruntime", torch=("onnx", "onnxscript"), tensorflow=("onnx", "tf2onnx")
    ),
    "openvino": OpenVINO(".xml", "openvino", torch=("openvino",), tensorflow=("openvino",)),
    "tf_saved_model": SavedModel("", "tensorflow", tensorflow=(), jax=("tensorflow",)),
    "litert": LiteRT(".tflite", "ai_edge_litert", tensorflow=("ai_edge_litert",)),
    "torch": TorchExport(".pt2", "torch", torch=()),
    "stablehlo": StableHLO(".stablehlo", "jax", jax=()),
}
"""What `keras_vit.export` writes: name -> `Format`."""


def _torch_program(graph):
    """(the `torch.export.ExportedProgram` of a graph, the names of its outputs in its order)."""
    import torch

    def side(name, stride):  # PyTorch takes a side of 1 as fixed
        return stride * torch.export.Dim(name, min=2 if stride > 1 else LEAST_SIDE)

    sides = {0: torch.export.Dim("batch", min=1)}
    if graph.is_open:
        sides |= {1: side("height", graph.strides[0]), 2: side("width", graph.strides[1])}
    # Of a size that is not the model's, which PyTorch would take for the only one.
    images = keras.ops.convert_to_tensor(graph.images(2, larger=1))
    model = graph.model.eval()
    with torch.no_grad():
        outputs = model(images)
        names = list(outputs) if isinstance(outputs, dict) else graph.model.output_names
        options = {"dynamic_shapes": ((sides,),), "strict": False}
        return torch.export.export(model, (images,), **options), names


def _jax_shape(graph):
    """The shape of the images in the notation of JAX, such as "batch, 16*height, 16*width, 3"."""
    steps = zip(("batch", "height", "width"), (1, *graph.strides))
    names = [name if step == 1 else f"{step}*{name}" for name, step in steps]
    fixed = zip(graph.model.inputs[0].shape, (*names, None))
    return ", ".join(str(name if side is None else side) for side, name in fixed)


def _append(path, texts):
    """Adds the metadata as a zip archive at the end of a file, as LiteRT keeps its metadata."""
    with zipfile.ZipFile(path, "a") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)


def _alone(outputs):
    """{head: outputs} of several heads, or the one output."""
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))


def save_openvino(model, path, **options):
    """Writes a model of OpenVINO, whose own error where the disk is full names no cause."""
    import openvino

    try:
        openvino.save_model(model, path, **options)
    except RuntimeError as error:
        raise OSError(f"OpenVINO could not write {str(path)!r}: {error}.") from error


def check_beside(path):
    """Raises a ValueError where the weights of a new OpenVINO model would replace another file.

    A killed process that replaced an older model may have left its weights alone: they are no other
    file.
    """
    weights, mark = path.with_suffix(".bin"), path.with_name(path.name + UNFINISHED)
    is_alone = weights.exists() and not path.exists() and not mark.is_dir()
    if path.suffix == ".xml" and is_alone:
        raise ValueError(
            f"The weights of {path.name!r} are written to {weights.name!r} beside it, and there is "
            f"something else. Received: path={str(path)!r}; choose another name."
        )


@contextlib.contextmanager
def quiet():
    """Without what the tools log of themselves; what fails is raised."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def is_installed(module):
    return importlib.util.find_spec(module) is not None
