"""Hugging Face's image processors as recipes, also where one crops, scales or does nothing."""

import json
import math
import warnings

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.formats.huggingface import preprocessing_of, processor_of
from tests.support import assert_close, tiny_vit
from tests.weights.stored import edit

pytestmark = pytest.mark.any_backend


def test_deit_squashes_before_its_crop():
    processor = {"do_center_crop": True, "crop_size": 224, "size": 256, "resample": 3}
    extractor = {"feature_extractor_type": "DeiTFeatureExtractor"}
    recipe, unsaid = preprocessing_of({**processor, **extractor})
    assert (recipe.resize, recipe.crop_fraction, unsaid) == ("squash", 0.875, ())
    defaults = {"image_processor_type": "DeiTImageProcessor"}
    assert preprocessing_of(defaults)[0] == recipe


def test_the_shorter_edge():
    processor = {"do_center_crop": True, "size": {"shortest_edge": 256}, "crop_size": 224}
    recipe, unsaid = preprocessing_of(processor)
    assert (recipe.resize, recipe.crop_fraction, unsaid) == ("shortest", 0.875, ())
    bit = {"image_processor_type": "BitImageProcessor", "size": 256}
    assert preprocessing_of(bit)[0].resize == "shortest"


@pytest.mark.parametrize("crop", [(224, 180), (180, 224), (300, 180), (180, 300)])
def test_a_crop_that_is_not_square(crop):
    """The shorter edge belongs to the smaller number, and black fills what the other one lacks."""
    crop = dict(zip(("height", "width"), crop))
    processor = {"do_center_crop": True, "size": {"shortest_edge": 256}, "crop_size": crop}
    recipe, unsaid = preprocessing_of(processor)
    assert math.floor(180 / recipe.crop_fraction) == 256 and unsaid == ()
    squashed = {**processor, "size": {side: before * 2 for side, before in crop.items()}}
    assert preprocessing_of(squashed)[0].crop_fraction == 0.5
    assert preprocessing_of(squashed)[1] == ()


PROCESSORS = [
    ("ViT", {}),
    ("DeiT", {"size": {"height": 59, "width": 57}, "crop_size": {"height": 50, "width": 48}}),
    ("CLIP", {"size": {"shortest_edge": 57}, "crop_size": 48}),
    ("CLIP", {"size": {"shortest_edge": 60}, "crop_size": {"height": 60, "width": 39}}),
    ("CLIP", {"size": {"shortest_edge": 40}, "crop_size": {"height": 40, "width": 81}}),
    ("Bit", {"size": {"shortest_edge": 51}, "crop_size": 48}),
    ("Beit", {"size": {"height": 59, "width": 57}}),
    ("DINOv3ViT", {"size": {"height": 59, "width": 57}}),
]


@pytest.mark.parametrize("kind, arguments", PROCESSORS)
@pytest.mark.parametrize("height, width", [(90, 61), (53, 90), (31, 37)])
def test_the_pixels_of_transformers(kind, arguments, height, width):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    theirs = getattr(transformers, f"{kind}ImageProcessor")(resample=2, **arguments)
    said = json.loads(theirs.to_json_string())
    recipe, unsaid = preprocessing_of({**said, "image_processor_type": f"{kind}ImageProcessor"})
    photograph = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype="uint8")
    expected = np.asarray(theirs(photograph, return_tensors="np")["pixel_values"])
    actual = keras_vit.preprocess(
        photograph, preprocessing=recipe, image_size=expected.shape[2:]
    ).transpose(0, 3, 1, 2)
    assert unsaid == ()
    scale = np.array(recipe.std)[:, None, None]
    assert_close(actual * scale, expected * scale, 1.01 / 255)  # their resize rounds otherwise


@pytest.mark.parametrize("crop, size", [(224, 354), (256, 372), (288, 422), (384, 438)])
def test_the_size_comes_back_from_the_fraction(crop, size):
    """224 / (224 / 354) is a last digit below 354."""
    recipe, _ = preprocessing_of({"do_center_crop": True, "size": size, "crop_size": crop})
    assert math.floor(crop / recipe.crop_fraction) == size


@pytest.mark.parametrize(
    "processor, mean, std",
    [
        ({"do_normalize": False}, 0.0, 1.0),
        ({"do_normalize": False, "do_rescale": False}, 0.0, 1 / 255),
        ({"rescale_factor": 1 / 127.5}, 0.25, 0.25),
        ({"rescale_factor": 1 / 255}, 0.5, 0.5),
        ({"image_mean": 0.25, "image_std": 0.125}, 0.25, 0.125),  # of all channels
    ],
)
def test_scales(processor, mean, std):
    recipe, unsaid = preprocessing_of(processor)
    assert recipe.mean == (mean,) * 3 and recipe.std == (std,) * 3 and unsaid == ()


@pytest.mark.parametrize(
    "processor, words",
    [
        ({"resample": 1}, "resample=1"),
        ({"do_resize": False}, "do_resize=False"),
        ({"size": {"shortest_edge": 224}}, "without a crop"),
        ({"size": {"longest_edge": 224}}, "longest_edge"),
        ({"do_center_crop": True, "size": 224, "crop_size": 256}, "crop_size=(256, 256)"),
        ({"do_center_crop": True, "size": 224, "crop_size": [224, 448]}, "crop_size=(224, 448)"),
        ({"do_flip_channel_order": True}, "do_flip_channel_order"),
        ({"do_pad": True, "pad_size": 256}, "do_pad"),
        ({"keep_aspect_ratio": True, "ensure_multiple_of": 14}, "keep_aspect_ratio"),
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True}, "rescale_offset"),
    ],
)
def test_what_no_recipe_can_say(processor, words):
    (text,) = preprocessing_of(processor)[1]
    assert words in text


def test_steps_that_change_no_image():
    steps = {"do_convert_rgb": True, "do_reduce_labels": True, "do_pad": False, "offset": None}
    assert preprocessing_of(steps) == preprocessing_of({"do_resize": True})


@pytest.mark.parametrize(
    "format, file, key, value",
    [
        ("huggingface", "preprocessor_config.json", "resample", 0),
        ("huggingface", "preprocessor_config.json", "do_flip_channel_order", True),
        ("timm", "config.json", "crop_mode", "border"),
        ("timm", "config.json", "interpolation", "lanczos"),
    ],
)
def test_whoever_uses_what_is_only_near_to_a_config_is_warned(tmp_path, format, file, key, value):
    """The report alone told of it, which is printed only when somebody asks."""
    model, name = tiny_vit(gelu="erf"), "model.safetensors" if format == "timm" else ""
    keras_vit.save_weights(model, tmp_path / "model" / name, format, force=True)
    path, image = tmp_path / "model" / file, np.zeros((20, 20, 3), "uint8")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        keras_vit.preprocess([image], keras_vit.from_checkpoint(path.parent))
    config = json.loads(path.read_text())
    config.get("pretrained_cfg", config)[key] = value
    path.write_text(json.dumps(config))
    near = keras_vit.from_checkpoint(path.parent)
    assert any(f"{key}={value!r}" in text for text in near.load_report.ignored)
    for use in (keras_vit.preprocess, lambda images, model: keras_vit.predict(model, images)):
        with pytest.warns(UserWarning, match=f"otherwise than they are prepared.*{key}"):
            use([image], near)


@pytest.mark.parametrize(
    "facts, kind",
    [
        ({}, "ViTImageProcessor"),
        ({"crop_fraction": 0.5}, "DeiTImageProcessor"),
        ({"resize": "shortest", "crop_fraction": 0.5}, "CLIPImageProcessor"),
    ],
)
def test_a_recipe_is_written_for_a_processor_that_has_it(facts, kind):
    model = tiny_vit()
    model.preprocessing = keras_vit.Preprocessing(library="transformers", **facts)
    written = processor_of(model)
    assert written["image_processor_type"] == kind
    assert preprocessing_of(written) == (model.preprocessing, ())


@pytest.mark.parametrize(
    "labels, text",
    [("ab", "2 names of classes"), ("1abc", "4 names"), (["LABEL_0", "LABEL_1"], None)],
)
def test_names_that_are_not_those_of_the_outputs(tmp_path, labels, text):
    keras_vit.save_weights(tiny_vit(gelu="erf"), tmp_path / "model", force=True)
    path = tmp_path / "model" / "config.json"
    id2label = {str(index): label for index, label in enumerate(labels)}
    edit(path, id2label=id2label)
    model = keras_vit.from_checkpoint(path.parent)
    ignored = [each for each in model.load_report.ignored if "names of classes" in each]
    assert model.class_names is None and bool(ignored) == bool(text)
    assert not text or text in ignored[0]


@pytest.mark.parametrize("classes, stated", [(0, 1000), (5, 3)])
def test_a_number_of_classes_that_is_not_that_of_the_arrays(tmp_path, classes, stated):
    model = tiny_vit(gelu="erf", num_classes=classes)
    path = keras_vit.save_weights(model, tmp_path / "model.safetensors", force=True)
    assert not keras_vit.from_checkpoint(path).load_report.ignored
    edit(tmp_path / "config.json", num_classes=stated)
    (ignored,) = keras_vit.from_checkpoint(path).load_report.ignored
    assert ignored == f"num_classes={stated} in its config, for {classes} in its arrays"
