"""What the studies share: real images and their draws, training, transfer, and what they find.

The images are Fashion-MNIST's (28 x 28 pixels, grey) and scikit-learn's digits. "First" and
"others" are five classes each, which a seed draws: a model learns the first and is transferred to
the others. In a rehearsal (`--quick`) digits, enlarged, stand in for Fashion-MNIST.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import pathlib
import statistics
import typing

import filelock
import keras
import numpy as np
from scipy import stats

import keras_vit
from keras_vit import data, evaluation, recipes

RESULTS = pathlib.Path(__file__).parent / "results"
MODELS = {  # of images of 32 pixels
    "ViT s": {"patch_size": 8, "width": 32, "depth": 4},
    "ViT m": {"patch_size": 8, "width": 64, "depth": 4},
    "ViT l": {"patch_size": 8, "width": 128, "depth": 4},
    "hybrid s": {"patch_size": 2, "width": 32, "depth": 4, "stem": (), "stem_width": 0.5},
    "hybrid m": {"patch_size": 2, "width": 64, "depth": 4, "stem": (), "stem_width": 0.5},
    "hybrid l": {"patch_size": 2, "width": 128, "depth": 4, "stem": (), "stem_width": 0.5},
    "BiT s": {"blocks": (2,), "width": 0.5},
    "BiT m": {"blocks": (2, 2), "width": 0.5},
}
SMALL_PATCHES = {"patch_size": 4, "width": 32, "depth": 4}  # of images of 28 pixels
PROTOCOL = 2  # docs/studies/protocol.md; rows of another one are not read
SHARES = 10  # of the test images, one for each seed
MARGINS = {  # within which two values count as equal, by unit
    "points": 1.0,
    "points of what was right": 1.0,
    "points per doubling of the operations": 1.0,
    "log-odds": 0.1,
    "log-odds per ten times as many images": 0.1,
    "pixels": 0.5,
    "doublings": 0.5,
    "of 1": 0.05,
    "of the uniform line": 0.05,
    "times": 0.1,
}
HELD_OUT = 1000  # training images that nothing learns from; they choose the learning rates
RECIPE = recipes.Recipe(
    name="study",
    source="keras_vit's own: no augmentation, so that a model's own bias shows",
    dataset="fashion_mnist",
    variant=None,
    batch_size=64,
    steps=1,
    train=data.Transform(28),
    eval=data.Transform(28),
    learning_rate=1e-3,
    weight_decay=0.03,
    clip_norm=1.0,
)


class Part(typing.NamedTuple):
    """Images, uint8 of shape (count, height, width, 1), and their class numbers (count,)."""

    images: np.ndarray
    labels: np.ndarray

    def of(self, classes):
        """The images of some classes, which are numbered anew, in their order."""
        rows = np.isin(self.labels, classes)
        return Part(self.images[rows], np.searchsorted(np.sort(classes), self.labels[rows]))

    def draw(self, count, seed):
        """`count` images at random, or all in a random order if there are fewer."""
        return self.rows(np.random.default_rng(seed).permutation(len(self.labels))[:count])

    def per_class(self, count, seed):
        """`count` images of each class."""
        return self.rows(evaluation.pick_shots(self.labels, count, seed))

    def rows(self, rows):
        return Part(self.images[rows], self.labels[rows])

    def padded(self, pixels):
        """With black pixels on each side."""
        width = ((0, 0), (pixels, pixels), (pixels, pixels), (0, 0))
        return Part(np.pad(self.images, width), self.labels)

    def moved(self, pixels):
        """Moved to the right; black comes in."""
        room = np.pad(self.images, ((0, 0), (0, 0), (pixels, 0), (0, 0)))
        return Part(room[:, :, : self.images.shape[2]], self.labels)

    def prepared(self):
        """(images in [-1, 1], labels), as `evaluate` takes them."""
        return data.preprocess(self.images), self.labels

    @property
    def classes(self):
        return int(self.labels.max()) + 1


@dataclasses.dataclass(frozen=True)
class Lab:
    """Where a study runs: `quick` for a rehearsal, the folder of the IDX files, and one to keep
    models in that several runs begin with."""

    quick: bool = False
    data_dir: str | None = None
    cache: pathlib.Path = pathlib.Path("checkpoints")

    @functools.cached_property
    def _whole(self):
        found = (
            data.load("fashion_mnist", data_dir=self.data_dir) if not self.quick else _digits(28)
        )
        order = np.random.default_rng(0).permutation(len(found.train_labels))
        train = Part(found.train_images, found.train_labels).rows(order)
        held_out = min(HELD_OUT, len(order) // 4)
        return {
            "train": train.rows(slice(held_out, None)),
            "held_out": train.rows(slice(held_out)),
            "test": Part(found.test_images, found.test_labels),
        }

    def part(self, name, classes=None, seed=None):
        """`"train"`, `"held_out"` or `"test"` of Fashion-MNIST, or some classes of it.

        With a seed, of the test images only its share, a tenth that no other of ten seeds has: so
        the spread of accuracies over seeds holds the draw of the test images too.
        """
        part = self._whole[name]
        if name == "test" and seed is not None:
            part = part.rows(slice(seed % SHARES, None, SHARES))
        return part if classes is None else part.of(classes)

    def digits(self, size=28, seed=0):
        """(train, test) of scikit-learn's digits, enlarged; a seed is tested on its own tenth."""
        found = _digits(size)
        images = np.concatenate([found.train_images, found.test_images])
        every = Part(images, np.concatenate([found.train_labels, found.test_labels]))
        order = np.random.default_rng(0).permutation(len(images))
        test = np.arange(len(images)) % SHARES == seed % SHARES
        return every.rows(order[~test]), every.rows(order[test])

    def steps(self, count):
        """`count` updates, or a fortieth of them in a rehearsal."""
        return max(10, count // 40) if self.quick else count

    def once(self, key, make):
        """The model that `make()` gives, made by the first run that asks for `key`."""
        self.cache.mkdir(parents=True, exist_ok=True)
        file = self.cache / f"{key}.keras"
        with filelock.FileLock(self.cache / f"{key}.lock"):
            if not file.exists():
                make().save(file)
        return keras.saving.load_model(file)


@functools.cache
def _digits(size):
    return data.load("digits", image_size=size)


def draw(seed):
    """(first, others): five classes each, in order."""
    classes = np.random.default_rng(seed).permutation(10)
    return np.sort(classes[:5]), np.sort(classes[5:])


def build(size, classes, seed, **architecture):
    """A fresh model: a BiT where `blocks` are given, else a Vision Transformer."""
    keras.utils.set_random_seed(seed)
    make = keras_vit.VisionTransformer
    if "blocks" in architecture:
        make = keras_vit.BiT
    elif "num_heads" not in architecture:
        architecture["num_heads"] = architecture["width"] // 16
    return make(image_size=size, channels=1, num_classes=classes, **architecture)


def learn(model, part, steps, rate, seed, epochs=1, callbacks=(), **changes):
    """Trains a model by the recipe for `steps` updates; `changes` are fields of the recipe.

    `epochs` divides them into parts, after each of which the callbacks are called.
    """
    size = part.images.shape[1]
    recipe = RECIPE.replace(
        **{"examples": len(part.labels), "num_classes": part.classes, "image_size": size},
        **{"batch_size": min(64, len(part.labels)), "learning_rate": rate, "seed": seed},
        **({"steps": steps, "warmup_steps": steps // 10} | changes),
    )
    batches = data.pipeline(tuple(part), recipe, training=True)
    recipe.compile(model)
    endless = (batch for epoch in itertools.repeat(batches) for batch in epoch)
    each = steps // epochs
    model.fit(
        endless,
        epochs=epochs,
        steps_per_epoch=each,
        callbacks=[*callbacks],
        verbose=0,
        shuffle=False,
    )
    return model


def accuracy(model, part):
    """Percent of the images that a compiled model names rightly."""
    images, labels = part.prepared()
    return 100 * model.evaluate(images, labels, 500, verbose=0, return_dict=True)["accuracy"]


def few_shot(model, train, test, shots):
    """Percent, by a linear classifier in closed form on frozen features; the mean of 3 draws."""
    few = train.per_class(100, 0) if len(train.labels) > 1000 else train
    found = evaluation.fewshot(
        model, few.prepared(), test.prepared(), shots, batch_size=500, progress=False
    )
    return {count: 100 * value for count, value in found.mean.items()}


def transferred(model, classes, size=None):
    """A copy with a fresh head, for images of another size if one is given."""
    if size is not None:
        model = keras_vit.resize(model, image_size=size)
    fresh = type(model).from_config({**model.get_config(), "num_classes": classes})
    for layer in fresh.layers:
        if layer.name != "head":
            layer.set_weights(model.get_layer(layer.name).get_weights())
    return fresh


def fine_tune(model, few, steps, rate, seed):
    """A copy that has learned a few images as section 4.1 has it: SGD with momentum, no decay."""
    tuned = transferred(model, few.classes)
    return learn(tuned, few, steps, rate, seed, optimizer="sgdm", weight_decay=0.0)


@dataclasses.dataclass(frozen=True)
class Finding:
    """One comparison: a value for each seed, their mean, its t-interval, and a verdict.

    `expected` is the paper's sign: "above" or "below" zero, "tie", or None where the paper says
    nothing. The margin of equivalence is that of the unit.
    """

    what: str
    values: list
    expected: str | None = None
    unit: str = "points"

    @property
    def mean(self):
        return statistics.fmean(self.values)

    @property
    def margin(self):
        return MARGINS[self.unit]

    def interval(self, together=1):
        """The t-interval at 95 %; of so many findings `together`, that by which the chance is 95 %
        at least that the intervals of all hold their true means (Bonferroni).
        """
        if len(self.values) < 2:
            return None
        # A deviation of 0 is one that was rounded away.
        error = max(stats.sem(self.values), 1e-9)
        ends = stats.t.interval(1 - 0.05 / together, len(self.values) - 1, self.mean, error)
        return tuple(map(float, ends))

    def verdict(self, together=1):
        low, high = self.interval(together) or (-math.inf, math.inf)
        if -self.margin <= low and high <= self.margin:
            return "equal within the margin"
        return "higher" if low > 0 else "lower" if high < 0 else "not resolved"

    def as_dict(self):
        return {
            "what": self.what,
            "expected": self.expected,
            "unit": self.unit,
            "values": [round(float(value), 4) for value in self.values],
        }

    def __str__(self):
        between = " [{:+.2f}, {:+.2f}]".format(*self.interval()) if self.interval() else ""
        return f"{self.what}: {self.mean:+.2f}{between} {self.unit}, {self.verdict()}"


def log_odds(model, part):
    """Of naming an image rightly: its differences mean the same near 100 % as elsewhere."""
    right = accuracy(model, part) / 100 * len(part.labels)
    return math.log((right + 0.5) / (len(part.labels) - right + 0.5))


class Results:
    """What the runs of a study have measured, by arm, measure and seed."""

    def __init__(self, rows):
        self.rows = {(row["arm"], row["seed"]): row for row in rows}
        self.arms = list(dict.fromkeys(arm for arm, _ in self.rows))
        common = [{seed for arm, seed in self.rows if arm == name} for name in self.arms]
        self.seeds = sorted(set.intersection(*common)) if common else []

    def __getitem__(self, key):
        """The values of (arm, measure), an array with one for each seed."""
        arm, measure = key
        return np.array([self.rows[arm, seed][measure] for seed in self.seeds], "float64")

    def slope(self, measure, arms, x):
        """For each seed the slope of a straight line through a measure of `arms` at `x`."""
        values = np.stack([self[arm, measure] for arm in arms])
        return np.polyfit(np.asarray(x, "float64"), values, 1)[0]

    def measures(self):
        """{arm: {measure: values}} of each measure that is a number."""
        table = {}
        for arm in self.arms:
            row = self.rows[arm, self.seeds[0]]
            names = [n for n, v in row.items() if isinstance(v, (int, float)) and n != "seed"]
            table[arm] = {
                name: [float(v) if name == "rate" else round(float(v), 4) for v in self[arm, name]]
                for name in names
            }
        return table


def levelled(values):
    """{arm: values} for figures: the same, without what the draws of the seeds give all arms alike.

    What is left are the differences between arms, which are what is compared, and a spread that is
    corrected for what the levelling took from it (Morey, 2008).
    """
    table = np.stack([*values.values()])
    means = table.mean(axis=1, keepdims=True)
    apart = table - means - (table - means).mean(axis=0)
    return dict(zip(values, means + apart * math.sqrt(len(table) / (len(table) - 1))))


def dots(axes, x, values, label=None, **style):
    """Draws each seed as a dot, and the mean with its t-interval; `values` is (x, seeds)."""
    values = [Finding("", list(map(float, seeds))) for seeds in values]
    means = [each.mean for each in values]
    ends = [each.interval() or (each.mean, each.mean) for each in values]
    error = np.abs(np.transpose(ends) - means)
    bars = axes.errorbar(x, means, error, marker="_", capsize=4, label=label, **style)
    for place, each in zip(x, values):
        axes.plot(
            [place] * len(each.values), each.values, ".", color=bars[0].get_color(), alpha=0.4
        )


def side_by_side(axes, categories, series):
    """Draws dots at each category, those of each label beside those of the others.

    `series` is {label: values of shape (categories, seeds)}.
    """
    places = np.arange(len(categories))
    for shift, (label, values) in zip(np.linspace(-0.1, 0.1, len(series)), series.items()):
        dots(axes, places + shift, values, label=label, linestyle="none")
    axes.set_xticks(places, categories)
    axes.legend()


def log_axis(axes, ticks, label):
    """A logarithmic axis x with these ticks alone."""
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def read(file):
    """The rows of a file of JSON lines that this protocol has written; none if it is not there.

    A line that a killed run left half written does not count.
    """
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return [row for row in rows if row.get("protocol") == PROTOCOL]
