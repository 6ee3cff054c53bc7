"""Static int8 of exported files: what is quantised, what is kept, and what is refused."""

import json
import os
import sys

import numpy as np
import pytest

import keras_vit
from keras_vit.exports.quantize import _checked, quantize
from keras_vit.preprocessing import Preprocessing
from tests.support import BACKEND, images, largest, randomize, refuses, tiny_bit, tiny_vit

onnx = pytest.importorskip("onnx", reason="the tools come with keras3-vit[export]")
pytest.importorskip("onnxruntime", reason="the tools come with keras3-vit[export]")
pytestmark = pytest.mark.any_backend

CALIBRATION = images((16, 16, 16, 3))
FACTS = {"class_names": json.dumps(["cat", "dog"]), "preprocessing": json.dumps({"mean": 0.5})}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A convolution and a product, with metadata, as ONNX."""
    from onnx import TensorProto, helper, numpy_helper

    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("exported") / "model.onnx"
    weights = {"filters": rng.normal(size=(8, 3, 2, 2)) / 3.5}
    weights["kernel"] = rng.normal(size=(512, 3)) / 23
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["images"], ["planes"], perm=[0, 3, 1, 2]),
            helper.make_node("Conv", ["planes", "filters"], ["maps"], strides=[2, 2], name="conv"),
            helper.make_node("Flatten", ["maps"], ["flat"]),
            helper.make_node("MatMul", ["flat", "kernel"], ["logits"]),
        ],
        "model",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 16, 16, 3])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(v.astype("float32"), name) for name, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, FACTS)
    onnx.save(model, path)
    return path


def outputs(path, x):
    if path.suffix == ".xml":
        import openvino

        return openvino.Core().compile_model(path, "CPU")(x)[0]
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def assert_near(quantized, exported, tolerance):
    x = CALIBRATION  # white noise has no range in common with other noise
    expected = outputs(exported, x)
    error = largest(outputs(quantized, x) - expected)
    assert 0 < error < tolerance * largest(expected)


def test_onnx(exported, tmp_path):
    path = quantize(exported, tmp_path / "int8.onnx", CALIBRATION)
    assert [each.name for each in tmp_path.iterdir()] == ["int8.onnx"]
    model = onnx.load(path)
    assert {each.key: each.value for each in model.metadata_props} == FACTS
    types = {each.name: each.data_type for each in model.graph.initializer}
    assert types["filters_quantized"] == types["kernel_quantized"] == onnx.TensorProto.INT8
    scales = [each for each in model.graph.initializer if each.name == "filters_scale"]
    assert list(scales[0].dims) == [8]  # one for each channel
    assert_near(path, exported, 0.05)
    refuses("quantised already", quantize, path, tmp_path / "twice.onnx", images())
    refuses("kernel_bits", quantize, exported, tmp_path / "twice.onnx", images(), kernel_bits=4)


@pytest.mark.parametrize("options, most", [({}, 64), ({"kernel_bits": 8}, 127)])
def test_two_products_of_kernels_and_inputs_fit_into_16_bits(exported, tmp_path, options, most):
    """As processors without VNNI add them, which cut what does not fit: 2 * 255 * 64 < 2**15."""
    path = quantize(exported, tmp_path / "int8.onnx", CALIBRATION, **options)
    arrays = {a.name: onnx.numpy_helper.to_array(a) for a in onnx.load(path).graph.initializer}
    for name in ("filters_quantized", "kernel_quantized"):
        assert largest(arrays[name].astype(int)) == most


@pytest.mark.parametrize(
    "wrong, message",
    [
        (images((2, 16, 8, 3)), r"shape \(16, 16, 3\) in float32. Received: one of shape \(16, 8"),
        (np.zeros((2, 16, 16, 3), "uint8"), "in float32. Received: .* in uint8"),
        (images((0, 16, 16, 3)), "Received: none"),
        (np.full((1, 16, 16, 3), np.nan, "float32"), "not finite"),
    ],
)
def test_images_that_do_not_fit(exported, tmp_path, wrong, message):
    refuses(message, quantize, exported, tmp_path / "int8.onnx", wrong)
    assert list(tmp_path.iterdir()) == []


def test_images_of_other_values_than_the_model_takes(exported, tmp_path):
    """Those calibrate other ranges, in silence; of other programs' files nothing is known."""
    path, pixels = tmp_path / "model.onnx", images() / 6 + 0.5
    model = onnx.load(exported)
    quantize(exported, tmp_path / "int8.onnx", pixels)
    facts = {"keras_vit": "1", "preprocessing": json.dumps(Preprocessing().to_config())}
    onnx.helper.set_model_props(model, facts)
    onnx.save(model, path)
    for wrong in (pixels.clip(0, 1), 255 * pixels.clip(0, 1)):
        with pytest.warns(UserWarning, match="The file wants values from -1 to 1, as"):
            quantize(path, tmp_path / "int8.onnx", wrong)
    quantize(path, tmp_path / "int8.onnx", 2 * pixels.clip(0, 1) - 1)
    bytes_of_floats = np.zeros((3, 4, 4, 3), "uint8") + np.eye(3, dtype="uint8")[:, None, None]
    with pytest.warns(UserWarning, match="calibration images are bytes of 0..255.* above 1,"):
        _checked(bytes_of_floats, (None, 4, 4, 3), "uint8", {})


def test_an_interruption_leaves_the_old_file(exported, tmp_path):
    output = tmp_path / "int8.onnx"
    output.write_bytes(b"old")

    def some():
        yield images()[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(exported, output, some())
    assert [each.name for each in tmp_path.iterdir()] == ["int8.onnx"]
    assert output.read_bytes() == b"old"


def test_paths_that_cannot_be(exported, tmp_path):
    x = images()
    refuses(r"both end in \.onnx or both in \.xml", quantize, exported, tmp_path / "int8.xml", x)
    with pytest.raises(ValueError, match=r"both end in \.onnx or both in \.xml"):
        quantize(tmp_path / "model.keras", tmp_path / "int8.keras", x)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        quantize(tmp_path / "none.onnx", tmp_path / "int8.onnx", x)
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        quantize(exported, tmp_path / "none" / "int8.onnx", x)
    refuses("another file than path", quantize, exported, exported, x)
    os.mkfifo(tmp_path / "pipe.onnx")
    refuses("which is a pipe", quantize, exported, tmp_path / "pipe.onnx", x)
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ValueError, match="cannot be read as an ONNX model"):
        quantize(tmp_path / "text.onnx", tmp_path / "int8.onnx", x)


def test_a_missing_package_is_named(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    with pytest.raises(ImportError, match=r'onnxruntime.*pip install "keras3-vit\[export\]"'):
        quantize(exported, tmp_path / "int8.onnx", images())


@pytest.mark.slow
def test_openvino(exported, tmp_path):
    openvino = pytest.importorskip("openvino", reason="comes with keras3-vit[export]")
    pytest.importorskip("nncf", reason="comes with keras3-vit[export]")
    model = openvino.convert_model(exported)
    model.set_rt_info(FACTS["class_names"], "class_names")
    before, after = tmp_path / "model.xml", tmp_path / "int8.xml"
    openvino.save_model(model, before, compress_to_fp16=False)
    for _ in range(2):  # the second time over the files of the first
        assert quantize(before, after, CALIBRATION) == after
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {"model.xml", "model.bin", "int8.xml", "int8.bin"}
    read = openvino.Core().read_model(after)
    assert read.get_rt_info("class_names").astype(str) == FACTS["class_names"]
    types = {each.element_type.to_string() for op in read.get_ops() for each in op.outputs()}
    assert "i8" in types
    assert_near(after, before, 0.05)
    refuses("quantised already", quantize, after, tmp_path / "twice.xml", images())
    (tmp_path / "int8.bin").unlink()
    with pytest.raises(ValueError, match="cannot be read as an OpenVINO model"):
        quantize(after, tmp_path / "twice.xml", images())


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "torch", reason="exported by PyTorch")
@pytest.mark.parametrize("make", [tiny_vit, tiny_bit])
def test_a_model(tmp_path, make):
    import torch

    model = randomize(make())
    model(images())
    options = {"dynamo": True, "dynamic_shapes": (({0: torch.export.Dim("batch", min=1)},),)}
    x = torch.from_numpy(images())
    torch.onnx.export(model.eval(), (x,), tmp_path / "model.onnx", **options)
    path = quantize(tmp_path / "model.onnx", tmp_path / "int8.onnx", CALIBRATION)
    assert_near(path, tmp_path / "model.onnx", 0.1)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "torch", reason="exported by PyTorch")
def test_the_model_that_comes_with_the_library_on_this_processor(tmp_path):
    """With 8 bits and without VNNI, its logits are off by four fifths of the largest."""
    model = keras_vit.from_checkpoint("digits")
    digits = keras_vit.data.load("digits")
    train, test = (
        keras_vit.data.preprocess(x[:200], model) for x in (digits.train_images, digits.test_images)
    )
    path = keras_vit.export(model, tmp_path / "digits.onnx").path
    expected, found = (
        outputs(p, test) for p in (path, quantize(path, tmp_path / "int8.onnx", train))
    )
    assert largest(found - expected) < 0.08 * largest(expected)
    assert np.mean(found.argmax(1) == expected.argmax(1)) >= 0.98
