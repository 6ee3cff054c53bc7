"""Where the weights of a model come from, and the accuracy that was published for them."""

import re
import typing

import keras

from keras_vit.models.backbone import outside
from keras_vit.models.classifier import changed_layers
from keras_vit.text import code, markdown, percent
from keras_vit.weights import catalog

CLASSIFICATION, FEATURES = "image-classification", "image-feature-extraction"  # the hub's tasks


class Figure(typing.NamedTuple):
    """A number that was measured or published."""

    name: str
    value: float
    metric: str | None = None  # as the hub calls it; `None` for one that the text alone has
    is_share: bool = True  # which is told in percent
    task: str = CLASSIFICATION

    def __str__(self):
        return percent(self.value) if self.is_share else f"{self.value:.4f}"


class Source:
    """Where the weights of a model come from, as far as it is recorded.

    Attributes:
        name, record: of the checkpoint, and its row of the catalogue; `None` for none.
        changes: what was changed when it was loaded, as texts.
        state: `"published"` as the checkpoint is, `"adapted"` by those changes, `"trained"`, or
            `None` where nothing tells.
    """

    def __init__(self, model, network, recipe):
        self.name, self.record = network.weights_from, None
        if self.name:
            rows = catalog.lookup(self.name)
            self.record = rows[0] if len(rows) == 1 else None
        report = getattr(model, "load_report", None) or getattr(network, "load_report", None)
        self.changes = _changes(report) if report else []
        if further := further_layers(model):
            self.changes.append(f"it was put into a model with further layers, {further}")
        self.state = None
        if recipe is not None or _updates(model):
            self.state = "trained"
        elif report and not changed_layers(network):
            self.state = "adapted" if self.changes else "published"
        self._fits = bool(self.record) and (
            self.record.num_classes == network.num_classes
            and network.image_size == (self.record.image_size,) * 2
        )

    @property
    def url(self):
        """The address of the checkpoint; `""` for a local file."""
        url = self.record.url if self.record else self.name or ""
        return url if "://" in url else ""

    @property
    def link(self):
        """The name of the checkpoint in Markdown, with its address."""
        page = re.sub(r"(?<=\.npz):\w+$", "", self.url)
        page = page.replace("gs://", "https://storage.googleapis.com/")
        page = f"https://huggingface.co/{self.repository}" if self.repository else page
        name = code(self.name)
        return f"[{name}]({page})" if page.startswith("http") else name

    @property
    def repository(self):
        """`ORG/REPO` of the hub, or `None`."""
        match = re.match(r"hf://([\w.-]+/[\w.-]+)", self.url)
        return match and match[1]

    @property
    def licence(self):
        """As its publisher states it, or `None`."""
        stated = self.record and self.record.licence != "unstated"
        return self.record.licence if stated else None

    @property
    def figures(self):
        """The accuracies as published, of weights that are as they were published."""
        published = self.record.accuracy if self._fits and self.state == "published" else ()
        of_the_hub = {"imagenet top-1": "accuracy", "imagenet top-5": "accuracy"}
        return [
            Figure(name, value / 100, of_the_hub.get(name))
            for name, value in published
            if "fine-tuned" not in name
        ]


def further_layers(model):
    """The layers with weights around the network in a model, as text in Markdown."""
    return ", ".join(dict.fromkeys(code(v.path.split("/")[0]) for v in outside(model)))


def _updates(model):
    iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
    return 0 if iterations is None else int(keras.ops.convert_to_numpy(iterations))


def _changes(report):
    resized = [f"`{name}` was resized, {old} to {new}" for name, old, new, _ in report.resized]
    differs = [
        f"`{name}` is {markdown(repr(present))} instead of {markdown(repr(old))}"
        for name, old, present in report.differs
    ]
    return [*resized, *differs, *([f"the head: {report.head}"] if report.head else [])]
