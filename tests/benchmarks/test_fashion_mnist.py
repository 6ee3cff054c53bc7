"""Draws that are made once, and the tables of them."""

import json

import pytest

from keras_vit import recipes

pytestmark = pytest.mark.any_backend


def one_draw(draw, gain, epochs):
    few = {"fine-tuned": 0.8 + gain, "from scratch": 0.8}
    sides = {"28 px": 0.9, "40 px": 0.91}
    return {"draw": draw, "epochs": epochs, "10": few, "100": few, "resolution": sides}


def test_draws_of_a_file_are_not_made_again(tmp_path, capsys, monkeypatch):
    import fashion_mnist

    recipe = recipes.fashion_mnist()
    made = []

    def make_draw(fashion, recipe, draw):
        made.append(draw)
        return one_draw(draw, 0.06, recipe.passes)

    monkeypatch.setattr(fashion_mnist, "make_draw", make_draw)
    file = tmp_path / "draws.jsonl"
    file.write_text(json.dumps(one_draw(3, 0.02, recipe.passes)) + "\n")
    fashion_mnist.on_few_images(None, recipe, [3, 4], file)
    assert made == [4]
    assert [json.loads(line)["draw"] for line in file.read_text().splitlines()] == [3, 4]
    printed = capsys.readouterr().out
    assert "| 10 images per class | 84.0 ± 2.8 | 80.0 ± 0.0 | 4.0 ± 2.8 |" in printed
    assert "| pre-trained at 28 px | 90.0 ± 0.0 | 91.0 ± 0.0 | -1.0 ± 0.0 |" in printed
    fashion_mnist.on_few_images(None, recipe, [3, 4], file)
    assert made == [4]


def test_draws_of_other_epochs_are_not_mixed(tmp_path):
    import fashion_mnist

    file = tmp_path / "draws.jsonl"
    file.write_text(json.dumps(one_draw(0, 0.02, 1.0)) + "\n")
    with pytest.raises(SystemExit, match="of other --epochs"):
        fashion_mnist.on_few_images(None, recipes.fashion_mnist(), [0], file)
