"""`keras-vit train` for images of one's own: which recipe, which model, what a run will cost."""

import dataclasses
import json
import math
import shutil
import tarfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import plan, variants
from keras_vit.job import Job
from keras_vit.plan import planned
from keras_vit.training import cost
from keras_vit_cli import main, parser
from keras_vit_cli.train_command import make_job
from tests.data.pipeline_cases import class_folders
from tests.support import every_backend, randomize, refuses, slow_unless_torch, tiny_vit

pytestmark = pytest.mark.any_backend


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Twelve photographs of two classes: a folder, archives of it, tables of labels, an array."""
    place = tmp_path_factory.mktemp("data")
    paths = class_folders(place / "photos")
    names = [path.relative_to(place / "photos") for path in paths]
    rows = [f"{name},{'a|b' if i % 3 else 'b'}" for i, name in enumerate(names)]
    (place / "several.csv").write_text("\n".join(["file,labels", *rows]))
    rows = [f"{name},{i / 7:.2f}" for i, name in enumerate(names)]
    (place / "values.csv").write_text("\n".join(["file,value", *rows]))
    shutil.make_archive(str(place / "photos"), "zip", place / "photos")
    with tarfile.open(place / "photos.tar", "w") as archive:
        archive.add(place / "photos", "photos")
    for part, picture in (("train", paths[:8]), ("test", paths[8:])):
        for path in picture:
            (place / "parts" / part / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / "parts" / part / path.parent.name)
    images = np.random.default_rng(0).integers(0, 256, (40, 28, 28, 1), np.uint8)
    np.savez(place / "grey.npz", x=images, y=np.arange(40) % 4)
    return place


def job_of(*arguments):
    return make_job(parser().parse_args(["train", *map(str, arguments)]))


@pytest.mark.parametrize(
    "name, examples",
    [("photos", 10), ("photos.zip", 10), ("photos.tar", 10), ("parts", 8), ("grey.npz", 32)],
)
def test_images_of_ones_own_have_their_recipe(photos, name, examples):
    """Of images of about 28 pixels patches of 4 make about 64."""
    recipe = job_of("--dataset", photos / name).recipe
    assert recipe.name == "own_images" and recipe.examples == examples
    assert recipe.variant == "Ti/4" and recipe.architecture == ()
    assert recipe.image_size in [(28, 28), (36, 36)] and recipe.passes <= 90


def test_labels_in_a_file_have_it_too(photos):
    kinds = [("several", "multi_label", "sigmoid"), ("values", "regression", "squared")]
    for file, problem, loss in kinds:
        labels = ("--labels", photos / f"{file}.csv", "--problem", problem)
        recipe = job_of("--dataset", photos / "photos", *labels).recipe
        assert (recipe.name, recipe.problem, recipe.loss) == ("own_images", problem, loss)
        assert recipe.label_smoothing == 0


def test_what_has_a_name_keeps_the_recipe_that_it_had(photos, monkeypatch):
    """Also beside a folder of that name, which ./digits stands for."""
    monkeypatch.chdir(photos)
    shutil.copytree(photos / "photos", photos / "digits")
    for arguments in ((), ("--dataset", "digits"), ("--recipe", "digits", "--dataset", "photos")):
        assert job_of(*arguments).recipe.name == "digits"
    assert job_of("--dataset", "./digits").recipe.name == "own_images"


def test_what_is_asked_for_is_done(photos):
    data = ("--dataset", photos / "photos")
    recipe = job_of(*data, "--image-size", 96, 64, "--epochs", 3, "--batch-size", 2).recipe
    assert (recipe.image_size, recipe.variant, recipe.steps) == ((96, 64), "Ti/8", 15)
    recipe = job_of(*data, "--variant", "S/16", "--image-size", 224).recipe
    assert (recipe.variant, recipe.image_size) == ("S/16", (224, 224))


@pytest.fixture
def weights(photos, monkeypatch):
    """A checkpoint with a head of 1,000 classes, of a published size that is small: X/8."""
    model = randomize(tiny_vit(num_classes=1000, image_size=32))
    monkeypatch.setitem(variants.VARIANTS, "X/8", keras_vit.get_variant(model.variant))
    path = photos / "weights.npz"
    keras_vit.save_weights(model, path, force=True)
    return path


@every_backend
@slow_unless_torch
def test_weights_decide_the_model_and_it_has_their_name(photos, weights, tmp_path, capsys):
    """In what is printed, in the report, in the card and in the model; images have their size."""
    data = ("--dataset", photos / "photos", "--weights", weights)
    recipe = job_of(*data).recipe
    assert recipe.image_size == (32, 32) and recipe.optimizer == "sgdm" and recipe.variant is None
    output = tmp_path / "run"
    assert main([*map(str, ["train", *data, "--steps", 2, "-o", output])]) == 0
    printed = capsys.readouterr().out
    assert "vit_x8 on 2 images of 2 classes" in printed and "1000 classes in the file" in printed
    assert keras.saving.load_model(output / "model.keras", compile=False).name == "vit_x8"
    assert "# vit_x8\n" in (output / "README.md").read_text()
    left = "".join(path.read_text() for path in output.glob("*.json"))
    assert "vit_mini" not in printed + left
    assert json.loads((output / "metrics.json").read_text())["parameters"] < 10_000


@every_backend
def test_a_variant_and_weights_of_another_are_refused(photos, weights):
    job = job_of("--dataset", photos / "photos", "--weights", weights, "--variant", "Ti/16")
    refuses("X/8 file; the model is a ViT-Ti/16", job.build, job.load_train())


def test_the_model_of_an_earlier_run_is_converted_first(photos, tmp_path, capsys):
    run = tmp_path / "a run"
    run.mkdir()
    (run / "model.keras").touch()
    for weights in (run, run / "model.keras"):
        with pytest.raises(SystemExit):
            main(["train", "--dataset", str(photos / "photos"), "--weights", str(weights)])
        assert f"keras-vit convert '{weights}' start.safetensors" in capsys.readouterr().err


def test_a_size_has_one_name_wherever_it_comes_from():
    from keras_vit.builders import name_of

    def named(variant, weights_from=None):
        fields = {"variant": keras_vit.get_variant(variant), "weights_from": weights_from}
        return name_of(type("Model", (), fields))

    assert named("B/16") == named(None) == "B/16"
    assert named("DINOv2-S/14") == "DINOv2-S/14" and named("S/24") == "S/24"
    assert named("MAE-B/16") == "B/16", "whose architecture several families have"
    assert named("MAE-B/16", "vit_base_patch16_224.mae") == "MAE-B/16"
    assert name_of(tiny_vit()) is None


@every_backend
@pytest.mark.parametrize("flag", ["--show", "--dry-run"])
def test_a_dry_run_tells_what_it_costs_and_writes_nothing(
    photos, weights, tmp_path, monkeypatch, capsys, flag
):
    monkeypatch.chdir(tmp_path)
    data = ["--dataset", photos / "photos", "--weights", weights]
    assert main([*map(str, ["train", *data, "-o", tmp_path / "run", flag])]) == 0
    assert [*tmp_path.iterdir()] == []
    printed = capsys.readouterr().out
    for line in (
        "model            vit_x8: 2 blocks of width 8, 2 heads, patches of 8 x 8\n",
        "run              100 updates of 4 images, 50 epochs\n",
        "training images  a random box of 25% to 100% of the image, to 32 x 32, half of them",
        "test images      squash, bilinear",
        "3 updates of 4 images",
        "for an epoch",
    ):
        assert line in printed
    assert ["examples", "10"] in map(str.split, printed.splitlines())


@every_backend
def test_the_cost_is_what_the_run_takes(photos, weights):
    job, model = planned(job_of("--dataset", photos / "photos", "--weights", weights))
    found = plan.cost(job, model)
    assert found.parameters == found.trained == model.count_params()
    kept = [v for v in model.optimizer.variables if len(v.shape) and "float" in v.dtype]
    slots = sum(4 * math.prod(v.shape) for v in kept)
    assert found.optimizer == slots
    assert found.weights == found.gradients == 4 * found.parameters
    assert found.seconds > 0 and found.macs > found.parameters
    assert found.recipe == job.recipe and found.steps_per_epoch == 2
    frozen = Job(**{**vars(job), "freeze": ("*", "!head")})
    less = plan.cost(*planned(frozen))
    assert less.trained == 2 * 8 + 2 and less.optimizer == 4 * less.trained


def test_the_cost_of_what_has_no_formula_is_not_made_up():
    recipe = keras_vit.recipes.own_images(100, 3)
    found = cost.count(keras_vit.BiT("R50x1", num_classes=3), recipe, 12)
    assert found.macs is None and found.activations is None
    assert "not counted for a ResNet" in str(found) and "not measured" in str(found)
    small = dataclasses.replace(found, available=10**8)
    assert "accumulate=2 halves" in str(small) and "accumulate" not in str(found)


def test_published_weights_are_planned_without_a_download(photos, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    name = "deit_tiny_patch16_224.fb_in1k"
    job = job_of("--dataset", photos / "photos", "--weights", name)
    assert job.recipe.image_size == (224, 224)
    job, model = planned(job)
    assert model.name == "deit_ti16" and model.preprocessing.crop_fraction == 0.9
    assert job.recipe.eval.crop_fraction == 0.9 and [*tmp_path.rglob("*.*")] == []


def test_images_that_are_not_here_leave_the_recipe(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert main(["train", "--recipe", "finetune-cifar100", "--show"]) == 0
    printed = capsys.readouterr().out
    assert "name" in printed and "What it costs is not known without its images" in printed
