"""Files that mean harm, and weights that are none: a clear error, and nothing happens."""

import contextlib
import json
import os
import re
import shutil
import struct
import zipfile

import numpy as np
import pytest
import requests

import keras_vit
from keras_vit.weights.downloads import DownloadError, _check_answer
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_same, randomize, read_arrays, refuses, tiny_vit, values
from tests.weights.stored import assert_same_weights

pytestmark = pytest.mark.any_backend

HF = ORACLES / "hf_transformers5" / "vit_cls_p8"


def refused(path, *patterns):
    with pytest.raises(keras_vit.CheckpointError) as error:
        keras_vit.from_checkpoint(path)
    assert path.name in str(error.value)
    for pattern in patterns:
        assert re.search(pattern, str(error.value)), str(error.value)


def npy(shape, dtype="<f4", data=b""):
    header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "shape", [(2**62, 2**62), (10**12,), (-1,), (2**31, 2**31, 2**31), (1.5,), "(3,)"]
)
def test_absurd_shapes_in_npz(tmp_path, shape):
    """A header may promise anything: the bytes behind it are counted before they are believed."""
    path = tmp_path / "absurd.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cls.npy", npy(shape, data=b"\0" * 16))
    refused(path, "npz file of plain arrays")


def test_a_zip_bomb_and_a_zip_that_lies_about_its_size(tmp_path):
    """The directory of the archive says small, the stream goes on: it is cut at what was said."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cls.npy", npy((10**7,), data=b"\0" * (4 * 10**7)))
    assert path.stat().st_size < 10**5
    refused(path, r"bytes would unpack to 4\d{7}")
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = struct.pack("<I", 1000)
    path.write_bytes(content)
    refused(path, "npz file of plain arrays")


def test_two_arrays_of_one_name(tmp_path):
    path = tmp_path / "twice.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for value in (b"\0" * 4, b"\1" * 4):
            with pytest.warns(UserWarning) if value[0] else contextlib.nullcontext():
                archive.writestr("cls.npy", npy((1,), data=value))
    refused(path, "two arrays have the same name")


def header_of(entries, values=b"\0" * 16):
    text = json.dumps(entries).encode() if isinstance(entries, dict) else entries
    return len(text).to_bytes(8, "little") + text + values


ARRAY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "content, pattern",
    [
        *(
            (header_of({"a": {**ARRAY, "shape": shape}}), "safetensors")
            for shape in ([2**62, 4], [-4])
        ),
        (header_of({"a": ARRAY}, b"\0" * 8), "safetensors"),
        (header_of(b"{" * 100_000), "safetensors"),
        (header_of(b"[]"), "of an unknown kind"),
        ((2**63).to_bytes(8, "little") + b"{", "its header would have"),
        (header_of(b'{"a":' + b"1," * 10_000_000), "its header would have"),
        (header_of({f"a{i}": ARRAY for i in range(30_000)}), "more than 20000 arrays"),
    ],
    ids=range(8),
)
def test_hostile_safetensors(tmp_path, content, pattern):
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    refused(path, pattern)


# ---- PyTorch files, Keras's own, and what is no file at all


def test_tensors_that_are_larger_than_their_file(tmp_path):
    """One number may be repeated along an axis, and an archive may be packed."""
    torch = pytest.importorskip("torch")
    repeated = {"patch_embed.proj.weight": torch.zeros(1).expand(10**12)}
    for new in (True, False):
        torch.save(repeated, tmp_path / "model.bin", _use_new_zipfile_serialization=new)
        refused(tmp_path / "model.bin", "have 4000000000000 bytes, more than it has")
    torch.save({"a": torch.zeros(10**7)}, tmp_path / "plain.bin")
    packed = tmp_path / "packed.bin"
    with zipfile.ZipFile(tmp_path / "plain.bin") as source:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
            for name in source.namelist():
                target.writestr(name, source.read(name))
    assert packed.stat().st_size < 10**5
    refused(packed, "bytes would unpack to")
    torch.save({1: torch.ones(1)}, packed)
    refused(packed, r"calls a tensor \[1\], which is no name")


def test_an_archive_of_very_many_parts(tmp_path):
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as archive:
        for i in range(20_001):
            archive.writestr(f"{i}.npy", b"")
    refused(tmp_path / "many.npz", "20001 parts")


def test_what_keras_itself_wrote_names_what_opens_it(tmp_path):
    model = tiny_vit()
    model.save(tmp_path / "model.keras")
    refused(tmp_path / "model.keras", r"keras\.saving\.load_model")
    model.save_weights(tmp_path / "model.weights.h5")
    refused(tmp_path / "model.weights.h5", r"model\.load_weights")


def test_what_never_ends_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    for name in ("pipe.npz", "zero.npz"):
        refuses(name, keras_vit.from_checkpoint, tmp_path / name, error=FileNotFoundError)


# ---- an index that names files elsewhere


def sharded(tmp_path, names=("part-1.safetensors", "part-2.safetensors")):
    arrays = read_safetensors(HF / "model.safetensors")
    half = len(arrays) // 2
    table = {name: names[i >= half] for i, name in enumerate(arrays)}
    for shard in set(names):
        part = {name: array for name, array in arrays.items() if table[name] == shard}
        write_safetensors(tmp_path / shard, part)
    shutil.copy(HF / "config.json", tmp_path)
    return write_index(tmp_path, table)


def write_index(folder, table):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return table


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..\\secret", "", ".", ".."]
)
def test_an_index_names_files_of_its_folder_only(tmp_path, name):
    folder = tmp_path / "model"
    folder.mkdir()
    table = sharded(folder)
    shutil.copy(HF / "model.safetensors", tmp_path / "secret.safetensors")
    write_index(folder, {**table, "classifier.bias": name})
    refused(folder, "not a plain name of a file in its folder")


def test_an_index_and_its_files_must_agree(tmp_path):
    table = sharded(tmp_path)
    assert_same_weights(keras_vit.from_checkpoint(HF), keras_vit.from_checkpoint(tmp_path))
    write_index(tmp_path, {**table, "more.weight": "part-1.safetensors"})
    refused(tmp_path, r"only it has \['more.weight'\]")
    write_index(tmp_path, {n: f for n, f in table.items() if n != "classifier.bias"})
    refused(tmp_path, r"only the files have \['classifier.bias'\]")
    for content in ("[]", "{}", '{"weight_map": {"a": 1}}', "{", "[" * 100_000):
        (tmp_path / "model.safetensors.index.json").write_text(content)
        refused(tmp_path, "weight_map|JSON")
    write_index(tmp_path, table)
    (tmp_path / "part-2.safetensors").unlink()
    refuses(r"part-2\.safetensors", keras_vit.from_checkpoint, tmp_path, error=FileNotFoundError)


# ---- configs that say what cannot be


def test_a_config_of_many_megabytes_is_not_read(tmp_path):
    folder = shutil.copytree(HF, tmp_path / "model")
    (folder / "config.json").write_text('{"a": "' + "x" * (8 << 20) + '"}')
    refused(folder, "larger than 8388608 bytes")


UNFIT = {
    "num_attention_heads": (0, 5, "four"),
    "layer_norm_eps": (-1.0, None, 1e30),
    "image_size": (10**9, 31, [32], {"height": 32}),
    "hidden_size": (96,),
    "intermediate_size": (1,),
    "num_hidden_layers": (12,),
    "hidden_act": ("relu", ["gelu"]),
}


@pytest.mark.parametrize("key, value", [(key, value) for key in UNFIT for value in UNFIT[key]])
def test_a_config_that_does_not_fit(tmp_path, key, value):
    folder = shutil.copytree(HF, tmp_path / "model")
    config = json.loads((HF / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"image_mean": [np.nan] * 3},
        {"image_mean": [1e308] * 3, "rescale_factor": 1e-300},
        {"image_std": [0, 1, 1]},
        {"rescale_factor": np.nan},
        {"rescale_factor": 0},
        {"resample": "gelu"},
        {"size": [1, 2, 3], "do_center_crop": True},
        {"size": 10**400, "do_center_crop": True, "crop_size": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_processor_that_no_images_pass(tmp_path, change):
    folder = shutil.copytree(HF, tmp_path / "model")
    (folder / "preprocessor_config.json").write_text(json.dumps(change))
    refused(folder, "no image processor has")


# ---- weights that are none


def test_weights_that_are_not_numbers(tmp_path):
    source, target = tiny_vit(), randomize(tiny_vit())
    before, preprocessing, path = values(target), target.preprocessing, tmp_path / "nan.npz"
    keras_vit.save_weights(source, path)
    arrays, place = read_arrays(path), "Transformer/encoderblock_1/MlpBlock_3/Dense_0/bias"
    for value in (np.nan, np.inf, 1e300):  # the last is infinite in float32
        np.savez(path, **{**arrays, place: np.full(32, value)})
        with pytest.raises(keras_vit.CheckpointError, match=r"NaN or infinite.*encoderblock_1"):
            keras_vit.load_weights(target, path)
        assert_same(values(target), before)
        assert target.preprocessing is preprocessing and not hasattr(target, "load_report")


def test_no_redirect_leads_from_https_to_http():
    """Where anybody on the way could answer."""
    answer, hop = requests.Response(), requests.Response()
    answer.status_code, answer.headers = 200, {"Content-Length": "3"}
    answer.url, hop.url = "https://host/file.npz", "http://host/file.npz"
    assert _check_answer(answer.url, answer, None) == 3
    answer.history = [hop]
    with pytest.raises(DownloadError, match=r"http://host/file.npz.*, which is not https"):
        _check_answer(answer.url, answer, None)
