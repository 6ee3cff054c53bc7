"""Presets of KerasHub: the model computes what KerasHub does, or the preset is refused."""

import json
import shutil

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_hdf5
from keras_vit.weights.safety import CheckpointError
from tests.support import ORACLES, assert_close, forward, oracle_cases, read_arrays, values
from tests.weights.stored import refused

CASES = oracle_cases("keras_hub")
TOKEN, GAP, BACKBONE = (
    ORACLES / "keras_hub" / name
    for name in ("classifier_token", "classifier_gap_prelogits", "backbone_no_bias")
)
pytestmark = pytest.mark.any_backend
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture
def preset(tmp_path):
    """Copies a preset, for a test to change."""
    return lambda source: shutil.copytree(source, tmp_path / source.name)


def edit(file, change):
    """Changes an argument in a JSON file of a preset."""
    content = json.loads(file.read_text())
    change(content["config"])
    file.write_text(json.dumps(content))


def convert(folder, **options):
    """Changes arguments of the image converter."""
    converter = lambda config: config["image_converter"]["config"]  # noqa: E731
    edit(folder / "preprocessor.json", lambda config: converter(config).update(options))


def assert_computes(model, folder, tolerance=1e-5):
    """Checks that a model gives what KerasHub gives for the images of a preset."""
    io = read_arrays(folder / "io.npz")
    assert_close(forward(model, io["input"]), io["output_f64"], tolerance)


@every_case
def test_every_array_is_loaded_or_belongs_to_the_training(case):
    report = keras_vit.from_checkpoint(case.folder).load_report
    stored = [name for path in case.folder.glob("*.h5") for name in read_hdf5(path)]
    training = [name for name in stored if name.startswith("optimizer/")]
    assert set(report.ignored) == set(training)
    absent = 1 + 3 * 2 if case.folder == BACKBONE else 0  # biases that KerasHub leaves out
    assert len(report.loaded) == len(stored) - len(training) + absent
    assert not report.initial and not report.differs


@pytest.mark.parametrize("folder", [TOKEN, GAP], ids=lambda folder: folder.name)
def test_the_path_of_the_head_loads_the_classifier(folder):
    assert_computes(keras_vit.from_checkpoint(folder / "task.weights.h5"), folder)


def test_the_path_of_the_backbone_loads_its_tokens():
    io = read_arrays(TOKEN / "io.npz")
    backbone = keras_vit.from_checkpoint(TOKEN / "model.weights.h5")
    tokens = backbone.predict(io["input"], verbose=0)
    head = values(keras_vit.from_checkpoint(TOKEN).get_layer("head"))
    assert tokens.shape == (3, 17, 32)
    assert_close(tokens[:, 0] @ head["kernel"] + head["bias"], io["output_f64"], 1e-5)


@pytest.mark.parametrize("path, pool", [(BACKBONE, "token"), (GAP / "model.weights.h5", "mean")])
def test_a_backbone_under_a_new_head(path, pool):
    model = keras_vit.from_checkpoint(path, num_classes=7)
    assert model.variant.pool == pool and model.output.shape == (None, 7)


def test_backbone_and_head_in_one_file(preset):
    """What `classifier.save_weights` writes."""
    folder = preset(GAP)
    with h5py.File(folder / "task.weights.h5", "r+") as task:
        with h5py.File(folder / "model.weights.h5") as model:
            model.copy(model["layers"], task.create_group("layers/vi_t_backbone"), "layers")
    (folder / "model.weights.h5").unlink()
    (folder / "task.weights.h5").rename(folder / "trained.weights.h5")
    assert_computes(keras_vit.from_checkpoint(folder / "trained.weights.h5"), folder)


@every_case
def test_load_weights_into_a_model_that_fits(case):
    loaded = keras_vit.from_checkpoint(case.folder)
    model = type(loaded).from_config(loaded.get_config())
    report = keras_vit.load_weights(model, case.folder)
    assert not report.differs and not report.initial
    assert_computes(model, case.folder)


def test_another_pooling_is_reported():
    model = keras_vit.from_checkpoint(TOKEN, pool="mean", class_token=True)
    assert ("pool", "token", "mean") in model.load_report.differs


@pytest.mark.parametrize("folder", [TOKEN, GAP], ids=lambda folder: folder.name)
def test_images_are_prepared_as_by_the_converter(folder):
    model, io = keras_vit.from_checkpoint(folder), read_arrays(folder / "io.npz")
    assert_close(keras_vit.data.preprocess(io["photo"], model)[0], io["photo_converted"], 2e-6)
    assert model.class_names is None


UNSAID = {"interpolation": "lanczos3", "antialias": True, "image_size": [64, 64]}
UNSAID |= {"pad_to_aspect_ratio": True}


@pytest.mark.parametrize("option", UNSAID)
def test_what_no_recipe_can_say_is_reported(preset, option):
    folder = preset(TOKEN)
    convert(folder, **{option: UNSAID[option]})
    ignored = keras_vit.from_checkpoint(folder).load_report.ignored
    assert any(option in text and "image converter" in text for text in ignored)


def test_mean_and_variance_of_older_converters(preset):
    folder = preset(TOKEN)
    convert(folder, scale=1 / 255, mean=[0.1, 0.2, 0.3], variance=[0.25, 0.04, 0.09])
    preprocessing = keras_vit.from_checkpoint(folder).preprocessing
    assert preprocessing.mean == (0.1, 0.2, 0.3) and preprocessing.std == (0.5, 0.2, 0.3)


@pytest.mark.parametrize("scale", [0, -1.0, "big", [1.0, 2.0], {}])
def test_a_converter_with_a_strange_scale(preset, scale):
    folder = preset(TOKEN)
    convert(folder, scale=scale)
    refused(None, folder)


def test_an_activation_after_the_head_is_reported(preset):
    folder = preset(TOKEN)
    edit(folder / "task.json", lambda config: config.update(activation="softmax"))
    model = keras_vit.from_checkpoint(folder)
    assert any("activation='softmax'" in text for text in model.load_report.ignored)
    assert_computes(model, folder)


@pytest.mark.parametrize(
    "source, pooling, words",
    [
        (TOKEN, "gap", r"class token too.* model\.weights\.h5"),
        (GAP, "token", "first patch"),
        (TOKEN, {"a": 1}, "pooling="),
    ],
)
def test_a_pooling_that_no_head_here_has(preset, source, pooling, words):
    folder = preset(source)
    edit(folder / "task.json", lambda config: config.update(pooling=pooling))
    refused(words, folder)
    tokens = keras_vit.from_checkpoint(folder / "model.weights.h5").output
    assert len(tokens.shape) == 3


def test_channels_first(preset):
    """KerasHub's config then gives the channels first; the arrays are the same."""
    folder = preset(GAP)
    edit(folder / "config.json", lambda config: config.update(image_shape=[3, 16, 24]))
    model = keras_vit.from_checkpoint(folder)
    assert model.image_size == (16, 24)
    assert_computes(model, folder)


def test_without_configs_the_shapes_tell(preset):
    folder = preset(TOKEN)
    for name in ("config.json", "preprocessor.json", "image_converter.json"):
        (folder / name).unlink()
    edit(folder / "task.json", lambda config: config.pop("backbone"))
    model = keras_vit.from_checkpoint(folder)
    assert model.variant.num_heads == 4 and model.image_size == (32, 32)
    assert any(what == "epsilon" for what, _, _ in model.load_report.assumed)
    assert_computes(model, folder)


@pytest.mark.parametrize(
    "source, removed, message",
    [
        (TOKEN, ["task.json"], r"task\.json .* pool='token'"),
        (TOKEN, ["model.weights.h5"], r"no checkpoint file .*model\.weights\.h5"),
        (BACKBONE, ["config.json"], "projection/bias"),
        (GAP, ["config.json", "task.json"], r"task\.json .* pool='token'"),
    ],
)
def test_what_is_missing_is_named(preset, source, removed, message):
    folder = preset(source)
    for name in removed:
        (folder / name).unlink()
    with pytest.raises((CheckpointError, FileNotFoundError), match=f"(?i){message}"):
        keras_vit.from_checkpoint(folder)


def test_without_a_task_the_caller_says_the_pooling(preset):
    folder = preset(TOKEN)
    (folder / "task.json").unlink()
    assert_computes(keras_vit.from_checkpoint(folder, pool="token"), folder)
    refused("the class token too", folder, pool="mean")


# Ways in which a dataset of an HDF5 file says more than it has, or points elsewhere.
HARMFUL = {
    "chunks": {"shape": (10**12,), "dtype": "f4", "chunks": (2**20,)},
    "packed": {"data": np.zeros(10**7, "f4"), "compression": "gzip"},
    "elsewhere": {"shape": (32,), "dtype": "f4", "external": [("/etc/passwd", 0, 1024)]},
    "link": None,
    "objects": {"data": ["text"]},
    "unwritten": {"shape": (10**11,), "dtype": "f4"},
    "plain": {},  # what Keras writes of another model
}


@pytest.mark.parametrize("kind", HARMFUL)
def test_harmful_and_foreign_hdf5(preset, kind):
    path, name = preset(TOKEN) / "model.weights.h5", "layers/vi_t_encoder/layer_norm/vars/0"
    with h5py.File(path, "r+") as file:
        values = file[name][()]
        del file["layers" if kind == "plain" else name]
        if kind == "link":
            file[name] = h5py.ExternalLink("/etc/passwd", "x")
        elif kind == "plain":
            file["layers/conv/vars/0"] = values
        else:
            file.create_dataset(name, **HARMFUL[kind])
    refused(r"model\.load_weights" if kind == "plain" else None, path)
