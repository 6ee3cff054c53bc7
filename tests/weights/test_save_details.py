"""What is written besides the numbers themselves: their precision, and names of the classes."""

import errno
import itertools
import json
import os
import re
import shutil
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.weights import save
from tests.support import ORACLES, assert_same, killed_after, largest, randomize, refuses, tiny_vit
from tests.weights.test_save import FORMATS, SIZE, model_of

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("format", FORMATS)
def test_half_precision(tmp_path, format, dtype):
    """The weights are rounded, and nothing else changes; half the bytes."""
    model, path = model_of({}), tmp_path / FORMATS[format]
    if (format, dtype) == ("google", "bfloat16"):
        refuses("choose 'float16'", keras_vit.save_weights, model, path, dtype=dtype)
        assert not path.exists()
        return
    keras_vit.save_weights(model, path, dtype=dtype)
    file = path / "model.safetensors" if format == "huggingface" else path
    keras_vit.save_weights(model, tmp_path / "whole" / path.name)
    whole = tmp_path / "whole" / file.relative_to(tmp_path)
    half = 2 * model.count_params()
    assert abs(whole.stat().st_size - file.stat().st_size - half) < 0.1 * half
    if format == "huggingface":
        assert json.loads((path / "config.json").read_text())["torch_dtype"] == dtype
    read = keras_vit.from_checkpoint(path, image_size=SIZE)
    assert_same(read.weights, [keras.ops.cast(v, dtype) for v in model.weights])


def test_a_weight_that_half_precision_cannot_hold(tmp_path):
    model, path = model_of({}), tmp_path / "model.safetensors"
    model.get_layer("norm").beta.assign(np.full(8, 1e5))
    words = r"norm\.bias.*dtype='float16'; choose 'bfloat16'"
    refuses(words, keras_vit.save_weights, model, path, dtype="float16")
    assert not path.exists()
    keras_vit.save_weights(model, path, dtype="bfloat16")
    refuses("Unknown dtype", keras_vit.save_weights, model, path, dtype="int8")


@pytest.mark.parametrize("format", ["timm", "huggingface"])
def test_names_of_the_classes_come_along(tmp_path, format):
    model, names = model_of({}), ("bird", "cat", "dog")
    model.class_names = names
    path = keras_vit.save_weights(model, tmp_path / FORMATS[format])
    assert keras_vit.from_checkpoint(path).class_names == names
    yes_or_no = tiny_vit(num_classes=1)
    yes_or_no.reading, yes_or_no.class_names = "sigmoid", ("no", "yes")
    path = keras_vit.save_weights(yes_or_no, tmp_path / "one" / FORMATS[format])
    assert keras_vit.from_checkpoint(path).class_names == ("no", "yes")
    if format == "huggingface":  # whose readers count the outputs so
        assert json.loads((path / "config.json").read_text())["id2label"] == {"0": "yes"}


@pytest.mark.parametrize("case", ["timm/vit_token_p8", "bit_timm/resnetv2_bit_11_w05"])
def test_label_names_of_timm(tmp_path, case):
    """They come in a list, one for each class; a dict may leave some out, and says nothing here."""
    folder = shutil.copytree(ORACLES / case, tmp_path / "case")
    config, count = folder / "config.json", keras_vit.from_checkpoint(folder).num_classes
    said, names = json.loads(config.read_text()), [f"class {i}" for i in range(count)]
    for found, read in ((names, tuple(names)), (names[1:], None), ({"1": "class 1"}, None)):
        config.write_text(json.dumps({**said, "label_names": found}), "utf-8-sig")
        model = keras_vit.from_checkpoint(folder)
        assert model.class_names == read
        assert ("names of classes" in str(model.load_report)) == (read is None)


def save_and_listen(model, path, about, **options):
    """The path, and the warnings that have some words."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        keras_vit.save_weights(model, path, **options)
    return path, [str(each.message) for each in told if about in str(each.message)]


BY_PILLOW = {"interpolation": "bicubic", "library": "pillow"}
LOSSES = {  # of pixels and reading: format -> what the warning says
    "another mean": (
        {"preprocessing": keras_vit.Preprocessing(mean=(0.3, 0.4, 0.5), **BY_PILLOW)},
        {
            "google": r"preprocessing\.mean=\(0\.3, 0\.4, 0\.5\) \(read as \(0\.5, 0\.5, 0\.5\)\)",
            "timm": None,
            "huggingface": None,  # whose resize without a crop is Pillow's, too
        },
    ),
    "TensorFlow's resize": (
        {"preprocessing": keras_vit.preprocessing.GOOGLE},
        {
            "google": None,
            "timm": r"Received: preprocessing\.library='tensorflow' \(read as 'pillow'\)\. Set",
            "huggingface": r"preprocessing\.library='tensorflow' \(read as 'transformers'\)",
        },
    ),
    "a part of the crop": (
        {"preprocessing": keras_vit.preprocessing.TIMM},
        {"google": r"crop_fraction=0\.9", "timm": None, "huggingface": r"crop_fraction=0\.9 "},
    ),
    "a sigmoid": (
        {"reading": "sigmoid", "preprocessing": keras_vit.Preprocessing(**BY_PILLOW)},
        {"google": r"reading='sigmoid' \(read as 'softmax'\)", "timm": None, "huggingface": None},
    ),
    "values": (
        {"reading": "values", "preprocessing": keras_vit.preprocessing.GOOGLE},
        {"google": r"reading='values'", "timm": "library", "huggingface": "library"},
    ),
    "nothing": (
        {"reading": "softmax", "class_names": ("bird", "cat", "dog")},
        {"google": None},  # that npz files have no names is known
    ),
}


@pytest.mark.parametrize(
    "name, format", [(name, format) for name, (_, texts) in LOSSES.items() for format in texts]
)
def test_what_a_format_cannot_say_of_pixels_and_outputs(tmp_path, name, format):
    """A warning lists it; where none does, the copy predicts what the model does."""
    (attributes, texts), model = LOSSES[name], model_of({})
    model.weights_from = "a checkpoint"
    for attribute, value in attributes.items():
        setattr(model, attribute, value)
    path, told = save_and_listen(model, tmp_path / FORMATS[format], "has a place")
    assert len(told) == bool(texts[format]) and re.search(texts[format] or "", *told or [""])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a card has the lines
        keras_vit.save_weights(model, tmp_path / "card" / path.name, card=True)
    copy = keras_vit.from_checkpoint(path, image_size=SIZE)
    noise = np.random.default_rng(0).integers(0, 256, (4, 50, 61, 3), "uint8")
    expected, received = (
        [sorted(each[1:] for each in image) for image in keras_vit.predict(m, noise)]
        for m in (model, copy)
    )
    assert np.allclose(received, expected, atol=1e-5) == (not told)


@pytest.mark.parametrize(
    "format, options, text",
    [
        ("google", {"pool": None}, r"pool=None \(read as 'token'\).*'model\.npz', pool=None\)"),
        ("huggingface", {"pool": None, "num_classes": 0}, r"pool=None \(read as 'token'\)"),
        ("timm", {"pool": None}, None),
        ("google", {"position": "sincos_2d", "pool": "mean"}, None),  # written as a table
    ],
)
def test_architecture_that_a_format_cannot_say(tmp_path, format, options, text):
    """A file of a model that gives all tokens opened as one that pools them, without a word."""
    model = tiny_vit(gelu="tanh" if format == "google" else "erf", **options)
    path, told = save_and_listen(model, tmp_path / FORMATS[format], "all of the arch", force=True)
    assert len(told) == bool(text) and re.search(text or "", *told or [""])
    copy = keras_vit.from_checkpoint(path, num_heads=2, **({"pool": None} if text else {}))
    assert copy.output_shape == model.output_shape


def test_the_default_of_a_new_model_and_grey_images_are_no_loss(tmp_path):
    model, path = tiny_vit(gelu="erf"), tmp_path / "model.safetensors"
    assert not save_and_listen(model, path, "has a place")[1]
    model.compile("sgd", "mse")  # as before a training
    in_a_loop = tiny_vit(gelu="erf")  # of the user's own
    in_a_loop.get_layer("head").bias.assign([1, 0, 2])
    for trained in (model, in_a_loop):
        with pytest.warns(UserWarning, match="has a place"):
            keras_vit.save_weights(trained, path)
    grey = tiny_vit(channels=1)
    for facts in (keras_vit.preprocessing.GOOGLE, keras_vit.preprocessing.GOOGLE.for_channels(1)):
        grey.preprocessing = facts
        assert not save_and_listen(grey, tmp_path / "model.npz", "has a place")[1]


def two_models():
    """Models of equal sizes and different functions, with names of their own."""
    for seed, names in ((1, ("bird", "cat", "dog")), (2, ("one", "two", "three"))):
        model = randomize(model_of({}), seed=seed)
        model.class_names = names
        model.preprocessing = keras_vit.Preprocessing(mean=(0.1 * seed,) * 3, std=(0.5,) * 3)
        yield model


def fingerprint(model, path):
    """What shows a mixture: a weight, and in formats that keep them names and means."""
    own = None if path.suffix == ".npz" else (model.class_names, model.preprocessing.mean)
    return float(largest(model.get_layer("norm").beta)), own


@pytest.mark.parametrize("format", FORMATS)
def test_a_process_killed_while_it_saves(tmp_path, monkeypatch, format):
    """The old model, or the new one, or an error that says so; never new weights and old names."""
    path, (old, new) = tmp_path / "folder" / FORMATS[format], two_models()
    seen = []
    for calls in itertools.count():
        keras_vit.save_weights(old, path, card=True)
        with killed_after(monkeypatch, calls):
            keras_vit.save_weights(new, path, card=True)
        try:
            found = keras_vit.from_checkpoint(path, image_size=SIZE)
            read = fingerprint(found, path)
            seen.append({fingerprint(old, path): "old", fingerprint(new, path): "new"}[read])
        except (ValueError, FileNotFoundError) as error:
            assert format == "google" or "Save again, or move the files" in str(error)
            seen.append("error")
        if killed_after.reached_the_end:
            break
    assert seen == sorted(seen, key=["old", "error", "new"].index) and {"old", "new"} <= {*seen}
    assert len(seen) > 8


@pytest.mark.parametrize("format", FORMATS)
def test_a_disk_that_is_full_at_any_file(tmp_path, monkeypatch, format):
    """It may be told when the bytes of a file are to be on the disk, and is there for each file."""
    path, (old, new) = tmp_path / FORMATS[format], two_models()
    keras_vit.save_weights(old, path, card=True)
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for count in itertools.count():
        calls, fsync = itertools.count(), os.fsync

        def full(number, calls=calls, fsync=fsync, count=count):
            if next(calls) == count:
                raise OSError(errno.ENOSPC, "No space left on device")
            fsync(number)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                keras_vit.save_weights(new, path, card=True)
                break
            except OSError as error:
                assert error.errno == errno.ENOSPC
        assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == files
    assert count >= len(files)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_no_file_is_refused_before_the_work(tmp_path, monkeypatch, format):
    path = tmp_path / FORMATS[format]
    file = path / "model.safetensors" if format == "huggingface" else path
    file.parent.mkdir(exist_ok=True)
    os.mkfifo(file)
    monkeypatch.setattr(save, "_canonical_arrays", None)
    refuses(r"must be a file.*which is a pipe", keras_vit.save_weights, model_of({}), path)


def test_links_among_the_files(tmp_path):
    """A link in the folder stays, as does one to the folder."""
    path, (old, new) = tmp_path / "link", two_models()
    (tmp_path / "real").mkdir()
    path.symlink_to("real")
    keras_vit.save_weights(old, path)
    config = (path / "config.json").rename(tmp_path / "shared.json")
    (path / "config.json").symlink_to("../shared.json")
    keras_vit.save_weights(new, path)
    assert path.is_symlink() and (path / "config.json").is_symlink()
    assert "three" in config.read_text()
    read = keras_vit.from_checkpoint(path)
    assert fingerprint(read, path) == fingerprint(new, path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_a_config_that_is_no_file_is_not_passed_over(tmp_path, make):
    path = keras_vit.save_weights(model_of({}), tmp_path / "model.safetensors")
    (tmp_path / "config.json").unlink()
    make(tmp_path / "config.json")
    words = r"There is no checkpoint file .*config\.json"
    refuses(words, keras_vit.from_checkpoint, path, error=FileNotFoundError)


@pytest.mark.parametrize("name", ["model", "model/model.safetensors"])
def test_a_config_of_open_clip_says_nothing_of_other_models(tmp_path, name):
    """It may have been in the folder before, and shares names with other libraries' configs."""
    (tmp_path / "model").mkdir()
    said = {"hidden_act": "relu", "problem_type": "regression", "architecture": "resnet50"}
    said |= {"model_type": "clip", "model_cfg": {"vision_cfg": {"width": 8}}}
    (tmp_path / "model" / "open_clip_config.json").write_text(json.dumps(said))
    model = model_of({})
    keras_vit.save_weights(model, tmp_path / name)
    copy = keras_vit.from_checkpoint(tmp_path / name)
    assert copy.reading == model.reading
    assert copy.variant.activation == model.variant.activation
