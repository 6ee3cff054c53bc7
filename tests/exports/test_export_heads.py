"""Models made around a network, with one head or several, exported with a name for each."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.exports import FORMATS
from tests.exports.test_export import NATIVE, metadata_in
from tests.support import refuses
from tests.test_heads import NAMES, PIXELS, READINGS, alone, three_heads


def test_each_head_is_an_output_of_its_name_as_predict_reads_it(tmp_path):
    model, path = three_heads(), tmp_path / f"model{FORMATS[NATIVE].suffix}"
    model.class_names = NAMES
    assert keras_vit.export(model, path, preprocess=True, check=True).difference < 1e-5
    received = FORMATS[NATIVE].open(str(path))(PIXELS[:2])
    for name, rows in keras_vit.predict(model, PIXELS[:2]).items():
        for row, outputs in zip(rows, received[name]):
            assert {one.label for one in row} == set(NAMES[name])
            np.testing.assert_allclose([one[2] for one in row], outputs[[one[1] for one in row]],
                                       atol=1e-5)  # fmt: skip
    facts = {
        name: json.loads(text)
        for name, text in metadata_in(path, "reading", "output", "class_names").items()
    }
    assert facts["reading"] == READINGS and facts["class_names"] == NAMES
    assert facts["output"]["weight"] == "values" and facts["output"]["marks"] == "probabilities"


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("as_list", [False, True])
def test_every_format_names_the_heads(tmp_path, format, as_list):
    model, path = three_heads(as_list), tmp_path / f"model{FORMATS[format].suffix}"
    assert keras_vit.export(model, path, format, check=True).difference < 1e-5
    received = FORMATS[format].open(str(path))(PIXELS[:2].astype("float32"))
    assert {name: one.shape for name, one in received.items()} == {
        "species": (2, 3),
        "weight": (2, 1),
        "marks": (2, 4),
    }


def test_one_head_of_a_model_and_what_cannot_be_exported(tmp_path):
    path = tmp_path / f"model{FORMATS[NATIVE].suffix}"
    one = alone(three_heads(), "marks")
    assert keras_vit.export(one, path, preprocess=True, check=True).difference < 1e-5
    ((best, *_),) = keras_vit.predict(one, PIXELS[:1])
    received = FORMATS[NATIVE].open(str(path))(PIXELS[:1])
    assert received[0, best.index] == pytest.approx(best.probability, abs=1e-5)
    bare = keras.Model(one.input, three_heads(compiled=False)(one.input))
    bare.preprocessing = one.preprocessing
    with pytest.raises(ValueError, match=r"^Head 'species': .*no loss for 'species' that tells"):
        keras_vit.export(bare, path, preprocess=True)
    x = keras.Input((None, None, 3))
    open_sides = keras.Model(x, keras.layers.GlobalAveragePooling2D()(x))
    refuses(r"one size and in float32.*\(None, None, 3\)", keras_vit.export, open_sides, path)
    with pytest.raises(TypeError, match=r"Functional model of images.*\(None, 5\)"):
        keras_vit.export(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]), path)
