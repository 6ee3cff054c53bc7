"""The snippets of README.md and docs/ say what the library takes."""

import numpy as np
import pytest

import keras_vit
from tests.recipes.snippets import mistakes, snippets
from tests.support import ROOT

pytestmark = pytest.mark.any_backend

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_and_argument_in_a_page_exists(page):
    assert [mistake for code in snippets(page) for mistake in mistakes(code)] == []


def test_mistakes_in_a_page_are_found():
    for code, mistake in (
        ("keras_vit.data.lod('digits')", "no attribute 'lod'"),
        ("keras_vit.data.load('digits', recipes=recipe)", "argument 'recipes'"),
        ("recipe.scale(batch=3)", "argument 'batch'"),
        ("recipe.scaled(3)", "no attribute 'scaled'"),
        ("training.fit(model, train)", "argument: 'output'"),
    ):
        assert mistake in " ".join(mistakes(code))


def test_the_recipe_of_the_page_trains_and_is_evaluated(tmp_path, monkeypatch, capsys):
    """With noise for CIFAR-100, few updates, and a small model without published weights."""
    finetune, build = keras_vit.recipes.finetune, keras_vit.ViT_B16
    open_source = keras_vit.data.input_pipeline.open_source
    named = []

    def noise(source, *options):
        named.append(source)
        images = np.random.default_rng(0).integers(0, 256, (128, 20, 24, 3), np.uint8)
        part = images, np.arange(128) % 100
        return open_source((part, part), *options)

    def short(*args, **kwargs):
        small = {"image_size": 32, "batch_size": 8, "steps": 32, "warmup_steps": 0}
        return finetune(*args, **kwargs).replace(**small, examples=128)

    def small(weights, **options):
        assert weights in {row.name for row in keras_vit.weights.checkpoints()}
        return build(depth=1, width=16, num_heads=2, mlp_dim=16, **options)

    monkeypatch.setattr("keras_vit.data.input_pipeline.open_source", noise)
    monkeypatch.setattr(keras_vit.recipes, "finetune", short)
    monkeypatch.setattr(keras_vit, "ViT_B16", small)
    monkeypatch.chdir(tmp_path)
    code = snippets(ROOT / "docs" / "recipes.md")[0]
    names = {"keras_vit": keras_vit}
    exec(code, names)
    assert int(names["model"].optimizer.iterations) == names["recipe"].steps == 2
    assert set(named) == {"cifar100"} and (tmp_path / "output" / "history.csv").is_file()
    assert "128 images" in capsys.readouterr().out
