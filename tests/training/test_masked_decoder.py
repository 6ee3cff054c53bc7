"""Files of masked autoencoders: names of several versions, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from keras_vit import training
from keras_vit.weights import CheckpointError
from tests.support import ORACLES, assert_same, refuses, values

pytestmark = pytest.mark.any_backend
FOLDER = ORACLES / "mae" / "model"
read = training.MaskedAutoencoder.from_checkpoint


def test_names_of_other_versions_of_transformers(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "named")
    arrays = safetensors.numpy.load_file(FOLDER / "model.safetensors")
    arrays = {n.replace("decoder_encoder.layer.", "decoder_layers."): a for n, a in arrays.items()}
    assert "decoder.decoder_layers.1.attention.attention.query.weight" in arrays
    safetensors.numpy.save_file(arrays, tmp_path / "named" / "model.safetensors")
    mine, expected = map(read, (tmp_path / "named", FOLDER))
    assert_same(values(mine), values(expected))


def test_files_that_hold_no_such_decoder(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "other")
    config = json.loads((FOLDER / "config.json").read_text())
    for changed, message in (
        ({"decoder_num_hidden_layers": 3}, "decoder_num_hidden_layers=3, and 2 in the arrays"),
        ({"decoder_num_attention_heads": 3}, "3 heads do not divide"),
        ({"mask_ratio": 1.5}, r"masked must be .*\(0, 1\).*1.5"),
    ):
        (tmp_path / "other" / "config.json").write_text(json.dumps({**config, **changed}))
        refuses(message, read, tmp_path / "other")
    without = ORACLES / "hf_transformers5" / "vit_cls_p8"
    refuses("no decoder.*encoder alone", read, without, error=CheckpointError)

    arrays = safetensors.numpy.load_file(FOLDER / "model.safetensors")
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    for name, array, message in (
        ("decoder.decoder_norm.bias", None, r"norm/beta.*\(8,\), None"),
        ("decoder.mask_token", np.full((1, 1, 8), np.nan), "not finite in .*mask"),
        ("decoder.router.weight", np.ones(3), "no place.*decoder.router"),
    ):
        others = {n: a for n, a in arrays.items() if n != name}
        others |= {} if array is None else {name: array.astype("float32")}
        safetensors.numpy.save_file(others, tmp_path / "other" / "model.safetensors")
        refuses(message, read, tmp_path / "other", error=CheckpointError)
