"""What is known of a model for its card: the source of its weights, its accuracy, its metadata."""

import re

import keras

from keras_vit.models.bit import BiT
from keras_vit.models.classifier import changed_layers
from keras_vit.text import code, markdown, visible
from keras_vit.weights import catalog

# The hub's names of licences; any other is `other`, with a `license_name`.
LICENCES = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bsd bsd-2-clause bsd-3-clause
bsl-1.0 cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 ecl-2.0 epl-1.0 epl-2.0 eupl-1.1 eupl-1.2 gpl gpl-2.0 gpl-3.0
isc lgpl lgpl-2.1 lgpl-3.0 mit mpl-2.0 ms-pl openrail osl-3.0 unknown unlicense wtfpl zlib
""".split()
LIBRARIES = {"huggingface": "transformers", "timm": "timm", None: "keras"}  # by format
UNKNOWN = "unknown"


class Source:
    """Where the weights of a model come from, as far as it is recorded.

    Attributes:
        name, record: of the checkpoint, and its row of the catalogue; `None` for none.
        changes: what was changed when it was loaded, as texts.
        state: `"published"` as the checkpoint is, `"adapted"` by those changes, `"trained"`, or
            `None` where nothing tells.
    """

    def __init__(self, model, recipe):
        self.name, self.record = model.weights_from, None
        if self.name:
            found = catalog.lookup(self.name)
            self.record = found[0] if len(found) == 1 else None
        report = getattr(model, "load_report", None)
        self.changes = _changes(report) if report else []
        self.state = None
        if recipe is not None or _updates(model):
            self.state = "trained"
        elif report and not changed_layers(model):
            self.state = "adapted" if self.changes else "published"
        self._fits = bool(self.record) and (
            self.record.num_classes == model.num_classes
            and model.image_size == (self.record.image_size,) * 2
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
        found = re.match(r"hf://([\w.-]+/[\w.-]+)", self.url)
        return found and found[1]

    @property
    def licence(self):
        """As its publisher states it, or `None`."""
        known = self.record and self.record.licence != "unstated"
        return self.record.licence if known else None

    @property
    def accuracy(self):
        """(what, share from 0 to 1) as published, of weights that are as they were published."""
        known = self.record.accuracy if self._fits and self.state == "published" else ()
        return [(what, value / 100) for what, value in known if "fine-tuned" not in what]


def _updates(model):
    iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
    return 0 if iterations is None else int(keras.ops.convert_to_numpy(iterations))


def _changes(report):
    resized = [f"`{name}` was resized, {old} to {new}" for name, old, new, _ in report.resized]
    differs = [
        f"`{name}` is {markdown(repr(ours))} instead of {markdown(repr(theirs))}"
        for name, theirs, ours in report.differs
    ]
    return [*resized, *differs, *([f"the head: {report.head}"] if report.head else [])]


def checked_report(report, model):
    """The parts of a report that a card has, with the shares in `"top"`; `None` without one."""
    if report is None:
        return None
    found = report if isinstance(report, dict) else getattr(report, "to_dict", dict)()
    problem = found.get("problem", "single_label")
    needed = {
        "single_label": ("correct", "examples", "num_classes", "loss", "calibration"),
        "multi_label": ("mean_average_precision", "micro_f1", "examples", "num_classes", "loss"),
        "regression": ("mean_absolute_error", "root_mean_squared_error", "r2", "examples"),
    }[problem]
    if missing := [name for name in needed if name not in found]:
        raise ValueError(
            "report must be what keras_vit.evaluation.evaluate returns, or what its save wrote. "
            f"Received: {type(report).__name__} without {missing}."
        )
    outputs = len(found["outputs"]) if problem == "regression" else found["num_classes"]
    if outputs != model.num_classes and (outputs, model.num_classes) != (2, 1):
        raise ValueError(
            f"The report is of another model. Received: a report of {outputs} "
            f"classes, for {model.name!r} with {model.num_classes}."
        )
    if problem == "single_label":
        shares = {k: n / found["examples"] for k, n in found["correct"].items()}
        return {**found, "top": shares, "figures": {}}
    names = [name for name in needed if name not in ("examples", "num_classes")]
    known = {n.replace("_", " "): found[n] for n in names if found[n] is not None}
    return {**found, "top": {}, "figures": known}


def metadata(model, name, format, license, data, tested, report, source):
    """The `huggingface_hub.ModelCardData` of a model; arguments as in `card.make_card`.

    `tested` is (name, split) of the images that the report is of.
    """
    from huggingface_hub import ModelCardData

    record, changed = source.record, source.state != "published"
    names = [record.pretrained_on, record.finetuned_on] if record else []
    names += [data] if changed else []
    has_classes = model.num_classes and (changed or not record or record.label_set)
    tested = [each and visible(each) for each in tested]
    results = _results(report, tested, source, _task(model))
    return ModelCardData(
        library_name=LIBRARIES.get(format, "keras_vit"),
        pipeline_tag=_task(model) if has_classes else "image-feature-extraction",
        tags=["keras_vit", "bit" if isinstance(model, BiT) else "vit"],
        # A name with a slash would be that of somebody's data set on the hub.
        datasets=[n for n in dict.fromkeys(names) if n and re.fullmatch(r"[\w.-]+", n)] or None,
        base_model=source.repository if changed else None,
        metrics=list(dict.fromkeys(each.metric_type for each in results)) or None,
        model_name=name,
        eval_results=results or None,
        **_licence_fields(license or source.licence or UNKNOWN),
    )


def _licence_fields(licence):
    known = licence.lower() in LICENCES
    return {"license": licence.lower()} if known else {"license": "other", "license_name": licence}


def _task(model):
    """The hub's name of what a model with outputs does; it has none for regression of images."""
    return "image-feature-extraction" if model.reading == "values" else "image-classification"


def _results(report, tested, source, task):
    """The accuracies as `EvalResult`s: measured ones, or else the published ones."""
    from huggingface_hub import EvalResult

    if report:
        rows = [(name, name.replace(" ", "_"), x) for name, x in report["figures"].items()]
        rows += [(f"top-{k} accuracy", "accuracy", x) for k, x in report["top"].items()]
        data_set, about = tested[0] or UNKNOWN, {"dataset_split": tested[1]}
    else:
        rows = [
            (what, "accuracy", value)
            for what, value in source.accuracy
            if what in ("imagenet top-1", "imagenet top-5")
        ]
        data_set, about = "imagenet-1k", {"source_name": "as published", "source_url": source.url}
    return [
        EvalResult(
            task_type=task,
            dataset_type=data_set,
            dataset_name=data_set,
            metric_type=metric,
            metric_name=what,
            metric_value=round(value, 4),
            **about,
        )
        for what, metric, value in rows
    ]
