"""Masked patch prediction: targets, corruption, the model, its training and what follows it."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data, training
from keras_vit.layers import Patches
from keras_vit.training import masked_patches
from keras_vit.training.masked_patches import CorruptPatches, Target
from tests.support import (
    assert_close,
    dtype_of,
    forward,
    images,
    largest,
    randomize,
    refuses,
    slow_unless_torch,
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
    "rotary": {"rotary": "mixed", "patch_norm": "rms_norm", "pre_norm": "layer_norm"},
    "relative_2d": {"position": "relative_2d", "block": "post_norm", "final_norm": False},
}


def masked(target="mean_color", encoder=None, **options):
    model = training.MaskedPatchModel(encoder or tiny_vit(depth=1), target, **options)
    model.compile(keras.optimizers.Adam(3e-3))
    return model


@slow_unless_torch
@pytest.mark.parametrize("options", ENCODERS.values(), ids=ENCODERS)
def test_it_runs_the_encoder_as_it_is_and_hands_it_over(options, monkeypatch):
    """Without corruption the predictions come from the encoder's own normalised tokens."""
    monkeypatch.setattr(masked_patches, "MASKED", 0.0)
    monkeypatch.setattr(masked_patches, "SWAPPED", 0.0)
    model = masked(encoder=(encoder := randomize(tiny_vit(**options))))
    randomize(model.prediction)
    outputs = {name: to_numpy(x) for name, x in forward(model, images()).items()}
    body = forward(keras.Model(encoder.input, encoder.get_layer("block_1").output), images())
    tokens = encoder.get_layer("norm")(body) if encoder.variant.final_norm else body
    tokens = np.take_along_axis(to_numpy(tokens)[:, -4:], outputs["positions"][:, :, None], axis=1)
    expected = tokens @ to_numpy(model.prediction.kernel) + to_numpy(model.prediction.bias)
    assert_close(outputs["predictions"][:, :, 0], expected, 1e-5)

    classifier = model.classifier(5)
    outputs = [classifier.get_layer("block_1").output, classifier.output]
    twin, logits = forward(keras.Model(classifier.input, outputs), images())
    np.testing.assert_array_equal(to_numpy(twin), to_numpy(body))
    assert_close(logits, np.zeros((4, 5)), 0)
    kept = [p for p in values(encoder) if not p.startswith(("head", "pool", "pre_logits"))]
    assert all((values(classifier)[path] == values(encoder)[path]).all() for path in kept)
    assert classifier.variant.representation_size is None and classifier.trainable_variables


@slow_unless_torch
@pytest.mark.parametrize("target", ["mean_color", "colors_4x4", "pixels"])
def test_the_loss_is_that_of_the_corrupted_patches(target):
    model = randomize(masked(target))
    x, weights = images(), np.array([1.0, 0.0, 2.0, 0.5], "float32")
    outputs = model.predict(x, verbose=0)
    p, t, where = (outputs[name] for name in ("predictions", "targets", "positions"))
    assert where.shape == (4, 2) and (where[:, 0] != where[:, 1]).all()
    all_targets = model.target.values(model.pixels(x), (-1.0, 1.0))
    chosen = np.take_along_axis(to_numpy(all_targets), where[:, :, None], axis=1)
    np.testing.assert_array_equal(t, chosen)
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


def test_training_on_digits():
    x = data.load("digits").train_images[:512].astype("float32")
    x = x / x.max() * 2 - 1
    sizes = {"image_size": 8, "patch_size": 2, "channels": 1, "depth": 1, "width": 16}
    encoder = tiny_vit(**sizes, remat=True, dropout=0.1)
    model = masked(encoder=encoder)
    before = values(model)
    losses = model.fit(x, np.zeros(len(x)), batch_size=64, epochs=4, verbose=0).history["loss"]
    assert losses[0] < np.log(8) + 0.1 and losses[-1] < 0.85 * losses[0]
    assert all(largest(value - before[path]) > 0 for path, value in values(model).items())
    assert largest(encoder.get_layer("head").kernel) == 0


@slow_unless_torch
def test_each_step_corrupts_anew_and_each_evaluation_the_same():
    model = randomize(masked())
    x = images((16, 16, 16, 3))
    first, second = (to_numpy(model(x, training=True)["positions"]) for _ in range(2))
    assert (first != second).any()
    np.testing.assert_array_equal(model.predict(x, verbose=0)["positions"], model(x)["positions"])
    assert model.evaluate(x, verbose=0) == model.evaluate(x, verbose=0)


@slow_unless_torch
def test_mixed_bfloat16_sees_the_exact_colours():
    exact, model = masked(), masked(encoder=tiny_vit(depth=1, dtype="mixed_bfloat16"))
    mine, expected = model.predict(images(), verbose=0), exact.predict(images(), verbose=0)
    np.testing.assert_array_equal(mine["targets"], expected["targets"])
    assert dtype_of(model(images())["predictions"]) == "float32"
    assert model.encoder.get_layer("block_0").compute_dtype == "bfloat16"
    history = model.fit(images(), batch_size=4, epochs=8, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


def test_the_classifier_has_weights_and_options_of_its_own():
    fresh = masked().evaluate(images(), verbose=0)[0]
    assert fresh == pytest.approx(np.log(512), rel=1e-5), "it knows nothing of the colours"
    source = masked(encoder=randomize(tiny_vit()))
    model = source.classifier(5, pool="mean", dropout=0.2, name="tuned")
    assert (model.name, model.variant.pool, model.num_classes) == ("tuned", "mean", 5)
    before = values(source)
    randomize(model, seed=1)
    assert all(largest(value - before[path]) == 0 for path, value in values(source).items())
    refuses(r"'patch_encoder' has other weights.*image_size", source.classifier, 5, image_size=32)


@slow_unless_torch
def test_a_saved_model_goes_on(tmp_path):
    model = masked("colors_4x4", value_range=(-2, 2), corrupted=0.25)
    model.fit(images(), verbose=0)
    model.save(tmp_path / "masked.keras")
    loaded = keras.saving.load_model(tmp_path / "masked.keras")
    assert loaded.get_config() == model.get_config()
    for mine, its in zip(loaded.encoder.weights, model.encoder.weights):
        if not mine.path.startswith("head"):
            assert_close(mine, its, 0)
    assert loaded.evaluate(images(), verbose=0) == model.evaluate(images(), verbose=0)
    loaded.fit(images(), verbose=0)
    assert int(loaded.optimizer.iterations) == 2
    copy = training.MaskedPatchModel.from_config(masked().get_config())
    copy.encoder.preprocessing = keras_vit.Preprocessing(mean=(0.2,) * 3, std=(0.1,) * 3)
    assert copy.value_range == pytest.approx((-2, 8)), "that of the images of its own training"


def test_encoders_and_arguments_that_cannot_be():
    hybrid = keras_vit.R_ViT_Ti16(image_size=32, num_classes=0, depth=1)
    for encoder, message in (
        (hybrid, "plain ViT.*'r_vit_ti16', a hybrid"),
        (tiny_vit(image_size=8), "at least two patches"),
    ):
        refuses(message, training.MaskedPatchModel, encoder)
    for options, message in (
        ({"target": "colour"}, "Unknown target.*'colour'.*mean_color"),
        ({"corrupted": 0}, "number in .*corrupted=0"),
        ({"value_range": (1, 0)}, "black below white"),
    ):
        refuses(message, training.MaskedPatchModel, tiny_vit(), **options)


def color_of(pixels):
    """The index of the 3-bit mean colour of pixels, (..., channels), in [0, 1]."""
    mean = pixels.reshape(-1, pixels.shape[-1]).mean(axis=0)
    index = 0
    for level in np.minimum(np.floor(mean * 8), 7).astype(int):
        index = 8 * index + level
    return index


@pytest.mark.parametrize("channels, colors", [(1, 8), (3, 512)])
@pytest.mark.parametrize("name, cells", [("mean_color", 1), ("colors_4x4", 4)])
def test_colours(name, cells, channels, colors):
    x = images((2, 16, 24, channels))
    target = Target(name, (8, 12), channels)
    actual = to_numpy(target.values(Patches((8, 12))(x), (-1.0, 1.0)))
    assert target.shape == (cells**2, colors) and actual.shape == (2, 4, cells**2)
    h, w = 8 // cells, 12 // cells
    for b, n, i, j in np.ndindex(2, 4, cells, cells):
        top, left = n // 2 * 8 + i * h, n % 2 * 12 + j * w
        cell = (x[b, top : top + h, left : left + w].astype("float64") + 1) / 2
        assert actual[b, n, i * cells + j] == color_of(cell)


def test_the_colours_of_black_white_and_red():
    """In any value range; beyond it, the nearest colour."""
    for low, high in ((-1.0, 1.0), (0.0, 255.0)):
        pure = np.array([[low] * 3, [high] * 3, [high, low, low], [high + 9] * 3], "float32")
        x = np.tile(pure[None, :, None], (1, 1, 4, 1)).reshape(1, 4, 12)
        colors = Target("mean_color", (2, 2), 3).values(keras.ops.convert_to_tensor(x), (low, high))
        assert to_numpy(colors).ravel().tolist() == [0, 511, 7 * 64, 511]
    # They are those of the images, however these are normalised.
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype("uint8")

    usual, encoder = masked(corrupted=1.0), tiny_vit(depth=1)
    encoder.preprocessing = keras_vit.Preprocessing((0.4, 0.3, 0.2), (0.2, 0.3, 0.4))
    model = masked(encoder=encoder, corrupted=1.0)
    models = usual, model, training.MaskedPatchModel.from_config(model.get_config())
    targets = [m(data.preprocess(pixels, m.encoder))["targets"] for m in models]
    for each in targets[1:]:
        np.testing.assert_array_equal(to_numpy(each), to_numpy(targets[0]))


def test_pixels_are_the_patch_itself_and_other_targets_must_fit():
    patches = Patches(8)(images())
    target = Target("pixels", (8, 8), 3)
    assert target.shape == (192,)
    assert_close(target.values(patches, (-1.0, 1.0)), patches, 0)
    for name, size, channels, message in (
        ("colors_4x4", (14, 14), 3, r"multiples of 4.*\(14, 14\)"),
        ("mean_color", (8, 8), 5, "32,768.*choose target='pixels'"),
    ):
        refuses(message, Target, name, size, channels)
    assert Target("pixels", (7, 7), 9).shape == (441,)


def corrupted(share=0.5, batch=400, patches=50, **options):
    """Embeddings that are all different, what became of them, and where."""
    layer = CorruptPatches(share, seed=1)
    x = np.arange(1, batch * patches + 1, dtype="float32").reshape(batch, patches, 1)
    layer.build(x.shape)
    layer.mask.assign(np.full(layer.mask.shape, -1.0))
    y, positions = layer(x, **{"training": True, **options})
    return x[..., 0], to_numpy(y)[..., 0], to_numpy(positions)


@pytest.mark.parametrize("training", [True, False])
def test_half_of_the_patches_are_corrupted_in_the_paper_s_shares(training):
    x, y, positions = corrupted(training=training)
    assert positions.shape == (400, 25)
    assert all(len(set(row)) == 25 for row in positions.tolist())
    chosen = np.zeros(x.shape, bool)
    np.put_along_axis(chosen, positions, True, axis=1)
    np.testing.assert_array_equal(y[~chosen], x[~chosen])
    # Ten thousand draws: five standard deviations are 0.02 and 0.015.
    shares = [np.mean(values) for values in (y[chosen] == -1, y[chosen] == x[chosen])]
    assert shares[0] == pytest.approx(0.8, abs=0.02)
    assert shares[1] == pytest.approx(0.1, abs=0.015)
    # Every patch is chosen as often as any other: 400 draws, five standard deviations.
    assert_close(chosen.mean(axis=0), np.full(50, 0.5), 0.125)


def test_a_swapped_patch_is_any_other_of_its_sequence():
    x, y, _ = corrupted(1.0, batch=4000, patches=5)
    swapped = (y != x) & (y != -1)
    assert 0.08 < swapped.mean() < 0.12
    steps = ((y - 1) % 5 - (x - 1) % 5)[swapped] % 5
    assert ((y - 1) // 5 == (x - 1) // 5)[swapped].all()
    counts = np.bincount(steps.astype(int), minlength=5)
    assert counts[0] == 0
    assert_close(counts[1:] / counts.sum(), np.full(4, 0.25), 0.05)


def test_the_number_of_corrupted_patches():
    for share, patches, expected in ((0.15, 196, 29), (0.5, 9, 4), (0.01, 4, 1)):
        assert corrupted(share, 2, patches)[2].shape == (2, expected)
