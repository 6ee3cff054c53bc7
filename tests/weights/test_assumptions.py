"""What a file cannot say: from an override, a config beside it, or custom; reported."""

import shutil

import pytest

import keras_vit
from tests.support import ORACLES, assert_close, forward
from tests.weights.test_families import checkpoint_of, expected_output

pytestmark = pytest.mark.any_backend


def alone(case, tmp_path):
    """The checkpoint without the config beside it."""
    path = checkpoint_of(ORACLES / case)
    path = path / "model.safetensors" if path.is_dir() else path
    return shutil.copy(path, tmp_path)


def test_heads_of_a_timm_file_from_an_override(tmp_path):
    path = alone("timm/vit_token_p8", tmp_path)
    with pytest.raises(ValueError, match=r"how many attention heads.*width 48.*num_heads="):
        keras_vit.from_checkpoint(path)
    model = keras_vit.from_checkpoint(path, num_heads=4)
    assert ("num_heads", 4, "num_heads as given") in model.load_report.assumed
    inputs, expected, _ = expected_output(ORACLES / "timm" / "vit_token_p8")
    assert_close(forward(model, inputs), expected, 2e-5)
    with pytest.raises(ValueError, match="5 heads do not divide the 48 units"):
        keras_vit.from_checkpoint(path, num_heads=5)


def test_heads_of_a_timm_file_from_the_model_that_takes_it(tmp_path):
    path = alone("timm/vit_token_p8", tmp_path)
    options = {"image_size": 32, "patch_size": 8, "width": 48, "depth": 3, "num_heads": 4}
    model = keras_vit.VisionTransformer(**options, num_classes=10, gelu="erf")
    keras_vit.load_weights(model, path)
    inputs, expected, _ = expected_output(ORACLES / "timm" / "vit_token_p8")
    assert_close(forward(model, inputs), expected, 2e-5)


def test_heads_of_a_timm_file_from_the_custom(tmp_path):
    """A width of the table has the heads of the table; another one heads of width 64."""
    for width, depth, heads, words in ((192, 12, 3, "ViT-Ti"), (128, 1, 2, "width 64")):
        source = keras_vit.VisionTransformer(
            width=width, depth=depth, num_heads=heads, image_size=16, patch_size=8, num_classes=2
        )
        folder = tmp_path / str(width)
        keras_vit.save_weights(source, folder / "model.safetensors")
        (folder / "config.json").unlink()
        report = keras_vit.from_checkpoint(folder / "model.safetensors").load_report
        (row,) = (row for row in report.assumed if row[0] == "num_heads")
        assert row[1] == heads and words in row[2]


def test_the_pooling_of_a_timm_file(tmp_path):
    """A norm after the pooling, and a file without class token, tell that the mean is taken."""
    for case, heads in (("vit_gap_fcnorm_p8", 4), ("vit_gap_nocls_p16", 2)):
        model = keras_vit.from_checkpoint(alone(f"timm/{case}", tmp_path), num_heads=heads)
        inputs, expected, _ = expected_output(ORACLES / "timm" / case)
        assert_close(forward(model, inputs), expected, 2e-5)


def test_a_grid_that_is_not_square_from_an_override(tmp_path):
    path = alone("timm/vit_nohead_p4_nonsquare", tmp_path)
    with pytest.raises(ValueError, match=r"24 patches.*no square"):
        keras_vit.from_checkpoint(path, num_heads=4)
    model = keras_vit.from_checkpoint(path, num_heads=4, image_size=(16, 24))
    inputs, expected, _ = expected_output(ORACLES / "timm" / "vit_nohead_p4_nonsquare")
    assert_close(forward(model, inputs), expected, 2e-5)


def test_an_image_size_without_positions(tmp_path):
    path = alone("big_vision_vit/gap_sincos2d_p8", tmp_path)
    with pytest.raises(keras_vit.CheckpointError, match=r"no table of positions.*'none'"):
        keras_vit.from_checkpoint(path, image_size=(32, 40))
    model = keras_vit.from_checkpoint(path, image_size=(32, 40), position="sincos_2d")
    inputs, expected, _ = expected_output(ORACLES / "big_vision_vit" / "gap_sincos2d_p8")
    assert_close(forward(model, inputs), expected, 2e-5)
    by_custom = keras_vit.from_checkpoint(path, position="sincos_2d")
    assert ("position", "sincos_2d", "position as given") in by_custom.load_report.assumed
    assert by_custom.image_size == (224, 224)
    assert "the custom" in str(by_custom.load_report)


def test_a_grid_that_may_be_two(tmp_path):
    """36 positions are 6 x 6, to be resized, or the 4 x 9 of the caller: neither is assumed."""
    source = keras_vit.VisionTransformer(
        width=32, depth=1, num_heads=2, image_size=(16, 36), patch_size=4, num_classes=2
    )
    path = keras_vit.save_weights(source, tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"file_image_size=\(24, 24\) or \(16, 36\)"):
        keras_vit.from_checkpoint(path, image_size=(16, 36))
    same = keras_vit.from_checkpoint(path, image_size=(16, 36), file_image_size=(16, 36))
    assert same.load_report.resized == ()


def test_hugging_face_weights_without_their_config(tmp_path):
    path = alone("hf_transformers5/vit_cls_p16_eps6", tmp_path)
    model = keras_vit.from_checkpoint(path, num_heads=2)
    assert model.variant.epsilon == 1e-12
    default = "the family's, as no config.json says it"
    assert {("gelu", "erf", default), ("epsilon", 1e-12, default)} <= set(model.load_report.assumed)
