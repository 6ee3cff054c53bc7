"""Models of users with several outputs: each is read, told and measured as a model of it alone."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import evaluation
from keras_vit.heads import heads_of
from keras_vit.outputs import reading_of
from tests.support import every_backend, images, refuses, tiny_vit

pytestmark = pytest.mark.any_backend

LABELS = {
    "species": np.array([0, 1, 2, 0, 1, 2]),
    "weight": np.array([3.5, 1.0, 2.0, 0.5, 7.0, 4.0]),
    "marks": np.eye(4)[[0, 1, 2, 3, 0, 1]] + np.eye(4)[[1, 1, 3, 0, 2, 2]] > 0,
}
LOSSES = {
    "species": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "weight": "mse",
    "marks": keras.losses.BinaryCrossentropy(from_logits=True),
}
READINGS = {"species": "softmax", "weight": "values", "marks": "sigmoid"}
NAMES = {"species": ["ant", "bee", "fly"], "weight": ["grams"], "marks": ["a", "b", "c", "d"]}
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), "uint8")


def three_heads(as_list=False, compiled=True):
    """As a user makes it, of the features of a ViT."""
    vit = tiny_vit(num_classes=0)
    features = keras.layers.Dropout(0.1)(vit.output)
    outputs = {
        # In a list, the names of layers are those of heads; in a dict they are its keys.
        name: keras.layers.Dense(units, name=name if as_list else f"dense_{units}")(features)
        for name, units in (("species", 3), ("weight", 1), ("marks", 4))
    }
    model = keras.Model(vit.input, list(outputs.values()) if as_list else outputs)
    model.preprocessing = vit.preprocessing
    if compiled:
        model.compile("sgd", list(LOSSES.values()) if as_list else LOSSES)
    return model


def alone(model, name):
    """The model of one head, which is told how it is read."""
    tensors = model.output if isinstance(model.output, dict) else dict(zip(READINGS, model.output))
    one = keras.Model(model.input, tensors[name])
    one.preprocessing, one.reading = model.preprocessing, READINGS[name]
    return one


def same(found, expected):
    """Predictions or values of the same classes, with numbers that are equal but for rounding."""
    heads = [[[one[:2] for one in row] for row in rows] for rows in (found, expected)]
    assert heads[0] == heads[1]
    pairs = [(a[2], b[2]) for x, y in zip(found, expected) for a, b in zip(x, y)]
    np.testing.assert_allclose(*zip(*pairs), rtol=1e-5, atol=1e-6)


@every_backend
@pytest.mark.parametrize("as_list", [False, True])
def test_each_head_is_told_and_measured_as_a_model_of_it_alone(as_list):
    model = three_heads(as_list)
    told = keras_vit.predict(model, PIXELS, class_names=NAMES)
    measured = evaluation.evaluate(model, (PIXELS, LABELS), batch_size=4, class_names=NAMES)
    assert list(told) == list(measured) == list(READINGS)
    for name in READINGS:
        one = alone(model, name)
        same(told[name], keras_vit.predict(one, PIXELS, class_names=NAMES[name]))
        data = PIXELS, LABELS[name]
        expected = evaluation.evaluate(one, data, batch_size=4, class_names=NAMES[name])
        assert type(measured[name]) is type(expected) and measured[name].examples == 6
        assert measured[name].figures == pytest.approx(expected.figures, rel=1e-4)
        for key, figure in expected.figures.items():
            assert measured.figures[f"{name}_{key}"] == pytest.approx(figure, rel=1e-4)
    text = str(measured)
    assert all(f"Head {name}: " in text for name in READINGS) and "grams" in text


def test_data_of_every_form(tmp_path):
    model = three_heads()
    expected = evaluation.evaluate(model, (PIXELS, LABELS))
    parts = slice(0, 4), slice(4, 6)
    cut = lambda part: {name: each[part] for name, each in LABELS.items()}  # noqa: E731
    batches = [(PIXELS[part], cut(part)) for part in parts]
    filled = np.array([1, 1, 1, 1, 0])
    more = {name: np.concatenate([each[:4], each[:1]]) for name, each in LABELS.items()}
    weighted = [(PIXELS[[0, 1, 2, 3, 0]], more, filled), batches[1]]
    for data in (batches, weighted):
        assert evaluation.evaluate(model, data).figures == pytest.approx(expected.figures, rel=1e-4)
    files = [str(tmp_path / f"{i}.png") for i in range(6)]
    for path, image in zip(files, PIXELS):
        keras.utils.save_img(path, image, scale=False)
    (tmp_path / "3.png").write_bytes(b"no image")
    with pytest.warns(UserWarning, match=r"3\.png"):
        report = evaluation.evaluate(model, (files, LABELS))
    assert {(one.examples, one.skipped) for one in report.values()} == {(5, 1)}
    with pytest.warns(UserWarning, match=r"3\.png"):
        told = keras_vit.predict(model, files, skip_corrupt=True)
    assert all([one is None for one in rows] == [False] * 3 + [True] + [False] * 2
               for rows in told.values())  # fmt: skip


def test_of_a_file_by_the_loss_and_without_one_by_the_record(tmp_path):
    model = three_heads()
    expected = keras_vit.predict(model, PIXELS[:2])
    model.save(tmp_path / "model.keras")
    opened = keras.saving.load_model(tmp_path / "model.keras")
    opened.preprocessing = model.preprocessing
    for name, rows in keras_vit.predict(opened, PIXELS[:2]).items():
        same(rows, expected[name])
    bare = keras.Model(model.input, model.output)
    bare.preprocessing = model.preprocessing
    refuses(r"no loss for 'species' that tells.*model\.reading", keras_vit.predict, bare, PIXELS)
    for name, rows in keras_vit.predict(bare, PIXELS[:2], reading=READINGS).items():
        same(rows, expected[name])
    bare.reading = {**READINGS, "weight": None}
    refuses(r"^Head 'weight': .*'weight': \.\.\.", evaluation.evaluate, bare, (PIXELS, LABELS))
    bare.reading, bare.class_names = READINGS, NAMES
    assert keras_vit.predict(bare, PIXELS[:1])["weight"][0][0].label == "grams"


def test_a_model_called_in_another_and_activations_at_the_end():
    inner = three_heads()
    x = keras.Input((16, 16, 3))
    outer = keras.Model(x, inner(x))
    outer.preprocessing = inner.preprocessing
    outer.reading = READINGS
    expected = keras_vit.predict(inner, PIXELS[:1])
    for name, rows in keras_vit.predict(outer, PIXELS[:1]).items():
        same(rows, expected[name])
    ended = {name: keras.layers.Activation(end)(inner.output[name])
             for name, end in (("species", "softmax"), ("marks", "sigmoid"))}  # fmt: skip
    model = keras.Model(inner.input, ended)
    found = {name: reading_of(one) for name, one in heads_of(model).items()}
    names = {name: one.name for name, one in found.items()}
    assert names == {"species": "softmax", "marks": "sigmoid"}
    assert all(one.applied for one in found.values())


@pytest.mark.parametrize("names", [("z", "a"), ("a", "z")])
def test_losses_in_a_list_are_those_that_keras_trains_the_heads_by(names):
    """It sorts the keys of a dict of outputs, and keeps the order of a list of them."""
    vit = tiny_vit(num_classes=0)
    ours = keras_vit.models.add_heads(vit, dict.fromkeys(names, 1))
    layers = {name: keras.layers.Dense(1, name=f"{10 - i}_{name}") for i, name in enumerate(names)}
    ends = {name: layer(vit.output) for name, layer in layers.items()}
    for model in (ours, keras.Model(vit.input, ends), keras.Model(vit.input, [*ends.values()])):
        heads = heads_of(model)
        for head, number in zip(heads, (3.0, -2.0)):
            layer = layers.get(head[-1]) if model is not ours else model.get_layer(head)
            layer.bias.assign([number])
            layer.kernel.assign(np.zeros(layer.kernel.shape))
        bce = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile("sgd", loss=["mse", bce])
        ones = keras.tree.map_structure(lambda _: np.ones((6, 1)), model.output)
        loss = model.evaluate(np.zeros((6, 16, 16, 3)), ones, verbose=0, return_dict=True)["loss"]
        found = [reading_of(one).name for one in heads_of(model).values()]
        expected = {"values": 4.0, "sigmoid": 0.0486}, {"values": 9.0, "sigmoid": 2.1269}
        assert loss == pytest.approx(sum(e[n] for e, n in zip(expected, found)), abs=1e-3)


def test_options_of_one_head_and_of_all_and_the_result_is_saved(tmp_path):
    model = three_heads()
    report = evaluation.evaluate(model, (PIXELS, LABELS))
    report.save(tmp_path / "report.json")
    saved = json.loads((tmp_path / "report.json").read_text())
    assert saved["heads"]["weight"]["r2"] == pytest.approx(report["weight"].r2)
    assert saved["figures"]["species_accuracy"] == report["species"].top1
    assert next(iter(report.figures)) == "species_accuracy"
    told = keras_vit.predict(model, PIXELS, top={"marks": 2}, threshold={"species": 1.0})
    assert {len(row) for row in told["marks"]} == {2} and not any(told["species"])
    report = evaluation.evaluate(model, (PIXELS, LABELS), threshold={"marks": 0.3})
    assert report["marks"].threshold == 0.3 and report["species"].examples == 6
    wrong = [
        ({"threshold": {"mark": 0.3}}, r"as threshold must name.*'marks'\. Received: 'mark'"),
        ({"threshold": 0.3}, r"^Head 'species': threshold is for.*\{'species': \.\.\.\}"),
        ({"class_names": {"weight": "ab"}}, "^Head 'weight': .*class_names|class names"),
        ({"reading": {"species": "maximum"}}, "^Head 'species': Unknown reading"),
    ]
    for options, match in wrong:
        refuses(match, evaluation.evaluate, model, (PIXELS, LABELS), **options)
    with pytest.raises(ValueError, match=r"which has none\. Received: 'a'"):
        keras_vit.predict(tiny_vit(), PIXELS, class_names={"a": ["x", "y", "z"]})


def test_labels_that_are_not_those_of_the_heads():
    model = three_heads()
    few = {name: LABELS[name] for name in ("species", "marks")}
    for labels, received in ((LABELS["species"], "ndarray"), (few, "those of 'species', 'marks'")):
        for data in ((PIXELS, labels), [(PIXELS, labels)]):
            refuses(rf"to measure one head.*{received}", evaluation.evaluate, model, data)
    with pytest.raises(ValueError, match="one array, as the model has one output"):
        evaluation.evaluate(alone(model, "species"), (PIXELS, LABELS))
    short = {**LABELS, "weight": LABELS["weight"][:5]}
    refuses("one label for each image", evaluation.evaluate, model, (PIXELS, short))


def test_what_takes_one_head_says_how_to_pick_it():
    model = three_heads()
    pick = r"one output.*'species', 'weight', 'marks'; keras\.Model\(model\.input, model\.output"
    refuses(pick, reading_of, model)
    name = model.layers[-4].name  # what the heads read
    assert evaluation.features(model, layer=name).output_shape == (None, 8)
    x = images()
    expected = evaluation.embed(model, x, layer=name)
    np.testing.assert_array_equal(evaluation.embed(model, x), expected, "all read the same")
    hidden = keras.layers.Dense(4, name="hidden")(model.get_layer(name).output)
    apart = {**model.output, "species": keras.layers.Dense(3, name="apart")(hidden)}
    apart = keras.Model(model.input, apart)
    for use in (evaluation.features, lambda m: evaluation.embed(m, x)):
        refuses(pick, use, apart)
    twice = keras.Model(model.input, [model.output["species"]] * 2)
    refuses("must have different names", keras_vit.predict, twice, PIXELS)


def test_images_that_lack_the_label_of_a_head():
    model = three_heads()
    known = {name: np.ones(6) for name in LABELS}
    known["weight"][[1, 4]] = 0
    parts = [slice(0, 2), slice(2, 6)]
    cut = lambda rows, part: {name: each[part] for name, each in rows.items()}  # noqa: E731
    batches = [(PIXELS[part], cut(LABELS, part), cut(known, part)) for part in parts]
    report = evaluation.evaluate(model, batches)
    assert [report[name].examples for name in LABELS] == [6, 4, 6] and report.examples == 6
    kept = known["weight"] == 1
    some = evaluation.evaluate(alone(model, "weight"), (PIXELS[kept], LABELS["weight"][kept]))
    assert report["weight"].figures == pytest.approx(some.figures, rel=1e-4)
    known["weight"][:] = 0
    batches = [(PIXELS[part], cut(LABELS, part), cut(known, part)) for part in parts]
    refuses("Head 'weight': Some image must have a label", evaluation.evaluate, model, batches)


def test_training_on_labels_of_other_heads(tmp_path):
    model = three_heads(compiled=False)
    model.compile("sgd", {**LOSSES, "species": keras_vit.training.SoftmaxLoss()})
    problem = {"species": "single_label", "weight": "regression", "marks": "multi_label"}
    labels = {**LABELS, "marks": LABELS["marks"].astype("float32")}

    def fit(labels, problem):
        recipe = keras_vit.recipes.digits().replace(batch_size=2)
        train = keras_vit.data.pipeline((PIXELS, labels), recipe, problem=problem)
        keras_vit.training.fit(model, train, tmp_path / "run", steps=1)

    for wrong, match in [
        ({**labels, "species": [0, 1, 2, 3, 0, 1]}, "Head 'species': Labels must be whole"),
        ({name: labels[name] for name in ("species", "weight")}, "the heads 'species', 'weight'"),
        (labels["species"], r"a dict \{head: labels\} of 'species', 'weight', 'marks'"),
    ]:
        heads = {name: problem[name] for name in wrong} if isinstance(wrong, dict) else None
        refuses(match, fit, wrong, heads)
    swapped = {**problem, "species": "regression"}
    refuses("Head 'species': Labels of problem='regression'", fit, labels, swapped)
