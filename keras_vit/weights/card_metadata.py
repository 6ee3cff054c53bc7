"""What is known of a model for its card: source, outputs and accuracy; and the hub's metadata."""

import dataclasses
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from keras_vit.ends import known_of_end
from keras_vit.heads import heads_of
from keras_vit.layers.changed_layers import changed_layers
from keras_vit.models.backbone import check_model, is_whole, outside
from keras_vit.models.bit import BiT
from keras_vit.outputs import Reading, gives_features, reading_of
from keras_vit.text import code, markdown, percent, visible
from keras_vit.weights import catalog

CLASSIFICATION, FEATURES = "image-classification", "image-feature-extraction"  # the hub's tasks
# The hub's names of licences; any other is `other`, with a `license_name`.
LICENCES = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bsd bsd-2-clause bsd-3-clause
bsl-1.0 cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 ecl-2.0 epl-1.0 epl-2.0 eupl-1.1 eupl-1.2 gpl gpl-2.0 gpl-3.0
isc lgpl lgpl-2.1 lgpl-3.0 mit mpl-2.0 ms-pl openrail osl-3.0 unknown unlicense wtfpl zlib
""".split()
LIBRARIES = {"huggingface": "transformers", "timm": "timm", None: "keras"}  # by format
# The fields of a report, by its problem, that a card has.
MEASURED = {
    "single_label": ("correct", "examples", "num_classes", "loss", "calibration"),
    "multi_label": ("mean_average_precision", "micro_f1", "loss", "examples", "num_classes"),
    "regression": ("mean_absolute_error", "root_mean_squared_error", "r2", "examples", "outputs"),
}


class Figure(NamedTuple):
    """A number that was measured or published."""

    name: str
    value: float
    metric: str | None = None  # as the hub calls it; `None` for one that the text alone has
    is_share: bool = True  # which is told in percent
    task: str = CLASSIFICATION

    def __str__(self):
        return percent(self.value) if self.is_share else f"{self.value:.4f}"


class Output(NamedTuple):
    """What a model gives for an image, or one of its heads: `count` numbers, and what they are."""

    head: str | None  # its name, `None` of a model with one output
    count: int
    reading: str | None  # as `Reading.name`; `None` where nothing tells
    class_names: Sequence[str] | None
    label_set: str | None
    applied: bool | None = False  # as `Reading.applied`

    @property
    def task(self):
        """The hub's name of what it is for; the hub has none for regression of images."""
        return FEATURES if self.reading in ("values", None) else CLASSIFICATION

    def __str__(self):
        if self.reading in ("values", None):
            untold = "" if self.reading else ", of which nothing tells how they are read"
            return f"{self.count} value{'s' * (self.count > 1)}{untold}"
        given = {True: "probabilities", False: "logits", None: "outputs"}[self.applied]
        by_itself = ", each by itself (sigmoid)" if self.reading == "sigmoid" else ""
        return f"{given} of {self.count} class{'es' * (self.count > 1)}{by_itself}"


class Source:
    """Where the weights of a model come from, as far as it is recorded.

    Attributes:
        name, record: of the checkpoint, and its row of the catalogue; `None` for none.
        link: the name in Markdown, with its address; `url` is the address, `""` of a local file.
        repository: `ORG/REPO` of the hub, or `None`.
        licence: as its publisher states it, or `None`.
        changes: what was changed when it was loaded, as texts.
        state: `"published"` as the checkpoint is, `"adapted"` by those changes, `"trained"`, or
            `None` where nothing tells.
    """

    def __init__(self, model, network, recipe):
        self.name = network.weights_from
        rows = catalog.lookup(self.name) if self.name else ()
        self.record = record = rows[0] if len(rows) == 1 else None
        url = record.url if record else self.name or ""
        self.url = url if "://" in url else ""
        match = re.match(r"hf://([\w.-]+/[\w.-]+)", self.url)
        self.repository = match and match[1]
        page = f"https://huggingface.co/{self.repository}" if match else self.url
        page = page.replace("gs://", "https://storage.googleapis.com/")
        page = re.sub(r"(?<=\.npz):\w+$", "", page)
        self.link = f"[{code(self.name)}]({page})" if page.startswith("http") else code(self.name)
        self.licence = record.licence if record and record.licence != "unstated" else None
        report = getattr(model, "load_report", None) or getattr(network, "load_report", None)
        self.changes = []
        if report:
            resized = [f"`{n}` was resized, {old} to {new}" for n, old, new, _ in report.resized]
            self.changes = resized + [
                f"`{name}` is {markdown(repr(present))} instead of {markdown(repr(old))}"
                for name, old, present in report.differs
            ]
            self.changes += [f"the head: {report.head}"] if report.head else []
        if further := further_layers(model):
            self.changes.append(f"it was put into a model with further layers, {further}")
        self.state = None
        iterations = getattr(getattr(model, "optimizer", None), "iterations", 0)
        if recipe is not None or int(keras.ops.convert_to_numpy(iterations)):
            self.state = "trained"
        elif report and not changed_layers(network):
            self.state = "adapted" if self.changes else "published"

    def figures(self, network):
        """The accuracies as published, if the network is as it was published."""
        record, present = self.record, (network.num_classes, network.image_size)
        sizes = record and (record.num_classes, (record.image_size,) * 2)
        if self.state != "published" or present != sizes:
            return []
        metrics = {"imagenet top-1": "accuracy", "imagenet top-5": "accuracy"}
        published = [row for row in record.accuracy if "fine-tuned" not in row[0]]
        return [Figure(name, value / 100, metrics.get(name)) for name, value in published]


def further_layers(model):
    """The layers with weights around the network in a model, as text in Markdown."""
    return ", ".join(dict.fromkeys(code(v.path.split("/")[0]) for v in outside(model)))


def outputs_of(model):
    """The list of the `Output`s of a model, empty for one of features."""
    outputs = []
    for head, one in (heads_of(model) or {None: model}).items():
        shape = getattr(one, "output_shape", None)
        if gives_features(one) or not shape or len(shape) != 2:
            continue
        try:
            reading = reading_of(one)
        except ValueError:  # nothing says how a head is read, or the only number
            reading = Reading(None)
        names = [known_of_end(one, name) for name in ("class_names", "label_set")]
        outputs.append(Output(head, shape[-1], reading.name, *names, reading.applied))
    return outputs


@dataclasses.dataclass
class Facts:
    """What a card is made of: the arguments of `keras_vit.model_card`, and what follows from them.

    `format` is that of `file`, as `save_weights` has it, `None` for Keras's own; `place` is what
    the reader shall open instead of `file`, `hf://ORG/REPO`; `outcome` is what `settings.json` says
    of a run and of its training.
    """

    model: keras.Model
    file: pathlib.Path
    format: str | None = None
    place: str | None = None
    name: str | None = None
    license: str | None = None
    data: str | None = None
    test_data: str | None = None
    test_split: str | None = None
    recipe: Any = None
    report: Any = None
    outcome: dict | None = None
    limits: tuple = ()

    def __post_init__(self):
        if isinstance(self.limits, str):
            raise ValueError(f"limits must be a sequence of sentences. Received: {self.limits!r}.")
        self.network = check_model(self.model, whole=self.format is not None)
        outputs = outputs_of(self.model)  # whose loss the network inside may not know
        if is_whole(self.model, self.network):
            self.model = self.network
        self.class_name = "BiT" if isinstance(self.network, BiT) else "VisionTransformer"
        self.source = Source(self.model, self.network, self.recipe)
        self.outputs = outputs or outputs_of(self.model)
        self.name = visible(self.name or self.model.name)
        self.data = self.data or (self.recipe and self.recipe.dataset)
        self.outcome = self.outcome or {}
        self.figures, self.measured = self.source.figures(self.network), None
        if self.report is not None:
            self.figures, self.measured = measured(self.report, self.outputs, self.model.name)


def measured(report, outputs, name):
    """The `Figure`s of a report of the model of this name, and the report as a dict."""
    report = report if isinstance(report, dict) else getattr(report, "to_dict", dict)()
    by_head = {output.head: output for output in outputs}
    figures, reports = [], report.get("heads", {None: report})
    for head, one in reports.items():
        problem, output = one.get("problem", "single_label"), by_head.get(head)
        fields, before = MEASURED[problem], "" if head is None else f"{head}: "
        if missing := [field for field in fields if field not in one]:
            raise ValueError(
                "report must be what keras_vit.evaluation.evaluate returns, or what its save "
                f"wrote. Received: {type(report).__name__} without {missing}."
            )
        received = one["num_classes"] if problem != "regression" else len(one["outputs"])
        expected = output.count if output else 0
        if received != expected and (received, expected) != (2, 1):
            raise ValueError(
                f"The report is of another model. Received: {before}a report of {received} "
                f"classes, for {name!r} with {expected}."
            )
        if problem == "single_label":
            shares = {f"top-{k} accuracy": n / one["examples"] for k, n in one["correct"].items()}
            error = one["calibration"]["expected_error"]
            figures += [
                *(Figure(before + title, share, "accuracy") for title, share in shares.items()),
                Figure(f"{before}loss (nats)", one["loss"], is_share=False),
                Figure(f"{before}expected calibration error", error),
            ]
        else:
            figures += [
                Figure(before + f.replace("_", " "), one[f], f, is_share=False, task=output.task)
                for f in fields[:3]
                if one[f] is not None
            ]
    return figures, next(iter(reports.values()))


def metadata(about):
    """The `huggingface_hub.ModelCardData` of the `Facts`."""
    from huggingface_hub import EvalResult, ModelCardData

    source, record = about.source, about.source.record
    changed = source.state != "published"
    names = [record.pretrained_on, record.finetuned_on] if record else []
    names += [about.data] if changed else []
    data_set, origin = "imagenet-1k", {"source_name": "as published", "source_url": source.url}
    if about.measured:
        data_set = visible(about.test_data or "unknown")
        origin = {"dataset_split": about.test_split and visible(about.test_split)}
    results = [
        EvalResult(
            task_type=figure.task,
            dataset_type=data_set,
            dataset_name=data_set,
            metric_type=figure.metric,
            metric_name=figure.name,
            metric_value=round(figure.value, 4),
            **origin,
        )
        for figure in about.figures
        if figure.metric
    ]
    has_labels = changed or not record or record.label_set
    classifies = has_labels and any(output.task == CLASSIFICATION for output in about.outputs)
    licence = about.license or source.licence or "unknown"
    is_listed = licence.lower() in LICENCES
    return ModelCardData(
        library_name=LIBRARIES.get(about.format, "keras_vit"),
        pipeline_tag=CLASSIFICATION if classifies else FEATURES,
        tags=["keras_vit", "bit" if about.class_name == "BiT" else "vit"],
        # A name with a slash would be that of somebody's data set on the hub.
        datasets=[n for n in dict.fromkeys(names) if n and re.fullmatch(r"[\w.-]+", n)] or None,
        base_model=source.repository if changed else None,
        metrics=list(dict.fromkeys(each.metric_type for each in results)) or None,
        model_name=about.name,
        eval_results=results or None,
        license=licence.lower() if is_listed else "other",
        license_name=None if is_listed else licence,
    )
