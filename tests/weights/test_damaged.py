"""Damaged and contradictory checkpoints: errors that say what is wrong."""

import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import attention_weights
from keras_vit.weights.files import read_npz
from tests.support import ORACLES, assert_close, images, tiny_vit

CHECKPOINT = ORACLES / "flax_vit" / "token_p8" / "checkpoint.npz"
BLOCK_0 = "Transformer/encoderblock_0/"
pytestmark = pytest.mark.any_backend


def test_one_array_is_no_npz(tmp_path):
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match="of an unknown kind"):
        keras_vit.from_checkpoint(tmp_path / "array.npy")


def test_damage_inside_a_compressed_file(tmp_path, arrays):
    """A flipped byte is either found out or harmless: wrong weights never come through."""
    path = tmp_path / "damaged.npz"
    np.savez_compressed(path, **arrays)
    content, found = bytearray(path.read_bytes()), 0
    for place in range(200, 1200, 17):
        damaged = content.copy()
        damaged[place] ^= 255
        path.write_bytes(damaged)
        try:
            read = read_npz(path)
        except ValueError as error:
            assert "cannot be read as an npz file" in str(error)
            found += 1
        else:
            for name, array in arrays.items():
                np.testing.assert_array_equal(read[name], array)
    assert found > 40


def test_a_missing_patch_kernel_is_named(save, arrays):
    del arrays["embedding/kernel"]
    with pytest.raises(ValueError, match="patch_encoder/projection/kernel"):
        keras_vit.from_checkpoint(save(arrays))


@pytest.mark.parametrize("shape", [(), (192, 48), (8, 8, 3, 48, 1)])
def test_a_patch_kernel_of_another_rank(save, arrays, shape):
    arrays["embedding/kernel"] = np.zeros(shape, "float32")
    with pytest.raises(ValueError, match="embedding/kernel"):
        keras_vit.from_checkpoint(save(arrays))


def test_positions_of_another_rank(save, arrays):
    arrays["Transformer/posembed_input/pos_embedding"] = np.zeros(48, "float32")
    with pytest.raises(ValueError, match=r"posembed_input|position/embedding"):
        keras_vit.from_checkpoint(save(arrays))


def test_two_arrays_for_one_variable(save, arrays):
    """A file with the names of both generations: no array may replace another in silence."""
    arrays[BLOCK_0 + "LayerNorm_1/scale"] = np.zeros(48, "float32")
    with pytest.raises(ValueError, match="LayerNorm_1/scale"):
        keras_vit.from_checkpoint(save(arrays))


def test_half_a_head(save, arrays):
    """A head without its bias is damage, not another number of classes."""
    del arrays["head/bias"]
    with pytest.raises(ValueError, match="head/bias"):
        keras_vit.from_checkpoint(save(arrays))


def test_blocks_from_an_iterator_and_as_a_number():
    model = tiny_vit()
    expected = attention_weights(model, images())
    for a, b in zip(attention_weights(model, images(), iter([1, 0])), expected[::-1], strict=True):
        assert_close(a, b, 0)
    with pytest.raises((TypeError, ValueError), match="blocks"):
        attention_weights(model, images(), 0)


@pytest.mark.parametrize("dtype", [">f4", ">f8", "longdouble"])
def test_numbers_as_another_machine_writes_them(tmp_path, arrays, dtype):
    path = tmp_path / "numbers.npz"
    np.savez(path, **{name: array.astype(dtype) for name, array in arrays.items()})
    expected = keras_vit.from_checkpoint(CHECKPOINT).get_weights()
    for ours, theirs in zip(keras_vit.from_checkpoint(path).get_weights(), expected):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shape", [(), (10,), (47, 10), (0, 10), (48, 0)])
def test_a_head_that_no_model_of_this_width_has(tmp_path, arrays, shape):
    """It is damage, and not the head for another number of classes, which is left out."""
    path = tmp_path / "head.npz"
    np.savez(path, **{**arrays, "head/kernel": np.zeros(shape, "float32")})
    with pytest.raises(keras_vit.CheckpointError, match=r"head/kernel'.*(shape \(48|no values)"):
        keras_vit.from_checkpoint(path)


@pytest.mark.parametrize("layer", ["head", "pre_logits"])
def test_a_bias_of_another_length_than_its_kernel(save, arrays, layer):
    """It would look like a layer for another number of classes, which is left out."""
    strange = {f"{layer}/kernel": np.zeros((48, 48)), f"{layer}/bias": np.zeros(10)}
    with pytest.raises(keras_vit.CheckpointError, match=rf"{layer}/bias' must have .*\(48,\)"):
        keras_vit.from_checkpoint(save({**arrays, **strange}))


def test_tensors_without_names(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({1: torch.ones(1)}, tmp_path / "numbered.pth")
    with pytest.raises(keras_vit.CheckpointError, match=r"calls a tensor \[1\], which is no name"):
        keras_vit.from_checkpoint(tmp_path / "numbered.pth")
