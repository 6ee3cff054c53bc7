"""Which position embedding does a Vision Transformer need? (Table 8)

Trained on all ten classes of Fashion-MNIST with 49 patches of 4 x 4 pixels. The paper's signs: a
model without positions is clearly the worst, and all others tie.

It does not show what positions are worth where objects may stand anywhere: clothes are centred.
"""

import keras
import numpy as np

from keras_vit import inspection
from studies.lab import SMALL_PATCHES, Finding, accuracy, build, dots, few_shot, learn
from studies.rates import chosen

PAPER = (
    "61.4 % without positions, 64.2 % with 1-D, 64.0 % with 2-D, 64.0 % with relative ones "
    "(ViT-B/16, 5-shot ImageNet, Table 8)."
)
ARMS = {
    "none": {"position": "none"},
    "1-D": {"position": "learned_1d"},
    "2-D": {"position": "learned_2d"},
    "sin-cos": {"position": "sincos_2d"},
    "relative": {"position": "relative"},
    "1-D in every layer": {"position": "learned_1d", "position_at": "every_layer"},
    "1-D shared": {"position": "learned_1d", "position_at": "shared"},
}
PARTS = 15  # snapshots of the positions, beside the one before training


def structure(model):
    """What Fig. 7 shows, in numbers: how the similarity of positions follows from where they are.

    Of all pairs of patches: the correlation of similarity with distance; the share of its variance
    that the number of the row, and that of the column, explain; and the share of the variance of
    the positions that the sines and cosines of rows and columns explain.
    """
    similar = inspection.position_similarity(model)
    rows, columns = similar.shape[:2]
    row, column = np.divmod(np.arange(rows * columns), columns)
    pairs = ~np.eye(rows * columns, dtype=bool)
    values = similar.reshape(rows * columns, -1)[pairs]
    apart = [np.abs(x[:, None] - x)[pairs] for x in (row, column)]
    waves = [f(k * np.pi * (x + 0.5) / rows) for x in (row, column) for k in range(1, 4)
             for f in (np.sin, np.cos)]  # fmt: skip
    table = keras.ops.convert_to_numpy(model.get_layer("patch_encoder").position.table())[0, 1:]
    return {
        "distance": float(np.corrcoef(values, np.hypot(*apart))[0, 1]),
        **{name: explained([x[:, None] == np.arange(rows)], values, of=x)
           for name, x in zip(("row", "column"), apart)},
        "waves": explained(waves, table),
    }  # fmt: skip


def explained(columns, values, of=None):
    """R² of a linear regression of `values` on `columns` (or on the classes of `of`)."""
    if of is not None:
        columns = [(of == value).astype(float) for value in np.unique(of)]
    design = np.column_stack([np.ones(len(values)), *columns])
    rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return float(1 - (rest**2).sum() / ((values - values.mean(axis=0)) ** 2).sum())


def run(lab, seed, **architecture):
    train, test = lab.part("train"), lab.part("test")
    model = build(28, 10, seed, **SMALL_PATCHES, **architecture)
    snapshots = []
    look = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: snapshots.append(structure(model)),
        on_epoch_end=lambda epoch, logs: snapshots.append(structure(model)),
    )
    plain = architecture == ARMS["1-D"]
    steps, rate = lab.steps(1500), chosen("ViT P4")["rate"]
    learn(model, train, steps, rate, seed, epochs=min(PARTS, steps) if plain else 1,
          callbacks=[look] if plain else [])  # fmt: skip
    found = {"test": accuracy(model, test)}
    found["digits"] = few_shot(model, *lab.digits(), (10,))[10]
    if plain:
        found["snapshots"] = snapshots
        found["distances"] = distances(model, test)
    return found


def distances(model, test):
    """Of each block and head: how far it looks, in pixels (Fig. 11)."""
    images, _ = test.rows(slice(128)).prepared()
    return inspection.attention_distances(model, images).mean(axis=1).tolist()


def findings(results):
    against = lambda arm, expected="tie": Finding(  # noqa: E731
        f"{arm} - 1-D", results[arm, "test"] - results["1-D", "test"], expected
    )
    others = [arm for arm in ARMS if arm not in ("none", "1-D")]
    return [against("none", "below"), *(against(arm) for arm in others)]


def figure(results, figure):
    axes = figure.subplots()
    dots(axes, list(ARMS), [results[arm, "test"] for arm in ARMS], linestyle="none")
    axes.set(ylabel="test accuracy, %", title="Position embeddings, Fashion-MNIST")
    axes.tick_params(axis="x", rotation=20)
