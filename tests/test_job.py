"""A job: what stands in the folder of its output, whatever ended it."""

import itertools
import shutil

import pytest

from keras_vit import plan, recipes, results, training
from keras_vit.job import Job
from tests.support import killed_after, randomize, tiny_vit

pytestmark = pytest.mark.any_backend


def test_what_a_killed_job_leaves_is_of_one_job(tmp_path, monkeypatch):
    """No measurement of a model beside another one, nor settings of another one."""
    recipe, output = recipes.get("digits"), tmp_path / "output"
    reports = {"evaluation.json", "metrics.json"}
    old, new = (Job(recipe, str(output), split=split) for split in ("train", "test"))
    model = randomize(tiny_vit())
    results.save(old, model)
    for name in reports:
        (output / name).write_text("old")
    output.rename(tmp_path / "old")
    before = (tmp_path / "old" / "model.keras").read_bytes()
    model.get_layer("norm").beta.assign([1.0] * 8)
    for calls in itertools.count():
        shutil.copytree(tmp_path / "old", output)
        with killed_after(monkeypatch, calls):
            results.save(new, model)
        left = {file.name for file in output.iterdir()}
        is_old = (output / "model.keras").read_bytes() == before if "model.keras" in left else None
        if "settings.json" in left:
            assert is_old == (Job.read(output).split == "train")
        assert is_old or not left & reports
        shutil.rmtree(output)
        if killed_after.reached_the_end:
            break
    assert is_old is False and calls > 5


def test_what_is_frozen_stays_so_beside_lora_and_the_card_counts_what_is_saved(tmp_path):
    recipe = recipes.get("digits").scale(steps=1)
    job = Job(recipe, str(tmp_path), weights="digits", freeze=("head", "block_0"), lora=2)
    model = job.build(job.load_train())
    trained = {variable.path.rsplit("/", 1)[1] for variable in model.trainable_variables}
    assert trained == {"lora_kernel_a", "lora_kernel_b"}
    assert not any("block_0" in variable.path for variable in model.trainable_variables)
    assert training.merge_lora(model).load_report is model.load_report is not None
    parameters = job.run()["parameters"]
    assert f"with {parameters:,} parameters" in (tmp_path / "README.md").read_text("utf-8")


def test_a_sweep_learns_from_the_teacher_too(tmp_path, monkeypatch):
    tiny_vit(channels=1, num_classes=10).save(tmp_path / "teacher.keras")
    job = Job(recipes.get("digits"), str(tmp_path), teacher=str(tmp_path / "teacher.keras"))
    monkeypatch.setattr(training, "sweep", lambda make_model, *_, **__: make_model())
    assert isinstance(plan.sweep(job, [1e-3]), training.Distiller)


@pytest.mark.any_backend
def test_images_are_augmented_to_train_on_and_never_to_test_on(tmp_path):
    """Whatever their split is called: of one by hand, the first images may be for the test."""
    recipe = recipes.get("digits").scale(steps=1)
    job = Job(recipe, str(tmp_path), split="train[20%:]", test_split="train[:20%]")
    train, test = job.load_train(), job.load_test()
    assert train.training and len(train) == len(list(train)) and not test.training
    assert job.load_validation(train, test).training is False
    assert [len(labels.shape) for _, labels in (train[0], test[0])] == [2, 1]
