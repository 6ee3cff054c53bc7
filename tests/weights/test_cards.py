"""Model cards say what is known and nothing else."""

import dataclasses
import json
import os
import re
import warnings

import keras
import pytest
import yaml
from huggingface_hub import ModelCard

import keras_vit
from keras_vit import evaluation, recipes
from keras_vit.weights import catalog
from tests.support import assert_close, forward, images, randomize, refuses, tiny_vit
from tests.test_heads import LABELS, NAMES, PIXELS, three_heads

pytestmark = pytest.mark.any_backend


@pytest.fixture
def model():
    return randomize(tiny_vit(name="tiny"))


def report_of(model):
    labels = [i % model.num_classes for i in range(8)]
    return evaluation.evaluate(model, (images((8, 16, 16, 3)), labels))


def published(model, tmp_path, monkeypatch, **options):
    """The model as if its file were one of the catalogue."""
    row = catalog.find("vit_base_patch8_224.augreg2_in21k_ft_in1k")
    facts = {"image_size": 16, "num_classes": 3, "accuracy": (("imagenet top-1", 81.25),)}
    row = dataclasses.replace(row, licence="CC-BY-NC-4.0", **facts)
    keras_vit.save_weights(model, tmp_path / "m.safetensors")
    read = keras_vit.from_checkpoint(tmp_path / "m.safetensors", num_heads=2, **options)
    monkeypatch.setattr(catalog, "lookup", lambda name: (row,) if name == row.name else ())
    read.weights_from = row.name
    return read, row


# ---- what a card says


@pytest.mark.parametrize("format", ["huggingface", "timm", "google", None])
def test_names_of_strangers_are_text_and_nothing_else(model, tmp_path, format):
    """Raw HTML, links, control characters, bytes that are no UTF-8: wherever a name is from."""
    evil = "<script>x</script>`|[a](javascript:b)*c*\x1b[2J\u202e\n# d" + os.fsdecode(b"\xe9")
    model.class_names = (evil, "cat", "dog")
    model.weights_from = evil
    names = {"huggingface": "folder", "timm": "m.safetensors", "google": "m.npz"}
    path = tmp_path / names.get(format, "m.keras")
    if format:
        keras_vit.save_weights(model, path, format)
    options = {"name": evil, "data": evil, "test_data": evil, "test_split": evil}
    card = keras_vit.model_card(
        model, tmp_path / "README.md", file=path, report=report_of(model), **options
    )
    text = (tmp_path / "README.md").read_text("utf-8")
    body = text.split("\n---\n")[1]
    outside = body
    for not_obeyed in (r"```.*?```", r"\\[!-/:-@\[-`{-~]", r"`[^`\n]*`"):  # code, escapes, code
        outside = re.sub(not_obeyed, "", outside, flags=re.DOTALL)
    assert "<script" not in body
    assert "](javascript" not in outside and "\n# d" not in text and "*c*" not in outside
    assert not [c for c in text if c not in "\n" and not c.isprintable()]
    assert card.data.model_name and yaml.safe_load(text.split("---\n")[1])["library_name"]


def test_a_fresh_model_claims_nothing(model):
    card = keras_vit.model_card(model)
    said = card.data.to_dict()
    assert said["license"] == "unknown" and said["pipeline_tag"] == "image-classification"
    assert not {"datasets", "base_model", "model-index", "metrics"} & set(said)
    for text in (
        "trained on is not recorded",
        "How it was trained is not recorded",
        "Unknown: no report",
        "3; their names are not recorded",
        "keras.saving.load_model('model.keras', compile=False)",
        "This model: unknown",
    ):
        assert text in card.text
    assert "built like" not in card.text


def test_what_is_given_is_in_the_text_and_the_metadata(model, tmp_path):
    """Read back by the library's own parser, which is what the hub takes."""
    report, recipe = report_of(model), recipes.get("digits")
    model.class_names = ("a|b", "c", "d")
    given = {"recipe": recipe, "report": report, "license": "Our-Own", "test_split": "test"}
    given |= {"data": "digits", "test_data": "digits", "limits": ["Not for medicine."]}
    keras_vit.model_card(model, tmp_path / "README.md", name="Digits: small", **given)
    card = ModelCard.load(tmp_path / "README.md")
    about, (result,) = card.data, card.data.eval_results
    assert (about.license, about.license_name) == ("other", "Our-Own")
    assert (about.datasets, about.model_name) == (["digits"], "Digits: small")
    measured = result.dataset_name, result.dataset_split, result.metric_value
    assert measured == ("digits", "test", report.top1)
    rows = [f"| {name} | {value} |" for name, value in recipe.table() if name != "note"]
    rows += [
        f"| top-1 accuracy | {100 * report.top1:.2f} % |",
        "0: a\\|b, 1: c, 2: d",
        "- Not for medicine.",
    ]
    assert all(row in card.text for row in rows)
    yaml.safe_load(str(card).split("---")[1])


def test_a_run_tells_its_recipe_data_and_accuracy(model, tmp_path):
    recipe = recipes.get("digits").replace(learning_rate=0.0125).to_dict()
    settings = {"recipe": recipe, "dataset": "/home/someone/photos", "test_split": "val", "lora": 4}
    settings |= {"freeze": ["*", "!head"], "teacher": "/home/someone/big.keras"}
    refuses(r"no finished run.*settings\.json", keras_vit.model_card, model, run=tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    assert "Unknown: no report" in keras_vit.model_card(model, run=tmp_path).text
    report_of(model).save(tmp_path / "evaluation.json")
    card = keras_vit.model_card(model, run=tmp_path, license="mit")
    words = ["| freeze | \\['\\*', '!head'\\] |", "| lora | 4 |", "| teacher | big.keras |"]
    words += ["| learning_rate | 0.0125 |", "Measured on 8 images of photos (split `val`)"]
    assert all(each in card.text for each in words) and "someone" not in str(card)
    assert card.data.datasets == ["photos"] and card.data.license == "mit"


def test_published_weights_bring_their_licence_source_and_accuracy(model, tmp_path, monkeypatch):
    read, row = published(model, tmp_path, monkeypatch)
    card = keras_vit.model_card(read)
    assert card.data.license == "cc-by-nc-4.0" and card.data.base_model is None
    assert card.data.datasets == ["imagenet-21k", "imagenet-1k"]
    (result,) = card.data.eval_results
    assert (result.metric_value, result.source_name) == (0.8125, "as published")
    assert f"https://huggingface.co/timm/{row.name}" in card.text
    assert "no change since they were loaded is known" in card.text


@pytest.mark.parametrize("how", ["trained", "another size", "a fresh head", "reopened"])
def test_changed_weights_do_not_keep_the_accuracy(model, tmp_path, monkeypatch, how):
    """Their licence stays, and what they were made from is their base model."""
    options = {"another size": {"image_size": 32}, "a fresh head": {"num_classes": 5}}.get(how, {})
    read, row = published(model, tmp_path, monkeypatch, **options)
    if how == "trained":
        read.compile("sgd", "mse")
        read.train_on_batch(images((2, 16, 16, 3)), images((2, 3)))
    if how == "reopened":
        del read.load_report  # which no file holds
    card = keras_vit.model_card(read)
    assert card.data.base_model == f"timm/{row.name}" and card.data.license == "cc-by-nc-4.0"
    assert not card.data.eval_results and "81.25" not in card.text
    told = {
        "trained": "How it was trained is not recorded",
        "another size": "embedding` was resized, (2, 2) to (4, 4)",
        "a fresh head": "the head: 3 classes in the file",
        "reopened": "Whether it was changed after that is not recorded",
    }
    assert told[how] in card.text and "This model: unknown" in card.text


def test_a_local_file_is_named_without_its_folder(model, tmp_path):
    keras_vit.save_weights(model, tmp_path / "secret" / "m.npz")
    card = keras_vit.model_card(keras_vit.from_checkpoint(tmp_path / "secret" / "m.npz"))
    assert "trained on is unknown" in card.text and "`m.npz`" in card.text
    assert "secret" not in str(card)


@pytest.mark.parametrize("position", ["learned_1d", "sincos_2d", "learned_2d"])
def test_what_the_file_lacks_is_in_the_code(tmp_path, position):
    """The lines of the card, executed, give the model back; positions are a table in any file."""
    options = {"epsilon": 1e-5, "pool": None, "num_classes": 0, "position": position}
    odd = randomize(tiny_vit(image_size=(16, 24), **options))
    odd.preprocessing = keras_vit.preprocessing.TIMM
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the epsilon
        keras_vit.save_weights(odd, tmp_path / "odd.npz", card=True)
    code = (tmp_path / "README.md").read_text().split("```")[1].removeprefix("python")
    assert "image_size=(16, 24)" in code and "epsilon=1e-05" in code
    found = {}
    exec(code.replace("'odd.npz'", repr(str(tmp_path / "odd.npz"))), found)
    x = images((2, 16, 24, 3))
    assert_close(forward(found["model"], x), forward(odd, x), 2e-6)
    assert found["model"].preprocessing == odd.preprocessing


# ---- models around a network


@pytest.mark.parametrize("as_list", [False, True])
def test_each_head_has_its_outputs_figures_and_classes(tmp_path, as_list):
    """A report as an object and as its file; the code of the card gives the model back."""
    model = three_heads(as_list)
    model.class_names = NAMES
    report = evaluation.evaluate(model, (PIXELS, LABELS))
    report.save(tmp_path / "report.json")
    card = keras_vit.model_card(model, report=report, test_data="farm")
    saved = json.loads((tmp_path / "report.json").read_text())
    assert str(keras_vit.model_card(model, report=saved, test_data="farm")) == str(card)
    layers = "`species`, `weight`, `marks`" if as_list else "`dense_4`, `dense_3`, `dense_1`"
    for text in (
        "into logits of 3 classes for `species`, 1 value for `weight`, logits of 4 classes, each",
        f"further layers with weights: {layers}",
        "Measured on 6 images of farm.",
        f"| species: top-1 accuracy | {100 * report['species'].top1:.2f} % |",
        f"| weight: mean absolute error | {report['weight'].mean_absolute_error:.4f} |",
        "`species`: 0: ant, 1: bee, 2: fly\n\n`weight`: 0: grams",
    ):
        assert text in card.text
    results = {one.metric_name: one for one in card.data.eval_results}
    assert results["species: top-1 accuracy"].task_type == "image-classification"
    assert results["weight: r2"].task_type == "image-feature-extraction"
    model.save(tmp_path / "model.keras")
    code, opened = card.text.split("```")[1].removeprefix("python"), {}
    code = code.replace("'model.keras'", repr(str(tmp_path / "model.keras")))
    exec(code.replace('["image.jpg"]', "PIXELS"), {"PIXELS": PIXELS}, opened)
    assert keras_vit.predict(opened["model"], PIXELS) == keras_vit.predict(model, PIXELS)


@pytest.mark.parametrize(
    ("count", "reading", "end", "told", "task"),
    [
        (3, None, "softmax", "probabilities of 3 classes, with", "image-classification"),
        (3, None, "sigmoid", "probabilities of 3 classes, each by", "image-classification"),
        (1, "sigmoid", None, "logits of 1 class, each by itself", "image-classification"),
        (2, "values", None, "2 values, with", "image-feature-extraction"),
        (1, None, None, "1 value, of which nothing tells how", "image-feature-extraction"),
    ],
)
def test_outputs_are_told_as_they_are_read(count, reading, end, told, task):
    model = tiny_vit(num_classes=count)
    model.reading = reading
    model = (
        model if end is None else keras.Model(model.input, getattr(keras.ops, end)(model.output))
    )
    card = keras_vit.model_card(model)
    assert f"into {told}" in card.text and card.data.pipeline_tag == task
    assert ("is put into one of its classes" in card.text) == (end == "softmax")
    is_read = reading is not None or end is not None
    assert ("keras_vit.predict" in card.text) == is_read
    assert ("## Classes" in card.text) == (task == "image-classification")


def test_the_loss_of_a_model_around_a_network_tells_how_it_is_read(model):
    around = keras.Model(x := keras.Input((16, 16, 3)), model(x))
    around.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    assert "logits of 3 classes, each by itself" in keras_vit.model_card(around).text


def test_one_head_around_published_weights_is_no_longer_as_published(model, tmp_path, monkeypatch):
    read, row = published(model, tmp_path, monkeypatch)
    images = keras.Input((16, 16, 3))
    around = keras.Model(images, keras.layers.Dense(5, name="breed")(read(images)), name="dogs")
    card = keras_vit.model_card(around)
    assert card.data.base_model == f"timm/{row.name}" and not card.data.eval_results
    assert "with further layers, `breed`. No training after that is known" in card.text
    assert "into logits of 5 classes, with" in card.text and "the network in it does" in card.text


# ---- where a card is written


def test_somebodys_own_readme_stays(model, tmp_path):
    folder, options = tmp_path / "folder", {"card": True, "force": True}
    readme = folder / "README.md"
    for _ in range(2):  # a card that nobody edited is replaced
        keras_vit.save_weights(model, folder, **options)
    readme.write_text(readme.read_text() + "\nMy words.\n")
    before = readme.read_text()
    (folder / "model.safetensors").unlink()
    refuses("edited since", keras_vit.save_weights, model, folder, **options)
    refuses("edited since", keras_vit.model_card, model, readme)
    assert readme.read_text() == before
    assert not (folder / "model.safetensors").exists()


def test_wrong_input_is_refused(model, tmp_path):
    refuses("VisionTransformer", keras_vit.model_card, keras.Sequential(), error=TypeError)
    words = r"keras_vit\.recipes\.Recipe"
    refuses(words, keras_vit.model_card, model, recipe="digits", error=TypeError)
    refuses(r"without \['correct'", keras_vit.model_card, model, report={"accuracy": 0.9})
    report, other = report_of(model), tiny_vit(num_classes=4)
    refuses("report of 3 classes", keras_vit.model_card, other, report=report)
    refuses("does not exist", keras_vit.model_card, model, file=tmp_path / "m.npz")
    refuses("sequence of sentences", keras_vit.model_card, model, limits="Not for medicine.")
