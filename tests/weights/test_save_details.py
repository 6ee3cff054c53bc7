"""What is written besides the numbers themselves: their precision, and names of the classes."""

import json
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from tests.support import ORACLES, assert_close
from tests.weights.test_save import FORMATS, SIZE, model_of

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("format", FORMATS)
def test_half_precision(tmp_path, format, dtype):
    """The weights are rounded, and nothing else changes; half the bytes."""
    model, path = model_of({}), tmp_path / FORMATS[format]
    if (format, dtype) == ("google", "bfloat16"):
        with pytest.raises(ValueError, match="choose 'float16'"):
            keras_vit.save_weights(model, path, dtype=dtype)
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
    for a, b in zip(read.weights, model.weights, strict=True):
        rounded = keras.ops.cast(keras.ops.cast(b, dtype), "float32")
        assert_close(a, rounded, 0)


def test_a_weight_that_half_precision_cannot_hold(tmp_path):
    model, path = model_of({}), tmp_path / "model.safetensors"
    model.get_layer("norm").beta.assign(np.full(8, 1e5))
    with pytest.raises(ValueError, match=r"norm\.bias.*dtype='float16'; choose 'bfloat16'"):
        keras_vit.save_weights(model, path, dtype="float16")
    assert not path.exists()
    keras_vit.save_weights(model, path, dtype="bfloat16")
    with pytest.raises(ValueError, match="Unknown dtype"):
        keras_vit.save_weights(model, path, dtype="int8")


@pytest.mark.parametrize("format", ["timm", "huggingface"])
def test_names_of_the_classes_come_along(tmp_path, format):
    model, names = model_of({}), ("bird", "cat", "dog")
    model.class_names = names
    path = keras_vit.save_weights(model, tmp_path / FORMATS[format])
    assert keras_vit.from_checkpoint(path).class_names == names


@pytest.mark.parametrize("case", ["timm/vit_token_p8", "bit_timm/resnetv2_bit_11_w05"])
def test_label_names_of_timm(tmp_path, case):
    """They come in a list, one for each class; a dict may leave some out, and says nothing here."""
    folder = shutil.copytree(ORACLES / case, tmp_path / "case")
    config, count = folder / "config.json", keras_vit.from_checkpoint(folder).num_classes
    said, names = json.loads(config.read_text()), [f"class {i}" for i in range(count)]
    for found, read in ((names, tuple(names)), (names[1:], None), ({"1": "class 1"}, None)):
        config.write_text(json.dumps({**said, "label_names": found}))
        assert keras_vit.from_checkpoint(folder).class_names == read
