"""Static int8 of an exported file: ONNX by ONNX Runtime, OpenVINO by NNCF."""

import functools
import importlib
import json
import os
import pathlib
import tempfile
import types
from typing import Any

import numpy as np

from keras_vit.checks import check_choice, needs_extra
from keras_vit.data.dataset import check_pixels
from keras_vit.exports.formats import check_beside, save_openvino
from keras_vit.preprocessing import Preprocessing
from keras_vit.writing import replacing_files

# A layer's product is quantised, with its input and its kernel; norms, softmax, GELU, sums and the
# products of attention keep float32. Rounding the output too made ViT-S/14 less exact and slower.
ONNX_OPERATORS = ["MatMul", "Gemm", "Conv"]
ONNX_OPTIONS = {"MatMulConstBOnly": True, "OpTypesToExcludeOutputQuantization": ONNX_OPERATORS}


def quantize(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    images: Any,
    kernel_bits: int = 7,
) -> pathlib.Path:
    """Writes an exported model with kernels and their inputs in int8.

    The calibration images, some hundred of those to train on, fix the ranges of the inputs
    ("static"). Kernels have a scale for each output channel. ONNX files have unsigned 8-bit inputs
    and signed kernels (QDQ format). OpenVINO's are Transformers, without SmoothQuant.

    Args:
        path: a float32 model of one input: `.onnx`, or `.xml` (OpenVINO) with its `.bin` beside it.
        output: the new file, of the same suffix, returned as a `pathlib.Path`; it appears whole or
            not at all, with the metadata of the old one.
        images: the calibration images, prepared as the file takes them: an array of shape
            (images, height, width, channels), or an iterable of single images.
        kernel_bits: of the 8 bits of an ONNX kernel, those that are used. x86 processors without
            VNNI (`avx512_vnni` or `avx_vnni` in /proc/cpuinfo) add two products in 16 bits, which
            is too few for kernels of 8: the outputs are then others, without an error. 7 are exact
            everywhere.

    Raises:
        ValueError: other bits or another suffix, a file that is no such model or quantised, or
            images of others.
        FileNotFoundError, ImportError: there is no such file, or folder for the output, or package.
    """
    path, output = pathlib.Path(path), pathlib.Path(output)
    check_choice("kernel_bits", kernel_bits, (7, 8))
    write_onnx = functools.partial(_quantize_onnx, reduce_range=kernel_bits == 7)
    write = {".onnx": write_onnx, ".xml": _quantize_openvino}.get(path.suffix)
    if write is None or output.suffix != path.suffix:
        raise ValueError(
            "path and output must both end in .onnx or both in .xml (OpenVINO). Received: "
            f"path={str(path)!r}, output={str(output)!r}."
        )
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}. Export the model first.")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(output.parent)!r} for {output.name!r}.")
    if output.exists() and output.samefile(path):
        raise ValueError(f"output must be another file than path. Received: {str(output)!r} twice.")
    check_beside(output)
    with replacing_files(output) as draft:
        write(path, draft, images)
    return output


def _quantize_onnx(path, output, images, reduce_range):
    onnx, tools = _package("onnx"), _package("onnxruntime.quantization")
    try:
        model = onnx.load(path)
        onnx.checker.check_model(path)
    except Exception as error:
        raise ValueError(f"{str(path)!r} cannot be read as an ONNX model: {error}") from error
    operators = {node.op_type for node in model.graph.node}
    weights = {each.name for each in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    _check_graph(path, operators, "DequantizeLinear", inputs)
    tensor_type = inputs[0].type.tensor_type
    sides = [side.dim_value or None for side in tensor_type.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
    metadata = {each.key: each.value for each in model.metadata_props}
    batches = _checked(images, sides, dtype, metadata if "keras_vit" in metadata else {})
    batches = iter([{inputs[0].name: x} for x in batches])
    reader = types.SimpleNamespace(get_next=lambda: next(batches, None))
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        prepared = pathlib.Path(folder) / "prepared.onnx"
        tools.quant_pre_process(path, prepared, save_as_external_data=True)
        tools.quantize_static(
            prepared,
            output,
            reader,
            op_types_to_quantize=ONNX_OPERATORS,
            per_channel=True,
            reduce_range=reduce_range,
            activation_type=tools.QuantType.QUInt8,
            extra_options=ONNX_OPTIONS,
        )
    quantized = onnx.load(output)
    onnx.helper.set_model_props(quantized, metadata)  # without the notes of the tool
    onnx.save(quantized, output)


def _quantize_openvino(path, output, images):
    openvino, nncf = _package("openvino"), _package("nncf")
    try:
        model = openvino.Core().read_model(path)
    except Exception as error:
        text = f"{str(path)!r} cannot be read as an OpenVINO model with its .bin: {error}"
        raise ValueError(text) from error
    operators = {each.get_type_name() for each in model.get_ops()}
    _check_graph(path, operators, "FakeQuantize", model.inputs)
    sides = [side.get_length() if side.is_static else None for side in model.input().partial_shape]
    place = ["keras_vit", "preprocessing"]
    metadata = {place[1]: model.get_rt_info(place).astype(str)} if model.has_rt_info(place) else {}
    batches = _checked(images, sides, model.input().element_type.to_dtype(), metadata)
    # SmoothQuant (NNCF 3.4) takes most of the accuracy of the models of studies/quantization.py.
    smooth = nncf.AdvancedSmoothQuantParameters(matmul=-1, convolution=-1)
    quantized = nncf.quantize(
        model,
        nncf.Dataset(batches),
        subset_size=len(batches),
        model_type=nncf.ModelType.TRANSFORMER,
        advanced_parameters=nncf.AdvancedQuantizationParameters(smooth_quant_alphas=smooth),
    )
    save_openvino(quantized, output)


def _package(name):
    with needs_extra("export", f"Quantising an exported file needs {name}"):
        return importlib.import_module(name)


def _check_graph(path, operators, sign, inputs):
    """Raises a ValueError where an operator is the sign of quantisation, or inputs are several."""
    if sign in operators:
        raise ValueError(f"{str(path)!r} is quantised already, by {sign}. Give the float32 file.")
    if len(inputs) != 1:
        raise ValueError(f"{str(path)!r} must have one input. Received: a model of {len(inputs)}.")


def _checked(images, sides, dtype, metadata):
    """The images as batches of one, in the type of the input, whose open sides are `None`.

    Warns of values that are no pixels, or not as the `preprocessing` in the metadata makes them.
    """
    batches, dtype = [np.asarray(image)[None] for image in images], np.dtype(dtype)
    if not batches:
        raise ValueError("Calibration needs images. Received: none.")
    for batch in batches:
        pairs = zip(batch.shape[1:], sides[1:])
        fits = batch.ndim == len(sides) and all(known in (None, side) for side, known in pairs)
        if not fits or batch.dtype.kind != dtype.kind:
            expected = ", ".join(str(side or "any") for side in sides[1:])
            raise ValueError(
                f"The file takes images of shape ({expected}) in {dtype}. Received: one of shape "
                f"{batch.shape[1:]} in {batch.dtype}. Prepare them as for the model."
            )
        if not np.isfinite(batch).all():
            raise ValueError("The calibration images contain values that are not finite.")
    values = np.array([[batch.min(), batch.max()] for batch in batches])
    if dtype == np.uint8:
        check_pixels(values.astype(dtype), "The calibration images")
    elif text := metadata.get("preprocessing"):
        Preprocessing.from_config(json.loads(text)).warn_of_values(values, "The file")
    return [batch.astype(dtype) for batch in batches]
