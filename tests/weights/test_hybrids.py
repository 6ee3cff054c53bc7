"""Hybrids: a ResNet stem before the Transformer, with the numbers of three libraries' own code."""

import re
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from tests.arrays import ORACLES, assert_close, images, largest, read_arrays, values
from tests.support import forward, precision, randomize, refuses, slow_unless_torch, tiny_bit
from tests.weights.stored import assert_same_weights
from tests.weights.test_families import HYBRIDS, checkpoint_of, each

R22 = ORACLES / "hybrids" / "flax_vit-hybrid_r22_w05_odd45"


@each(HYBRIDS)
def test_hybrids(case):
    """Outputs and feature maps; the latter are stored as float32."""
    io = read_arrays(case / "io.npz")
    with precision("float64"):
        model = keras_vit.from_checkpoint(checkpoint_of(case), dtype="float64")
        last = model.layers[model.layers.index(model.get_layer("patches")) - 1]
        named = {"output_f64": model.output, "backbone_nhwc_f64": last.output}
        for i, units in enumerate(model.variant.stem, 1):
            named[f"feat_f64/block{i}"] = model.get_layer(f"stage_{i}_unit_{units}").output
        named = {name: output for name, output in named.items() if name in io}
        outputs = forward(keras.Model(model.input, named), io["input"].astype("float64"))
    for name, output in outputs.items():
        is_output = name == "output_f64"
        assert_close(output, io[name], 1e-11 if is_output else 1e-6 * largest(io[name]))
    assert len(model.load_report.loaded) == len(model.weights)
    assert model.load_report.differs == ()
    v, google = model.variant, case.name.startswith("flax")
    assert v.stem_numerics == ("google" if google else "timm")
    assert (v.stem_width, v.gelu) == (0.5, "tanh" if google else "erf")


@pytest.mark.any_backend
def test_an_odd_image_without_a_config(tmp_path):
    """45 pixels give a grid of 6 x 6, as 48 do: the file cannot tell, and either computes it."""
    path = shutil.copy(R22 / "checkpoint.npz", tmp_path)
    io = read_arrays(R22 / "io.npz")
    assert keras_vit.from_checkpoint(path).image_size == (48, 48)
    model = keras_vit.from_checkpoint(path, image_size=45)
    assert_close(forward(model, io["input"]), io["output_f64"], 4e-5)
    assert model.load_report.resized == ()


@slow_unless_torch
def test_a_resolution_of_a_hybrid_at_load_time_and_after():
    path, x = checkpoint_of(R22), images((1, 63, 33, 3))
    loaded = keras_vit.from_checkpoint(path, image_size=(63, 33), file_image_size=45)
    assert loaded.load_report.resized[0][1:3] == ((6, 6), (8, 5))
    any_size = keras_vit.resize(keras_vit.from_checkpoint(path), variable_size=True)
    assert_close(forward(any_size, x), forward(loaded, x), 2e-5)
    later = keras_vit.resize(any_size, image_size=(63, 33), variable_size=False)
    assert_same_weights(later, loaded, 1e-6)


@slow_unless_torch
@pytest.mark.parametrize("size", [53, (50, 62)])
def test_a_map_that_the_patches_do_not_tile(tmp_path, size):
    """The file's model reads the same pixels of the map as one of images that the patches tile."""
    options = {"stem": (1, 1), "stem_width": 0.5, "patch_size": 2, "width": 8, "depth": 1}
    options |= {"num_heads": 2, "num_classes": 3}
    model = randomize(keras_vit.VisionTransformer(**options, image_size=size))
    path = keras_vit.save_weights(model, tmp_path / "hybrid.npz")
    loaded = keras_vit.from_checkpoint(path, image_size=size)
    x = images((2, *model.image_size, 3))
    assert_close(forward(loaded, x), forward(model, x), 1e-5)
    stem = keras.Model(model.input, model.get_layer("stage_2_unit_1").output)
    rows, columns = (2 * side for side in model.grid)
    whole = forward(stem, x)[:, :rows, :columns]
    tiled = keras_vit.VisionTransformer(**options, image_size=(8 * rows, 8 * columns))
    tiled.set_weights(model.get_weights())
    rest = keras.Model(tiled.get_layer("patches").input, tiled.output)
    assert_close(forward(rest, whole), forward(model, x), 1e-5)
    any_size = keras_vit.resize(model, variable_size=True)
    assert_close(forward(any_size, x), forward(model, x), 1e-5)


@pytest.mark.any_backend
def test_a_fresh_stem_starts_as_the_authors():
    model = keras_vit.VisionTransformer("R26+S/32", image_size=64, depth=1, num_classes=2)
    weights = values(model)
    assert not weights["stage_4_unit_2/norm3/gamma"].any()
    assert weights["stage_4_unit_1/norm_proj/gamma"].all()
    kernel = weights["stage_2_unit_1/conv2/kernel"]
    assert abs(kernel.std() * np.prod(kernel.shape[:3]) ** 0.5 - 1) < 0.05  # lecun_normal


def small(**options):
    """A hybrid with two units of half the width."""
    sizes = {"depth": 1, "width": 8, "num_heads": 2, "stem": (1, 1), "stem_width": 0.5}
    return keras_vit.VisionTransformer("R+Ti/16", 64, 3, **{**sizes, **options})


def test_a_hybrid_is_saved_and_trained(tmp_path):
    model = small(patch_size=4)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.3), loss)
    before = values(model)["stage_1_unit_1/conv1/kernel"].copy()
    model.fit(images((4, 64, 64, 3)), np.arange(4) % 3, epochs=3, verbose=0)
    assert (values(model)["stage_1_unit_1/conv1/kernel"] != before).any()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_same_weights(loaded, model)
    assert loaded.variant == model.variant


@pytest.mark.parametrize(
    "options, text",
    [
        ({"stem": 3}, "such as (3, 4, 9)"),
        ({"stem": (0,)}, "each number of stem"),
        ({"stem": (1,), "stem_width": 0.3}, "must divide the channels"),
        ({"stem": (1,), "stem_width": -1}, "stem_width"),
        ({"stem": (1,), "stem_numerics": "keras"}, "'google', 'timm'"),
        ({"stem": (), "patch_size": 8, "image_size": 24}, "at least (29, 29)"),
    ],
    ids=str,
)
@pytest.mark.any_backend
def test_stems_that_cannot_be(options, text):
    sizes = {"image_size": 64, "patch_size": 1, "width": 8, "depth": 1, "num_heads": 2}
    refuses(re.escape(text), keras_vit.VisionTransformer, **{**sizes, **options})


@pytest.mark.parametrize("kind", ["hybrid", "bit"])
def test_folded_kernels_compute_the_same(tmp_path, kind):
    """Standardised once, in place of at every call; no checkpoint of the family any more."""
    model = randomize(small(patch_size=4) if kind == "hybrid" else tiny_bit(image_size=64))
    folded, x = keras_vit.fold(model), images((2, 64, 64, 3))
    expected = forward(model, x)
    assert_close(forward(folded, x), expected, 1e-5 * max(largest(expected), 1))
    assert not folded.trainable_variables
    kernel = values(folded)["stage_2_unit_1/conv2/kernel"]
    assert_close(kernel.mean(axis=(0, 1, 2)), 0 * kernel[0, 0, 0], 1e-6)
    assert_close(kernel.std(axis=(0, 1, 2)), 0 * kernel[0, 0, 0] + 1, 1e-3)
    folded.save(tmp_path / "folded.keras")
    loaded = keras.saving.load_model(tmp_path / "folded.keras")
    assert loaded.variant == folded.variant
    assert_same_weights(loaded, folded)
    keras_vit.save_weights(model, tmp_path / "trained.npz", force=True)
    keras_vit.load_weights(loaded, tmp_path / "trained.npz")  # whose kernels are as trained
    assert_close(forward(loaded, x), expected, 1e-5 * max(largest(expected), 1))
    refuses("standardised twice", keras_vit.save_weights, folded, tmp_path / "model.npz")
    refuses("is folded", keras_vit.fold, folded)
    refuses("has no stem", keras_vit.fold, small(stem=None))
