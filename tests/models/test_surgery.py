"""Another resolution: position embeddings, patch kernels, whole models, images of any size."""

import dataclasses
import itertools
import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import weights
from keras_vit.layers import resize_grid, resize_matrix
from keras_vit.layers.resample import MATRICES
from tests.arrays import assert_close, images, read_arrays, to_numpy, values
from tests.support import ORACLES, forward, precision, randomize, refuses, tiny_vit

FOLDER = ORACLES / "posemb_resize"


def cases(name):
    return json.loads((FOLDER / f"{name}.json").read_text())["cases"]


# ---- the rules, against the code of those who made them


@pytest.mark.any_backend
@pytest.mark.parametrize("case", cases("google_zoom"), ids=lambda case: case["key"])
@pytest.mark.parametrize("method", ["align_corners", "scipy_zoom"])
def test_the_authors_rule(case, method):
    file = read_arrays(FOLDER / "google_zoom.npz")
    first, old, new = int(case["cls"]), (case["old"],) * 2, (case["new"],) * 2
    before, after = (file[f"{case['key']}/{what}"] for what in ("in", "out"))
    (resized,) = weights.resize_positions(
        {"patch_encoder/position/embedding": before}, old, new, first, method
    ).values() or (before,)
    assert_close(resized, after, 2e-7)


@pytest.mark.any_backend
@pytest.mark.parametrize("case", cases("timm_offsets"), ids=lambda case: case["key"])
def test_biases_for_offsets(case):
    """BEiT's rule as timm has it, and that the class token's three biases stay."""
    file = read_arrays(FOLDER / "timm_offsets.npz")
    before, after = (file[f"{case['key']}/{what}"] for what in ("in", "out"))
    grids = case["old"], case["new"]
    resized = weights.resize_positions({"position/table": before}, *grids, 1, "bicubic")
    assert_close(resized["position/table"], after, 2e-6)
    bilinear = weights.resize_positions({"position/table": before}, *grids, 1, "bilinear")
    resized = bilinear["position/table"]
    sides = [[2 * side - 1 for side in grid] for grid in grids]
    assert_close(resized[:-3], resize_grid(before[:-3], *sides, "bilinear"), 1e-6)
    assert_close(resized[-3:], before[-3:], 0)
    with pytest.raises(ValueError, match="class token"):
        weights.resize_positions({"position/table": before[1:]}, *grids, 1, "bicubic")


@pytest.mark.any_backend
@pytest.mark.parametrize("old, new", [(28, 14), (28, 24)])
def test_the_fault_of_the_authors_routine(old, new):
    """Their zoom leaves the last row and column zero here; only `scipy_zoom` repeats that."""
    file = read_arrays(FOLDER / "google_zoom_artefact.npz")
    before, after = (file[f"{old}to{new}_cls/{what}"][0, 1:] for what in ("in", "out"))
    grids = (old, old), (new, new)
    assert_close(resize_grid(before, *grids, "scipy_zoom"), after, 2e-7)
    right = resize_grid(before, *grids, "align_corners").reshape(new, new, -1)
    faulty = after.reshape(new, new, -1)
    assert_close(right[:-1, :-1], faulty[:-1, :-1], 2e-7)
    assert not faulty[-1].any() and not faulty[:, -1].any()
    assert_close(right[-1, -1], before[-1], 1e-12)


@pytest.mark.any_backend
def test_every_size_at_which_the_routine_fails():
    """All pairs with an old side of up to 32 and a new one of up to 61."""
    listed = json.loads((FOLDER / "scipy_zoom_artefacts.json").read_text())
    sides = itertools.product(range(2, 33), range(2, 62))
    is_zero = lambda old, new: not resize_matrix(old, new, "scipy_zoom")[-1].any()  # noqa: E731
    assert [[old, new, 0.0] for old, new in sides if old != new and is_zero(old, new)] == listed


RULES = {"bicubic": "aa1", "bilinear": "aa0", "bicubic_no_antialias": "aa0"}


@pytest.mark.any_backend
@pytest.mark.parametrize("case", cases("timm_resample"), ids=str)
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("method", RULES)
def test_the_rules_of_timm(case, prefix, method):
    file, (old, new) = read_arrays(FOLDER / "timm_resample.npz"), (case["old"], case["new"])
    name = "{}x{}to{}x{}_prefix{}".format(*old, *new, prefix)
    before, after = file[f"{name}/in"], file[f"{name}/{method.split('_')[0]}_{RULES[method]}"]
    assert_close(before[:, :prefix], after[:, :prefix], 0)
    assert_close(resize_grid(before[0, prefix:], old, new, method), after[0, prefix:], 5e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize("old, new", [(16, 8), (8, 16), (32, 16)])
@pytest.mark.parametrize("method, key", [("bicubic", "bicubic_aa1"), ("bilinear", "bilinear_aa0")])
def test_patch_kernels(old, new, method, key):
    file = read_arrays(FOLDER / "timm_resample_patch_embed.npz")
    before, after = file[f"{old}to{new}/in_oihw"], file[f"{old}to{new}/{key}"]
    flat = [k.transpose(2, 3, 1, 0).reshape(-1, k.shape[0]) for k in (before, after)]
    resized = weights.resize_patches(flat[0], old, new, method)
    assert_close(resized, flat[1], 2e-5 * np.abs(flat[1]).max())


@pytest.mark.any_backend
@pytest.mark.parametrize("method", MATRICES)
def test_properties_of_every_rule(method):
    """A constant stays, the same size changes nothing, and order and mirror are respected."""
    for old, new in ((5, 5), (3, 8), (9, 4), (1, 6), (7, 1)):
        matrix = resize_matrix(old, new, method)
        assert_close(matrix @ np.ones(old), np.ones(new), 1e-12)
        if old == new:
            assert_close(matrix, np.eye(old), 1e-12)
        if new > 1:
            assert_close(matrix[::-1, ::-1], matrix, 1e-12)
    refuses(r"Unknown method.*'nearest'.*align_corners", resize_matrix, 2, 3, "nearest")


@pytest.mark.any_backend
@pytest.mark.parametrize("grid", [(5, 6), (6, 3), (8, 9), (30, 15)], ids=str)
def test_the_rule_of_flexivit(grid):
    """`jax.image.resize(..., "linear")` of JAX 0.10, which antialiases where it shrinks."""
    file = read_arrays(FOLDER / "jax_linear.npz")
    before, after = file["in"], file["{}x{}".format(*grid)]
    rule = ("bilinear_antialias", keras.ops, "float32")
    assert_close(resize_grid(before, (7, 5), grid, rule[0]), after, 1e-12)
    rows, columns = (to_numpy(resize_matrix(o, n, *rule)) for o, n in zip((7, 5), grid))
    in_the_graph = np.einsum("ro,cp,opd->rcd", rows, columns, before.reshape(7, 5, -1))
    assert_close(in_the_graph.reshape(after.shape), after, 1e-5)


def test_files_of_flexivit_are_resized_as_by_its_authors():
    """Nothing in a file says so: it is the catalogue, or the model that the weights are for."""
    path = ORACLES / "big_vision_vit" / "gap_learn_p8" / "checkpoint.npz"
    rules = {}
    for rule in ("bilinear_antialias", "align_corners"):
        made = keras_vit.from_checkpoint(path, patch_size=12)
        architecture = {**dataclasses.asdict(made.variant), "interpolation": rule}
        model = keras_vit.VisionTransformer(
            image_size=made.image_size, num_classes=made.num_classes, **architecture
        )
        report = keras_vit.load_weights(model, path, resize_patches=True)
        rules[rule] = [method for *_, method in report.resized]
    assert rules["bilinear_antialias"] == ["pseudo-inverse, bilinear", "bilinear_antialias"]
    assert rules["align_corners"] == ["pseudo-inverse, bicubic", "align_corners"]


# ---- models


SCHEMES = {
    "learned_1d": {},
    "no_class_token": {"pool": "mean"},
    "registers": {"registers": 3, "interpolation": "bicubic"},
    "mean_with_class_token": {"pool": "mean", "class_token": True, "interpolation": "bilinear"},
    "learned_2d": {"position": "learned_2d"},
    "sincos_2d": {"position": "sincos_2d", "pool": "mean"},
    "none": {"position": "none"},
    "map": {"pool": "map", "interpolation": "bicubic_no_antialias"},
}


def model_of(scheme, **options):
    return randomize(
        tiny_vit(image_size=(16, 32), patch_size=4, depth=1, **SCHEMES[scheme], **options)
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_model_of_any_size_is_the_resized_model(scheme):
    """Interpolating in the graph equals resizing first, for any h x w."""
    size = (12, 40)
    model = model_of(scheme, variable_size=True)
    fixed = keras_vit.resize(model, image_size=size, variable_size=False)
    assert fixed.image_size == size
    x = images((2, *size, 3))
    assert_close(forward(model, x), forward(fixed, x), 2e-5)
    if scheme == "registers":
        assert_close(model.predict(x, verbose=0), forward(fixed, x), 2e-5)


@pytest.mark.parametrize("scheme", ["learned_1d", "learned_2d", "sincos_2d"])
def test_a_model_of_any_size_in_float64(scheme):
    with precision("float64"):
        model = model_of(scheme, variable_size=True, dtype="float64")
        fixed = keras_vit.resize(model, image_size=(24, 12), variable_size=False)
        x = images((2, 24, 12, 3)).astype("float64")
        assert_close(forward(model, x), forward(fixed, x), 1e-11)


@pytest.mark.parametrize("scheme", ["learned_1d", "registers", "sincos_2d"])
def test_the_own_size_changes_nothing(scheme):
    model, x = model_of(scheme), images((2, 16, 32, 3))
    for copy in (keras_vit.resize(model), keras_vit.resize(model, variable_size=True)):
        assert_close(forward(copy, x), forward(model, x), 1e-6)
        assert copy is not model


def test_every_layer_position_embeddings_are_resized():
    model = randomize(tiny_vit(position_at="every_layer"))
    resized = keras_vit.resize(model, image_size=32)
    before, after = values(model), values(resized)
    for i in range(2):
        name = f"position_{i}/embedding"
        expected = resize_grid(before[name][0, 1:], (2, 2), (4, 4), "align_corners")
        assert_close(after[name][0, 1:], expected, 1e-6)
        assert_close(after[name][0, 0], before[name][0, 0], 0)


def test_the_rule_may_be_chosen_and_is_kept():
    model = randomize(tiny_vit())
    resized = keras_vit.resize(model, 24, interpolation="bicubic")
    assert resized.variant.interpolation == "bicubic"
    table = values(model)["patch_encoder/position/embedding"][0, 1:]
    expected = resize_grid(table, (2, 2), (3, 3), "bicubic")
    assert_close(values(resized)["patch_encoder/position/embedding"][0, 1:], expected, 1e-6)
    faulty = keras_vit.resize(model, 24, interpolation="scipy_zoom")
    assert faulty.variant.interpolation == "align_corners"


def test_smaller_patches_make_the_same_tokens_of_enlarged_images():
    """The property that defines FlexiViT's resize, for images that were enlarged by the rule."""
    model = randomize(tiny_vit(image_size=16, patch_size=4, position="none"))
    enlarged = keras_vit.resize(model, image_size=32, patch_size=8)
    x = images((2, 16, 16, 3))
    patches = x.reshape(2, 4, 4, 4, 4, 3)
    matrix = resize_matrix(4, 8, "bicubic")
    big = np.einsum("ui,vj,nricjk->nrucvk", matrix, matrix, patches).reshape(2, 32, 32, 3)
    assert_close(forward(enlarged, big.astype("float32")), forward(model, x), 1e-5)


@pytest.mark.any_backend
def test_options_and_class_names_are_carried_over():
    model = randomize(tiny_vit(dropout=0.1))
    model.class_names = ("a", "b", "c")
    resized = keras_vit.resize(model, 32, remat=True, dropout=0.0)
    config = resized.get_config()
    assert (resized.class_names, config["remat"], config["dropout"]) == (("a", "b", "c"), True, 0.0)


def test_what_cannot_be_resized():
    refuses(r"Relative positions.*no grid", keras_vit.resize, tiny_vit(position="relative"), 32)
    refuses("multiple of patch_size", keras_vit.resize, tiny_vit(), 30)
    words = "variable_size needs the position embedding at the input"
    refuses(words, tiny_vit, position="relative", variable_size=True)
    model = tiny_vit(variable_size=True)
    words = r"\(17, 16\).*nearest sizes that fit are \(16, 16\)"
    refuses(words, model, np.zeros((1, 17, 16, 3), "float32"))
    refuses("channels last", model, np.zeros((1, 16, 16, 1), "float32"))


def test_a_model_of_any_size_is_saved_and_trained(reopened):
    model = randomize(tiny_vit(variable_size=True, depth=1))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for size in (16, 24):
        model.fit(images((4, size, size, 3)), np.arange(4) % 3, verbose=0)
    x = images((2, 32, 8, 3))
    assert_close(forward(reopened(model), x), forward(model, x), 1e-6)
