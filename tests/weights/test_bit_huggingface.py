"""BiT written for Hugging Face transformers: the same names, and the same function."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from tests.support import ORACLES, assert_close, forward, images, largest, randomize, to_numpy

pytestmark = pytest.mark.any_backend

PUBLISHED = ORACLES / "bit_hf" / "bit_preact"
SIZE = (64, 48)

# Options of a model; the constants of "bit" and of "timm" differ by less than float32 shows.
MODELS = {
    "head": {},
    "timm": {"numerics": "timm"},
    "no_head": {"num_classes": 0},
    "gray": {"channels": 1},
    "units": {"blocks": (2, 1, 3), "width": 1.0},
    "one_stage": {"blocks": (1,)},
    "five_stages": {"blocks": (1, 1, 1, 1, 1)},
    "after": {"version": "v1", "numerics": "timm"},
}
every_model = pytest.mark.parametrize("name", MODELS)


def model_of(**options):
    default = {"blocks": (1, 1), "width": 0.5, "image_size": SIZE, "num_classes": 3}
    return randomize(keras_vit.BiT(**{**default, **options}))


def read_json(path):
    return json.loads(path.read_text())


@every_model
def test_round_trip(tmp_path, name):
    model, folder = model_of(**MODELS[name]), tmp_path / "folder"
    assert keras_vit.save_weights(model, folder) == folder
    read, x = keras_vit.from_checkpoint(folder), images((2, *SIZE, model.channels))
    expected = to_numpy(forward(model, x))
    assert_close(forward(read, x), expected, 1e-5 * max(largest(expected), 1))
    assert read.load_report.initial == read.load_report.resized == ()
    assert (read.image_size, read.channels) == (SIZE, model.channels)
    for a, b in zip(read.weights, model.weights, strict=True):
        assert_close(a, b, 0)


def test_a_published_folder_comes_back_to_the_byte(tmp_path):
    keras_vit.save_weights(keras_vit.from_checkpoint(PUBLISHED), tmp_path)
    again, file = (read_safetensors(p / "model.safetensors") for p in (tmp_path, PUBLISHED))
    assert set(again) == set(file)
    for name, array in file.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array, err_msg=name)
    said, wrote = (read_json(p / "config.json") for p in (PUBLISHED, tmp_path))
    assert set(wrote) - {"torch_dtype"} == set(said) - {"dtype", "transformers_version"}
    for key in set(wrote) - {"torch_dtype"}:
        assert wrote[key] == said[key], key


def test_what_belongs_to_the_weights_is_written_too(tmp_path):
    model = model_of()
    model.class_names = ("cat", "dog", "bird")
    crop = {"resize": "shortest", "crop_fraction": 0.75, "interpolation": "bicubic"}
    for facts in ({}, {**crop, "mean": (0.4, 0.5, 0.6)}):
        model.preprocessing = keras_vit.Preprocessing(library="transformers", **facts)
        keras_vit.save_weights(model, tmp_path)
        read = keras_vit.from_checkpoint(tmp_path)
        assert read.preprocessing == model.preprocessing
        assert read.class_names == model.class_names
        processor = read_json(tmp_path / "preprocessor_config.json")
        assert processor["image_processor_type"] == "BitImageProcessor"
        assert processor["do_center_crop"] == (facts != {})


def test_constants_of_others_are_written_by_force_alone(tmp_path):
    model = model_of(version="v1", numerics="google")
    with pytest.raises(ValueError, match=r"numerics='google'.*force=True"):
        keras_vit.save_weights(model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    keras_vit.save_weights(model, tmp_path / "folder", force=True)
    assert keras_vit.from_checkpoint(tmp_path / "folder").variant.numerics == "timm"


def test_folded_kernels_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"standardised twice.*model\.save"):
        keras_vit.save_weights(keras_vit.fold(model_of()), tmp_path / "folder")


@every_model
def test_transformers_opens_what_was_written(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = model_of(**MODELS[name])
    keras_vit.save_weights(model, tmp_path)
    kind = getattr(transformers, read_json(tmp_path / "config.json")["architectures"][0])
    theirs, info = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    x = images((2, *SIZE, model.channels))
    with torch.no_grad():  # in float64: through five stages float32 alone costs them 1.4e-5
        outputs = theirs.eval().double()(torch.tensor(x.transpose(0, 3, 1, 2)).double())
    outputs = outputs.logits if model.num_classes else outputs.pooler_output[:, :, 0, 0]
    expected = to_numpy(forward(model, x))
    assert_close(outputs.numpy(), expected, 1e-5 * max(largest(expected), 1))


@pytest.mark.parametrize("resize", ["squash", "shortest"])
def test_the_image_processor_of_transformers_opens_what_was_written(tmp_path, resize):
    transformers = pytest.importorskip("transformers")
    model = model_of(image_size=48)
    crop = {"crop_fraction": 0.75} if resize == "shortest" else {}
    model.preprocessing = keras_vit.Preprocessing(resize=resize, library="transformers", **crop)
    keras_vit.save_weights(model, tmp_path)
    theirs = transformers.BitImageProcessorPil.from_pretrained(tmp_path)
    photograph = np.random.default_rng(0).integers(0, 256, (90, 60, 3), dtype="uint8")
    pixels = theirs(photograph, return_tensors="np")["pixel_values"].transpose(0, 2, 3, 1)
    assert_close(pixels, keras_vit.preprocess(photograph, model), 1e-6)
