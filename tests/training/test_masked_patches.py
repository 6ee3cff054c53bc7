"""Masked patch prediction: the model around the encoder, its training and what follows it."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data, training
from tests.support import (
    assert_close,
    dtype_of,
    forward,
    images,
    largest,
    randomize,
    run_in_fresh_process,
    tiny_vit,
    to_numpy,
    values,
)

ENCODERS = {
    "class_token": {},
    "mean": {"pool": "mean", "class_token": False, "position": "learned_2d"},
    "mean_with_class_token": {"pool": "mean", "class_token": True, "num_classes": 0},
    "registers": {"registers": 2, "position": "sincos_2d"},
    "map": {"pool": "map", "position": "none"},
    "relative": {"position": "relative", "position_at": "shared"},
    "every_layer": {"position_at": "every_layer", "norm_after_pool": True, "pool": "mean"},
    "pre_logits": {"representation_size": 6},
}


def masked(target="mean_color", encoder=None, **options):
    encoder = encoder or tiny_vit(depth=1)
    model = training.MaskedPatchModel(encoder, target, **options)
    model.compile(keras.optimizers.Adam(3e-3))
    return model


def keep_all(model):
    """Draws positions as usual, and lets every patch keep its embedding."""
    draw = model.corruption._draw

    def draw_kept(batch, training):
        rank, kind, other = draw(batch, training)
        return rank, keras.ops.ones_like(kind), other

    model.corruption._draw = draw_kept


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_it_runs_the_encoder_as_it_is(options):
    """Without corruption the predictions come from the encoder's own normalised tokens."""
    encoder = randomize(tiny_vit(**options))
    model = masked(encoder=encoder)
    randomize(model.prediction)
    keep_all(model)
    outputs = {name: to_numpy(x) for name, x in forward(model, images()).items()}
    tokens = forward(keras.Model(encoder.input, encoder.get_layer("block_1").output), images())
    tokens = to_numpy(encoder.get_layer("norm")(tokens))[:, -4:]
    tokens = np.take_along_axis(tokens, outputs["positions"][:, :, None], axis=1)
    expected = tokens @ to_numpy(model.prediction.kernel) + to_numpy(model.prediction.bias)
    assert_close(outputs["predictions"][:, :, 0], expected, 1e-5)


@pytest.mark.parametrize("target", ["mean_color", "colors_4x4", "pixels"])
def test_the_loss_is_that_of_the_corrupted_patches(target):
    model = randomize(masked(target))
    x, weights = images(), np.array([1.0, 0.0, 2.0, 0.5], "float32")
    outputs = model.predict(x, verbose=0)
    p, t, where = (outputs[name] for name in ("predictions", "targets", "positions"))
    assert where.shape == (4, 2) and (where[:, 0] != where[:, 1]).all()
    all_targets = model.target.values(model.pixels(x), (-1.0, 1.0))
    np.testing.assert_array_equal(
        t, np.take_along_axis(to_numpy(all_targets), where[:, :, None], axis=1)
    )
    if target == "pixels":
        losses = np.square(p - t).mean(axis=-1)
    else:
        log = p - np.log(np.exp(p).sum(axis=-1, keepdims=True))
        losses = -np.take_along_axis(log, t[..., None], axis=-1)[..., 0].mean(axis=-1)
    logs = model.evaluate(x, verbose=0, return_dict=True)
    assert logs["loss"] == pytest.approx(losses.mean(), rel=1e-5)
    weighted = model.evaluate(x, np.zeros(4), sample_weight=weights, verbose=0, return_dict=True)
    assert weighted["loss"] == pytest.approx((losses.mean(axis=1) * weights).mean(), rel=1e-5)
    if target != "pixels":
        assert logs["accuracy"] == pytest.approx((p.argmax(axis=-1) == t).mean())


def test_a_fresh_model_knows_nothing_of_the_colours():
    assert masked().evaluate(images(), verbose=0)[0] == pytest.approx(np.log(512), rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"remat": True, "dropout": 0.1}], ids=["plain", "remat"])
def test_training_on_digits(options):
    x = data.load("digits").train_images[:512].astype("float32")
    x = x / x.max() * 2 - 1
    encoder = tiny_vit(image_size=8, patch_size=2, channels=1, depth=1, width=16, **options)
    model = masked(encoder=encoder)
    before = values(model)
    losses = model.fit(x, np.zeros(len(x)), batch_size=64, epochs=4, verbose=0).history["loss"]
    assert losses[0] < np.log(8) + 0.1 and losses[-1] < 0.85 * losses[0]
    still = {path for path, value in values(model).items() if largest(value - before[path]) == 0}
    assert still == set()
    assert largest(encoder.get_layer("head").kernel) == 0


def test_each_step_corrupts_anew_and_each_evaluation_the_same():
    model = randomize(masked())
    x = images((16, 16, 16, 3))
    first, second = (to_numpy(model(x, training=True)["positions"]) for _ in range(2))
    assert (first != second).any()
    np.testing.assert_array_equal(model.predict(x, verbose=0)["positions"], model(x)["positions"])
    assert model.evaluate(x, verbose=0) == model.evaluate(x, verbose=0)


def test_mixed_bfloat16_sees_the_exact_colours():
    exact, model = masked(), masked(encoder=tiny_vit(depth=1, dtype="mixed_bfloat16"))
    mine, expected = model.predict(images(), verbose=0), exact.predict(images(), verbose=0)
    np.testing.assert_array_equal(mine["targets"], expected["targets"])
    assert dtype_of(model(images())["predictions"]) == "float32"
    assert model.encoder.get_layer("block_0").compute_dtype == "bfloat16"
    history = model.fit(images(), batch_size=4, epochs=8, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_the_encoder_is_handed_over(options):
    encoder = randomize(tiny_vit(**options))
    model = masked(encoder=encoder).classifier(5)
    body = keras.Model(encoder.input, encoder.get_layer("block_1").output)
    twin = keras.Model(model.input, model.get_layer("block_1").output)
    np.testing.assert_array_equal(to_numpy(twin(images())), to_numpy(body(images())))
    assert_close(model(images()), np.zeros((4, 5)), 0)
    for mine, its in zip(model.get_layer("norm").weights, encoder.get_layer("norm").weights):
        assert_close(mine, its, 0)
    assert model.variant.representation_size is None and model.trainable_variables


def test_the_classifier_has_weights_and_options_of_its_own():
    source = masked(encoder=randomize(tiny_vit()))
    model = source.classifier(5, pool="mean", dropout=0.2, name="tuned")
    assert (model.name, model.variant.pool, model.num_classes) == ("tuned", "mean", 5)
    before = values(source)
    randomize(model, seed=1)
    assert all(largest(value - before[path]) == 0 for path, value in values(source).items())
    with pytest.raises(ValueError, match=r"'patch_encoder' has other weights.*image_size"):
        source.classifier(5, image_size=32)


@pytest.mark.any_backend
def test_a_saved_model_goes_on_in_a_fresh_process(tmp_path):
    model = masked("colors_4x4", value_range=(-2, 2), corrupted=0.25)
    model.fit(images(), verbose=0)
    model.save(tmp_path / "masked.keras")
    printed = run_in_fresh_process(f"""
import keras
import keras_vit.training
from tests.support import images
model = keras.saving.load_model({str(tmp_path / "masked.keras")!r})
print("loss", model.evaluate(images(), verbose=0)[0])
model.fit(images(), verbose=0)
print("steps", int(model.optimizer.iterations))
""")
    results = dict(line.split() for line in printed.splitlines() if line[:4] in ("loss", "step"))
    assert float(results["loss"]) == pytest.approx(model.evaluate(images(), verbose=0)[0], 1e-5)
    assert results["steps"] == "2"
    loaded = keras.saving.load_model(tmp_path / "masked.keras")
    assert loaded.get_config() == model.get_config()
    for mine, its in zip(loaded.encoder.weights, model.encoder.weights):
        if not mine.path.startswith("head"):
            assert_close(mine, its, 0)


def test_encoders_that_cannot_be_pre_trained():
    hybrid = keras_vit.R_ViT_Ti16(image_size=32, num_classes=0, depth=1)
    for encoder, error, message in (
        (hybrid, ValueError, "plain ViT.*'r_vit_ti16', a hybrid"),
        (tiny_vit(variable_size=True), ValueError, "variable_size=True"),
        (tiny_vit(pre_norm="rms_norm"), ValueError, "pre_norm='rms_norm'"),
        (tiny_vit(rotary="dinov3"), ValueError, "rotary='dinov3'"),
        (keras.Sequential([keras.layers.Dense(2)]), TypeError, "VisionTransformer.*Sequential"),
        (tiny_vit(image_size=8), ValueError, "at least two patches"),
    ):
        with pytest.raises(error, match=message):
            training.MaskedPatchModel(encoder)


def test_wrong_arguments():
    for options, message in (
        ({"target": "colour"}, "Unknown target.*'colour'.*mean_color"),
        ({"corrupted": 0}, "share in .*corrupted=0"),
        ({"value_range": (1, 0)}, "black below white"),
    ):
        with pytest.raises(ValueError, match=message):
            training.MaskedPatchModel(tiny_vit(), **options)
    with pytest.raises(ValueError, match="leave them out"):
        masked().compile("adam", loss="mse")
    with pytest.raises(ValueError, match="takes images of shape"):
        masked()(images((2, 8, 32, 3)))
