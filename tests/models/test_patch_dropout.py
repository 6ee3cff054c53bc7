"""Patch dropout: how many patches stay, which, and that training goes on with them alone."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import PatchDropout
from tests.arrays import assert_close, to_numpy, values
from tests.support import forward, randomize, refuses, slow_unless_torch, tiny_vit

TOKENS = np.arange(2 * 11 * 3, dtype="float32").reshape(2, 11, 3)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 12, 3)).astype("float32")


def model(**options):
    """Of 4 x 3 patches."""
    size = {"image_size": (16, 12), "patch_size": 4, "width": 16, "mlp_dim": 24}
    return randomize(tiny_vit(**size, name="small", **options))


@pytest.mark.parametrize("rate, learned, kept", [(0.5, 1, 5), (0.3, 2, 6), (0.8, 0, 2)])
def test_some_patches_of_each_image_stay(rate, learned, kept):
    """As many as max(1, int(N * (1 - rate))), after the learned tokens."""
    layer = PatchDropout(rate, learned, seed=1)
    np.testing.assert_array_equal(to_numpy(layer(TOKENS)), TOKENS)
    drawn = [to_numpy(layer(TOKENS, training=True)) for _ in range(40)]
    for outputs in drawn:
        assert outputs.shape == (2, learned + kept, 3)
        np.testing.assert_array_equal(outputs[:, :learned], TOKENS[:, :learned])
        for tokens, among in zip(outputs, TOKENS):
            rows = [tuple(row) for row in tokens]
            assert len(set(rows)) == len(rows)
            assert set(rows) <= {tuple(row) for row in among}
    places = np.stack(drawn)[:, :, learned:, 0] % 33 // 3
    assert set(places.ravel()) == set(range(learned, 11)), "each of them stays at times"
    assert (places[:, 0] != places[:, 1]).any(), "images draw for themselves"


def test_angles_go_with_their_patches():
    angles = np.stack([np.arange(11), -np.arange(11)]).reshape(2, 11, 1, 1).astype("float32")
    x, turned = PatchDropout(0.5, 1)([TOKENS, angles], training=True)
    places = to_numpy(x)[:, :, 0] % 33 // 3
    np.testing.assert_array_equal(to_numpy(turned)[..., 0, 0], np.stack([places, -places]))


@pytest.mark.parametrize("rotary", ["axial", pytest.param("mixed", marks=slow_unless_torch)])
def test_a_model_trains_on_the_patches_that_stay(rotary):
    """Where one patch stays, training computes what a model of that patch and no other does."""
    dropped = model(patch_dropout=0.95, rotary=rotary, pool="mean", position="none")
    v = dropped.variant
    # One token sees itself only, so turning it changes nothing: a model of one patch.
    single = keras_vit.VisionTransformer(v, image_size=4, num_classes=3, rotary=None)
    single.set_weights([v for path, v in values(dropped).items() if "rotary" not in path])
    cut = [
        IMAGES[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        for row, column in np.ndindex(v.grid((16, 12)))
    ]
    each = to_numpy(forward(single, np.concatenate(cut))).reshape(-1, 2, 3)
    for _ in range(3):
        for result, own in zip(to_numpy(dropped(IMAGES, training=True)), each.swapaxes(0, 1)):
            assert np.abs(own - result).max(axis=1).min() < 1e-5


@pytest.mark.parametrize(
    "options", [{"rotary": "dinov3"}, {"variable_size": True, "remat": True}], ids=str
)
def test_fit_save_and_the_same_function_outside_of_training(options, reopened):
    whole, dropped = model(**options), model(**options, patch_dropout=0.5)
    assert list(values(whole)) == list(values(dropped))
    assert_close(forward(dropped, IMAGES), forward(whole, IMAGES), 1e-6)
    dropped.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = dropped.fit(IMAGES, np.array([0, 1]), epochs=3, verbose=0).history
    assert len(set(history["loss"])) == 3
    assert np.isfinite(history["loss"]).all()
    again = reopened(dropped)
    assert again.get_layer("patch_dropout").rate == 0.5
    assert_close(forward(again, IMAGES), forward(dropped, IMAGES), 1e-6)
    seed = dropped.get_layer("patch_dropout").seed_generator.state
    assert any(v is seed for v in dropped.variables), "a checkpoint of a run holds them"


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "options",
    [
        {"position": "relative"},
        {"position": "relative_2d"},
        {"position_at": "every_layer"},
        {"pool": None},
        {"pool": "first", "class_token": False},
    ],
    ids=str,
)
def test_models_that_need_every_patch_refuse(options):
    refuses(r"patch_dropout=0.5 cannot be: .* patch_dropout=0", model, **options, patch_dropout=0.5)
