"""Learning-rate sweeps."""

import json

import keras
import numpy as np
import pytest

from keras_vit import recipes, training
from tests.support import every_backend, images, randomize, refuses, tiny_vit

pytestmark = pytest.mark.any_backend

RATES = (1e-7, 0.02, 1e38)
RECIPE = recipes.get("digits").replace(
    learning_rates=RATES, batch_size=16, steps=12, warmup_steps=0, schedule="constant", mixup=0.0
)


def easy_task(seed, count=32):
    """Three classes that differ in brightness."""
    y = np.arange(count) % 3
    x = images((count, 8, 8, 3), seed) / 4 + (y - 1).reshape(-1, 1, 1, 1) / 2
    return x.astype("float32"), y


TRAIN, VALIDATION = easy_task(0), easy_task(1)


def make_model():
    return tiny_vit(image_size=8, patch_size=4, depth=1, dropout=0.1)


def sweep(make_model=make_model, recipe=RECIPE, **options):
    options = {"train": TRAIN, "validation": VALIDATION, **options}
    return training.sweep(make_model, recipe, **options)


@every_backend
def test_the_winner_is_chosen_and_divergence_is_recorded():
    result = sweep()
    slow, good, wild = result.trials
    assert [trial["learning_rate"] for trial in result.trials] == list(RATES)
    assert result.learning_rate == 0.02
    assert good["score"] > 0.9 > slow["score"] and good["loss"] < slow["loss"]
    assert good["epochs"] == 6 and wild["score"] is None and wild["loss"] is None
    header, _, second, third = map(str.split, str(result).splitlines())
    assert header == ["learning", "rate", "accuracy", "loss", "epochs"]
    assert second[:2] == ["0.02", f"{good['score']:.6g}"]
    assert third[:2] == ["1e+38", "diverged"]


def test_every_run_begins_alike_and_is_written_at_once(tmp_path):
    path, seen = tmp_path / "sweep.json", []

    def make():
        if path.exists():
            seen.append([t["learning_rate"] for t in json.loads(path.read_text())["trials"]])
        return randomize(make_model(), seed=len(seen))  # the first weights count

    result = sweep(make, path=path, learning_rates=[0.01, 0.02], epochs=2)
    assert seen == [[0.01]]
    alone = sweep(lambda: randomize(make_model()), learning_rates=[0.02], epochs=2)
    assert alone.trials == result.trials[1:]


def test_ties_go_to_the_lower_rate_losses_are_minimised_and_all_may_diverge():
    rates = {"learning_rates": [1e-30, 1e-29, 0.02], "epochs": 4}
    assert sweep(learning_rates=[1e-30, 1e-29], epochs=1).learning_rate == 1e-30
    assert sweep(**rates, monitor="loss").learning_rate == 0.02
    result = sweep(learning_rates=[1e38], epochs=1)
    assert result.learning_rate is None and "diverged" in str(result)


def test_early_stop_keeps_the_best_epoch():
    """At a rate at which nothing moves, the first epoch stays the best."""
    stop = {"early_stop": 2, "epochs": 50}
    result = sweep(lambda: randomize(make_model()), learning_rates=[1e-30], **stop)
    assert result.trials[0]["epochs"] == 3


def test_the_callbacks_of_the_recipe_count():
    """Averages that stay at the first weights score as a model that does not move."""
    ema = RECIPE.replace(ema=0.99999)
    still, moved = sweep(recipe=ema, learning_rates=[1e-30, 0.02], early_stop=6).trials
    assert still["score"] == moved["score"] < 0.9
    best = sweep(recipe=RECIPE.replace(keep_best=True), learning_rates=[0.02])
    assert best.trials[0]["score"] > 0.9
    refuses("FlexiblePatches needs", sweep, recipe=RECIPE.replace(patch_sizes=(2, 4)))


def test_a_dataset_in_batches():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return tuple(x[8 * i : 8 * (i + 1)] for x in TRAIN)

    recipe = RECIPE.replace(accumulate=2)
    result = sweep(recipe=recipe, train=Batches(), learning_rates=[0.02])
    assert result.trials[0]["epochs"] == 6  # 24 batches for 12 updates


def test_what_a_sweep_refuses():
    for options, message in (
        ({"learning_rates": []}, "needs learning rates"),
        ({"learning_rates": [-1.0]}, "learning_rate must be a positive number"),
        ({"train": iter([TRAIN])}, "can go through anew.*iterator"),
        ({"monitor": "f1"}, r"monitor must be a metric.*monitor='f1'.*\['accuracy', 'loss'\]"),
        ({"early_stop": 0}, "early_stop must be a positive integer"),
    ):
        refuses(message, sweep, **{"learning_rates": [0.02, 0.01], "epochs": 1, **options})
