"""Random damage to valid files: refused with our error, or loaded with identical values.

Values in npz and in PyTorch's zip files are under checksums of their format. Safetensors, PyTorch
files from before version 1.6 and JSON files have none: there the test asks only that nothing else
than our error comes out.
"""

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import load
from keras_vit.weights.files import read_safetensors
from tests.support import randomize, read_arrays, tiny_vit, values

pytestmark = pytest.mark.any_backend

CORRUPTIONS = 150  # per kind of file
HINTS = {"num_heads": 2}


def model():
    return randomize(tiny_vit(depth=1))


def write_npz(folder):
    return keras_vit.save_weights(model(), folder / "model.npz"), folder / "model.npz"


def write_compressed_npz(folder):
    _, path = write_npz(folder)
    np.savez_compressed(path, **read_arrays(path))
    return path, path


def write_timm(folder):
    path = folder / "model.safetensors"
    keras_vit.save_weights(model(), path)
    return path, path


def write_torch(folder, **options):
    torch = pytest.importorskip("torch")
    keras_vit.save_weights(model(), folder / "source.safetensors")
    arrays = read_safetensors(folder / "source.safetensors")
    torch.save({n: torch.tensor(a) for n, a in arrays.items()}, folder / "model.pth", **options)
    return folder / "model.pth", folder / "model.pth"


def write_old_torch(folder):
    return write_torch(folder, _use_new_zipfile_serialization=False)


def write_config(folder):
    keras_vit.save_weights(model(), folder)
    return folder, folder / "config.json"


CHECKED = (write_npz, write_compressed_npz, write_torch)
UNCHECKED = (write_timm, write_old_torch, write_config)


def mutations(content, count, seed=0):
    """`count` damaged copies: flipped bits, noise, a cut, insertions, deletions, repetitions."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        damaged, size = bytearray(content), len(content)
        place, length = int(rng.integers(size)), int(rng.integers(1, 50))
        kind = rng.integers(6)
        if kind == 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            for other in rng.integers(size, size=length):
                damaged[other] = rng.integers(256)
        elif kind == 2:
            del damaged[place:]
        elif kind == 3:
            damaged[place:place] = rng.bytes(length)
        elif kind == 4:
            del damaged[place : place + length]
        else:
            source = int(rng.integers(size))
            damaged[place : place + length] = damaged[source : source + length]
        yield bytes(damaged)


def read(path):
    return load.read_checkpoint(path, HINTS).arrays


def same(some, others):
    return set(some) == set(others) and all(np.array_equal(some[n], others[n]) for n in others)


@pytest.mark.parametrize("write", CHECKED, ids=lambda f: f.__name__)
def test_damage_is_refused_or_harmless(tmp_path, write):
    checkpoint, file = write(tmp_path)
    content, expected, refused = file.read_bytes(), read(checkpoint), 0
    for damaged in mutations(content, CORRUPTIONS):
        file.write_bytes(damaged)
        try:
            loaded = read(checkpoint)
        except keras_vit.CheckpointError as error:
            assert len(str(error)) > 40
            refused += 1
        else:
            assert same(loaded, expected)
    assert refused > 0.9 * CORRUPTIONS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("write", UNCHECKED, ids=lambda f: f.__name__)
def test_where_nothing_is_checked_only_our_error_comes_out(tmp_path, write):
    checkpoint, file = write(tmp_path)
    content, refused = file.read_bytes(), 0
    for damaged in mutations(content, CORRUPTIONS):
        file.write_bytes(damaged)
        try:
            read(checkpoint)
        except keras_vit.CheckpointError:
            refused += 1
    assert refused > 0.1 * CORRUPTIONS


@pytest.mark.parametrize("write", CHECKED, ids=lambda f: f.__name__)
def test_a_refused_file_leaves_the_model_as_it_was(tmp_path, write):
    checkpoint, file = write(tmp_path)
    target, refused = randomize(tiny_vit(depth=1, gelu="tanh"), seed=1), 0
    before = values(target)
    for damaged in mutations(file.read_bytes(), 20, seed=1):
        file.write_bytes(damaged)
        try:
            keras_vit.load_weights(target, checkpoint)
        except (keras_vit.CheckpointError, FileNotFoundError):
            refused += 1
            assert same(values(target), before)
        else:
            keras_vit.load_weights(target, checkpoint)
            before = values(target)
    assert refused > 10
