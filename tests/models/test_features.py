"""Maps, tokens and attention of chosen blocks, against timm, the authors' code and by hand."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training
from tests.arrays import assert_close, dtype_of, images, largest, read_arrays, to_numpy, values
from tests.support import (
    BACKEND,
    BACKENDS,
    ORACLES,
    OracleCase,
    forward,
    randomize,
    run_in_fresh_process,
    tiny_bit,
    tiny_vit,
)

ONCE = pytest.mark.any_backend
CASES = sorted(path.parent for path in (ORACLES / "later").glob("*/intermediates.npz"))
EVERYWHERE = ("timm_dinov2_g_reg4", "timm_beit")  # with registers; with relative positions


def of_blocks(model, x, blocks="all", **options):
    """What `features` computes, as arrays."""
    return keras.tree.map_structure(
        to_numpy, forward(keras_vit.features(model, blocks=blocks, **options), x)
    )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in EVERYWHERE else ONCE)
        for case in CASES
    ],
)
def test_maps_are_those_of_timm(case):
    """`forward_intermediates(norm=True, return_prefix_tokens=True)` of each family."""
    options = json.loads((case / "case.json").read_text())["options"]
    model = keras_vit.from_checkpoint(case / "model", **options)
    expected = read_arrays(case / "intermediates.npz")
    x = read_arrays(case / "io.npz")["input"]
    found = of_blocks(model, x, learned_tokens="learned" in expected)
    if "learned" in expected:
        learned, found = found["learned_tokens"], found["maps"]
        assert_close(np.stack(learned), expected["learned"], 1e-5 * largest(expected["learned"]))
    assert_close(np.stack(found), expected["maps"], 1e-5 * largest(expected["maps"]))


@pytest.mark.parametrize("name", ["token_nonsquare", pytest.param("gap_p16", marks=ONCE)])
def test_hidden_states_and_attention_are_the_authors(name):
    """Of all blocks, in one call."""
    case = OracleCase(ORACLES / "flax_vit" / name)
    model, learned = case.load(), int(name.startswith("token"))
    asked = {"as_maps": False, "norm": False, "attention": True, "learned_tokens": bool(learned)}
    found = of_blocks(model, case.io["input"], **asked)
    tolerance = 50 * case.tolerance()
    for i in range(model.variant.depth):
        expected = case.io[f"feat_f64/Transformer/encoderblock_{i}"]
        assert_close(found["tokens"][i], expected[:, learned:], tolerance)
        if learned:
            assert_close(found["learned_tokens"][i], expected[:, :1], tolerance)
        assert_close(found["attention"][i], case.io[f"attn_f64/{i}"], tolerance)
    normed = of_blocks(model, case.io["input"], [-1])
    expected = case.io["feat_f64/Transformer/encoder_norm"][:, learned:]
    assert_close(normed, expected.reshape(normed.shape), tolerance)


MODELS = {
    "hybrid": {"stem": (1,), "patch_size": 1},
    "axial": {"block": "axial", "pool": "mean"},
    "add_norm": {"block": "add_norm", "distillation": True},
    "fc_norm": {"pool": "mean", "norm_after_pool": True, "registers": 2},
    "relative": {"pool": None, "position": "relative"},
    "patch dropout": {"patch_dropout": 0.5, "rotary": "dinov3", "width": 16},
}


@pytest.mark.parametrize("name", ["map", *(pytest.param(name, marks=ONCE) for name in MODELS)])
def test_tokens_are_what_the_blocks_give(name):
    """In the order that was asked for; what a norm makes of them is read from its layer."""
    options = MODELS.get(name, {"pool": "map", "remat": True})
    model = randomize(tiny_vit(image_size=(16, 32), **options))
    v, x = model.variant, images((2, 16, 32, 3))
    names = [f"block_{i}" for i in (v.block_layers - 1, 0)]
    blocks = [model.get_layer(name).output for name in names]
    expected = [to_numpy(y) for y in forward(keras.Model(model.input, blocks), x)]
    expected = [y[:, v.learned_tokens :] for y in expected]
    found = of_blocks(model, x, [-1, 0], as_maps=False, norm=False)
    for mine, its in zip(found, expected, strict=True):
        assert_close(mine, its, 1e-5)
    has_norm = v.final_norm and not v.norm_after_pool
    normed = [to_numpy(model.get_layer("norm")(y)) for y in expected] if has_norm else expected
    maps = None if model.get_config()["patch_dropout"] else of_blocks(model, x, [-1, 0])
    for mine, its in zip(maps or [], normed):
        assert mine.shape == (2, *model.grid, v.width)
        assert_close(mine, its.reshape(mine.shape), 1e-5)


def test_images_of_any_size():
    small = randomize(tiny_vit(registers=1))
    any_size = keras_vit.resize(small, variable_size=True)
    x = images((2, 24, 40, 3))
    found = of_blocks(any_size, x, 1, learned_tokens=True, attention=True)
    expected = of_blocks(keras_vit.resize(small, (24, 40)), x, 1, learned_tokens=True)
    assert found["maps"].shape == (2, 3, 5, 8)
    assert found["attention"].shape == (2, 2, 17, 17)
    assert_close(found["maps"], expected["maps"], 1e-5)
    assert_close(found["learned_tokens"], expected["learned_tokens"], 1e-5)
    with pytest.raises(ValueError, match=r"takes images of shape.*Received: shape \(2, 24, 40"):
        keras_vit.features(small, blocks=1)(x)


@ONCE
def test_maps_of_the_stages_of_a_bit():
    model, x = randomize(tiny_bit()), images((2, 32, 48, 3))
    last = [model.get_layer("stage_1_unit_1").output, model.get_layer("relu").output]
    expected = forward(keras.Model(model.input, last), x)
    found = of_blocks(model, x)
    assert [y.shape for y in found] == [(2, 8, 12, 128), (2, 4, 6, 256)]
    for mine, its in zip(found, expected, strict=True):
        assert_close(mine, its, 1e-5)
    unit = keras.Model(model.input, model.get_layer("stage_2_unit_1").output)
    assert_close(of_blocks(model, x, 1, norm=False), forward(unit, x), 1e-5)


def test_which_blocks():
    model = tiny_vit(depth=4)
    given = [(2, [2, 3]), (np.int64(1), [3]), ((1,), [1]), ((-1, 0), [3, 0])]
    given += [(range(0, 4, 2), [0, 2]), ("all", [0, 1, 2, 3])]
    given += [(np.array([3, 1]), [3, 1]), ([np.int32(-2)], [2])]
    for blocks, expected in given:
        found = keras_vit.features(model, blocks=blocks)
        assert found.get_config()["blocks"] == expected and len(found.outputs) == len(expected)
    # Blocks behind the last one that is asked for are no part of the model.
    shallow = [layer.name for layer in keras_vit.features(model, blocks=[1]).layers]
    assert "block_1" in shallow and "block_2" not in shallow


def naflex():
    return keras_vit.NaFlexVisionTransformer(width=8, depth=2, num_heads=2, patch_size=8, grid=2)


@ONCE
def test_tokens_of_images_of_their_own_shapes():
    model = randomize(naflex())
    x = keras_vit.data.naflex_inputs([np.zeros((16, 32, 3), "uint8")], model, max_patches=4)
    found = keras_vit.features(model, blocks=1, as_maps=False).predict(x, verbose=0)
    expected = keras.Model(model.input, model.get_layer("norm").output).predict(x, verbose=0)
    assert found.shape[2] == 8
    assert_close(found, expected, 1e-6)


@ONCE
def test_a_model_that_contains_the_network():
    network, x = randomize(tiny_vit()), images()
    inputs = keras.Input((16, 16, 3))
    head = keras.layers.Dense(1)
    for wrapped in (
        keras.Model(network.input, head(network.output)),
        keras.Model(inputs, head(network(inputs))),
        keras.Sequential([inputs, keras.Sequential([network]), head]),
    ):
        found = of_blocks(wrapped, x, [0], attention=True)
        expected = of_blocks(network, x, [0], attention=True)
        assert_close(found["maps"], expected["maps"], 1e-6)
        assert_close(found["attention"], expected["attention"], 1e-6)


OPEN = """
import tests.bare
import keras, numpy as np
import keras_vit
x, outputs = np.load("{folder}/expected.npz")["images"], []
for name in ("features", "segmentation"):
    model = keras.saving.load_model(f"{folder}/{{name}}.keras")
    outputs += keras.tree.flatten(model.predict_on_batch(x))
np.savez("{folder}/found.npz", *map(keras.ops.convert_to_numpy, outputs))
"""


def test_saved_ones_open_on_another_backend(tmp_path):
    """Features by themselves, and the layers of such a model in one with a head."""
    network = randomize(tiny_vit(position="relative_2d"))
    network.preprocessing = keras_vit.Preprocessing(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    options = {"learned_tokens": True, "attention": True}
    model = keras_vit.features(network, blocks=[1, 0], **options)
    joined = keras.layers.Concatenate()(model.output["maps"])
    head = [keras.layers.Conv2D(2, 1)(joined), model.output["attention"]]
    segmentation = keras.Model(model.input, head)
    expected = [*keras.tree.flatten(forward(model, images())), *forward(segmentation, images())]
    model.save(tmp_path / "features.keras")
    segmentation.save(tmp_path / "segmentation.keras")
    np.savez(tmp_path / "expected.npz", images=images())
    backend = BACKENDS[BACKENDS.index(BACKEND) - 1]
    run_in_fresh_process(OPEN.format(folder=tmp_path), backend)
    found = read_arrays(tmp_path / "found.npz").values()
    for mine, its in zip(found, keras.tree.flatten(expected), strict=True):
        assert_close(mine, its, 1e-5 * largest(its))
    here = keras.saving.load_model(tmp_path / "features.keras")
    assert here.preprocessing == network.preprocessing and here.image_size == (16, 16)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 20, 20, 3), "uint8")
    prepared = keras_vit.preprocess(pixels, network)
    np.testing.assert_array_equal(keras_vit.preprocess(pixels, here), prepared)


def test_training_through_features():
    """The weights are those of the network, what is frozen stays, and the rest learns."""
    network = randomize(tiny_vit(dtype="mixed_bfloat16", stochastic_depth=0.1))
    network.get_layer("block_0").trainable = False
    network.get_layer("patch_encoder").trainable = False
    features = keras_vit.features(network, blocks=2)
    assert dtype_of(features.outputs[0]) == "bfloat16"
    joined = keras.layers.Concatenate()(features(features.input))
    model = keras.Model(features.input, keras.layers.Conv2D(3, 1, dtype="float32")(joined))
    before = values(network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss)
    history = model.fit(images(), np.arange(16).reshape(4, 2, 2) % 3, epochs=4, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    changed = {name for name, array in values(network).items() if (array != before[name]).any()}
    parts = {name.split("/")[0] for name in changed}
    assert parts == {"block_1", "norm"}
    features.trainable = False
    assert len(model.trainable_variables) == 2  # those of the convolution


def test_what_is_frozen_or_adapted_stays_so_in_a_file(reopened):
    network = randomize(tiny_vit())
    training.enable_lora(network, 2)
    network.get_layer("block_0").norm_1.trainable = False
    model = keras_vit.features(network, blocks=[1])
    loaded = reopened(model)
    trained, expected = ([v.path for v in m.trainable_variables] for m in (loaded, model))
    assert trained == expected and any("lora" in path for path in trained)
    assert_close(forward(loaded, images()), forward(model, images()), 0)
