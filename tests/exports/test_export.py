"""Exported files compute what the model does, in their own runtimes."""

import json
import os
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import exports
from keras_vit.data import preprocess
from keras_vit.exports.exporter import prepared
from keras_vit.exports.graph import compare, served
from tests.support import BACKEND, images, randomize, refuses, slow_unless_torch, tiny_bit, tiny_vit

NATIVE = {"torch": "torch", "tensorflow": "litert", "jax": "stablehlo"}.get(BACKEND)
SUFFIX = {name: each.suffix for name, each in exports.FORMATS.items()}


def trained(**options):
    """A model with everything that an exported file tells."""
    model = randomize(tiny_vit(**options))
    model.class_names = ("one", "two", "three")
    return model


def metadata_in(path, *names):
    """{name: text} of what a file in the format of this backend's own tool tells."""
    if NATIVE == "torch":
        import torch

        texts = dict.fromkeys(names, "")
        torch.export.load(path, extra_files=texts)
        return {name: texts[name] for name in names}
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in names}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with its preprocessing, in the format of this backend's own tool."""
    model = trained()
    path = tmp_path_factory.mktemp("export") / f"model{SUFFIX[NATIVE]}"
    return model, exports.export(model, path, preprocess=True, check=True)


def test_a_file_takes_pixels_and_gives_probabilities(exported):
    model, export = exported
    pixels = np.random.default_rng(1).integers(0, 256, (2, *model.input_shape[1:]), "uint8")
    logits = model.predict_on_batch(preprocess(pixels, model))
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    received = exports.FORMATS[NATIVE].open(str(export.path))(pixels)
    np.testing.assert_allclose(received, expected, atol=1e-5)


def test_a_file_tells_classes_and_preprocessing(exported):
    model, export = exported
    facts = metadata_in(export.path, "class_names", "preprocessing", "output")
    assert json.loads(facts["class_names"]) == ["one", "two", "three"]
    assert json.loads(facts["preprocessing"]) == model.preprocessing.to_config()
    assert facts["output"] == "probabilities"


def test_the_report_says_what_was_checked(exported, tmp_path):
    _, export = exported
    assert 0 <= export.difference < 1e-5 and f"{export.difference:.1e}" in str(export)
    unchecked = exports.Export(export.path, NATIVE, BACKEND, export.size)
    assert "not checked" in str(unchecked)


def test_a_check_finds_another_model(exported):
    """It is no check that could not fail."""
    _, export = exported
    other = randomize(tiny_vit(), seed=5)
    with pytest.raises(exports.ExportError, match="something else"):
        compare(served(other, True), export.path, NATIVE)


def test_nothing_is_left_of_a_failed_export(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_vit.exports.graph.TOLERANCE", -1.0)
    with pytest.raises(exports.ExportError, match="Nothing was kept"):
        exports.export(trained(), tmp_path / f"model{SUFFIX[NATIVE]}", check=True)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_and_leaves_what_was_there(tmp_path):
    """The process goes on, which a tool that writes by itself may not let it."""
    resource = pytest.importorskip("resource", reason="a limit of bytes is not to be had")
    path, limits = tmp_path / f"model{SUFFIX[NATIVE]}", resource.getrlimit(resource.RLIMIT_FSIZE)
    path.write_bytes(b"old")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(exports.ExportError if NATIVE == "litert" else OSError):
            exports.export(trained(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes() == b"old"


def test_links_stay_and_what_is_no_file_is_refused_before_the_work(tmp_path, monkeypatch):
    path = tmp_path / f"link{SUFFIX[NATIVE]}"
    path.symlink_to("folder/target")
    exports.export(trained(), path)
    assert path.is_symlink() and (tmp_path / "folder" / "target").stat().st_size > 1000
    monkeypatch.setattr("keras_vit.exports.exporter.prepared", None)
    os.mkfifo(tmp_path / "pipe.onnx")
    os.mkfifo(tmp_path / "pipe")
    for format in ("onnx", "tf_saved_model"):
        with pytest.raises(ValueError, match=r"must be a (file|folder).*which is a pipe"):
            exports.export(trained(), tmp_path / f"pipe{SUFFIX[format]}", format)


def test_bad_input_is_named(tmp_path):
    model = tiny_vit()
    refuses("format='gguf'; expected one of", exports.export, model, tmp_path / "model", "gguf")
    refuses(r"ends in \.onnx", exports.export, model, tmp_path / "model.pt2", "onnx")
    refuses("format=None", exports.export, model, tmp_path / "model.h5")
    for names in (["notes.txt"], ["notes.txt", "saved_model.pb"]):
        (tmp_path / names[-1]).write_text("mine")
        text = "something else at the path. Received: .*, which holds 'notes.txt';"
        refuses(text, exports.export, model, tmp_path, "tf_saved_model")
    (tmp_path / "saved_model.pb").rename(tmp_path / "model.bin")
    text = "written to 'model.bin' beside it, and there is something else"
    refuses(text, exports.export, model, tmp_path / "model.xml")
    (tmp_path / "model.bin").unlink()
    with pytest.raises(TypeError, match=r"model\.export"):
        exports.export(keras.Sequential([keras.layers.Dense(1)]), tmp_path / "model.onnx")
    with pytest.raises(OSError, match="notes"):
        exports.export(model, tmp_path / "notes.txt" / f"model{SUFFIX[NATIVE]}")
    assert sorted(os.listdir(tmp_path)) == ["notes.txt"]


def test_a_folder_of_the_users_is_kept_and_that_of_a_savedmodel_replaced(tmp_path, monkeypatch):
    def write(graph, path):
        os.mkdir(path)
        open(os.path.join(path, "saved_model.pb"), "w").close()

    writer = exports.FORMATS["tf_saved_model"]
    monkeypatch.setattr(writer, "write", write)
    monkeypatch.setattr(writer, "writers", {BACKEND: ()})
    model = tiny_vit()
    for name in ("assets", "variables", ".git"):
        (folder := tmp_path / name / name).mkdir(parents=True)
        text = f"something else at the path. Received: .*, which holds '{name}';"
        refuses(text, exports.export, model, folder.parent, "tf_saved_model")
        assert folder.exists()
    left = [".DS_Store", ".gitkeep", "Thumbs.db", "desktop.ini"]
    for names in (left, ["saved_model.pb", "assets", *left]):
        (folder := tmp_path / str(len(names))).mkdir()
        for name in names:
            (folder / name).touch()
        exports.export(model, folder, "tf_saved_model")
        assert os.listdir(folder) == ["saved_model.pb"]


def test_a_killed_export_is_finished_by_another(tmp_path, monkeypatch):
    """As its reader is told; between the old and the new, the old weights lie alone."""

    def write(graph, path):
        for suffix in ("xml", "bin"):
            with open(f"{path[:-3]}{suffix}", "w") as file:
                file.write("new")

    monkeypatch.setattr(exports.FORMATS["openvino"], "write", write)
    monkeypatch.setattr(exports.FORMATS["openvino"], "writers", {BACKEND: ()})
    (mark := tmp_path / "m.xml.unfinished").mkdir()
    for file in (tmp_path / "m.bin", mark / "m.bin", mark / "m.xml"):
        file.write_text("old")
    exports.export(tiny_vit(), tmp_path / "m.xml")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "m.bin": "new", "m.xml": "new"
    }  # fmt: skip


def test_a_missing_tool_is_named(tmp_path, monkeypatch):
    there = {"onnxscript": False, "tf2onnx": False, "onnxruntime": False}
    present = lambda name: there.get(name, True)  # noqa: E731
    monkeypatch.setattr("keras_vit.exports.exporter.is_installed", present)
    with pytest.raises(ModuleNotFoundError, match=r"pip install onnxscript, or .*\[export\]"):
        exports.export(tiny_vit(), tmp_path / "model.onnx")
    there["onnxscript"] = True
    with pytest.raises(ModuleNotFoundError, match=r"To check .* package onnxruntime"):
        exports.export(tiny_vit(), tmp_path / "model.onnx", check=True)


SLOW = [
    ("onnx", {}, True),
    ("openvino", {}, False),
    ("tf_saved_model", {}, True),
    *[(name, {"variable_size": True}, name == "torch") for name in exports.FORMATS],
    ("torch", {"dtype": "mixed_bfloat16"}, False),
]


OPTIONS = [
    {"position": "relative_2d"},
    {"block": "parallel", "dtype": "mixed_bfloat16"},
    {"block": "post_norm", "pool": "map"},
    {"distillation": True, "registers": 2},
    {"mlp": "swiglu", "rotary": "dinov3", "qk_norm": "layer_norm"},
    {"rotary": "eva02", "variable_size": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("format, options, with_pixels", SLOW)
def test_every_format_from_every_backend(tmp_path, format, options, with_pixels):
    """Also where another backend writes it, in a process of its own."""
    path = tmp_path / f"model{SUFFIX[format]}"
    export = exports.export(trained(**options), path, format, with_pixels, check=True)
    assert export.difference < 1e-5
    assert export.backend == BACKEND or BACKEND not in exports.FORMATS[format].writers


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf2onnx has no exact GELU")
def test_what_one_backend_cannot_write_another_does(tmp_path):
    export = exports.export(trained(gelu="erf"), tmp_path / "model.onnx", check=True)
    assert export.backend == "torch" and export.difference < 1e-5


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "jax", reason="another format")
def test_what_no_backend_can_write_is_said_of_each(tmp_path):
    """PyTorch's export refuses the sorting of merged tokens, and ONNX what tf2onnx makes of it."""
    model = keras_vit.merge_tokens(trained(), 1)
    with pytest.raises(exports.ExportError, match=r"refused.*could not.*docs/export\.md"):
        exports.export(model, tmp_path / "model.onnx", check=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_a_file_computes_what_any_model_computes(tmp_path, options):
    """In batches of 1, 3 and 7, and of open sides in another size, in ONNX or that of a backend."""
    suffix = {"torch": ".onnx"}.get(BACKEND, SUFFIX[NATIVE])
    model = trained(width=16, depth=1, image_size=32, **options)
    assert exports.export(model, tmp_path / f"model{suffix}", check=True).difference < 1e-5


@pytest.mark.skipif(BACKEND != "tensorflow", reason="LiteRT is written by TensorFlow")
@pytest.mark.slow
def test_quantized_model_that_a_format_cannot_hold(tmp_path):
    model = trained()
    model.quantize("int8")
    with pytest.raises(exports.ExportError, match=r"quantised, to int8.*Export it as it was befo"):
        exports.export(model, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


@slow_unless_torch
def test_lora_is_merged():
    """The file has no products of its own, and the model keeps them."""
    model, x = trained(), images((2, 16, 16, 3))
    keras_vit.training.enable_lora(model, 2)
    merged = prepared(randomize(model))
    assert not any("lora" in weight.path for weight in merged.weights)
    np.testing.assert_allclose(merged.predict(x), model.predict(x), atol=1e-4)


@slow_unless_torch
def test_a_vit_takes_any_size(tmp_path):
    path = tmp_path / f"vit{SUFFIX[NATIVE]}"
    assert exports.export(trained(variable_size=True), path, check=True).difference < 1e-5


@pytest.mark.slow
def test_bit_takes_any_size(tmp_path):
    path = tmp_path / f"bit{SUFFIX[NATIVE]}"
    for options in ({}, {"image_size": 40}, {"image_size": 64, "version": "v1"}):
        assert exports.export(randomize(tiny_bit(**options)), path, check=True).difference < 1e-4


def test_the_check_compares_with_what_predict_reads(exported, monkeypatch, tmp_path):
    """The graph of a file with a second softmax agrees with that file."""
    wrong = keras.layers.Softmax(name="probabilities"), {"output": "x", "reading": "softmax"}
    monkeypatch.setattr("keras_vit.exports.graph._end", lambda *_: wrong)
    ended = keras.Sequential([exported[0], keras.layers.Softmax()])
    ended.preprocessing = exported[0].preprocessing
    with pytest.raises(exports.ExportError, match="something else"):
        exports.export(ended, tmp_path / f"m{SUFFIX[NATIVE]}", preprocess=True, check=True)
