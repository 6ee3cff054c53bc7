"""Damaged and contradictory checkpoints: errors that say what is wrong."""

import numpy as np
import pytest

import keras_vit
from tests.support import ORACLES

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
    for ours, theirs in zip(keras_vit.from_checkpoint(path).get_weights(), expected):
        np.testing.assert_array_equal(ours, theirs)


class Harmful:
    """Would leave a trace if it were unpickled."""

    def __reduce__(self):
        return exec, ("import keras_vit; keras_vit.unpickled = True",)


def test_nothing_is_unpickled(arrays, save, tmp_path):
    path = save({**arrays, "cls": np.array([Harmful()], dtype=object)})
    with pytest.raises(keras_vit.CheckpointError, match="npz file of plain arrays"):
        keras_vit.from_checkpoint(path)
    torch = pytest.importorskip("torch")
    torch.save({"cls_token": Harmful()}, tmp_path / "harmful.pth")
    with pytest.raises(keras_vit.CheckpointError, match="PyTorch file of plain tensors"):
        keras_vit.from_checkpoint(tmp_path / "harmful.pth")
    assert not hasattr(keras_vit, "unpickled")
    np.load(path, allow_pickle=True)["cls"]
    assert hasattr(keras_vit, "unpickled"), "the test itself must be able to fail"
    del keras_vit.unpickled
