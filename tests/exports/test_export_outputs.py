"""What the outputs of exported files are, and their names: as `keras_vit.predict` reads them."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import exports
from keras_vit.exports.graph import served
from tests.exports.test_export import NATIVE, SUFFIX, metadata_in
from tests.support import randomize, refuses, tiny_vit
from tests.test_heads import NAMES, PIXELS, READINGS, alone, three_heads


def test_each_head_is_an_output_of_its_name_as_predict_reads_it(tmp_path):
    model, path = three_heads(), tmp_path / f"model{SUFFIX[NATIVE]}"
    model.class_names = NAMES
    assert exports.export(model, path, preprocess=True, check=True).difference < 1e-5
    received = exports.FORMATS[NATIVE].open(str(path))(PIXELS[:2])
    for name, rows in keras_vit.predict(model, PIXELS[:2]).items():
        for row, outputs in zip(rows, received[name]):
            assert {one.label for one in row} == set(NAMES[name])
            np.testing.assert_allclose([one[2] for one in row], outputs[[one[1] for one in row]],
                                       atol=1e-5)  # fmt: skip
    texts = metadata_in(path, "reading", "output", "class_names")
    facts = {name: json.loads(text) for name, text in texts.items()}
    assert facts["reading"] == READINGS and facts["class_names"] == NAMES
    assert facts["output"]["weight"] == "values" and facts["output"]["marks"] == "probabilities"


@pytest.mark.slow
@pytest.mark.parametrize("format", exports.FORMATS)
@pytest.mark.parametrize("as_list", [False, True])
def test_every_format_names_the_heads(tmp_path, format, as_list):
    model, path = three_heads(as_list), tmp_path / f"model{SUFFIX[format]}"
    assert exports.export(model, path, format, check=True).difference < 1e-5
    received = exports.FORMATS[format].open(str(path))(PIXELS[:2].astype("float32"))
    shapes = {name: one.shape for name, one in received.items()}
    assert shapes == {"species": (2, 3), "weight": (2, 1), "marks": (2, 4)}


@pytest.mark.parametrize("end", [keras.ops.softmax, lambda logits: logits])
def test_the_mean_of_an_ensemble_is_read_as_predict_reads_it(tmp_path, end):
    """Only its outputs tell whether they are probabilities; a softmax of those is no answer."""
    x, path = keras.Input((16, 16, 3)), tmp_path / f"model{SUFFIX[NATIVE]}"
    members = [randomize(tiny_vit(), seed=seed) for seed in (1, 2)]
    model = keras.Model(x, (end(members[0](x)) + end(members[1](x))) / 2)
    model.preprocessing = members[0].preprocessing
    assert exports.export(model, path, preprocess=True, check=True).difference < 1e-5
    received = exports.FORMATS[NATIVE].open(str(path))(PIXELS[:2])
    for row, outputs in zip(keras_vit.predict(model, PIXELS[:2]), received):
        assert {one.index: one.probability for one in row} == pytest.approx(
            dict(enumerate(outputs.tolist())), abs=1e-5
        )
    assert metadata_in(path, "output")["output"] == "probabilities"


def test_a_single_sigmoid_has_the_name_of_its_probability(tmp_path):
    model, path = randomize(tiny_vit(num_classes=1)), tmp_path / f"model{SUFFIX[NATIVE]}"
    model.reading = "sigmoid"
    for names, expected in ((None, "1"), (("no", "yes"), "yes"), (("ill",), "ill")):
        model.class_names = names
        export = exports.export(model, path, preprocess=True, images=PIXELS[:2])  # implies check
        assert export.difference < 1e-5
        assert json.loads(metadata_in(path, "class_names")["class_names"]) == [expected]
        (row, _), received = keras_vit.predict(model, PIXELS[:2]), exports.FORMATS[NATIVE].open
        named = {one.label: one.probability for one in row}
        assert named[expected] == pytest.approx(received(str(path))(PIXELS[:2])[0, 0], abs=1e-5)


def test_heads_are_float32_where_the_global_policy_is_mixed():
    model, before = three_heads(), keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        outputs = served(model, True).model.outputs
    finally:
        keras.config.set_dtype_policy(before)
    assert [x.dtype for x in outputs] == ["float32"] * 3


def test_one_head_of_a_model_and_what_cannot_be_exported(tmp_path):
    path = tmp_path / f"model{SUFFIX[NATIVE]}"
    one = alone(three_heads(), "marks")
    assert exports.export(one, path, preprocess=True, check=True).difference < 1e-5
    ((best, *_),) = keras_vit.predict(one, PIXELS[:1])
    received = exports.FORMATS[NATIVE].open(str(path))(PIXELS[:1])
    assert received[0, best.index] == pytest.approx(best.probability, abs=1e-5)
    bare = keras.Model(one.input, three_heads(compiled=False)(one.input))
    bare.preprocessing = one.preprocessing
    with pytest.raises(ValueError, match=r"^Head 'species': .*no loss for 'species' that tells"):
        exports.export(bare, path, preprocess=True)
    x = keras.Input((None, None, 3))
    open_sides = keras.Model(x, keras.layers.GlobalAveragePooling2D()(x))
    refuses(r"one size and in float32.*\(None, None, 3\)", exports.export, open_sides, path)
    with pytest.raises(TypeError, match=r"Functional model of images.*\(None, 5\)"):
        exports.export(keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)]), path)
