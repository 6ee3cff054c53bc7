"""Models written for other libraries: they read the same function, and so does this one."""

import contextlib
import json

import keras
import pytest

import keras_vit
from tests.arrays import assert_close, assert_same, images, read_arrays
from tests.support import ORACLES, forward, randomize, refuses, tiny_vit
from tests.weights.stored import output_of_library, output_of_torch

pytestmark = pytest.mark.any_backend

FORMATS = {"google": "model.npz", "timm": "model.safetensors", "huggingface": "folder"}
SIZE = (16, 24)

# Options of a model, and the formats that hold it.
MODELS = {
    "token": ({}, set(FORMATS)),
    "no_head": ({"num_classes": 0}, set(FORMATS)),
    "exact_gelu": ({"gelu": "erf"}, {"timm", "huggingface"}),
    "epsilon": ({"epsilon": 1e-12}, set(FORMATS)),
    "mean": ({"pool": "mean"}, set(FORMATS)),
    "mean_with_class_token": ({"pool": "mean", "class_token": True}, {"timm"}),
    "norm_after_pool": ({"pool": "mean", "norm_after_pool": True}, {"timm"}),
    "map": ({"pool": "map"}, {"timm"}),
    "map_of_all_tokens": ({"pool": "map", "class_token": True, "registers": 2}, {"timm"}),
    "registers": ({"registers": 2}, {"timm"}),
    "pre_logits": ({"representation_size": 12}, {"google"}),
    "pooler": ({"representation_size": 8, "num_classes": 0}, {"google", "huggingface"}),
    "tokens": ({"pool": None, "num_classes": 0}, set(FORMATS)),
    "no_qkv_bias": ({"qkv_bias": False}, {"timm", "huggingface"}),
    "patches_not_square": ({"patch_size": (8, 4)}, set(FORMATS)),
    "gray": ({"channels": 1}, set(FORMATS)),
    "learned_2d": ({"position": "learned_2d"}, set(FORMATS)),
    "sincos_2d": ({"position": "sincos_2d", "pool": "mean"}, set(FORMATS)),
    "none": ({"position": "none"}, {"google", "timm"}),
    "relative": ({"position": "relative"}, set()),
    "later": ({"norm": "rms_norm", "layer_scale": 0.1}, {"timm"}),
}


def model_of(options):
    model = randomize(tiny_vit(**{"image_size": SIZE, **options}))
    for layer in model.layers:  # `randomize` reaches it through no fresh zero alone
        layer.trainable = True
    return model


def inputs_of(model):
    return images((3, *SIZE, model.channels))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", MODELS)
def test_round_trip(tmp_path, name, format):
    """What is written is read back as the same function; what cannot be written is refused."""
    options, formats = MODELS[name]
    model, path = model_of(options), tmp_path / FORMATS[format]
    if format not in formats:
        refuses(rf"(?s){format}.*Choose another of", keras_vit.save_weights, model, path)
        assert not path.exists()
        return
    other_epsilon = "epsilon" in options and format != "huggingface"
    with pytest.warns(match="another epsilon") if other_epsilon else contextlib.nullcontext():
        assert keras_vit.save_weights(model, path) == path
    # The published npz says neither of these; its own family needs them said as well.
    said = {"image_size": SIZE} if format == "google" else {}
    said |= {"pool": None} if options.get("pool", "") is None else {}
    said |= {"position": "none"} if format == "google" and options.get("position") == "none" else {}
    said |= {"epsilon": 1e-12} if other_epsilon else {}
    read = keras_vit.from_checkpoint(path, **said)
    assert_close(forward(read, inputs_of(model)), forward(model, inputs_of(model)), 2e-6)
    assert read.load_report.initial == read.load_report.resized == ()
    if name == "token":
        report = keras_vit.load_weights(other := tiny_vit(image_size=SIZE), path)
        assert report.differs == () or format == "huggingface"
        assert_same(other.weights, model.weights)


def test_google_files_of_another_function_are_written_by_force_alone(tmp_path):
    model = model_of({"gelu": "erf"})
    refuses(r"gelu='erf'.*force=True", keras_vit.save_weights, model, tmp_path / "model.npz")
    keras_vit.save_weights(model, tmp_path / "model.npz", force=True)
    read = keras_vit.from_checkpoint(tmp_path / "model.npz", image_size=SIZE, gelu="erf")
    assert_close(forward(read, inputs_of(model)), forward(model, inputs_of(model)), 2e-6)


def test_the_first_patch_instead_of_a_class_token(tmp_path):
    """`pool_type="0"` of big_vision, which no other library has, and no file tells."""
    model = model_of({"pool": "first"})
    for format in ("timm", "huggingface"):
        refuses("pool='first'", keras_vit.save_weights, model, tmp_path / "model", format=format)
    keras_vit.save_weights(model, tmp_path / "model.npz", force=True)
    read = keras_vit.from_checkpoint(tmp_path / "model.npz", image_size=SIZE, pool="first")
    assert_close(forward(read, inputs_of(model)), forward(model, inputs_of(model)), 2e-6)
    pool, path = model.get_layer("pool"), tmp_path / "model.npz"
    found, first = forward(keras.Model(model.input, [pool.input, pool.output]), inputs_of(model))
    assert_close(first, found[:, 0], 0)
    words = "pool='first' needs a model without learned tokens"
    refuses(words, keras_vit.from_checkpoint, path, image_size=SIZE, pool="token")


@pytest.mark.parametrize("name, format", [("model.h5", None), ("model.npz", "numpy")])
def test_an_unknown_format(tmp_path, name, format):
    words = r"Unknown format.*google.*timm.*huggingface"
    refuses(words, keras_vit.save_weights, tiny_vit(), tmp_path / name, format)


def test_weights_in_half_precision_are_written_in_float32(tmp_path):
    model = tiny_vit(dtype="bfloat16")
    keras_vit.save_weights(model, tmp_path / "model.npz")
    assert {a.dtype.name for a in read_arrays(tmp_path / "model.npz").values()} == {"float32"}


# ---- the libraries themselves, where they are installed


OPENED = [(n, f) for n, (_, formats) in MODELS.items() for f in sorted(formats - {"google"})]


@pytest.mark.parametrize("name, format", OPENED)
def test_its_library_opens_what_was_written(tmp_path, name, format):
    model = model_of(MODELS[name][0])
    path = keras_vit.save_weights(model, tmp_path / FORMATS[format])
    folder, x = path if format == "huggingface" else tmp_path, inputs_of(model)
    assert_close(output_of_library(model, folder, x), forward(model, x), 1e-5)


def test_timm_opens_a_published_npz(tmp_path):
    """Its reader of the authors' files, on one written here; its GELU is set to theirs."""
    timm = pytest.importorskip("timm")
    model = model_of({})
    keras_vit.save_weights(model, tmp_path / "model.npz")
    keras_vit.save_weights(model, tmp_path / "arguments" / "model.safetensors")
    config = json.loads((tmp_path / "arguments" / "config.json").read_text())
    theirs = timm.create_model(config["architecture"], **config["model_args"])
    theirs.load_pretrained(str(tmp_path / "model.npz"))
    outputs = output_of_torch(theirs, inputs_of(model)).numpy()
    assert_close(outputs, forward(model, inputs_of(model)), 1e-5)


def test_a_trained_keras_file_keeps_the_facts_of_its_weights(tmp_path):
    model = keras_vit.from_checkpoint(ORACLES / "hf_transformers5" / "vit_cls_p8")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.preprocessing == model.preprocessing
    assert loaded.class_names == model.class_names
    assert loaded.variant == model.variant
