"""Loading is strict: all fits or nothing changes, and the report leaves nothing out."""

import re
import zipfile

import numpy as np
import pytest

import keras_vit
from tests.support import ORACLES, tiny_vit, values

CHECKPOINT = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"
HEAD = ("head/kernel", "head/bias")
pytestmark = pytest.mark.any_backend


def model(**options):
    """For the checkpoint, unless the options say otherwise."""
    return tiny_vit(
        **{
            "image_size": 32,
            "width": 48,
            "depth": 3,
            "num_heads": 4,
            "mlp_dim": 96,
            "num_classes": 10,
            **options,
        }
    )


def assert_refused(a_model, path, *texts):
    """A ValueError with these texts, after which the model is what it was."""
    before = values(a_model)
    with pytest.raises(ValueError, match=r"nothing was\s+loaded") as error:
        keras_vit.load_weights(a_model, path)
    for text in texts:
        assert text in str(error.value)
    for name, value in values(a_model).items():
        np.testing.assert_array_equal(value, before[name])


def test_load_into_a_model_of_the_same_architecture(arrays):
    mine = model()
    report = keras_vit.load_weights(mine, CHECKPOINT)
    assert len(report.loaded) == len(arrays) == len(mine.weights)
    loaded = values(mine)
    np.testing.assert_array_equal(loaded["head/kernel"], arrays["head/kernel"])
    np.testing.assert_array_equal(
        loaded["block_2/attention/out/kernel"],
        arrays["Transformer/encoderblock_2/MultiHeadDotProductAttention_1/out/kernel"],
    )


def test_other_classes_keep_a_fresh_head(arrays):
    mine = model(num_classes=7, head_bias=-1.0)
    report = keras_vit.load_weights(mine, CHECKPOINT)
    assert report.initial == report.ignored == HEAD
    assert len(report.loaded) == len(arrays) - 2
    np.testing.assert_array_equal(values(mine)["head/kernel"], 0)
    np.testing.assert_array_equal(values(mine)["head/bias"], -1)
    lines = str(report).splitlines()
    rows = {line[:22].strip(): line[22:].strip() for line in lines}
    assert list(rows) == ["checkpoint", "loaded", "head", "left at initial value", "ignored"] + [
        "assumed"
    ]
    assert rows["left at initial value"] == rows["ignored"] == "head/kernel, head/bias"
    assert rows["head"].startswith("10 classes in the file, 7 classes in the model")


def test_no_classes_ignore_the_head():
    mine = model(include_top=False)
    report = keras_vit.load_weights(mine, CHECKPOINT)
    assert report.ignored == HEAD
    assert report.initial == ()
    assert len(report.loaded) == len(mine.weights)


def test_a_file_without_a_head_leaves_a_fresh_one(arrays, save):
    path = save({name: array for name, array in arrays.items() if name not in HEAD})
    report = keras_vit.load_weights(model(), path)
    assert report.initial == HEAD
    assert report.ignored == ()


def test_there_is_no_such_file(tmp_path):
    for path in (tmp_path / "missing.npz", tmp_path):
        with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
            keras_vit.from_checkpoint(path)


def test_what_is_no_npz(tmp_path):
    path = tmp_path / "page.npz"
    path.write_text("<html>404</html>")
    with pytest.raises(ValueError, match=r"of an unknown kind.*download is complete"):
        keras_vit.from_checkpoint(path)


def test_a_zip_of_something_else(tmp_path):
    path = tmp_path / "text.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")
    with pytest.raises(ValueError, match=r"config\.json"):
        keras_vit.from_checkpoint(path)


def test_wrong_shapes_list_both_sides(save, arrays):
    arrays["cls"] = arrays["cls"][..., :40]
    assert_refused(
        model(),
        save(arrays),
        "patch_encoder/class_token: (1, 1, 40) in the file, (1, 1, 48) in the model",
    )
    assert_refused(
        model(patch_size=16),
        CHECKPOINT,
        "patch_encoder/projection/kernel: (192, 48) in the file, (768, 48) in the model",
        "This is a ViT of width 48, depth 3 and patches of (8, 8) pixels file",
        "keras_vit.from_checkpoint",
    )


def test_a_block_too_many_or_too_few():
    unused = "Transformer/encoderblock_2/LayerNorm_0/scale"
    assert_refused(model(depth=2), CHECKPOINT, "In the model only: []", unused)
    assert_refused(model(depth=4), CHECKPOINT, "'block_3/norm_1/gamma'", "In the file only: []")


def test_parts_that_only_one_side_has():
    assert_refused(model(pool="mean"), CHECKPOINT, "In the file only: ['cls']")
    assert_refused(model(qkv_bias=False), CHECKPOINT, "MultiHeadDotProductAttention_1/query/bias")
    assert_refused(model(position="sincos_2d"), CHECKPOINT, "posembed_input/pos_embedding")


def test_an_override_may_drop_the_head(arrays):
    headless = keras_vit.from_checkpoint(CHECKPOINT, include_top=False)
    assert headless.output_shape == (None, 48)
    assert headless.load_report.ignored == HEAD
    two = keras_vit.from_checkpoint(CHECKPOINT, num_classes=2, dropout=0.1)
    assert two.load_report.initial == HEAD
    assert two.output_shape == (None, 2)


def google_name(path):
    """Name in a file of a canonical name; the inverse of what the library does."""
    name = path.replace("gamma", "scale").replace("/beta", "/bias")
    name = name.replace(
        "patch_encoder/position/embedding", "Transformer/posembed_input/pos_embedding"
    )
    name = name.replace("patch_encoder/class_token", "cls")
    name = name.replace("patch_encoder/projection", "embedding")
    name = re.sub(r"^block_(\d+)/", r"Transformer/encoderblock_\1/", name)
    name = re.sub(r"^norm/", "Transformer/encoder_norm/", name)
    for ours, theirs in {
        "norm_1": "LayerNorm_0",
        "norm_2": "LayerNorm_2",
        "attention": "MultiHeadDotProductAttention_1",
        "mlp/dense_1": "MlpBlock_3/Dense_0",
        "mlp/dense_2": "MlpBlock_3/Dense_1",
    }.items():
        name = name.replace(ours, theirs)
    return name


def test_a_builder_loads_weights(save):
    """A ViT-Ti/16 for small images, written in the format of the files."""
    options = {"image_size": 32, "num_classes": 5, "depth": 2}
    source = keras_vit.ViT_Ti16(**options)
    rng = np.random.default_rng(0)
    arrays = {v.path: rng.normal(size=v.shape).astype("float32") for v in source.weights}
    file = {google_name(path): array for path, array in arrays.items()}
    file["embedding/kernel"] = file["embedding/kernel"].reshape(16, 16, 3, 192)
    built = keras_vit.ViT_Ti16(**options, weights=save(file))
    assert len(built.load_report.loaded) == len(arrays)
    for path, value in values(built).items():
        np.testing.assert_array_equal(value, arrays[path], err_msg=path)
    assert source.get_config()["depth"] == 2
    assert not hasattr(source, "load_report")
