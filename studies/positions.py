"""Which position embedding does a Vision Transformer need? (Table 8)

Trained on all ten classes of Fashion-MNIST with 49 patches of 4 x 4 pixels. The paper's signs: a
model without positions is clearly the worst, and all others tie. Two controls are no comparison:
1-D positions again from other weights (A/A), and 1-D ones for shuffled patches, which by symmetry
are the same model.

It does not show what positions are worth where objects may stand anywhere: clothes are centred.
"""

import keras
import numpy as np

from keras_vit import inspection
from studies.lab import SMALL_PATCHES, Finding, Part, accuracy, build, dots, learn

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
    "1-D again": {"position": "learned_1d", "again": 500},
    "1-D, shuffled": {"position": "learned_1d", "shuffled": True},
}
ARMS = {arm: {**arguments, "rate": (4e-3, 8e-3, 1.6e-2)} for arm, arguments in ARMS.items()}
SECONDS = 36
PARTS = 10  # snapshots of the positions, beside the one before training


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


def shuffle(part, size=4):
    """The same patches of all images, in another order."""
    count, grid = len(part.labels), part.images.shape[1] // size
    patches = part.images.reshape(count, grid, size, grid, size).swapaxes(2, 3)
    order = np.random.default_rng(0).permutation(grid**2)
    patches = patches.reshape(count, -1, size, size)[:, order].reshape(-1, grid, grid, size, size)
    return Part(patches.swapaxes(2, 3).reshape(part.images.shape), part.labels)


def run(lab, seed, rate, again=0, shuffled=False, **architecture):
    parts = [lab.part(name, seed=seed) for name in ("train", "held_out", "test")]
    train, held_out, test = map(shuffle, parts) if shuffled else parts
    model = build(28, 10, seed + again, **SMALL_PATCHES, **architecture)
    snapshots = []
    look = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: snapshots.append(structure(model)),
        on_epoch_end=lambda epoch, logs: snapshots.append(structure(model)),
    )
    plain = architecture == {"position": "learned_1d"} and not again and not shuffled
    steps = lab.steps(600)
    learn(model, train, steps, rate, seed + again, epochs=min(PARTS, steps) if plain else 1,
          callbacks=[look] if plain else [])  # fmt: skip
    found = {"held_out": accuracy(model, held_out), "test": accuracy(model, test)}
    if plain:
        found["snapshots"] = snapshots
        found["distances"] = distances(model, test)
    return found


def distances(model, test):
    """Of each block and head: how far it looks, in pixels (Fig. 11)."""
    images, _ = test.rows(slice(128)).prepared()
    return inspection.attention_distances(model, images).mean(axis=1).tolist()


def findings(results):
    against = lambda arm, expected: Finding(  # noqa: E731
        f"{arm} - 1-D", results[arm, "test"] - results["1-D", "test"], expected
    )
    signs = {"none": "below", "2-D": "tie", "relative": "tie", "1-D in every layer": "tie"}
    signs["1-D shared"] = "tie"
    return [against(arm, signs.get(arm)) for arm in ARMS if arm != "1-D"]


def figure(results, figure):
    axes = figure.subplots()
    dots(axes, list(ARMS), [results[arm, "test"] for arm in ARMS], linestyle="none")
    axes.set(ylabel="test accuracy, %", title="Position embeddings, Fashion-MNIST")
    axes.tick_params(axis="x", rotation=20)
