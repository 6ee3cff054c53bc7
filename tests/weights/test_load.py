"""Loading is strict: all fits or nothing changes, and the report leaves nothing out."""

import re
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from tests.arrays import assert_close, assert_same, images, values
from tests.support import ORACLES, canonical_arrays, forward, randomize, refuses, tiny_vit
from tests.weights.stored import assert_same_weights

HF = ORACLES / "hf_transformers5" / "vit_cls_p8"
BIT = ORACLES / "bit_official" / "r1111_w05" / "checkpoint.npz"
POSITION = "patch_encoder/position/embedding"
CHECKPOINT = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"
HEAD = ("head/kernel", "head/bias")
pytestmark = pytest.mark.any_backend


def model(**options):
    """For the checkpoint, unless the options say otherwise."""
    sizes = {"image_size": 32, "width": 48, "depth": 3, "num_heads": 4, "mlp_dim": 96}
    return tiny_vit(**{**sizes, "num_classes": 10, **options})


def assert_refused(a_model, path, *texts):
    """A ValueError with these texts, after which the model is what it was."""
    before = values(a_model)
    with pytest.raises(ValueError, match=r"nothing was\s+loaded") as error:
        keras_vit.load_weights(a_model, path)
    for text in texts:
        assert text in str(error.value)
    assert_same(values(a_model), before)


def test_load_into_a_model_of_the_same_architecture(arrays):
    mine = model()
    report = keras_vit.load_weights(mine, CHECKPOINT)
    assert len(report.loaded) == len(arrays)
    assert_same(values(mine), canonical_arrays(arrays))


def test_other_classes_keep_a_fresh_head(arrays):
    mine = model(num_classes=7, head_bias=-1.0)
    report = keras_vit.load_weights(mine, CHECKPOINT)
    assert report.initial == report.ignored == HEAD
    assert len(report.loaded) == len(arrays) - 2
    np.testing.assert_array_equal(values(mine)["head/kernel"], 0)
    np.testing.assert_array_equal(values(mine)["head/bias"], -1)
    lines = str(report).splitlines()
    rows = {line[:22].strip(): line[22:].strip() for line in lines}
    expected = ["checkpoint", "loaded", "head", "left at initial value", "ignored", "assumed"]
    assert list(rows) == expected
    assert rows["left at initial value"] == rows["ignored"] == "head/kernel, head/bias"
    assert rows["head"].startswith("10 classes in the file, 7 classes in the model")


def test_what_is_no_npz(tmp_path):
    refuses(re.escape(str(tmp_path)), keras_vit.from_checkpoint, tmp_path, error=FileNotFoundError)
    path = tmp_path / "page.npz"
    path.write_text("<html>404</html>")
    refuses(r"of an unknown kind.*download is complete", keras_vit.from_checkpoint, path)
    path.write_text("version https://git-lfs.github.com/spec/v1")
    refuses(r"git lfs pull", keras_vit.from_checkpoint, path)
    path.write_bytes((2).to_bytes(8, "little") + b"{}")  # of safetensors
    refuses(r"holds no arrays", keras_vit.from_checkpoint, path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")
    refuses(r"config\.json", keras_vit.from_checkpoint, path)


def test_names_of_no_family_name_the_nearest(save, arrays):
    """What it lacks and what is besides, not all that the file and the library have."""
    renamed = lambda name: re.sub("^T", "inner/T", name.replace("embedding/k", "stem/k"))  # noqa: E731
    changed = {f"wrap/{renamed(name)}": array for name, array in arrays.items()}
    with pytest.raises(keras_vit.CheckpointError) as error:
        keras_vit.from_checkpoint(save(changed))
    text = str(error.value)
    assert "The nearest is google-research" in text and "under [" in text and "'wrap/'" in text
    assert "Missing: ['embedding/kernel']" in text and "wrap/stem/kernel" in text
    assert len(text) < 800
    with pytest.raises(keras_vit.CheckpointError, match=r"No family here .* \['x.*\.\.\.'"):
        keras_vit.from_checkpoint(save({f"x{'y' * 5000}{i}": np.ones(1) for i in "abc"}))


def test_wrong_shapes_list_both_sides(save, arrays):
    arrays["cls"] = arrays["cls"][..., :40]
    words = "patch_encoder/class_token: (1, 1, 40) in the file, (1, 1, 48) in the model"
    assert_refused(model(), save(arrays), words)
    assert_refused(
        model(patch_size=16),
        CHECKPOINT,
        "patch_encoder/projection/kernel: (192, 48) in the file, (768, 48) in the model",
        "This is a ViT of width 48, depth 3 and patches of (8, 8) pixels file",
        "keras_vit.from_checkpoint",
    )


@pytest.mark.parametrize(
    "options, texts",
    [
        ({"depth": 2}, ("In the model only: []", "Transformer/encoderblock_2/LayerNorm_0/scale")),
        ({"depth": 4}, ("'block_3/norm_1/gamma'", "In the file only: []")),
    ],
    ids=str,
)
def test_parts_that_only_one_side_has(options, texts):
    assert_refused(model(**options), CHECKPOINT, *texts)


def test_an_override_may_drop_the_head(arrays):
    headless = keras_vit.from_checkpoint(CHECKPOINT, include_top=False)
    assert headless.output_shape == (None, 48)
    assert headless.load_report.ignored == HEAD
    two = keras_vit.from_checkpoint(CHECKPOINT, num_classes=2, dropout=0.1)
    assert two.load_report.initial == HEAD
    assert two.output_shape == (None, 2)


# ---- which models take weights: of a published size, of a subclass; and what is none


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
    refuses(r"a ViT of width 128.*the model is a ViT-Ti/16", keras_vit.ViT_Ti16, weights=path)
    narrow, words = tiny_vit(width=6, num_heads=3), r"a ViT of width 128.*a ViT of width 6,"
    refuses(words, keras_vit.load_weights, narrow, path)


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


def test_a_subclass_takes_and_gives_weights(tmp_path):
    class Mine(keras_vit.VisionTransformer):
        """A model of a user."""

    class MyBiT(keras_vit.BiT):
        """Another one."""

    source, target = (Mine.from_config(tiny_vit().get_config()) for _ in range(2))
    path = keras_vit.save_weights(randomize(source), tmp_path / "model.npz")
    assert len(keras_vit.load_weights(target, path).loaded) == len(target.weights)
    assert_same_weights(target, source)
    assert type(keras_vit.resize(target, 24)) is Mine
    mine = MyBiT(blocks=(1, 1, 1, 1), width=0.5, num_classes=10)
    assert len(keras_vit.load_weights(mine, BIT).loaded) == len(mine.weights)
    refuses(r"holds a BiT; the model .* is a Mine", keras_vit.load_weights, target, BIT)


@pytest.mark.parametrize("call", [keras_vit.load_weights, keras_vit.save_weights])
def test_what_is_no_model_of_this_library(call, tmp_path):
    path = tmp_path / "model.npz"
    around = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Dense(2)], name="around")
    words = r"VisionTransformer or a keras_vit\.BiT, or have one inside.*Received: .*"
    refuses(words + "Sequential name=around", call, around, path, error=TypeError)
    refuses(words + "<class", call, keras_vit.VisionTransformer, path, error=TypeError)
    refuses(words + "None", call, None, path, error=TypeError)
    assert not path.exists()
    around = keras.Sequential([keras.Input((16, 16, 3)), tiny_vit(name="inner")], name="around")
    keras_vit.save_weights(around, path)  # which has no weights but those of the one inside
    report = keras_vit.load_weights(around, path)
    assert len(report.loaded) == len(around.weights)


def test_a_file_of_another_variant_is_named(tmp_path):
    large = keras_vit.VisionTransformer("S/16", image_size=16, num_classes=0)
    path = keras_vit.save_weights(large, tmp_path / "large.npz")
    small = keras_vit.ViT_Ti16(image_size=16, num_classes=0)
    words = "This is a ViT-S/16 file; the model is a "
    refuses(words + "ViT-Ti/16", keras_vit.load_weights, small, path)
    refuses(words + "ViT-S/32", keras_vit.ViT_S32, image_size=32, num_classes=0, weights=path)


def test_a_model_that_computes_otherwise_says_so():
    target = model()
    with pytest.warns(UserWarning, match=r"gelu: 'erf' in the checkpoint, 'tanh' in the model"):
        report = keras_vit.load_weights(target, HF)
    assert report.differs == (("gelu", "erf", "tanh"), ("epsilon", 1e-12, 1e-6))


def test_a_builder_takes_the_family_s_choices(tmp_path):
    source = randomize(keras_vit.ViT_Ti16(image_size=32, depth=1, num_classes=5, gelu="erf"))
    path = tmp_path / "model.safetensors"
    keras_vit.save_weights(source, path)
    built = keras_vit.ViT_Ti16(image_size=32, depth=1, num_classes=5, weights=path)
    assert built.variant.gelu == "erf"
    x = images((2, 32, 32, 3))
    assert_close(forward(built, x), forward(source, x), 1e-6)
    chosen = keras_vit.ViT_Ti16(image_size=16, depth=1, num_classes=2, weights=path, gelu="tanh")
    assert chosen.variant.gelu == "tanh"
    assert chosen.load_report.differs == (("gelu", "erf", "tanh"),)
    assert not values(chosen)["head/kernel"].any()
    assert "5 classes in the file, 2 classes in the model" in str(chosen.load_report)
    assert "(2, 2) -> (1, 1), bicubic" in str(chosen.load_report)
