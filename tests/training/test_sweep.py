"""Learning-rate sweeps."""

import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.sweep import SweepResult, Trial
from tests.support import images, randomize, tiny_vit

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
RATES = (1e-7, 0.02, 1e38)


@dataclasses.dataclass(frozen=True)
class Recipe:
    name: str = "tiny"
    learning_rates: tuple = RATES
    learning_rate: float = 0.02
    batch_size: int = 16
    epochs: int | None = 6
    steps: int | None = None
    seed: int = 0

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def compile(self, model):
        compiled.append(self.learning_rate)
        model.compile(keras.optimizers.Adam(self.learning_rate), LOSS, metrics=["accuracy"])


compiled = []


@pytest.fixture(autouse=True)
def forget():
    compiled.clear()


def easy_task(seed, count=32):
    """Three classes that differ in brightness."""
    y = np.arange(count) % 3
    x = images((count, 16, 16, 3), seed) / 4 + (y - 1).reshape(-1, 1, 1, 1) / 2
    return x.astype("float32"), y


TRAIN, VALIDATION = easy_task(0), easy_task(1)


def make_model():
    return tiny_vit(depth=1, dropout=0.1)


def sweep(recipe=None, make_model=make_model, **options):
    options = {"train": TRAIN, "validation": VALIDATION, "verbose": False, **options}
    return training.sweep(make_model, recipe or Recipe(), **options)


def test_the_winner_is_chosen_and_divergence_is_recorded(capsys):
    result = sweep(verbose=True)
    slow, good, wild = result.trials
    assert compiled == list(RATES)
    assert result.learning_rate == 0.02 and result.best is good
    assert good.score > 0.9 > slow.score and good.epochs == 6 and good.loss < slow.loss
    assert wild.diverged and wild.score is None and wild.loss is None
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0].split() == ["learning", "rate", "accuracy", "loss", "epochs"]
    assert lines[2].split()[:2] == ["0.02", f"{good.score:.4f}"] and lines[2].endswith("<- chosen")
    assert lines[3].split()[:2] == ["1e+38", "diverged"] and str(result) == "\n".join(lines)


@pytest.mark.any_backend
def test_every_run_begins_alike_and_is_written_at_once(tmp_path):
    path, seen = tmp_path / "sweep.json", []

    def make():
        if path.exists():
            seen.append([t["learning_rate"] for t in json.loads(path.read_text())["trials"]])
        return randomize(make_model(), seed=len(seen))  # the first weights count

    result = sweep(Recipe(epochs=2), make, path=path, learning_rates=[0.01, 0.02])
    assert seen == [[0.01]]
    alone = sweep(Recipe(epochs=2), lambda: randomize(make_model()), learning_rates=[0.02])
    assert alone.trials == result.trials[1:]


def test_ties_go_to_the_lower_rate_and_losses_are_minimised():
    trials = tuple(Trial(rate, score, 1.0, 1) for rate, score in ((1, 3), (2, 5), (3, 5)))
    assert SweepResult("tiny", "accuracy", trials).learning_rate == 2
    assert SweepResult("tiny", "loss", trials).learning_rate == 1


def test_all_rates_diverged():
    result = sweep(learning_rates=[1e38], epochs=1)
    assert "diverged" in str(result) and "chosen" not in str(result)
    with pytest.raises(ValueError, match=r"not finite at any learning rate.*try lower"):
        _ = result.best


def test_early_stop_keeps_the_best_epoch():
    """At a rate at which nothing moves, the first epoch stays the best."""
    rates = {"learning_rates": [1e-30]}
    result = sweep(make_model=lambda: randomize(make_model()), early_stop=2, epochs=50, **rates)
    assert result.best.epochs == 3


@pytest.mark.parametrize("train", ["arrays", "dataset"])
def test_a_recipe_in_steps(train):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return tuple(x[16 * i : 16 * (i + 1)] for x in TRAIN)

    data = TRAIN if train == "arrays" else Batches()
    result = sweep(Recipe(epochs=None, steps=6), train=data, learning_rates=[0.02])
    assert result.best.epochs == 3


@pytest.mark.any_backend
def test_what_a_sweep_refuses():
    for options, message in (
        ({"learning_rates": []}, "needs learning rates"),
        ({"learning_rates": [-1.0]}, "learning_rate must be a positive number"),
        ({"train": iter([TRAIN])}, "train must be .*iterator"),
        ({"monitor": "f1"}, r"no such metric.*monitor='f1'.*\['accuracy', 'loss'\]"),
        ({"early_stop": 0}, "early_stop must be a positive integer"),
    ):
        with pytest.raises(ValueError, match=message):
            sweep(**{"learning_rates": [0.02, 0.01], "epochs": 1, **options})
