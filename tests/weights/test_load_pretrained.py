"""Fine-tuning starts as with the authors' `load_pretrained`: resized, pre-logits, fresh head."""

import numpy as np
import pytest

import keras_vit
from tests.arrays import assert_close, read_arrays, values
from tests.support import ORACLES, OracleCase, canonical_arrays, forward
from tests.weights.stored import assert_same_weights

pytestmark = pytest.mark.any_backend

FOLDERS = sorted((ORACLES / "load_pretrained").iterdir())
every_case = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
GAP = ORACLES / "load_pretrained" / "gap_resize_down" / "pretrained.npz"
POOLS = {"token": "token", "gap": "mean"}


def target(folder):
    config = OracleCase(folder).config["target"]
    return {
        "width": config["hidden_size"],
        "patch_size": config["patches"]["size"],
        "mlp_dim": config["transformer"]["mlp_dim"],
        "num_heads": config["transformer"]["num_heads"],
        "depth": config["transformer"]["num_layers"],
        "pool": POOLS[config["classifier"]],
        "representation_size": config["representation_size"],
        "num_classes": config["num_classes"],
        "image_size": config["image"],
    }


def canonical(path):
    return canonical_arrays(read_arrays(path))


@every_case
def test_the_result_is_the_authors(folder):
    """Their model started from random values, of which the head keeps its own."""
    model = keras_vit.VisionTransformer(**target(folder))
    start = canonical(folder / "init_target.npz")
    for variable in model.weights:
        variable.assign(start[variable.path])
    report = keras_vit.load_weights(model, folder / "pretrained.npz")
    expected = canonical(folder / "result_linen.npz")
    assert set(values(model)) == set(expected)
    for name, value in values(model).items():
        assert_close(value, expected[name], 3e-7)
    assert report.initial == ("head/kernel", "head/bias")
    io = read_arrays(folder / "io.npz")
    assert_close(forward(model, io["input"]), io["logits_f32"], 1e-5)


@every_case
def test_in_one_call(folder):
    """From the file alone; the new head is zero, and the report says all that was done."""
    options = target(folder)
    changed = {key: options[key] for key in ("image_size", "num_classes", "representation_size")}
    model = keras_vit.from_checkpoint(folder / "pretrained.npz", **changed)
    expected = canonical(folder / "result_linen.npz")
    for name, value in values(model).items():
        assert_close(value, 0 * value if name.startswith("head/") else expected[name], 3e-7)
    text = str(model.load_report)
    before = OracleCase(folder).config["pretrained"]
    assert f"{before['num_classes']} classes in the file" in text
    assert ("resized" in text) == (before["image"] != options["image_size"])
    assert ("pre_logits/kernel" in text) == (
        before["representation_size"] != options["representation_size"]
    )


def test_the_rule_of_the_resize_at_load_time():
    path = ORACLES / "load_pretrained" / "drop_prelogits_resize" / "pretrained.npz"
    table = read_arrays(path)["Transformer/posembed_input/pos_embedding"][0, 1:]
    for method in ("align_corners", "scipy_zoom", "bilinear", "bicubic"):
        model = keras_vit.from_checkpoint(path, image_size=(24, 40), interpolation=method)
        ((_, old, new, said),) = model.load_report.resized
        assert (old, new, said) == ((4, 4), (3, 5), method)
        expected = keras_vit.layers.resize_grid(table, old, new, method)
        loaded = values(model)["patch_encoder/position/embedding"][0, 1:]
        assert_close(loaded, expected, 1e-6)


def test_other_patches_at_load_time():
    source = keras_vit.from_checkpoint(GAP)
    larger = keras_vit.from_checkpoint(GAP, patch_size=8, image_size=source.image_size)
    assert "(48, 24) -> (192, 24), pseudo-inverse" in str(larger.load_report)
    twin = keras_vit.resize(source, patch_size=8, image_size=source.image_size)
    assert_same_weights(larger, twin, 1e-6)


@pytest.mark.parametrize("channels", [1, 2, 4, 13])
def test_weights_of_rgb_in_a_model_of_other_channels(channels):
    """By timm's rule: each channel has the kernel of a colour in turn, all times 3 / channels."""
    source = keras_vit.from_checkpoint(GAP)
    model = keras_vit.from_checkpoint(GAP, channels=channels)
    size = source.image_size
    x = np.random.default_rng(0).uniform(-1, 1, (2, *size, channels)).astype("float32")
    colours = [x[..., colour::3].sum(axis=-1) * 3 / channels for colour in range(3)]
    colours = [x[..., 0]] * 3 if channels == 1 else colours
    assert_close(forward(model, x), forward(source, np.stack(colours, axis=-1)), 1e-5)
    text = "sum over the colours" if channels == 1 else f"in turn, times 3 / {channels}"
    assert text in str(model.load_report)
    loaded = keras_vit.VisionTransformer(
        source.variant, size, source.num_classes, channels=channels, name="loaded"
    )
    report = keras_vit.load_weights(loaded, GAP)
    assert text in str(report) and report.loaded == tuple(model.load_report.loaded)
    assert_close(forward(loaded, x), forward(model, x), 0)
    assert len(model.preprocessing.mean) == channels


@pytest.mark.parametrize("case", ["hybrids/timm-hybrid_r111_w05", "bit_timm/resnetv2_bit_11_w05"])
def test_other_channels_of_a_resnet(case):
    path = next((ORACLES / case).glob("*.safetensors"))
    before = values(keras_vit.from_checkpoint(path))["root/conv/kernel"]
    model = keras_vit.from_checkpoint(path, channels=4)
    after = values(model)["root/conv/kernel"]
    assert_close(after, 0.75 * before[:, :, [0, 1, 2, 0]], 1e-6)
    assert "in turn, times 3 / 4" in str(model.load_report)


def test_preprocessing_of_other_channels():
    imagenet = keras_vit.Preprocessing(mean=(0.1, 0.2, 0.6), std=(0.2, 0.3, 0.4))
    assert imagenet.for_channels(5).mean == (0.1, 0.2, 0.6, 0.1, 0.2)
    assert imagenet.for_channels(2).std == (0.2, 0.3)
    gray = imagenet.for_channels(1)
    np.testing.assert_allclose((*gray.mean, *gray.std), (0.3, 0.3), rtol=1e-12)


def test_a_choice_that_does_not_fit_the_file():
    with pytest.raises(ValueError, match="Leave out what the file has otherwise, of registers"):
        keras_vit.from_checkpoint(GAP, registers=2)
