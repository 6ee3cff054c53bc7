"""Which models take weights: of a published size, of a subclass; and what is no such model."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import attention_weights
from tests.support import ORACLES, assert_close, forward, images, randomize, tiny_vit, values

pytestmark = pytest.mark.any_backend

HF = ORACLES / "hf_transformers5" / "vit_cls_p8"
BIT = ORACLES / "bit_official" / "r1111_w05" / "checkpoint.npz"
POSITION = "patch_encoder/position/embedding"


def timm_file(model, folder):
    """Written without the config that would tell its heads."""
    path = keras_vit.save_weights(model, folder / "model.safetensors", force=True)
    (folder / "config.json").unlink()
    return path


def test_a_builder_knows_its_heads(tmp_path):
    """By custom heads are 64 wide; those of ViT-H are 80, whatever its depth."""
    options = {"depth": 1, "mlp_dim": 8, "image_size": 28, "num_classes": 2, "gelu": "erf"}
    source = randomize(keras_vit.ViT_H14(**options))
    path = timm_file(source, tmp_path)
    assert keras_vit.from_checkpoint(path).variant.num_heads == 20
    built = keras_vit.ViT_H14(**options, weights=path)
    assert built.variant.num_heads == 16
    x = images((1, 28, 28, 3))
    assert_close(forward(built, x), forward(source, x), 1e-5)
    other = keras_vit.ViT_H14(**options, num_heads=20, weights=path)
    assert ("num_heads", 20, "num_heads as given") in other.load_report.assumed


def test_the_heads_of_a_model_say_nothing_about_a_file_of_another_width(tmp_path):
    """3 heads do not divide 128: that is not what is wrong."""
    path = timm_file(tiny_vit(width=128, depth=1), tmp_path)
    with pytest.raises(ValueError, match=r"a ViT of width 128.*the model is a ViT-Ti/16"):
        keras_vit.ViT_Ti16(weights=path)
    with pytest.raises(ValueError, match=r"a ViT of width 128.*a ViT of width 6,"):
        keras_vit.load_weights(tiny_vit(width=6, num_heads=3), path)


def test_a_builder_resamples_with_the_fault_of_the_authors_routine(tmp_path):
    """It makes the last of 14 rows zero; the model keeps their rule, which is without it."""
    options = {"width": 8, "num_heads": 2, "mlp_dim": 8, "depth": 1, "patch_size": 4}
    source = randomize(keras_vit.ViT_Ti16(num_classes=2, image_size=112, **options))
    path = keras_vit.save_weights(source, tmp_path / "model.npz")
    choices = {"image_size": 56, "interpolation": "scipy_zoom"}
    built = keras_vit.ViT_Ti16(num_classes=2, weights=path, **options, **choices)
    assert built.variant.interpolation == "align_corners"
    position = values(built)[POSITION]
    assert not position[0, 1:].reshape(14, 14, 8)[-1].any()
    for model in (keras_vit.from_checkpoint(path, **choices), keras_vit.resize(source, **choices)):
        np.testing.assert_array_equal(values(model)[POSITION], position)
        assert model.variant.interpolation == "align_corners"


def test_no_rule_is_the_rule_of_the_family(tmp_path):
    path = keras_vit.save_weights(tiny_vit(gelu="erf"), tmp_path / "model.safetensors")
    assert keras_vit.from_checkpoint(path, interpolation=None).variant.interpolation == "bicubic"


def test_blocks_from_an_iterator_and_as_a_number():
    model = tiny_vit()
    expected = attention_weights(model, images())
    for a, b in zip(attention_weights(model, images(), iter([1, 0])), expected[::-1], strict=True):
        assert_close(a, b, 0)
    with pytest.raises((TypeError, ValueError), match="blocks"):
        attention_weights(model, images(), 0)


class Mine(keras_vit.VisionTransformer):
    """A model of a user."""


class MyBiT(keras_vit.BiT):
    """Another one."""


def test_a_subclass_takes_and_gives_weights(tmp_path):
    options = {"image_size": 16, "patch_size": 8, "width": 8, "depth": 1, "num_heads": 2}
    source = randomize(Mine(num_classes=3, **options))
    path = keras_vit.save_weights(source, tmp_path / "model.npz")
    target = Mine(num_classes=3, **options)
    assert len(keras_vit.load_weights(target, path).loaded) == len(target.weights)
    for a, b in zip(target.weights, source.weights, strict=True):
        assert_close(a, b, 0)
    assert type(keras_vit.resize(target, 24)) is Mine
    mine = MyBiT(blocks=(1, 1, 1, 1), width=0.5, num_classes=10)
    assert len(keras_vit.load_weights(mine, BIT).loaded) == len(mine.weights)
    with pytest.raises(ValueError, match=r"holds a BiT; the model .* is a Mine"):
        keras_vit.load_weights(target, BIT)


@pytest.mark.parametrize("call", [keras_vit.load_weights, keras_vit.save_weights])
def test_what_is_no_model_of_this_library(call, tmp_path):
    path = tmp_path / "model.npz"
    around = keras.Sequential([keras.Input((16, 16, 3)), tiny_vit(name="inner")], name="around")
    for model, text in (
        (around, "Sequential name=around"),
        (keras_vit.VisionTransformer, "<class"),
        (None, "None"),
    ):
        words = rf"VisionTransformer or a keras_vit\.BiT.*Received: .*{text}.*get_layer"
        with pytest.raises(TypeError, match=words):
            call(model, path)
    assert not path.exists()
    keras_vit.save_weights(around.get_layer("inner"), path)


def test_a_file_of_another_variant_is_named(tmp_path):
    large = keras_vit.VisionTransformer("S/16", image_size=16, num_classes=0)
    path = keras_vit.save_weights(large, tmp_path / "large.npz")
    with pytest.raises(ValueError, match=r"This is a ViT-S/16 file; the model is a ViT-Ti/16"):
        keras_vit.load_weights(keras_vit.ViT_Ti16(image_size=16, num_classes=0), path)
    with pytest.raises(ValueError, match=r"This is a ViT-S/16 file; the model is a ViT-S/32"):
        keras_vit.ViT_S32(image_size=32, num_classes=0, weights=path)


def test_a_model_that_computes_otherwise_says_so():
    target = tiny_vit(image_size=32, width=48, depth=3, num_heads=4, mlp_dim=96, num_classes=10)
    with pytest.warns(UserWarning, match=r"gelu: 'erf' in the checkpoint, 'tanh' in the model"):
        report = keras_vit.load_weights(target, HF)
    assert report.differs == (("gelu", "erf", "tanh"), ("epsilon", 1e-12, 1e-6))


def test_a_builder_takes_the_family_s_choices(tmp_path):
    source = randomize(keras_vit.ViT_Ti16(image_size=32, depth=1, num_classes=5, gelu="erf"))
    path = tmp_path / "model.safetensors"
    keras_vit.save_weights(source, path)
    built = keras_vit.ViT_Ti16(image_size=32, depth=1, num_classes=5, weights=path)
    assert built.variant.gelu == "erf"
    x = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    assert_close(forward(built, x), forward(source, x), 1e-6)
    chosen = keras_vit.ViT_Ti16(image_size=16, depth=1, num_classes=2, weights=path, gelu="tanh")
    assert chosen.variant.gelu == "tanh"
    assert chosen.load_report.differs == (("gelu", "erf", "tanh"),)
    assert not values(chosen)["head/kernel"].any()
    assert "5 classes in the file, 2 classes in the model" in str(chosen.load_report)
    assert "(2, 2) -> (1, 1), bicubic" in str(chosen.load_report)
