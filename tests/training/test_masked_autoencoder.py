"""Masked autoencoders: equal to transformers', blind to what is hidden, trained, resumed, saved."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data, training
from keras_vit.training.masked_autoencoder import visible_patches
from keras_vit.training.masked_images import DrawnPatches, ordered
from tests.support import (
    ORACLES,
    assert_close,
    assert_same,
    dtype_of,
    forward,
    gradients,
    images,
    largest,
    precision,
    randomize,
    read_arrays,
    refuses,
    slow_unless_torch,
    tiny_vit,
    to_numpy,
    values,
)
from tests.training.test_resume import check_stopped_run

FOLDER = ORACLES / "mae" / "model"
ENCODERS = {
    "class_token": {},
    "mean": {"pool": "mean", "class_token": False, "position": "sincos_2d"},
    "registers": {"registers": 2, "position": "learned_2d", "patch_norm": "layer_norm"},
    "distillation": {"distillation": True, "mlp": "swiglu", "pre_norm": "rms_norm"},
}
DECODER = {"decoder_width": 8, "decoder_depth": 1, "decoder_heads": 2}


def autoencoder(encoder=None, **options):
    encoder = encoder or tiny_vit(patch_size=4, depth=1, num_classes=0)
    model = training.MaskedAutoencoder(encoder, **{"seed": 0, **DECODER, **options})
    model.compile(training.AdamW(3e-3))
    return model


def mask_of(outputs, patches):
    mask = np.zeros((len(outputs["positions"]), patches), bool)
    np.put_along_axis(mask, to_numpy(outputs["positions"]), True, axis=1)
    return mask


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-9)])
def test_it_is_that_of_transformers(dtype, tolerance):
    io = read_arrays(ORACLES / "mae" / "io.npz")
    with precision(dtype):
        model = training.MaskedAutoencoder.from_checkpoint(FOLDER, dtype=dtype)
        x, noise = io["images"].astype(dtype), io["noise"]
        assert model.norm_pix_loss and model.config["masked"] == 0.6
        loss, found = gradients(model, lambda y: model.compute_loss(y_pred=y), x, noise=noise)
        assert loss == pytest.approx(io["losses"][1], abs=tolerance)
        file = ORACLES / "mae" / "gradients"
        expected = values(training.MaskedAutoencoder.from_checkpoint(file, dtype=dtype))
        for path, gradient in found.items():
            assert_close(gradient, expected[path], tolerance)
        outputs = forward(model, x, noise=keras.ops.convert_to_tensor(noise))
        assert_close(outputs["predictions"], io["reconstruction"], tolerance)
        np.testing.assert_array_equal(mask_of(outputs, 9), io["mask"])
        plain = training.MaskedAutoencoder.from_checkpoint(
            FOLDER, masked=0.5, norm_pix_loss=False, dtype=dtype
        )
        assert plain.visible == 4
        outputs["targets"] = plain.pixels(x)
        loss = float(to_numpy(plain.compute_loss(y_pred=outputs)))
        assert loss == pytest.approx(io["losses"][0], abs=tolerance)
        assert "patch_encoder/position/embedding" in {v.path for v in model.variables} - set(found)
        assert model.classifier(2).get_layer("patch_encoder").position.trainable


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(o, marks=() if n == "class_token" else slow_unless_torch, id=n)
        for n, o in ENCODERS.items()
    ],
)
def test_the_encoder_sees_only_visible_patches(options):
    encoder = tiny_vit(**{"patch_size": 4, "depth": 1, "num_classes": 0, **options})
    model = randomize(autoencoder(encoder, norm_pix_loss=False))
    x = images((2, 16, 16, 3))
    outputs = model.predict(x, verbose=0)  # always with the same masks
    mask = mask_of(outputs, 16)
    assert (mask.sum(axis=1) == 12).all()
    patches = to_numpy(model.pixels(x))
    hidden = np.where(mask[:, :, None], images(patches.shape, seed=1), patches)
    other = to_numpy(model.pixels.inverse(hidden, 16))
    assert_close(model.predict(other, verbose=0)["predictions"], outputs["predictions"], 1e-6)
    seen = to_numpy(model.pixels.inverse(patches + 0.1 * ~mask[:, :, None], 16))
    changed = model.predict(seen, verbose=0)["predictions"]
    assert largest(changed - outputs["predictions"]) > 1e-3
    assert_close(outputs["targets"], patches, 0)
    errors = np.square(outputs["predictions"] - patches).mean(axis=-1)
    loss = float(to_numpy(model.compute_loss(y_pred=outputs)))
    assert loss == pytest.approx(errors[mask].mean(), rel=1e-5)


@pytest.mark.any_backend
def test_pixels_are_normalised_in_each_patch():
    model, x = autoencoder(), images()
    x[0] = 0.3  # without contrast: no division by zero
    targets, patches = model.predict(x, verbose=0)["targets"], to_numpy(model.pixels(x))
    expected = patches - patches.mean(axis=-1, keepdims=True)
    expected /= np.sqrt(patches.var(axis=-1, ddof=1, keepdims=True) + 1e-6)
    assert_close(targets[1:], expected[1:], 1e-5)
    assert largest(targets[0]) < 1e-3


@pytest.mark.any_backend
def test_the_positions_of_the_decoder_are_the_authors():
    encoder = tiny_vit(image_size=(8, 12), patch_size=4, num_classes=0)
    table = to_numpy(autoencoder(encoder).decoder.position)[0]
    assert largest(table[0]) == 0  # the class token's
    for row, column in np.ndindex(2, 3):
        for k in range(2):
            angles = np.array([column, row]) / 10_000 ** (k / 2)
            where = table[1 + 3 * row + column, k::2]
            expected = np.array([f(angle) for angle in angles for f in (np.sin, np.cos)])
            assert_close(where, expected, 1e-6)


@slow_unless_torch
def test_training_with_everything():
    x = data.load("digits").train_images[:512].astype("float32")
    x = x / x.max() * 2 - 1
    sizes = {"image_size": 8, "patch_size": 2, "channels": 1, "depth": 1, "width": 16}
    model = autoencoder(tiny_vit(**sizes, remat=True, dropout=0.1, dtype="mixed_bfloat16"))
    before = values(model)
    losses = model.fit(x, np.zeros(len(x)), batch_size=64, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    still = {path for path, value in values(model).items() if largest(value - before[path]) == 0}
    assert {path.split("/")[-1] for path in still} == {"position"}
    assert largest(model.encoder.get_layer("head").kernel) == 0
    assert dtype_of(model(x[:2])["predictions"]) == "float32"
    tuned = model.classifier(10, pool="mean")
    for mine, its in zip(tuned.get_layer("block_0").weights, model.blocks[0].weights):
        assert_close(mine, its, 0)


@pytest.mark.any_backend
def test_half_precision_rounds_neither_pixels_nor_the_order_of_patches():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = autoencoder(norm_pix_loss=False)
    finally:
        keras.config.set_dtype_policy(before)
    noise = np.random.default_rng(0).permutation(16)[None].repeat(4, axis=0) * 1e-6 + 0.5
    outputs = forward(model, images(), noise=keras.ops.convert_to_tensor(noise, "float32"))
    np.testing.assert_array_equal(mask_of(outputs, 16), noise > np.sort(noise)[:, 3:4])
    assert_close(model.pixels.inverse(outputs["targets"], 16), images(), 0)
    assert model.blocks[0].compute_dtype == "bfloat16"


@pytest.mark.any_backend
def test_as_many_patches_stay_visible_as_with_the_authors():
    assert (visible_patches(0.75, 196), visible_patches(0.6, 10)) == (49, 4)


def test_masks():
    """Each patch is hidden as often as any other, and others in each step of training."""
    patches, visible = 49, 12
    x, layer = keras.ops.zeros((400, patches, 4)), DrawnPatches(seed=1)
    layer.build(x.shape)
    draw = lambda layer, training: [to_numpy(y) for y in ordered(*layer.draw(x, training))]  # noqa: E731
    order, places = draw(layer, training=True)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(patches), (400, 1)))
    np.testing.assert_array_equal(np.take_along_axis(places, order, axis=1)[0], np.arange(patches))
    # 400 draws: five standard deviations.
    assert_close((places < visible).mean(axis=0), np.full(patches, visible / patches), 0.125)
    assert (order != draw(layer, training=True)[0]).any()
    np.testing.assert_array_equal(draw(layer, training=False), draw(layer, training=False))
    again = DrawnPatches(seed=1)
    again.build(x.shape)
    np.testing.assert_array_equal(draw(again, training=True)[0], order)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    encoder = tiny_vit(patch_size=4, depth=1, num_classes=0, dropout=0.1)
    check_stopped_run(autoencoder(encoder), tmp_path)


def test_a_saved_model_goes_on(tmp_path):
    model = autoencoder(masked=0.5, norm_pix_loss=False, decoder_mlp_dim=12)
    model.fit(images(), verbose=0)
    model.save(tmp_path / "masked.keras")
    loaded = keras.saving.load_model(tmp_path / "masked.keras")
    assert loaded.get_config() == model.get_config()
    assert_same(values(model), values(loaded))
    loaded.fit(images(), verbose=0)
    assert int(loaded.optimizer.iterations) == 2


@pytest.mark.any_backend
def test_reconstructions(monkeypatch):
    """From predictions that are right comes the image itself."""
    model, x = autoencoder(), images()
    outputs = model.predict(x, verbose=0)
    for normalised, right in ((True, outputs["targets"]), (False, to_numpy(model.pixels(x)))):
        perfect = {**outputs, "predictions": right}
        monkeypatch.setattr(model, "predict", lambda *_, perfect=perfect, **__: perfect)
        model.norm_pix_loss = normalised
        made, hidden = model.reconstruct(x)
        assert_close(made, x, 1e-5)
        expected = np.kron(mask_of(outputs, 16).reshape(4, 4, 4), np.ones((1, 4, 4)))
        np.testing.assert_array_equal(hidden, expected)


@pytest.mark.any_backend
def test_what_cannot_be():
    hybrid = keras_vit.R_ViT_Ti16(image_size=32, num_classes=0, depth=1)
    shared = tiny_vit(position="relative", position_at="shared")
    for encoder, options, error, message in (
        (hybrid, {}, ValueError, "A masked autoencoder needs a plain ViT.*a hybrid"),
        (tiny_vit(variable_size=True), {}, ValueError, "variable_size=True"),
        (shared, {}, ValueError, "position_at='shared'"),
        (tiny_vit(rotary="dinov3"), {}, ValueError, "rotary positions"),
        (keras.Sequential([keras.layers.Dense(2)]), {}, TypeError, "VisionTransformer.*Sequential"),
        (None, {"masked": 1.0}, ValueError, "number in .*masked=1.0"),
        (None, {"masked": 0.95}, ValueError, "leaves 0 visible; choose another share"),
        (None, {"masked": True}, ValueError, "masked=True"),
        (None, {"decoder_width": 6}, ValueError, "width that 4 divides"),
        (None, {"decoder_depth": 0}, ValueError, "decoder_depth=0"),
        (None, {"decoder_heads": 3}, ValueError, "heads must divide"),
        (None, {"decoder_mlp_dim": 0}, ValueError, "decoder_mlp_dim=0"),
        (tiny_vit(patch_size=1, channels=1), {}, ValueError, "cannot be normalised"),
    ):
        refuses(message, autoencoder, encoder, error=error, **options)
    refuses("Leave loss and metrics", autoencoder().compile, "adam", loss="mse")
    refuses("takes images of shape", autoencoder(), images((2, 8, 32, 3)))
