"""The README.md of a model, in the format of the hub: what is known, and what is not, in words.

Nothing is claimed that nobody said: accuracies come from a report or from the catalogue, and what
is unknown is called so.
"""

import dataclasses
import hashlib
import pathlib
import re

from keras_vit.families import FAMILIES
from keras_vit.models.bit import BIT_VARIANTS, BiT
from keras_vit.text import code, markdown
from keras_vit.variants import VARIANTS
from keras_vit.version import __version__
from keras_vit.weights.card_loading import MOST_NAMES, loading
from keras_vit.weights.card_metadata import Contents, further_layers, metadata
from keras_vit.weights.locate import name_of

PAPERS = {
    "VisionTransformer": "Vision Transformer "
    "([An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929))",
    "BiT": "ResNet-v2 ([Big Transfer](https://arxiv.org/abs/1912.11370))",
}
ALWAYS = ("width", "depth", "num_heads", "mlp_dim", "patch_size", "pool", "position", "blocks")


def make_card(model, file, **given):
    """The `huggingface_hub.ModelCard` of a model; the arguments are those of `Contents`."""
    from huggingface_hub import ModelCard

    about = Contents(model, pathlib.Path(file), **given)
    sections = {
        "Architecture": _architecture,
        "Data": _data,
        "Training": _training,
        "Accuracy": _accuracy,
        "Images": _images,
        "Classes": _classes,
        "How to load it": loading,
        "Limits": _limits,
        "Licence": _licence,
    }
    texts = {title: section(about) for title, section in sections.items()}
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in texts.items() if text)
    yaml, title = metadata(about).to_yaml(), markdown(about.name)
    card = ModelCard(f"---\n{yaml}\n---\n# {title}\n\n{_summary(about)}\n\n{body}\n")
    card.text += f"\n<!-- keras_vit.model_card {_digest(card.content)} -->\n"
    return card


def is_untouched(text):
    """Whether a card is as `make_card` wrote it, so that nobody's words go with it."""
    text = text.replace("\r\n", "\n")
    mark = re.search(r"\n<!-- keras_vit\.model_card (\w+) -->\n$", text)
    return bool(mark) and mark[1] == _digest(text[: mark.start()])


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _summary(about):
    gives = ", ".join(map(_given, about.outputs)) or "features"
    return (
        f"A {PAPERS[_class_of(about.network)]} that turns {_inputs(about)} into {gives}, with "
        f"{about.model.count_params():,} parameters. Written by keras_vit {__version__} "
        "(`pip install` of a wheel or a checkout of keras3-vit)."
    )


def _class_of(network):
    return "BiT" if isinstance(network, BiT) else "VisionTransformer"


def _given(output):
    """What an output gives, such as `logits of 10 classes`."""
    text = f"logits of {output.count} classes"
    if output.reading == "sigmoid":
        text += ", each by itself (sigmoid)"
    elif output.reading == "values":
        text = f"{output.count} values"
    return text if output.head is None else f"{text} for {code(output.head)}"


def _inputs(about):
    model = about.model if getattr(about.model, "inputs", None) else about.network
    *sides, channels = model.inputs[0].shape[1:]
    name = {1: "grey images", 3: "colour images"}.get(channels, f"images of {channels} channels")
    return f"{name} of any size" if None in sides else "{} of {} x {} pixels".format(name, *sides)


def _architecture(about):
    network, v, record = about.network, about.network.variant, about.source.record
    # Families that differ in their training alone share a row: the checkpoint's own comes first.
    own = [record.variant] if record else []
    tables = VARIANTS | BIT_VARIANTS
    same = [name for name in (*own, *tables) if tables.get(name) == v]
    titles = {row.name.format(size): f" of {row.title}" for row in FAMILIES for size in row.sizes}
    rows = [("built like", name + titles.get(name, "")) for name in same[:1]]
    if not same and (size := name_of(network)):
        rows = [("size", size)]
    values = {field: getattr(v, field.name) for field in dataclasses.fields(v)}
    rows += [(f.name, x) for f, x in values.items() if f.name in ALWAYS or x != f.default]
    rows += [(name, getattr(network, name)) for name in ("image_size", "channels", "num_classes")]
    text = f"Arguments of `keras_vit.{_class_of(network)}`; those that are left out have their "
    text += f"defaults.\n\n{_table(rows)}"
    if layers := further_layers(about.model):
        text += f"\n\nThe model around it has further layers with weights: {layers}."
    return text


def _data(about):
    source, lines, after = about.source, [], "then " if about.source.name else ""
    if source.record:
        first, second = source.record.pretrained_on or "unknown data", source.record.finetuned_on
        second = f", then on {second}" if second else ""
        lines.append(f"The checkpoint {source.link} was trained on {first}{second}.")
    elif source.name:
        lines.append(f"What the checkpoint {source.link} was trained on is unknown here.")
    if about.data:
        line = f"{'Then trained' if after else 'Trained'} on {markdown(about.data)}."
        if images := about.outcome.get("training_images"):
            line += f" These were {images:,} images."
        for part, count in about.outcome.get("skipped", {}).items():
            line += f" {count} more for {part} could not be read." if count else ""
        lines.append(line)
    elif source.state == "trained" or not source.name:
        lines.append(f"What it was {after}trained on is not recorded.")
    return "\n".join(lines)


def _training(about):
    source = about.source
    begun = f"It began with the checkpoint {source.link}. " if source.name else ""
    if about.recipe is not None:
        rows = [row for row in about.recipe.table() if row[0] != "note"]
        notes = [text for field, text in about.recipe.table() if field == "note"]
        text = f"{begun}{_trained(about.outcome)}{_best(about.outcome)}"
        text += "The recipe (`keras_vit.recipes.Recipe`):"
        return "\n\n".join([text, _table(rows), *notes])
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
    on = "images for validation. "
    if outcome["chosen_on"] == "test":
        on = "the images to test on: new images may well do worse. "
    return (
        f"The weights are those of epoch {outcome['best_epoch']} of {outcome['epochs']}, the best "
        f"by {code(figure.removeprefix('best_'))} ({outcome[figure]:.4f}) on {on}"
    )


def _accuracy(about):
    if not about.figures:
        return "Unknown: no report of an evaluation was given."
    if report := about.measured:
        data = markdown(about.test_data or "a data set that is not recorded")
        data += f" (split {code(about.test_split)})" if about.test_split else ""
        text = f"Measured on {report['examples']:,} images of {data}."
        if report.get("skipped"):
            text += f" {report['skipped']} more could not be read and do not count."
    else:
        link = about.source.link
        text = f"As published for {link}, with its authors' preprocessing; not measured anew."
    rows = [(figure.name, figure) for figure in about.figures]
    return f"{text}\n\n{_table(rows, ('measure', 'value'))}"


def _images(about):
    recipe, text = getattr(about.model, "preprocessing", None), ""
    if recipe is None:
        recipe = about.network.preprocessing
        text = "The model does not say how images are prepared; the network in it does. "
    rows = [(field.name, getattr(recipe, field.name)) for field in dataclasses.fields(recipe)]
    if about.format in ("timm", "huggingface") and recipe.library.startswith("tensorflow"):
        text += (
            "The configuration beside the weights names Pillow's resize, the only one that its "
            "readers have; the one meant is TensorFlow's, which differs a little. "
        )
    text += (
        "`keras_vit.preprocess(images, model)` prepares images so (`keras_vit.Preprocessing`; mean "
        "and std are of values from 0 to 1):"
    )
    return f"{text}\n\n{_table(rows)}"


def _classes(about):
    return "\n\n".join(
        ("" if output.head is None else f"{code(output.head)}: ") + _names(output)
        for output in about.outputs
    )


def _names(output):
    names, count = output.class_names, output.count
    if not names:
        order = output.label_set and f" in the order of {output.label_set}."
        return f"{count},{order}" if order else f"{count}; their names are not recorded."
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return markdown(", ".join(f"{i}: {name}" for i, name in enumerate(names[:MOST_NAMES])) + more)


def _limits(about):
    lines = [*about.limits]
    if any(output.reading in ("softmax", None) for output in about.outputs):
        lines.append("An image of anything else is put into one of its classes.")
    if about.measured:
        lines.append("It was measured on the images above and on no others.")
    lines.append(
        "Nothing is recorded of other kinds of images, of damaged or hostile ones, or of errors "
        "that are more frequent for some groups of people."
    )
    return "\n".join(f"- {line}" for line in lines)


def _licence(about):
    license, source = about.license, about.source
    lines = [f"This model: {license}."] if license else []
    if source.name:
        lines.append(f"The checkpoint {source.link}: {source.licence or 'unknown here'}.")
    if not license and not (source.licence and source.state == "published"):
        lines.append("This model: unknown, as nobody has said it.")
    return "\n\n".join(lines)


def _table(rows, header=("field", "value")):
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(markdown, line))} |" for line in lines)
