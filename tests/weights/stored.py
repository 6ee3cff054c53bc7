"""Stored checkpoints of other libraries in tests/oracles/later, as they are or changed."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_close, assert_same, read_arrays, refuses

LATER = ORACLES / "later"


def model_of(case):
    """The folder of a case's checkpoint."""
    return LATER / case / "model"


def options_of(case):
    """What a caller has to say so that it can be read."""
    return json.loads((LATER / case / "case.json").read_text())["options"]


def opened(case, **options):
    return keras_vit.from_checkpoint(model_of(case), **options_of(case), **options)


def io_of(case):
    return read_arrays(LATER / case / "io.npz")


def arrays_of(case):
    return read_safetensors(model_of(case) / "model.safetensors")


def config_of(case):
    return json.loads((model_of(case) / "config.json").read_text())


def changed(case, folder, arrays=None, arguments=None, **config):
    """A copy of a checkpoint with other arrays and another config.

    `arrays` is a function of all of them, or a dict of some: `None` removes one, and a tuple is the
    shape of one of ones. `arguments` are keys of timm's `model_args`.
    """
    shutil.copytree(model_of(case), folder, dirs_exist_ok=True)
    file = arrays_of(case)
    file = arrays(file) if callable(arrays) else {**file, **(arrays or {})}
    ones = lambda a: np.ones(a, "float32") if isinstance(a, tuple) else a  # noqa: E731
    file = {name: ones(array) for name, array in file.items() if array is not None}
    write_safetensors(folder / "model.safetensors", file)
    if config or arguments:
        config = {**config_of(case), **config}
        if arguments:
            config["model_args"] |= arguments
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def edit(path, **changes):
    """Changes entries of a JSON file; `None` takes one away."""
    content = {**json.loads(path.read_text()), **changes}
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(kept))


def refused(words, path, call=keras_vit.from_checkpoint, **options):
    """Checks that a file is refused with the error for checkpoints, whose text matches `words`."""
    refuses(words, call, path, error=keras_vit.CheckpointError, **options)


def assert_same_weights(a, b, tolerance=0):
    """The variables of two models, one after the other."""
    for one, other in zip(a.weights, b.weights, strict=True):
        assert_close(one, other, tolerance)


def output_of_torch(model, x):
    """What a model of PyTorch gives for images with the channels last.

    It computes in float64, as float32 alone costs deep models 1e-5.
    """
    import torch

    with torch.no_grad():
        return model.eval().double()(torch.tensor(x.transpose(0, 3, 1, 2)).double())


def output_of_library(model, folder, x):
    """What timm or transformers gives for images; `model` is what was written to a folder."""
    torch = pytest.importorskip("torch")
    config = json.loads((folder / "config.json").read_text())
    if "pretrained_cfg" in config:
        timm = pytest.importorskip("timm")
        theirs = timm.create_model(config["architecture"], **config["model_args"])
        timm.models.load_checkpoint(theirs, str(folder / "model.safetensors"), strict=True)
        again = timm.create_model(f"local-dir:{folder}", pretrained=True).state_dict()
        assert_same({n: t.numpy() for n, t in theirs.state_dict().items()}, again)
        missing = ()
    else:
        transformers = pytest.importorskip("transformers")
        (name,) = config["architectures"]
        theirs, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
        missing = info["missing_keys"]
        assert not info["unexpected_keys"]
        assert all(name.startswith("pooler.") for name in missing)
    outputs = output_of_torch(theirs, x)
    if isinstance(outputs, torch.Tensor):
        return outputs.numpy()
    if "logits" in outputs:
        return outputs.logits.numpy()
    if missing or getattr(model.variant, "pool", "") is None:
        return outputs.last_hidden_state[:, 0 if model.variant.pool else slice(None)].numpy()
    return outputs.pooler_output.reshape(len(x), -1).numpy()
