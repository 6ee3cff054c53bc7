"""The command line for labels of several classes at once, for yes or no, and for values."""

import json
import re
import zipfile

import keras
import numpy as np
import pytest
from PIL import Image

import keras_vit
from keras_vit import evaluation
from keras_vit_cli import main
from tests.cli.test_cli import run
from tests.data.pipeline_cases import as_csv, as_json, halves
from tests.support import tiny_vit
from tests.test_heads import three_heads

pytestmark = pytest.mark.any_backend
COUNT = 24


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Pictures whose left half is bright ("left"), whose right half is ("right"), both or none."""
    folder = tmp_path_factory.mktemp("photos")
    tags = halves(folder / "photos", COUNT)
    as_csv(
        folder / "labels.csv", ("file", "labels"), *((f"{i}.png", t) for i, t in enumerate(tags))
    )
    as_json(folder / "values.json", {f"{i}.png": i / 4 for i in range(COUNT)})
    return folder


def test_several_labels_from_training_to_a_file(photos, tmp_path, capsys):
    output, labels = tmp_path / "run", photos / "labels.csv"
    data = ("--recipe", "digits", "--dataset", photos / "photos", "--labels", labels)
    settings = ("--steps", 30, "--batch-size", 8, "--learning-rate", 0.01, "--seed", 1)
    code, out, _ = run(capsys, "train", *data, *settings, "-o", output)
    metrics = json.loads((output / "metrics.json").read_text())
    assert code == 0 and "Test mean average precision" in out
    assert (output / "predictions.png").is_file()
    figure = metrics["test_mean_average_precision"]
    assert figure == metrics["test_mean_average_precision_reloaded"] > 0.9
    report = json.loads((output / "evaluation.json").read_text())
    assert report["problem"] == "multi_label" and set(report["average_precision"]) == {
        "left",
        "right",
    }
    assert "each by itself (sigmoid)" in (output / "README.md").read_text()
    both, neither = photos / "photos" / "3.png", photos / "photos" / "0.png"
    options = ("--threshold", 0.5, "--json")
    code, out, _ = run(capsys, "predict", output, both, neither, *options)
    assert {(row["image"], row["class"]) for row in json.loads(out)} == {
        (str(both), "left"),
        (str(both), "right"),
    }
    again = json.loads(run(capsys, "evaluate", output, "--json")[1])
    assert again["mean_average_precision"] == figure
    other = run(capsys, "evaluate", output, photos / "photos", "--labels", labels, "--json")
    assert json.loads(other[1])["mean_average_precision"] == figure
    with pytest.raises(SystemExit):
        main(["train", "--labels", str(labels)])
    assert "--labels needs --dataset" in capsys.readouterr().err


def test_a_model_of_yes_or_no(photos, tmp_path, capsys):
    model = tiny_vit(num_classes=1)
    model.get_layer("head").bias.assign([-2.0])
    model.save(tmp_path / "one.keras")
    image = photos / "photos" / "0.png"
    code, out, error = run(capsys, "predict", tmp_path / "one.keras", image)
    assert code == 1 and out == "" and "nothing says which" in error
    options = (tmp_path / "one.keras", image, "--json", "--reading", "sigmoid")
    (row,) = json.loads(run(capsys, "predict", *options)[1])
    assert row["probability"] == pytest.approx(0.1192, abs=1e-4)
    (row,) = json.loads(run(capsys, "predict", *options[:-1], "values")[1])
    assert row["value"] == pytest.approx(-2, abs=1e-4) and "probability" not in row
    sorted_in = tmp_path / "folders"
    for name in ("no", "yes"):
        for part in ("train", "test"):
            (sorted_in / part / name).mkdir(parents=True)
            Image.open(image).save(sorted_in / part / name / "a.png")
    options = ("evaluate", tmp_path / "one.keras", sorted_in, "--reading", "sigmoid", "--json")
    report = json.loads(run(capsys, *options)[1])
    assert report["num_classes"] == 2 and report["correct"] == {"1": 1}
    assert report["confusion"]["class_names"] == ["no", "yes"]


def test_values_from_a_file_of_labels(photos, capsys, tmp_path):
    model = tiny_vit(num_classes=1)
    model.compile(loss="mse")
    model.save(tmp_path / "values.keras")
    data = (photos / "photos", "--labels", photos / "values.json", "--problem", "regression")
    report = json.loads(run(capsys, "evaluate", tmp_path / "values.keras", *data, "--json")[1])
    assert report["problem"] == "regression" and report["examples"] == 5
    model = keras.saving.load_model(tmp_path / "values.keras", compile=False)
    assert model.reading == "values"
    with pytest.raises(ValueError, match="one for each output"):
        evaluation.evaluate(model, (np.zeros((2, 16, 16, 3), "float32"), np.zeros((2, 3))))


def test_a_model_of_the_user_is_read_by_the_loss_in_its_file(photos, capsys, tmp_path):
    vit = tiny_vit(num_classes=0)
    model = keras.Model(vit.input, keras.layers.Dense(1)(vit.output))
    model.compile("sgd", loss="mse")
    model.save(tmp_path / "value.keras")
    image = photos / "photos" / "1.png"
    code, output, _ = run(capsys, "convert", tmp_path / "value.keras", tmp_path / "copy.keras")
    assert code == 0 and "not the optimizer: compile it anew before training" in output
    for name in ("value", "copy"):
        (row,) = json.loads(run(capsys, "predict", tmp_path / f"{name}.keras", image, "--json")[1])
        assert "value" in row
    copy = keras.models.load_model(tmp_path / "copy.keras")
    values = [keras_vit.predict(one, [image])[0][0].value for one in (model, copy)]
    np.testing.assert_allclose(*values, rtol=1e-6)
    assert copy.loss == "mse" and len(copy.optimizer.variables) == 2  # the step and the rate
    with zipfile.ZipFile(tmp_path / "copy.keras") as archive:
        compiled = json.loads(archive.read("config.json"))["compile_config"]
    assert compiled == {"optimizer": "sgd", "loss": "mse"}  # of no backend
    options = (tmp_path / "value.keras", tmp_path / "more.keras", "--reading", "values")
    code, _, error = run(capsys, "convert", *options)
    assert code == 1 and "does not keep how the outputs of a model of Keras's own class" in error


def of_the_user(y_true, y_pred):
    return y_pred


class OfTheUser(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return y_pred


def test_a_loss_of_the_users_own_code_is_told_of(photos, capsys, tmp_path):
    network, image = tiny_vit(num_classes=0), photos / "photos" / "1.png"
    around = keras.Model(network.input, keras.layers.Dense(3)(network.output))
    for model in (tiny_vit(), around):
        for loss, name in ((OfTheUser(), "OfTheUser"), (of_the_user, "of_the_user")):
            model.compile(loss=loss)
            model.save(tmp_path / "own.keras")
            options = tmp_path / "own.keras", tmp_path / "copy.keras", "--force"
            assert run(capsys, "convert", *options)[0] == 0
            for file in options[:2]:
                code, _, error = run(capsys, "predict", file, image)
                text = f"taken for those of a softmax, as its loss .* loss='{name}'; .*--reading"
                assert code == 0 and re.search(text, error)
                assert run(capsys, "predict", file, image, "--reading", "values")[2] == ""
    heads = keras_vit.add_heads(network, {"a": 2, "b": 1})
    heads.compile(loss={"a": OfTheUser(), "b": "mse"})
    heads.save(tmp_path / "heads.keras")
    code, _, error = run(capsys, "predict", tmp_path / "heads.keras", image)
    assert code == 1 and "Head 'a': Each head has a reading of its own" in error
    options = ("--reading", "a=sigmoid", "--json")
    rows = json.loads(run(capsys, "predict", tmp_path / "heads.keras", image, *options)[1])
    assert ["value" in row for row in rows] == [False, False, True]


def test_layers_of_the_users_own_code_are_named(photos, capsys, tmp_path):
    network = tiny_vit(num_classes=0)

    class LayerOfTheUser(keras.layers.Layer):
        def call(self, x):
            return x

    keras.Model(network.input, LayerOfTheUser()(network.output)).save(tmp_path / "own.keras")
    code, _, error = run(capsys, "info", tmp_path / "own.keras")
    assert code == 1 and "the class 'LayerOfTheUser', which is your own" in error


def test_commands_for_a_model_of_several_heads(photos, capsys, tmp_path):
    model, file, image = three_heads(), tmp_path / "heads.keras", photos / "photos" / "1.png"
    model.save(file)
    fields = json.loads(run(capsys, "info", file, "--json")[1])
    assert fields["output"] == {"species": [None, 3], "weight": [None, 1], "marks": [None, 4]}
    assert run(capsys, "explore", file, image, "-o", tmp_path / "e.html")[0] == 0
    code, out, _ = run(capsys, "convert", file, tmp_path / "copy.keras")
    assert code == 0 and "the model has the heads 'species', 'weight', 'marks'" in out
    code, _, error = run(capsys, "convert", file, tmp_path / "m.npz")
    assert code == 1 and "the heads 'species', 'weight', 'marks'; give the network" in error


def test_several_heads_and_columns_of_different_problems(photos, capsys, tmp_path):
    """A model of the user's is told by its losses, and labels are those of the columns' names."""
    model = three_heads()
    model.save(tmp_path / "heads.keras")
    folder = photos / "photos"
    code, out, _ = run(capsys, "predict", tmp_path / "heads.keras", folder / "1.png")
    assert code == 0 and out.split()[:4] == ["image", "species", "weight", "marks"]
    options = ("evaluate", tmp_path / "heads.keras", folder, "--labels", photos / "labels.csv")
    code, _, error = run(capsys, *options)
    assert code and "which has 'labels'. Received: 'species', 'weight', 'marks'" in error
    rows = [("file", "species", "grams"), *((f"{i}.png", "ab"[i % 2], i) for i in range(COUNT))]
    as_csv(tmp_path / "two.csv", *rows)
    options = ("--labels", str(tmp_path / "two.csv"), "-o", str(tmp_path / "out"), "--show")
    code = main(["train", "--dataset", str(folder), *options])
    told = capsys.readouterr().err
    assert code and "the column 'species'" in told and "--problem species=single_label" in told
