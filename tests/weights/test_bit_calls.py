"""BiT through the calls of the Vision Transformer: load, save, new head, fold, resize."""

import json

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.formats import bit
from tests.arrays import assert_close, assert_same, images, largest, values
from tests.support import forward, randomize, refuses, tiny_vit, without_values
from tests.weights.bit_cases import HUGGING, TIMM, load, read
from tests.weights.stored import assert_same_weights, output_of_library

pytestmark = pytest.mark.any_backend

SIZE = (48, 40)


def model_of(**options):
    default = {"blocks": (1, 1), "width": 0.5, "image_size": SIZE, "num_classes": 3}
    return randomize(keras_vit.BiT(**{**default, **options}))


def test_loading_and_another_head():
    target = keras_vit.BiT(blocks=(1, 1), width=0.5, num_classes=7, numerics="timm")
    keras_vit.load_weights(target, HUGGING.checkpoint)
    source = keras_vit.from_checkpoint(HUGGING.checkpoint)
    assert_same_weights(target, source)
    with pytest.warns(UserWarning, match=r"numerics: 'timm' in the checkpoint, 'bit'"):
        other = keras_vit.BiT(blocks=(1, 1), width=0.5, num_classes=7)
        keras_vit.load_weights(other, HUGGING.checkpoint)
    model = keras_vit.from_checkpoint(HUGGING.checkpoint, num_classes=3, image_size=128)
    assert not values(model)["head/kernel"].any()
    assert "7 classes in the file, 3 classes in the model" in str(model.load_report)
    features = keras_vit.from_checkpoint(HUGGING.checkpoint, include_top=False)
    assert features.output_shape == (None, 256)


def test_what_does_not_fit():
    with pytest.raises(ValueError, match=r"holds a BiT; the model .* is a VisionTransformer"):
        keras_vit.load_weights(tiny_vit(), HUGGING.checkpoint)
    words = r"holds a BiT; the model .* is a VisionTransformer\..*from_checkpoint"
    refuses(words, keras_vit.ViT_Ti16, weights=HUGGING.checkpoint, depth=1)
    with pytest.raises(ValueError, match=r"blocks=\(1, 1\) in the file, \(1, 1, 1\) in"):
        keras_vit.load_weights(keras_vit.BiT(blocks=(1, 1, 1), width=0.5), HUGGING.checkpoint)


def test_a_builder_takes_the_family_s_constants(tmp_path):
    options = {"blocks": (1, 1), "width": 0.5, "num_classes": 3}
    source = model_of(numerics="bit_paper")
    path = keras_vit.save_weights(source, tmp_path / "model.npz", force=True)
    assert keras_vit.BiT_R50x1(weights=path, **options).variant.numerics == "bit"
    chosen = keras_vit.BiT_R50x1(weights=path, numerics="bit_paper", **options)
    assert chosen.variant.numerics == "bit_paper"
    assert_same_weights(chosen, source)


def test_another_resolution_changes_no_weight():
    model = model_of()
    resized = keras_vit.resize(model, image_size=64)
    assert resized.image_size == (64, 64)
    assert_same_weights(resized, model)
    refuses("neither patches nor position embeddings", keras_vit.resize, model, patch_size=8)


def test_predictions_and_preprocessing_are_for_bit_too():
    model = model_of()
    photograph = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype="uint8")
    assert keras_vit.preprocess(photograph, model).shape == (1, *SIZE, 3)
    (best,) = keras_vit.predict(model, photograph, top=2, class_names=("a", "b", "c"))
    assert len(best) == 2 and best[0].probability >= best[1].probability


# ---- written

# Options of a model; the constants of "bit" and of "timm" differ by less than float32 shows.
MODELS = {
    "head": {},
    "timm": {"numerics": "timm"},
    "no_head": {"num_classes": 0},
    "gray": {"channels": 1},
    "units": {"blocks": (2, 1, 1)},
    "one_stage": {"blocks": (1,)},
    "five_stages": {"blocks": (1, 1, 1, 1, 1)},
    "after": {"version": "v1", "numerics": "timm"},
}
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
def test_round_trip_of_hugging_face(tmp_path, name):
    """The same weights in a model that computes the same."""
    model, folder = model_of(**MODELS[name]), tmp_path / "folder"
    assert keras_vit.save_weights(model, folder) == folder
    again = keras_vit.from_checkpoint(folder)
    assert again.load_report.initial == again.load_report.resized == ()
    assert again.get_config()["blocks"] == model.get_config()["blocks"]
    assert (again.image_size, again.channels) == (SIZE, model.channels)
    assert again.variant.replace(numerics="timm") == model.variant.replace(numerics="timm")
    assert_same_weights(again, model)


def test_timm_writes_what_it_reads(tmp_path):
    canonical = read(TIMM.contents)
    model = load(TIMM.contents)
    file = bit.TIMM.write(model, canonical.weights.arrays)
    assert_same(file, TIMM.contents.arrays)
    with without_values():
        large = keras_vit.BiT("R152x2", image_size=448)
    config = bit.TIMM.json_files(large)["config.json"]
    assert config["architecture"] == "resnetv2_152x2_bit"
    assert config["pretrained_cfg"]["input_size"] == [3, 448, 448]


def test_what_belongs_to_the_weights_is_written_too(tmp_path):
    model = model_of(image_size=(64, 48))
    model.class_names = ("cat", "dog", "bird")
    crop = {"resize": "shortest", "crop_fraction": 0.75, "interpolation": "bicubic"}
    for facts in ({}, {**crop, "mean": (0.4, 0.5, 0.6)}):
        model.preprocessing = keras_vit.Preprocessing(library="transformers", **facts)
        keras_vit.save_weights(model, tmp_path)
        again = keras_vit.from_checkpoint(tmp_path)
        assert again.preprocessing == model.preprocessing
        assert again.class_names == model.class_names
        processor = json.loads((tmp_path / "preprocessor_config.json").read_text())
        assert processor["image_processor_type"] == "BitImageProcessor"
        assert processor["do_center_crop"] == (facts != {})


def test_what_is_not_written(tmp_path):
    npz, timm, folder = (tmp_path / name for name in ("a.npz", "a.safetensors", "folder"))
    paper, google = model_of(numerics="bit_paper"), model_of(version="v1", numerics="google")
    for model, path, words in (
        (paper, folder, r"numerics='bit_paper'\. Choose another of \['model\.save"),
        (paper, npz, r"numerics='bit_paper'\. Choose another of \['model\.save"),
        (model_of(), timm, r"blocks=\(1, 1\).*another of \['google', 'huggingface',"),
        (google, npz, r"version='v1'.*Choose another of"),
        (google, folder, r"numerics='google'.*force=True"),
        (keras_vit.fold(model_of()), folder, r"standardised twice.*model\.save"),
    ):
        refuses(words, keras_vit.save_weights, model, path)
        assert not path.exists()
    keras_vit.save_weights(google, folder, force=True)
    assert keras_vit.from_checkpoint(folder).variant.numerics == "timm"


def test_timm_opens_what_was_written(tmp_path):
    model = randomize(keras_vit.BiT("R50x1", num_classes=3, numerics="timm"))
    keras_vit.save_weights(model, tmp_path / "model.safetensors")
    x = images((2, 64, 64, 3))
    expected = forward(model, x)
    tolerance = 3e-5 * max(largest(expected), 1)
    assert_close(output_of_library(model, tmp_path, x), expected, tolerance)


@every_model
def test_transformers_opens_what_was_written(tmp_path, name):
    model = model_of(**MODELS[name])
    keras_vit.save_weights(model, tmp_path)
    x = images((2, *SIZE, model.channels))
    expected = forward(model, x)
    tolerance = 1e-5 * max(largest(expected), 1)
    assert_close(output_of_library(model, tmp_path, x), expected, tolerance)


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
