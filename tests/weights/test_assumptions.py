"""What a file cannot say: from an override, a config beside it, or custom; reported or refused."""

import json
import re
import shutil

import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_close, forward, images, randomize, refuses, tiny_vit
from tests.weights.stored import refused
from tests.weights.test_families import assert_computes, checkpoint_of

pytestmark = pytest.mark.any_backend


def alone(case, tmp_path):
    """The checkpoint without the config beside it."""
    path = checkpoint_of(ORACLES / case)
    path = path / "model.safetensors" if path.is_dir() else path
    return shutil.copy(path, tmp_path)


def test_heads_of_a_timm_file_from_an_override(tmp_path):
    path = alone("timm/vit_token_p8", tmp_path)
    refuses(r"how many attention heads.*width 48.*num_heads=", keras_vit.from_checkpoint, path)
    model = keras_vit.from_checkpoint(path, num_heads=4)
    assert ("num_heads", 4, "num_heads as given") in model.load_report.assumed
    assert_computes(model, ORACLES / "timm" / "vit_token_p8")
    refuses("5 heads do not divide the 48 units", keras_vit.from_checkpoint, path, num_heads=5)


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


@pytest.mark.parametrize("case", ["flax_vit/token_p8", "bit_official/r1111_w05"])
def test_a_config_of_another_model_says_nothing_of_outputs(tmp_path, case):
    """Such an npz has no config; one that lies in the same folder is of other weights."""
    path = shutil.copy(checkpoint_of(ORACLES / case), tmp_path)
    plain = keras_vit.from_checkpoint(path)
    classes = {str(i): f"name {i}" for i in range(7)}
    said = {"hidden_size": 7, "problem_type": "multi_label_classification", "id2label": classes}
    (tmp_path / "config.json").write_text(json.dumps(said))
    model = keras_vit.from_checkpoint(path)
    assert model.reading is plain.reading is None
    assert str(model.load_report) == str(plain.load_report)


@pytest.mark.parametrize("own, other", [("timm", "huggingface"), ("huggingface", "timm")])
def test_a_config_of_another_library_says_nothing(tmp_path, own, other):
    """Names of classes and readings have the same keys in both."""
    model, stranger = tiny_vit(gelu="erf"), tiny_vit(gelu="erf")
    stranger.class_names, stranger.reading = ("a", "b", "c"), "sigmoid"
    files = {"timm": "file/model.safetensors", "huggingface": "folder"}
    for name, format in ((model, own), (stranger, other)):
        keras_vit.save_weights(name, tmp_path / files[format], format)
    folder, from_folder = (tmp_path / files[each].split("/")[0] for each in (own, other))
    shutil.copy(from_folder / "config.json", folder)
    copy = keras_vit.from_checkpoint(tmp_path / files[own], num_heads=2)
    assert copy.class_names is copy.reading is None
    assert ("num_heads", 2, "num_heads as given") in copy.load_report.assumed


def test_weights_that_lose_their_config_to_others_are_named(tmp_path, recwarn):
    """All files of a folder are read by its one config.json."""
    models = [tiny_vit(num_classes=2, gelu=gelu) for gelu in ("tanh", "erf")]
    told = lambda: [str(w.message) for w in recwarn if "share one config" in str(w.message)]  # noqa: E731
    keras_vit.save_weights(models[0], tmp_path / "first.safetensors")
    keras_vit.save_weights(models[0], tmp_path / "again.safetensors")
    keras_vit.save_weights(models[1], tmp_path / "apart" / "model.safetensors")
    assert not told()
    keras_vit.save_weights(models[1], tmp_path / "second.safetensors")
    (text,) = told()
    assert "of 'second.safetensors' now" in text
    assert "['again.safetensors', 'first.safetensors'] beside it" in text


def test_the_pooling_of_a_timm_file(tmp_path):
    """A norm after the pooling, and a file without class token, tell that the mean is taken."""
    for case, heads in (("vit_gap_fcnorm_p8", 4), ("vit_gap_nocls_p16", 2)):
        model = keras_vit.from_checkpoint(alone(f"timm/{case}", tmp_path), num_heads=heads)
        assert_computes(model, ORACLES / "timm" / case)


def test_an_image_size_without_positions(tmp_path):
    path = alone("big_vision_vit/gap_sincos2d_p8", tmp_path)
    refused(r"no table of positions.*'none'", path, image_size=(32, 40))
    model = keras_vit.from_checkpoint(path, image_size=(32, 40), position="sincos_2d")
    assert_computes(model, ORACLES / "big_vision_vit" / "gap_sincos2d_p8")
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
    refused(r"file_image_size=\(24, 24\) or \(16, 36\)", path, image_size=(16, 36))
    same = keras_vit.from_checkpoint(path, image_size=(16, 36), file_image_size=(16, 36))
    assert same.load_report.resized == ()


def test_hugging_face_weights_without_their_config(tmp_path):
    path = alone("hf_transformers5/vit_cls_p16_eps6", tmp_path)
    model = keras_vit.from_checkpoint(path, num_heads=2)
    assert model.variant.epsilon == 1e-12
    default = "the family's, as no config.json says it"
    assert {("gelu", "erf", default), ("epsilon", 1e-12, default)} <= set(model.load_report.assumed)


# ---- configs of timm


def written(tmp_path, changes=None, **options):
    """A model, and the path of its timm file; `changes` are made in its `model_args`."""
    model = randomize(tiny_vit(**options))
    path = keras_vit.save_weights(model, tmp_path / "model.safetensors")
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["model_args"] |= changes or {}
    file.write_text(json.dumps(config))
    return model, path


def hub_file(tmp_path, architecture, **options):
    """The same with a config as hubs have it: it names the architecture, and no arguments."""
    model, path = written(tmp_path, **options)
    config = {"architecture": architecture, "num_features": model.variant.width}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return model, path


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"global_pool": "max"}, "global_pool='max'"),
        ({"global_pool": "avg", "pool_include_prefix": True}, "also over its class token"),
        ({"attn_layer": "diff"}, "attn_layer='diff'"),
        ({"num_kv_heads": 1}, "num_kv_heads=1"),
        ({"something_new": 3}, "something_new=3"),
        ({"norm_layer": "rmsnorm"}, "norm_layer='rmsnorm'"),
        ({"act_layer": "relu"}, "act_layer='relu'"),
    ],
)
def test_a_config_names_what_no_model_here_has(tmp_path, changes, words):
    _, path = written(tmp_path, changes)
    refused(words, path)


@pytest.mark.parametrize("pool_patches", [False, True])
def test_what_attention_pooling_sees_is_asked_for(tmp_path, pool_patches):
    """timm leaves the learned tokens out unless it is told otherwise, and only a config tells."""
    model, path = written(tmp_path, pool="map", registers=2, pool_patches=pool_patches)
    x = images((2, 16, 16, 3))
    assert_close(forward(keras_vit.from_checkpoint(path), x), forward(model, x), 1e-6)
    (tmp_path / "config.json").unlink()
    options = {"num_heads": model.variant.num_heads}
    refused("Say pool_patches=True", path, **options)
    again = keras_vit.from_checkpoint(path, **options, pool_patches=pool_patches)
    assert again.variant.pool_patches == pool_patches


def test_an_architecture_implies_what_its_arrays_do_not_tell(tmp_path):
    name = "vit_giantopt_patch16_siglip_gap_256.v2_webli"
    patches = {"pool": "mean", "class_token": False}
    _, path = hub_file(tmp_path, name, width=32, num_heads=16, gelu="tanh", **patches)
    variant = keras_vit.from_checkpoint(path).variant
    assert (variant.num_heads, variant.gelu) == (16, "tanh")
    base = {"width": 24, "num_heads": 12, **patches}
    _, path = hub_file(tmp_path, "vit_base_patch16_siglip_gap_256", **base)
    assert keras_vit.from_checkpoint(path).variant.gelu == "erf"
    base |= {"norm_after_pool": True, "qkv_bias": False}
    _, path = hub_file(tmp_path, "vit_base_patch16_rpn_224.sw_in1k", **base)
    assert keras_vit.from_checkpoint(path).variant.block == "post_norm"


def test_what_is_assumed_without_a_config_is_reported(tmp_path):
    model, path = written(tmp_path, gelu="erf")
    (tmp_path / "config.json").unlink()
    report = keras_vit.from_checkpoint(path, num_heads=model.variant.num_heads).load_report
    rule = "the family's, as no config.json says it"
    assert {("pool", "token", rule), ("gelu", "erf", rule)} <= set(report.assumed)


@pytest.mark.parametrize(
    "missing, words",
    [
        (r"norm[12]\.b", "norm_layer='layernorm'"),
        (r"fc1\.bias", r"model only.*block_0/mlp/dense_1/bias"),
    ],
)
def test_parts_that_show_only_in_what_is_missing(tmp_path, missing, words):
    _, path = written(tmp_path)
    arrays = read_safetensors(path)
    write_safetensors(path, {n: a for n, a in arrays.items() if not re.search(missing, n)})
    refused(words, path)


def test_positions_of_patches_alone_are_asked_for(tmp_path):
    """16 positions and a class token: 4 x 4 patches, as in DeiT III, or 3 x 5 and the token."""
    model, path = written(tmp_path, image_size=16, patch_size=4)
    arrays = read_safetensors(path)
    write_safetensors(path, {**arrays, "pos_embed": arrays["pos_embed"][:, 1:]})
    (tmp_path / "config.json").unlink()
    heads = model.variant.num_heads
    refused(r"file_image_size=\(16, 16\)", path, num_heads=heads)
    again = keras_vit.from_checkpoint(path, num_heads=heads, file_image_size=16)
    assert again.image_size == (16, 16)
