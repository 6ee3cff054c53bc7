"""Masked autoencoders: equal to transformers', blind to what is hidden, trained, resumed, saved."""

import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data, training
from keras_vit.training.masked_decoder import MaskPatches
from tests.support import (
    ORACLES,
    assert_close,
    dtype_of,
    forward,
    gradients,
    images,
    largest,
    precision,
    randomize,
    read_arrays,
    tiny_vit,
    to_numpy,
    values,
)
from tests.training.resume_case import seed

FOLDER = ORACLES / "mae" / "model"
ENCODERS = {
    "class_token": {},
    "mean": {"pool": "mean", "class_token": False, "position": "sincos_2d"},
    "registers": {"registers": 2, "position": "learned_2d", "patch_norm": "layer_norm"},
    "distillation": {"distillation": True, "layer_scale": 0.5, "mlp": "swiglu"},
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
        assert model.norm_pix_loss and model.masking.masked == 0.6
        loss, found = gradients(model, lambda y: model.compute_loss(y_pred=y), x, noise=noise)
        assert loss == pytest.approx(io["losses"][1], abs=tolerance)
        file = ORACLES / "mae" / "gradients"
        expected = values(training.MaskedAutoencoder.from_checkpoint(file, dtype=dtype))
        for path, gradient in found.items():
            assert_close(gradient, expected[path], tolerance)
        outputs = model(x, noise=keras.ops.convert_to_tensor(noise))
        assert_close(outputs["predictions"], io["reconstruction"], tolerance)
        np.testing.assert_array_equal(mask_of(outputs, 9), io["mask"])
        plain = training.MaskedAutoencoder.from_checkpoint(
            FOLDER, masked=0.5, norm_pix_loss=False, dtype=dtype
        )
        assert plain.masking.visible == 4
        outputs["targets"] = plain.pixels(x)
        assert float(plain.compute_loss(y_pred=outputs)) == pytest.approx(
            io["losses"][0], abs=tolerance
        )
    still = {v.path for v in model.variables} - set(found)
    assert any(path.endswith("patch_encoder/position/embedding") for path in still)
    assert model.classifier(2).get_layer("patch_encoder").position.trainable


@pytest.mark.any_backend
def test_files_that_hold_no_such_decoder(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "other")
    config = json.loads((FOLDER / "config.json").read_text())
    for changed, message in (
        ({"decoder_num_hidden_layers": 3}, "decoder_num_hidden_layers=3, and 2 in the arrays"),
        ({"decoder_num_attention_heads": 3}, "3 heads do not divide"),
        ({"mask_ratio": 1.5}, "share in .*1.5"),
    ):
        (tmp_path / "other" / "config.json").write_text(json.dumps({**config, **changed}))
        with pytest.raises(ValueError, match=message):
            training.MaskedAutoencoder.from_checkpoint(tmp_path / "other")
    with pytest.raises(keras_vit.weights.CheckpointError, match=r"no decoder.*encoder alone"):
        training.MaskedAutoencoder.from_checkpoint(ORACLES / "hf_transformers5" / "vit_cls_p8")

    import safetensors.numpy

    arrays = safetensors.numpy.load_file(FOLDER / "model.safetensors")
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    for name, array, message in (
        ("decoder.decoder_norm.bias", None, r"norm/beta.*\(8,\), None"),
        ("decoder.mask_token", np.full((1, 1, 8), np.nan), "not finite in .*mask"),
        ("decoder.router.weight", np.ones(3), "no place.*decoder.router"),
    ):
        others = {n: a for n, a in arrays.items() if n != name}
        others |= {} if array is None else {name: array.astype("float32")}
        safetensors.numpy.save_file(others, tmp_path / "other" / "model.safetensors")
        with pytest.raises(keras_vit.weights.CheckpointError, match=message):
            training.MaskedAutoencoder.from_checkpoint(tmp_path / "other")


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_the_encoder_sees_only_visible_patches(options):
    encoder = tiny_vit(**{"patch_size": 4, "depth": 1, "num_classes": 0, **options})
    model = randomize(autoencoder(encoder, norm_pix_loss=False))
    x = images((2, 16, 16, 3))
    outputs = forward(model, x)
    mask = mask_of(outputs, 16)
    assert (mask.sum(axis=1) == 12).all()
    patches = to_numpy(model.pixels(x))
    hidden = np.where(mask[:, :, None], images(patches.shape, seed=1), patches)
    other = to_numpy(model.pixels.inverse(hidden, 16))
    assert_close(forward(model, other)["predictions"], outputs["predictions"], 1e-6)
    seen = to_numpy(model.pixels.inverse(patches + 0.1 * ~mask[:, :, None], 16))
    changed = forward(model, seen)["predictions"]
    assert largest(to_numpy(changed) - to_numpy(outputs["predictions"])) > 1e-3
    assert_close(outputs["targets"], patches, 0)
    errors = np.square(to_numpy(outputs["predictions"]) - patches).mean(axis=-1)
    assert float(model.compute_loss(y_pred=outputs)) == pytest.approx(errors[mask].mean(), rel=1e-5)


def test_pixels_are_normalised_in_each_patch():
    x = images()
    model = autoencoder()
    targets, patches = to_numpy(model(x)["targets"]), to_numpy(model.pixels(x))
    expected = patches - patches.mean(axis=-1, keepdims=True)
    expected /= np.sqrt(patches.var(axis=-1, ddof=1, keepdims=True) + 1e-6)
    assert_close(targets, expected, 1e-5)
    gray = to_numpy(model(np.full_like(x, 0.3))["targets"])
    assert largest(gray) < 1e-3  # without contrast, and without a division by zero


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


def test_training_with_everything():
    x = data.load("digits").train_images[:512].astype("float32")
    x = x / x.max() * 2 - 1
    encoder = tiny_vit(
        **{"image_size": 8, "patch_size": 2, "channels": 1, "depth": 1, "width": 16},
        **{"remat": True, "dropout": 0.1, "dtype": "mixed_bfloat16"},
    )
    model = autoencoder(encoder)
    before = values(model)
    losses = model.fit(x, np.zeros(len(x)), batch_size=64, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    still = {path for path, value in values(model).items() if largest(value - before[path]) == 0}
    assert {path.split("/")[-1] for path in still} == {"position"}
    assert largest(encoder.get_layer("head").kernel) == 0
    assert dtype_of(model(x[:2])["predictions"]) == "float32"
    tuned = model.classifier(10, pool="mean")
    for mine, its in zip(tuned.get_layer("block_0").weights, model.blocks[0].weights):
        assert_close(mine, its, 0)


def test_weights_of_images():
    model, x = randomize(autoencoder()), images()
    weights = np.array([1.0, 0.0, 2.0, 0.5], "float32")
    outputs = model.predict(x, verbose=0)
    squares = np.square(outputs["predictions"] - outputs["targets"]).mean(axis=-1)
    each = (squares * mask_of(outputs, 16)).sum(axis=1) / 12
    logs = model.evaluate(x, np.zeros(4), sample_weight=weights, verbose=0, return_dict=True)
    assert logs == {"loss": pytest.approx((each * weights).mean(), rel=1e-5)}


@pytest.mark.parametrize("share, patches, visible", [(0.75, 196, 49), (0.6, 10, 4), (0.75, 49, 12)])
def test_masks(share, patches, visible):
    """As many as the authors', each patch as often as any other, anew in each step of training."""
    layer = MaskPatches(share, seed=1)
    layer.build((None, patches, 4))
    x = keras.ops.zeros((400, patches, 4))
    order, places = (to_numpy(y) for y in layer(x, training=True))
    assert layer.visible == visible
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(patches), (400, 1)))
    np.testing.assert_array_equal(np.take_along_axis(places, order, axis=1)[0], np.arange(patches))
    # 400 draws: five standard deviations.
    assert_close((places < visible).mean(axis=0), np.full(patches, visible / patches), 0.125)
    assert (order != to_numpy(layer(x, training=True)[0])).any()
    np.testing.assert_array_equal(layer(x)[0], layer(x)[0])
    again = MaskPatches(share, seed=1)
    again.build((None, patches, 4))
    np.testing.assert_array_equal(again(x, training=True)[0], order)


class Batches:
    """Four batches in an epoch."""

    steps_per_epoch, batch_size = 4, 4

    def from_step(self, step):
        while True:
            yield images((4, 16, 16, 3), seed=step), np.zeros(4)
            step += 1


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            raise RuntimeError("stopped")


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path):
    def run(folder, **options):
        seed(0)
        model = autoencoder(tiny_vit(patch_size=4, depth=1, num_classes=0, dropout=0.1))
        training.fit(model, Batches(), folder, steps=5, save_every=1, curves=False, **options)
        return values(model)

    undisturbed = run(tmp_path / "one")
    with pytest.raises(RuntimeError, match="stopped"):
        run(tmp_path / "two", callbacks=[Stop()])
    for path, value in run(tmp_path / "two").items():
        np.testing.assert_array_equal(value, undisturbed[path], err_msg=path)


def test_a_saved_model_goes_on(tmp_path):
    model = autoencoder(masked=0.5, norm_pix_loss=False, decoder_mlp_dim=12)
    model.fit(images(), verbose=0)
    model.save(tmp_path / "masked.keras")
    loaded = keras.saving.load_model(tmp_path / "masked.keras")
    assert loaded.get_config() == model.get_config()
    assert loaded.evaluate(images(), verbose=0) == model.evaluate(images(), verbose=0)
    loaded.fit(images(), verbose=0)
    assert int(loaded.optimizer.iterations) == 2


@pytest.mark.parametrize("norm_pix_loss", [True, False])
def test_reconstructions(norm_pix_loss, monkeypatch):
    """From predictions that are right comes the image itself."""
    model, x = autoencoder(norm_pix_loss=norm_pix_loss), images()
    outputs = model.predict(x, verbose=0)
    perfect = {**outputs, "predictions": outputs["targets"]}
    monkeypatch.setattr(model, "predict", lambda *_, **__: perfect)
    made, hidden = model.reconstruct(x)
    assert_close(made, x, 1e-5)
    expected = np.kron(mask_of(outputs, 16).reshape(4, 4, 4), np.ones((1, 4, 4)))
    np.testing.assert_array_equal(hidden, expected)


def test_what_cannot_be():
    hybrid = keras_vit.R_ViT_Ti16(image_size=32, num_classes=0, depth=1)
    shared = tiny_vit(position="relative", position_at="shared")
    for encoder, options, error, message in (
        (hybrid, {}, ValueError, "A masked autoencoder needs a plain ViT.*a hybrid"),
        (tiny_vit(variable_size=True), {}, ValueError, "variable_size=True"),
        (shared, {}, ValueError, "position_at='shared'"),
        (tiny_vit(rotary="dinov3"), {}, ValueError, "rotary positions"),
        (keras.Sequential([keras.layers.Dense(2)]), {}, TypeError, "VisionTransformer.*Sequential"),
        (None, {"masked": 1.0}, ValueError, "share in .*masked=1.0"),
        (None, {"masked": 0.95}, ValueError, "leaves 0 visible"),
        (None, {"masked": True}, ValueError, "masked=True"),
        (None, {"decoder_width": 6}, ValueError, "width that 4 divides"),
        (None, {"decoder_depth": 0}, ValueError, "decoder_depth=0"),
        (None, {"decoder_heads": 3}, ValueError, "heads must divide"),
        (tiny_vit(patch_size=1, channels=1), {}, ValueError, "cannot be normalised"),
    ):
        with pytest.raises(error, match=message):
            autoencoder(encoder, **options)
    with pytest.raises(ValueError, match="Leave loss and metrics"):
        autoencoder().compile("adam", loss="mse")
    with pytest.raises(ValueError, match="takes images of shape"):
        autoencoder()(images((2, 8, 32, 3)))
