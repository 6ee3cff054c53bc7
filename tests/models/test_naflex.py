"""NaFlex: files of transformers with its numbers, padding that has no say, and its inputs."""

import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training
from keras_vit.data import naflex_inputs
from keras_vit.data.naflex import naflex_size
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.arrays import ORACLES, assert_close, to_numpy
from tests.support import forward, randomize, refuses, slow_unless_torch
from tests.weights.stored import refused

FOLDER = ORACLES / "naflex"


def inputs(case):
    stored = np.load(FOLDER / case / "io.npz")
    return {name: stored[name] for name in ("patches", "mask", "shapes")}, stored["output"]


def small(**options):
    architecture = {"width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24, "patch_size": 4}
    return randomize(
        keras_vit.NaFlexVisionTransformer(grid=3, name="small", **architecture, **options)
    )


@pytest.mark.parametrize(
    "case",
    ["map", *(pytest.param(case, marks=slow_unless_torch) for case in ("tokens", "classes"))],
)
def test_equals_transformers(case):
    """Random models of transformers 5.23; where tokens come out, those of patches are compared."""
    x, expected = inputs(case)
    outputs = to_numpy(forward(keras_vit.naflex_from_checkpoint(FOLDER / case), x))
    assert outputs.shape == expected.shape
    seen = x["mask"][:, :, None] if outputs.ndim == 3 else 1
    assert_close(outputs * seen, expected * seen, 2e-6)


def test_padding_has_no_say_and_training_saving_go_on(reopened):
    x, _ = inputs("map")
    model = small(num_classes=3, pool="mean")
    expected = to_numpy(forward(model, x))
    noise = {**x, "patches": x["patches"] + 5.0 * (x["mask"] == 0)[:, :, None].astype("float32")}
    assert_close(forward(model, noise), expected, 1e-5)
    one = {name: array[2:, :1] if name != "shapes" else array[2:] for name, array in x.items()}
    assert_close(forward(model, one), expected[2:], 1e-5)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(model.train_on_batch(x, np.array([0, 1, 2])))
    training.enable_lora(model, 2)
    opened = reopened(model)
    assert_close(forward(opened, x), forward(model, x), 1e-5)
    paths = [[v.path for v in each.trainable_weights] for each in (opened, model)]
    assert paths[0] == paths[1]


@pytest.mark.any_backend
def test_inputs_keep_the_aspect_ratio():
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((37, 53, 3), (9, 40, 3))]
    made = naflex_inputs(images, small(), 30)
    assert made["shapes"].tolist() == [[5, 6], [3, 10]]  # as transformers has them
    assert made["mask"].sum(axis=1).tolist() == [30, 30]
    patch = made["patches"][0, 7].reshape(4, 4, 3)  # of the second row and column
    resized = keras_vit.data.resize.pillow_resize(images[0], (20, 24), "bilinear")
    np.testing.assert_allclose(patch, resized[4:8, 4:8] / 127.5 - 1, atol=1e-6)
    few = naflex_inputs(images[:1], small(), 7)
    assert few["mask"].sum() == np.prod(few["shapes"]) <= 7
    assert not few["patches"][few["mask"] == 0].any()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "size, patch, patches, expected",
    [((480, 640), 16, 256, (224, 288)), ((10, 2000), 16, 64, (16, 1024)), ((7, 7), 4, 1, (4, 4))],
)
def test_sizes_of_transformers(size, patch, patches, expected):
    """Of `get_image_size_for_max_num_patches`."""
    assert naflex_size(size, (patch, patch), patches) == expected


@pytest.mark.any_backend
def test_other_files_and_architectures_are_refused(tmp_path):
    shutil.copytree(FOLDER / "map", tmp_path / "other")
    config = json.loads((FOLDER / "map" / "config.json").read_text())

    def changed(words, **changes):
        (tmp_path / "other" / "config.json").write_text(json.dumps({**config, **changes}))
        refused(words, tmp_path / "other", keras_vit.naflex_from_checkpoint)

    changed("model_type='siglip'", model_type="siglip")
    changed("hidden_act='relu'", hidden_act="relu")
    changed("patch_embedding.* must have the shape .* for patch_size=8", patch_size=8)
    changed("other': .*vision_use_head=False, and the file has .*probe", vision_use_head=False)
    arrays = read_safetensors(FOLDER / "map" / "model.safetensors")
    arrays[next(name for name in arrays if name.endswith("fc1.bias"))][0] = np.nan
    write_safetensors(tmp_path / "other" / "model.safetensors", arrays)
    changed("checkpoint '.*other' has NaN")
    refused(r"keras_vit\.naflex_from_checkpoint", FOLDER / "map")
    refuses("Unknown checkpoint", keras_vit.naflex_from_checkpoint, "siglip2-naflex")
    refuses("rotary must be one of", small, rotary="axial")
    refuses("pool must be one of", small, pool="token", class_token=True)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph of TensorFlow")
def test_a_graph_of_any_number_of_tokens():
    import tensorflow as tf

    model, (x, _) = small(), inputs("map")
    values = 4 * 4 * 3  # of a patch
    patches = np.random.default_rng(0).normal(size=(*x["mask"].shape, values))
    x = {"patches": patches.astype("float32")}
    x |= {name: inputs("map")[0][name].astype("int32") for name in ("mask", "shapes")}
    shapes = {"patches": (None, None, values), "mask": (None, None), "shapes": (None, 2)}
    signature = {name: tf.TensorSpec(shapes[name], x[name].dtype) for name in x}
    graph = tf.function(lambda x: model(x), input_signature=[signature])
    assert_close(graph(x), model(x), 1e-6)
