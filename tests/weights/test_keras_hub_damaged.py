"""KerasHub presets that are damaged, or that were made to do harm: nothing is loaded."""

import shutil

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.weights import families
from keras_vit.weights.contents import open_checkpoint
from keras_vit.weights.files import CheckpointError
from keras_vit.weights.hdf5 import read_hdf5
from tests.support import ORACLES

pytestmark = pytest.mark.any_backend

PRESET = ORACLES / "keras_hub" / "classifier_token"
BLOCK_1 = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block_1/"
BIAS = BLOCK_1 + "mlp/dense_2/vars/1"
KERNEL = BLOCK_1 + "mlp/dense_2/vars/0"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(PRESET, tmp_path / "preset")


def refused(folder, match):
    with pytest.raises(CheckpointError, match=match):
        keras_vit.from_checkpoint(folder)


def change(folder, name, value=None, file="model.weights.h5", **options):
    """Puts another dataset in the place of one, or removes it."""
    with h5py.File(folder / file, "r+") as stream:
        if name in stream:
            del stream[name]
        if value is not None or options:
            stream.create_dataset(name, data=value, **options)


@pytest.mark.parametrize(
    "name",
    [
        "layers/vi_t_patching_and_embedding/vars/0",
        "layers/vi_t_patching_and_embedding/patch_embedding/vars/0",
        "layers/vi_t_patching_and_embedding/patch_embedding/vars/1",
        "layers/vi_t_patching_and_embedding/position_embedding/vars/0",
        "layers/vi_t_encoder/layer_norm/vars/0",
        "layers/vi_t_encoder/layer_norm/vars/1",
        KERNEL,
        BIAS,
        *(f"{BLOCK_1}{part}/vars/0" for part in ("mha/query_dense", "layer_norm_2")),
        *(f"{BLOCK_1}mha/{part}_dense/vars/1" for part in ("query", "value", "output")),
    ],
)
def test_a_missing_array(folder, name):
    change(folder, name)
    with pytest.raises(CheckpointError):
        keras_vit.from_checkpoint(folder)


@pytest.mark.parametrize("name", ["layers/dense/vars/0", "layers/dense/vars/1"])
def test_half_a_head(folder, name):
    change(folder, name, file="task.weights.h5")
    with pytest.raises(CheckpointError):
        keras_vit.from_checkpoint(folder)


@pytest.mark.parametrize(
    "name",
    [
        BLOCK_1 + "mlp/dense_2/vars/2",
        BLOCK_1 + "mlp/dense_3/vars/0",
        "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block_0/mlp/dense_2/vars/1",
        "layers/vi_t_encoder/lora/vars/0",
        "extra",
    ],
)
def test_an_unexpected_array_is_named(folder, name):
    change(folder, name, np.zeros(3, "float32"))
    refused(folder, f"{name}|under two names")


@pytest.mark.parametrize(
    "name, shape",
    [
        (KERNEL, (48,)),
        (KERNEL, (32, 48)),
        (BIAS, ()),
        (BIAS, (33,)),
        (BIAS, (0,)),
        (BLOCK_1 + "mha/query_dense/vars/0", (32, 32)),
        (BLOCK_1 + "mha/query_dense/vars/0", (32, 8, 4)),
        (
            "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block/mha/query_dense/vars/0",
            (32, 3, 8),
        ),
        ("layers/vi_t_patching_and_embedding/vars/0", (32,)),
        ("layers/vi_t_patching_and_embedding/position_embedding/vars/0", (1, 17, 32)),
        ("layers/vi_t_patching_and_embedding/position_embedding/vars/0", (0, 32)),
        ("layers/vi_t_patching_and_embedding/patch_embedding/vars/0", (8, 8, 32)),
        ("layers/vi_t_patching_and_embedding/patch_embedding/vars/0", (0, 8, 3, 32)),
    ],
)
def test_an_array_of_another_shape(folder, name, shape):
    change(folder, name, np.zeros(shape, "float32"))
    with pytest.raises(ValueError, match=r"shape|positions|heads|patch_size|projection"):
        keras_vit.from_checkpoint(folder)


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool", "complex64", "S4", "V2", "V8", ">f4"])
def test_an_array_of_another_type(folder, dtype):
    change(folder, BIAS, np.zeros(32, dtype))
    refused(folder, "type|floats|raw bytes")


@pytest.mark.parametrize(
    "options",
    [
        {"data": [b"text"] * 32, "dtype": h5py.special_dtype(vlen=bytes)},
        {"shape": (32,), "dtype": h5py.special_dtype(vlen=np.dtype("float32"))},
        {"shape": (32,), "dtype": h5py.special_dtype(ref=h5py.Reference)},
        {"shape": (32,), "dtype": [("a", "<f4")]},
        {"data": h5py.Empty("float32")},
    ],
)
def test_objects_are_refused(folder, options):
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        del file[BIAS]
        file.create_dataset(BIAS, **options)
    refused(folder, "type|not all of its values")


def test_values_that_were_never_written(folder):
    change(folder, BIAS, shape=(32,), dtype="float32")
    refused(folder, "not all of its values")


def test_an_absurd_shape_costs_nothing(folder):
    change(folder, BIAS, shape=(2**40, 2**10), dtype="float32")
    refused(folder, "not all of its values")


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_chunks_which_could_unpack_to_anything(folder, compression):
    change(folder, BIAS, shape=(2**40,), dtype="float32", chunks=(2**10,), compression=compression)
    refused(folder, "one piece")


@pytest.mark.parametrize("target", ["/" + KERNEL, "../" * 8 + "nowhere"])
def test_soft_links(folder, target):
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        del file[BIAS]
        file[BIAS] = h5py.SoftLink(target)
    refused(folder, "link")


def test_external_links(folder, tmp_path):
    shutil.copy(folder / "model.weights.h5", tmp_path / "other.h5")
    for name in (BIAS, "layers"):
        with h5py.File(folder / "model.weights.h5", "r+") as file:
            del file[name]
            file[name] = h5py.ExternalLink(str(tmp_path / "other.h5"), name)
        refused(folder, "link")


def test_values_in_another_file(folder, tmp_path):
    (tmp_path / "secret").write_bytes(b"s" * 128)
    external = [(str(tmp_path / "secret"), 0, 128)]
    change(folder, BIAS, shape=(32,), dtype="float32", external=external)
    refused(folder, "one piece")


def test_values_of_another_dataset(folder):
    layout = h5py.VirtualLayout((32,), "float32")
    layout[:] = h5py.VirtualSource(str(folder / "task.weights.h5"), "x", (32,))
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        del file[BIAS]
        file.create_virtual_dataset(BIAS, layout)
    refused(folder, "one piece")


@pytest.mark.parametrize("target", ["/", "layers", KERNEL])
def test_second_names(folder, target):
    """A group inside of itself would have no end."""
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file["layers/again"] = file[target]
    refused(folder, "another name")


def test_depth_without_end(folder):
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        file.create_group("layers/" + "a/" * 2000)
    refused(folder, "another name|deep")


def test_another_model_of_keras(tmp_path):
    with h5py.File(tmp_path / "other.weights.h5", "w") as file:
        file["layers/conv2d/vars/0"] = np.zeros((3, 3, 3, 8), "float32")
    refused(tmp_path / "other.weights.h5", "conv2d")


@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
def test_truncated_files(folder, file):
    content = (folder / file).read_bytes()
    rng = np.random.default_rng(0)
    for length in (0, 1, 8, 9, 100, 2048, len(content) - 1, *rng.integers(0, len(content), 100)):
        (folder / file).write_bytes(content[:length])
        with pytest.raises(CheckpointError):
            families.read(open_checkpoint(folder), {})


@pytest.mark.parametrize("file", ["model.weights.h5", "task.weights.h5"])
def test_damage_outside_of_the_values(folder, file):
    """A changed byte is found out, or changes no value.

    HDF5 keeps no checksum of values, so that a byte which is changed inside of them cannot be
    noticed, nor one of an address that then points to other bytes which are no array: only the
    rest is changed here. (Addresses that make arrays overlap are noticed, as the next test says.)
    """
    path = folder / file
    content, expected = path.read_bytes(), families.read(open_checkpoint(folder), {}).arrays
    rng, found = np.random.default_rng(1), 0
    for place in rng.choice(outside_of_values(path), 250, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            arrays = families.read(open_checkpoint(folder), {}).arrays
        except CheckpointError:
            found += 1
            continue
        assert set(arrays) == set(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(arrays[name], array)
    assert found > 10


def outside_of_values(path):
    """Places of the bytes that belong to no array, and to no address of one."""
    content = path.read_bytes()
    is_free = np.ones(len(content), bool)

    def mark(_, item):
        if isinstance(item, h5py.Dataset):
            start = item.id.get_offset()
            is_free[start : start + item.id.get_storage_size()] = False
            entry = content.index(start.to_bytes(8, "little"))
            is_free[entry : entry + 8] = False

    with h5py.File(path) as file:
        file.visititems(mark)
    return np.flatnonzero(is_free)


def test_two_arrays_on_the_same_values(folder):
    """The address of one is changed to that of another of the same size."""
    path = folder / "model.weights.h5"
    with h5py.File(path) as file:
        addresses = [
            file[name].id.get_offset().to_bytes(8, "little")
            for name in (BIAS, BLOCK_1 + "layer_norm_1/vars/0")
        ]
    content = path.read_bytes()
    assert content.count(addresses[0]) == 1
    path.write_bytes(content.replace(*addresses))
    with pytest.raises(CheckpointError, match="share values"):
        read_hdf5(path)
