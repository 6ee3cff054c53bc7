"""Hugging Face's CLIP, SigLIP and AIMv2 beside what test_later.py compares: configs and writing."""

import json
import math

import numpy as np
import pytest

import keras_vit
from tests.support import assert_close, forward, images, randomize, refuses, tiny_vit, to_numpy
from tests.weights.stored import arrays_of, changed, opened

pytestmark = pytest.mark.any_backend


def test_the_text_tower_and_unused_layers_are_named():
    report = opened("tower_clip_both_towers").load_report
    assert "logit_scale" in report.ignored and "text_projection.weight" in report.ignored
    report = opened("tower_clip_classes").load_report
    assert [n for n in report.ignored if "post_layernorm" in n]
    report = opened("tower_siglip_classes").load_report
    assert "vision_model.head.attention.in_proj_weight" in report.ignored
    assert "classifier.weight" not in report.ignored
    model = opened("tower_siglip", pool=None)  # gives the tokens that its pooling would have read
    assert model.output_shape == (None, 9, 16)
    assert "head.probe" in model.load_report.ignored


def test_what_a_config_does_not_say_is_what_its_class_means(tmp_path):
    def widened(arrays):  # 12 heads of one unit each
        return {n: tuple(12 if side == 16 else side for side in a.shape) for n, a in arrays.items()}

    folder = changed("tower_siglip_classes", tmp_path, widened, vision_config={"patch_size": 4})
    model = keras_vit.from_checkpoint(folder)
    v, recipe = model.variant, model.preprocessing
    assert (v.num_heads, v.gelu, v.epsilon) == (12, "tanh", 1e-6)
    assert (recipe.interpolation, recipe.mean) == ("bicubic", (0.5, 0.5, 0.5))
    model = opened("tower_clip")
    assert (model.variant.activation, model.variant.epsilon) == ("quick_gelu", 1e-5)
    assert model.preprocessing.resize == "shortest"
    assert model.preprocessing.mean[0] == 0.48145466


def test_the_processor_of_images_beside_that_of_texts(tmp_path):
    folder = changed("tower_clip", tmp_path)
    settings = {"image_processor_type": "CLIPImageProcessor", "image_mean": [0.1, 0.2, 0.3]}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    recipe = keras_vit.from_checkpoint(folder).preprocessing
    assert (recipe.mean, recipe.std[0]) == ((0.1, 0.2, 0.3), 0.26862954)


def test_pixels_beyond_the_last_whole_patch(tmp_path):
    """SigLIP's so400m has patches of 14 pixels and images of 384."""
    model = keras_vit.from_checkpoint(changed("tower_siglip", tmp_path, image_size=15))
    assert model.image_size == (12, 12)
    assert "pixels of image_size=15" in str(model.load_report)


def test_computed_positions(tmp_path):
    tables = dict.fromkeys(n for n in arrays_of("tower_aimv2") if "position" in n)
    folder = changed("tower_aimv2", tmp_path, tables, is_native=True)
    model = keras_vit.from_checkpoint(folder, image_size=(8, 12))
    table = to_numpy(model.get_layer("patch_encoder").position.embedding)
    for patch, (row, column) in enumerate(np.ndindex(2, 3)):
        for i in range(4):
            frequency = 10_000 ** (-i / 4)
            x, y = column * frequency, row * frequency
            waves = np.array([math.sin(x), math.cos(x), math.sin(y), math.cos(y)])
            assert_close(table[0, patch, i::4], waves, 1e-7)


CLIP = {"pre_norm": "layer_norm", "patch_bias": False, "num_classes": 0}
AIMV2 = {"norm": "rms_norm", "patch_norm": "rms_norm", "mlp": "swiglu", "biases": "none"}
AIMV2 |= {"qkv_bias": False, "pool": "mean", "num_classes": 0}
CLASSES = {"pool": "mean", "class_token": True, "final_norm": False, "num_classes": 3}


@pytest.mark.parametrize(
    "options, class_name",
    [
        ({}, "ViTForImageClassification"),
        (CLIP, "CLIPVisionModel"),
        ({**CLIP, "projection": 12, "activation": "silu"}, "CLIPVisionModelWithProjection"),
        ({**CLIP, **CLASSES}, "CLIPForImageClassification"),
        ({"pool": "map", "num_classes": 0, "activation": "quick_gelu"}, "SiglipVisionModel"),
        ({"pool": "mean", "num_classes": 0}, "SiglipVisionModel"),
        ({"pool": "mean"}, "SiglipForImageClassification"),
        (AIMV2, "Aimv2VisionModel"),
        ({**AIMV2, "pool": "probe"}, "Aimv2VisionModel"),
        ({**AIMV2, "biases": "no_out"}, "Aimv2VisionModel"),
        ({**AIMV2, "biases": "attention", "qkv_bias": True}, "Aimv2VisionModel"),
    ],
)
def test_the_class_that_has_the_architecture(options, class_name, tmp_path):
    model = randomize(tiny_vit(**options))
    keras_vit.save_weights(model, tmp_path / "folder")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["architectures"] == [class_name]
    read = keras_vit.from_checkpoint(tmp_path / "folder")
    assert read.load_report.initial == ()
    assert_close(forward(read, images()), forward(model, images()), 2e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({**CLIP, "image_size": (16, 24)}, r"image_size=\(16, 24\)"),
        ({**CLIP, "num_classes": 3}, "pool='token', final_norm=True, num_classes=3"),
        ({"pool": "map"}, "pool='map', num_classes"),
        ({**AIMV2, "num_classes": 3}, "num_classes=3"),
        ({**AIMV2, "biases": "all"}, "qkv_bias=False"),
    ],
)
def test_what_no_class_has(options, message, tmp_path):
    refuses(message, keras_vit.save_weights, tiny_vit(**options), tmp_path / "folder")
