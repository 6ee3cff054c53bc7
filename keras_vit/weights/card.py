"""The README.md of a model, in the format of the hub: what is known, and what is not, in words.

Nothing is claimed that nobody said: accuracies come from a report or from the catalogue, and what
is unknown is called so.
"""

import dataclasses
import hashlib
import pathlib
import re

from keras_vit.families import FAMILIES
from keras_vit.models.backbone import check_model
from keras_vit.models.bit import BIT_VARIANTS, BiT
from keras_vit.text import code, markdown, percent, visible
from keras_vit.variants import VARIANTS
from keras_vit.version import __version__
from keras_vit.weights.card_loading import MOST_NAMES, loading
from keras_vit.weights.card_metadata import Source, checked_report, metadata
from keras_vit.weights.described import name_of

PAPERS = {
    "VisionTransformer": (
        "Vision Transformer",
        "[An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929)",
    ),
    "BiT": ("ResNet-v2", "[Big Transfer](https://arxiv.org/abs/1912.11370)"),
}
ALWAYS = ("width", "depth", "num_heads", "mlp_dim", "patch_size", "pool", "position", "blocks")


def make_card(
    model,
    file,
    *,
    name=None,
    place=None,
    format=None,
    license=None,
    data=None,
    test_data=None,
    test_split=None,
    recipe=None,
    report=None,
    outcome=None,
    limits=(),
):
    """The `huggingface_hub.ModelCard` of a model; see `keras_vit.model_card`.

    Args:
        file: path of the weights; of a `.keras` file the name is enough.
        place: what the reader shall open instead of `file`: `hf://ORG/REPO`.
        format: of `file`, as `save_weights` has it; `None` for Keras's own.
        outcome: what `settings.json` says of a run, and of its training: epochs, the best one,
            images that could not be read.
    """
    from huggingface_hub import ModelCard

    model = check_model(model, whole=True)
    if isinstance(limits, str):
        raise ValueError(f"limits must be a sequence of sentences. Received: {limits!r}.")
    source, report = Source(model, recipe), checked_report(report, model)
    name, data = visible(name or model.name), data or (recipe and recipe.dataset)
    parts = {
        "Architecture": _architecture(model, source),
        "Data": _data(data, source, outcome or {}),
        "Training": _training(recipe, source, outcome or {}),
        "Accuracy": _accuracy(report, (test_data, test_split), source),
        "Images": _images(model, format),
        "Classes": _classes(model),
        "How to load it": loading(model, pathlib.Path(file), place, format),
        "Limits": _limits(model, report, limits),
        "Licence": _licence(license, source),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in parts.items() if text)
    known = metadata(model, name, format, license, data, (test_data, test_split), report, source)
    title = markdown(name)
    card = ModelCard(f"---\n{known.to_yaml()}\n---\n# {title}\n\n{_summary(model)}\n\n{body}\n")
    card.text += f"\n<!-- keras_vit.model_card {_digest(card.content)} -->\n"
    return card


def is_untouched(text):
    """Whether a card is as `make_card` wrote it, so that nobody's words go with it."""
    text = text.replace("\r\n", "\n")
    found = re.search(r"\n<!-- keras_vit\.model_card (\w+) -->\n$", text)
    return bool(found) and found[1] == _digest(text[: found.start()])


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _summary(model):
    what, paper = PAPERS["BiT" if isinstance(model, BiT) else "VisionTransformer"]
    gives = {
        "sigmoid": f"logits of {model.num_classes} classes, each by itself (sigmoid)",
        "values": f"{model.num_classes} values",
    }.get(model.reading, f"logits of {model.num_classes} classes")
    gives = gives if model.num_classes else "features"
    return (
        f"A {what} ({paper}) that turns {_inputs(model)} into {gives}, with "
        f"{model.count_params():,} parameters. Written by keras_vit {__version__} "
        "(`pip install` of a wheel or a checkout of keras3-vit)."
    )


def _inputs(model):
    known = {1: "grey images", 3: "colour images"}
    kind = known.get(model.channels, f"images of {model.channels} channels")
    is_free = None in model.inputs[0].shape[1:3]
    return (
        f"{kind} of any size" if is_free else "{} of {} x {} pixels".format(kind, *model.image_size)
    )


def _architecture(model, source):
    v, record = model.variant, source.record
    same = [name for name, row in {**VARIANTS, **BIT_VARIANTS}.items() if row == v]
    # Families that differ in their training alone share a row: the checkpoint's own comes first.
    same.sort(key=lambda name: not record or name != record.variant)
    titles = {
        line.name.format(size): f" of {line.title}" for line in FAMILIES for size in line.sizes
    }
    rows = [("built like", name + titles.get(name, "")) for name in same[:1]]
    if not same and (size := name_of(model)):
        rows = [("size", size)]
    for field in dataclasses.fields(v):
        value = getattr(v, field.name)
        if field.name in ALWAYS or value != field.default:
            rows.append((field.name, value))
    rows += [(name, getattr(model, name)) for name in ("image_size", "channels", "num_classes")]
    about = f"Arguments of `keras_vit.{'BiT' if isinstance(model, BiT) else 'VisionTransformer'}`"
    return f"{about}; those that are left out have their defaults.\n\n{_table(rows)}"


def _data(data, source, outcome):
    lines = []
    if source.record:
        first, second = source.record.pretrained_on or "unknown data", source.record.finetuned_on
        after = f", then on {second}" if second else ""
        lines.append(f"The checkpoint {source.link} was trained on {first}{after}.")
    elif source.name:
        lines.append(f"What the checkpoint {source.link} was trained on is unknown here.")
    if data:
        lines.append(f"{'Then trained' if source.name else 'Trained'} on {markdown(data)}.")
        read = outcome.get("training_images")
        lines[-1] += f" These were {read:,} images." if read else ""
        for part, count in outcome.get("skipped", {}).items():
            lines[-1] += f" {count} more for {part} could not be read." if count else ""
    elif source.state == "trained" or not source.name:
        lines.append(f"What it was {'then ' if source.name else ''}trained on is not recorded.")
    return "\n".join(lines)


def _training(recipe, source, outcome):
    begun = f"It began with the checkpoint {source.link}. " if source.name else ""
    if recipe is not None:
        rows = [row for row in recipe.table() if row[0] != "note"]
        notes = [text for what, text in recipe.table() if what == "note"]
        about = f"{begun}{_trained(outcome)}{_best(outcome)}"
        about += "The recipe (`keras_vit.recipes.Recipe`):"
        return "\n\n".join([about, _table(rows), *notes])
    if source.state == "published":
        return f"The weights are those of {source.link}; no change since they were loaded is known."
    if source.state == "adapted":
        changes = "; ".join(source.changes)
        return f"{begun}When it was loaded: {changes}. No training after that is known."
    if source.name and source.state is None:
        return f"{begun}Whether it was changed after that is not recorded."
    return f"{begun}How it was trained is not recorded."


def _trained(outcome):
    """What a run has trained other than all of the model by the labels alone."""
    frozen, rank, teacher = (outcome.get(name) for name in ("freeze", "lora", "teacher"))
    text = ""
    if frozen:
        patterns = " ".join(map(code, frozen))
        text += f"The layers that {patterns} choose were frozen (`keras_vit.training.freeze`). "
    if rank:
        text += f"Head and low-rank changes (LoRA) of rank {rank} alone were trained, then merged. "
    if teacher:
        text += f"It was distilled from {code(pathlib.PurePath(teacher).name)}. "
    return text


def _best(outcome):
    """Which epoch the weights are of, where a training has chosen one."""
    if "best_epoch" not in outcome:
        return ""
    figure = next(name for name in outcome if name.startswith("best_val_"))
    text = (
        f"The weights are those of epoch {outcome['best_epoch']} of {outcome['epochs']}, the best "
        f"by {code(figure.removeprefix('best_'))} ({outcome[figure]:.4f})"
    )
    if outcome["chosen_on"] == "test":
        return f"{text} on the images to test on: new images may well do worse. "
    return f"{text} on images for validation. "


def _accuracy(report, tested, source):
    header = ("measure", "value")
    if report:
        rows = [(name, f"{value:.4f}") for name, value in report["figures"].items()]
        rows += [(f"top-{k} accuracy", percent(share)) for k, share in report["top"].items()]
        if report["top"]:
            rows.append(("loss (nats)", f"{report['loss']:.4f}"))
            error = report["calibration"]["expected_error"]
            rows.append(("expected calibration error", percent(error)))
        where, split = markdown(tested[0] or "a data set that is not recorded"), tested[1]
        where += f" (split {code(split)})" if split else ""
        about = f"Measured on {report['examples']:,} images of {where}."
        if report.get("skipped"):
            about += f" {report['skipped']} more could not be read and do not count."
        return f"{about}\n\n{_table(rows, header)}"
    if rows := [(what, percent(value)) for what, value in source.accuracy]:
        about = (
            f"As published for {source.link}, with its authors' preprocessing; not measured anew."
        )
        return f"{about}\n\n{_table(rows, header)}"
    return "Unknown: no report of an evaluation was given."


def _images(model, format):
    facts = model.preprocessing
    rows = [(field.name, getattr(facts, field.name)) for field in dataclasses.fields(facts)]
    text = (
        "`keras_vit.preprocess(images, model)` prepares images so (`keras_vit.Preprocessing`; mean "
        "and std are of values from 0 to 1):"
    )
    if format in ("timm", "huggingface") and facts.library.startswith("tensorflow"):
        text = (
            "The configuration beside the weights names Pillow's resize, the only one that its "
            "readers have; the one meant is TensorFlow's, which differs a little. " + text
        )
    return f"{text}\n\n{_table(rows)}"


def _classes(model):
    count, names = model.num_classes, model.class_names
    if not names:
        order = f"{count}, in the order of {model.label_set}."
        return count and (order if model.label_set else f"{count}; their names are not recorded.")
    more = f", and {count - MOST_NAMES} more" if count > MOST_NAMES else ""
    return markdown(", ".join(f"{i}: {name}" for i, name in enumerate(names[:MOST_NAMES])) + more)


def _limits(model, report, limits):
    known = [*limits]
    if model.num_classes and model.reading in ("softmax", None):
        known.append("An image of anything else is put into one of its classes.")
    if report:
        known.append("It was measured on the images above and on no others.")
    known.append(
        "Nothing is recorded of other kinds of images, of damaged or hostile ones, or of errors "
        "that are more frequent for some groups of people."
    )
    return "\n".join(f"- {line}" for line in known)


def _licence(license, source):
    lines = [f"This model: {license}."] if license else []
    if source.licence:
        lines.append(f"The checkpoint {source.link}: {source.licence}.")
    elif source.name:
        lines.append(f"The checkpoint {source.link}: unknown here.")
    if not license and not (source.licence and source.state == "published"):
        lines.append("This model: unknown, as nobody has said it.")
    return "\n\n".join(lines)


def _table(rows, header=("field", "value")):
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(markdown, line))} |" for line in lines)
