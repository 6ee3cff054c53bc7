"""Damaged checkpoints: refused with our error, or loaded with identical values.

Values in npz and in PyTorch's zip files are under checksums of their format. Safetensors, PyTorch
files from before version 1.6 and JSON files have none: there a test asks only that nothing else
than our error comes out.
"""

import functools

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import load
from keras_vit.weights.files import read_safetensors
from keras_vit.weights.save import write_safetensors
from tests.support import ORACLES, assert_same, randomize, read_arrays, tiny_vit
from tests.weights.stored import refused

CHECKPOINT = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"
BLOCK = "Transformer/encoderblock_0/"
POSITION = "Transformer/posembed_input/pos_embedding"
pytestmark = pytest.mark.any_backend


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


# Arrays that take the place of others, `None` for none, and what the error says.
DAMAGE = [
    ({"embedding/kernel": None}, "patch_encoder/projection/kernel"),
    *(
        ({"embedding/kernel": zeros(*s)}, "embedding/kernel")
        for s in ((), (9, 9), (8, 8, 3, 48, 1))
    ),
    ({"embedding/kernel": zeros(8, 8, 3, 0)}, "no values"),
    ({POSITION: zeros(48)}, r"posembed_input|position/embedding"),
    ({POSITION: zeros(1, 0, 48)}, "no values"),
    # A file with the names of both generations: no array may replace another in silence.
    ({BLOCK + "LayerNorm_1/scale": zeros(48)}, "LayerNorm_1/scale"),
    # Half a head, and one that no model of this width has, are not for another number of classes.
    ({"head/bias": None}, "head/bias"),
    *(({"head/kernel": zeros(*s)}, r"head/kernel'.*shape \(48") for s in ((10,), (47, 10))),
    *(({"head/kernel": zeros(*s)}, "no values") for s in ((0, 10), (48, 0))),
    ({"head/kernel": zeros()}, r"head/kernel'.*shape \(48"),
    *(
        ({f"{n}/kernel": zeros(48, 48), f"{n}/bias": zeros(10)}, rf"{n}/bias' must have .*\(48,\)")
        for n in ("head", "pre_logits")
    ),
    (
        {"conv_root/kernel": zeros(7, 7, 3, 64), "block1/unit2/gn1/scale": zeros(64)},
        r"The ResNet stem has gaps.*\(1, 2\)",
    ),
    ({BLOCK + "LayerNorm_0/scale": None}, r"In the model only: \['block_0/norm_1/gamma'\]"),
    ({BLOCK + "MlpBlock_3/Dense_0/bias": None}, r"model only: \['block_0/mlp/dense_1/bias'\]"),
    *(
        ({BLOCK + f"{n}/kernel": None}, "no whole Vision Transformer.*also.*block_0/")
        for n in ("MultiHeadDotProductAttention_1/query", "MlpBlock_3/Dense_0")
    ),
    (
        {BLOCK.replace("0", "5") + "LayerNorm_0/scale": zeros(48)},
        r"blocks \[0, 1, 2, 5\]; expected",
    ),
    # A model much larger than its file is not built.
    ({BLOCK + "MlpBlock_3/Dense_0/kernel": zeros(1, 10**6)}, "and it has"),
    *(({"cls": zeros(1, 1, 48, dtype=t)}, "cls") for t in ("complex64", "U3", "datetime64[s]")),
]


@pytest.mark.parametrize("changes, words", DAMAGE, ids=range(len(DAMAGE)))
def test_arrays_that_make_no_model(save, arrays, changes, words):
    changed = {name: a for name, a in {**arrays, **changes}.items() if a is not None}
    with pytest.raises(keras_vit.CheckpointError, match=words) as error:
        keras_vit.from_checkpoint(save(changed))
    assert "other.npz" in str(error.value)


@pytest.mark.parametrize("dtype", [">f4", ">f8", "longdouble"])
def test_numbers_as_another_machine_writes_them(save, arrays, dtype):
    path = save({name: array.astype(dtype) for name, array in arrays.items()})
    expected = keras_vit.from_checkpoint(CHECKPOINT).get_weights()
    assert_same(keras_vit.from_checkpoint(path).get_weights(), expected)


class Harmful:
    """Would leave a trace if it were unpickled."""

    def __reduce__(self):
        return exec, ("import keras_vit; keras_vit.unpickled = True",)


def test_nothing_is_unpickled(arrays, save):
    path = save({**arrays, "cls": np.array([Harmful()], dtype=object)})
    refused("npz file of plain arrays", path)
    assert not hasattr(keras_vit, "unpickled")
    np.load(path, allow_pickle=True)["cls"]
    assert hasattr(keras_vit, "unpickled"), "the test itself must be able to fail"
    del keras_vit.unpickled


# ---- random damage

CORRUPTIONS = 150  # per kind of file


def written(folder, kind):
    """What to load and the file to damage: a checkpoint of one block."""
    model = randomize(tiny_vit(depth=1))
    if kind == "config":
        return keras_vit.save_weights(model, folder), folder / "config.json"
    name = "model.npz" if "npz" in kind else "model.safetensors"
    path = keras_vit.save_weights(model, folder / name)
    if kind == "compressed_npz":
        np.savez_compressed(path, **read_arrays(path))
    if "torch" in kind:
        torch = pytest.importorskip("torch")
        tensors = {n: torch.tensor(a) for n, a in read_safetensors(path).items()}
        path = folder / "model.pth"
        torch.save(tensors, path, _use_new_zipfile_serialization=kind == "torch")
    return path, path


CHECKED = ("npz", "compressed_npz", "torch")
UNCHECKED = ("timm", "old_torch", "config")
quiet = functools.partial(pytest.param, marks=pytest.mark.filterwarnings("ignore"))


def mutations(content, count, seed=0):
    """`count` damaged copies: flipped bits, noise, a cut, insertions, deletions, repetitions."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        damaged, size = bytearray(content), len(content)
        place, length = int(rng.integers(size)), int(rng.integers(1, 50))
        change = rng.integers(6)
        if change == 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        elif change == 1:
            for other in rng.integers(size, size=length):
                damaged[other] = rng.integers(256)
        elif change == 2:
            del damaged[place:]
        elif change == 3:
            damaged[place:place] = rng.bytes(length)
        elif change == 4:
            del damaged[place : place + length]
        else:
            source = int(rng.integers(size))
            damaged[place : place + length] = damaged[source : source + length]
        yield bytes(damaged)


def read(path):
    return load.read(path, {"num_heads": 2}).weights.arrays


def same(some, others):
    return set(some) == set(others) and all(np.array_equal(some[n], others[n]) for n in others)


@pytest.mark.parametrize("kind", [*CHECKED, *(quiet(kind) for kind in UNCHECKED)])
def test_damage_is_refused_or_harmless(tmp_path, kind):
    """Where nothing is checked, only our error comes out."""
    checkpoint, file = written(tmp_path, kind)
    content, expected, refused = file.read_bytes(), read(checkpoint), 0
    for damaged in mutations(content, CORRUPTIONS):
        file.write_bytes(damaged)
        try:
            loaded = read(checkpoint)
        except keras_vit.CheckpointError as error:
            assert len(str(error)) > 40
            refused += 1
        else:
            assert kind in UNCHECKED or same(loaded, expected)
    assert refused > (0.1 if kind in UNCHECKED else 0.9) * CORRUPTIONS


def test_one_part_of_several_is_no_shorter_model(tmp_path):
    """Without the part that has the last block, the others are a whole model of fewer blocks."""
    whole = keras_vit.save_weights(tiny_vit(), tmp_path / "whole.safetensors")
    arrays = {n: a for n, a in read_safetensors(whole).items() if not n.startswith("blocks.1.")}
    (tmp_path / "config.json").unlink()
    for name in ("model-00001-of-00002.safetensors", "model-00001-of-00001.safetensors"):
        write_safetensors(tmp_path / name, arrays)
    refused("one of several parts.*index.json", tmp_path / "model-00001-of-00002.safetensors")
    alone = tmp_path / "model-00001-of-00001.safetensors"
    assert keras_vit.from_checkpoint(alone, num_heads=2).variant.depth == 1
