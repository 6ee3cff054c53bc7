"""The README.md of a model, in the format of the hub: what is known, and what is not, in words.

Nothing is claimed that nobody said: accuracies come from a report or from the catalogue, and what
is unknown is called so.
"""

import dataclasses
import hashlib
import pathlib
import re

from keras_vit.models.bit import BIT_VARIANTS
from keras_vit.text import code, markdown
from keras_vit.variants import VARIANTS
from keras_vit.version import __version__
from keras_vit.weights.card_metadata import LIBRARIES, Facts, further_layers, metadata
from keras_vit.weights.files import open_checkpoint, read_json
from keras_vit.weights.read_back import differences, read_back

PAPERS = {
    "VisionTransformer": "Vision Transformer "
    "([An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929))",
    "BiT": "ResNet-v2 ([Big Transfer](https://arxiv.org/abs/1912.11370))",
}
ALWAYS = ("width", "depth", "num_heads", "mlp_dim", "patch_size", "pool", "position", "blocks")
MOST_NAMES = 20  # of classes that a card lists
# What a card has of `settings.json` and of its field `training`, which `keras_vit.results` writes.
RUN = "training_images skipped freeze lora teacher epochs best_epoch chosen_on units".split()


def make_card(model, file, **given):
    """The `huggingface_hub.ModelCard` of a model; the arguments are those of `Facts`."""
    from huggingface_hub import ModelCard

    about = Facts(model, pathlib.Path(file), **given)
    sections = {
        "Architecture": _architecture(about),
        "Data": _data(about),
        "Training": _training(about),
        "Accuracy": _accuracy(about),
        "Images": _images(about),
        "Classes": "\n\n".join(filter(None, map(_classes, about.outputs))),
        "How to load it": _loading(about),
        "Limits": _limits(about),
        "Licence": _licence(about),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text)
    yaml, title = metadata(about).to_yaml(), markdown(about.name)
    card = ModelCard(f"---\n{yaml}\n---\n# {title}\n\n{_summary(about)}\n\n{body}\n")
    card.text += f"\n<!-- keras_vit.model_card {_digest(card.content)} -->\n"
    return card


def is_untouched(text):
    """Whether a card is as `make_card` wrote it, so that nobody's words go with it."""
    text = text.replace("\r\n", "\n")
    mark = re.search(r"\n<!-- keras_vit\.model_card (\w+) -->\n$", text)
    return bool(mark) and mark[1] == _digest(text[: mark.start()])


def check_card_place(path):
    """Raises a ValueError where a card must not be written: somebody's own text stands there."""
    path = pathlib.Path(path)
    if path.exists() and not (
        path.is_file() and is_untouched(path.read_text("utf-8", errors="replace"))
    ):
        raise ValueError(
            f"There is another text at {str(path)!r}, or a card that was edited since it was "
            "written; it is kept. Move it away, or write the card elsewhere."
        )


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _summary(about):
    model = about.model if getattr(about.model, "inputs", None) else about.network
    shape = " x ".join(str(n or "any") for n in model.inputs[0].shape[1:])
    gives = [
        str(output) + ("" if output.head is None else f" for {code(output.head)}")
        for output in about.outputs
    ]
    return (
        f"A {PAPERS[about.class_name]} that turns images of {shape} (height, width, channels) into "
        f"{', '.join(gives) or 'features'}, with {about.model.count_params():,} parameters. "
        f"Written by keras_vit {__version__} (installed from a checkout of keras3-vit)."
    )


def _architecture(about):
    network, v, record = about.network, about.network.variant, about.source.record
    # Families that differ in their training alone share a row: the checkpoint's own comes first.
    tables = VARIANTS | BIT_VARIANTS
    names = [record.variant, *tables] if record else tables
    rows = [("built like", name) for name in names if tables.get(name) == v][:1]
    fields = [f for f in dataclasses.fields(v) if f.name in ALWAYS or vars(v)[f.name] != f.default]
    rows += [(field.name, vars(v)[field.name]) for field in fields]
    rows += [(name, getattr(network, name)) for name in ("image_size", "channels", "num_classes")]
    text = f"Arguments of `keras_vit.{about.class_name}`; those that are left out have their "
    text += f"defaults.\n\n{_table(rows)}"
    if layers := further_layers(about.model):
        text += f"\n\nThe model around it has further layers with weights: {layers}."
    return text


def _data(about):
    source, lines, then = about.source, [], "then " if about.source.name else ""
    if record := source.record:
        sets = ", then on ".join(filter(None, [record.pretrained_on, record.finetuned_on]))
        lines.append(f"The checkpoint {source.link} was trained on {sets or 'unknown data'}.")
    elif source.name:
        lines.append(f"What the checkpoint {source.link} was trained on is unknown here.")
    if about.data:
        lines.append(f"It was {then}trained on {markdown(about.data)}.")
    elif source.state == "trained" or not source.name:
        lines.append(f"What it was {then}trained on is not recorded.")
    return "\n".join(lines)


def _training(about):
    source = about.source
    begun = f"It began with the checkpoint {source.link}. " if source.name else ""
    if about.recipe is not None:
        table, outcome = about.recipe.table(), about.outcome
        recipe = _table(row for row in table if row[0] != "note")
        parts = [f"{begun}The recipe (`keras_vit.recipes.Recipe`):\n\n{recipe}"]
        parts += [text for name, text in table if name == "note"]
        names = [*RUN, *(name for name in outcome if name.startswith("best_val_"))]
        if rows := [(name, outcome[name]) for name in names if outcome.get(name)]:
            parts.append(f"The run, as its `settings.json` has it:\n\n{_table(rows)}")
        return "\n\n".join(parts)
    untold = {
        "published": "The weights are as published: no change since they were loaded is known.",
        "adapted": f"When it was loaded: {'; '.join(source.changes)}. No training after that is "
        "known.",
        None: "Whether it was changed after that is not recorded.",
    }
    state = source.state if source.name else "fresh"
    return begun + untold.get(state, "How it was trained is not recorded.")


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
    if about.format in ("timm", "huggingface") and recipe.library.startswith("tensorflow"):
        text += "Other libraries resize by Pillow, which differs a little from this resize. "
    text += (
        "`keras_vit.preprocess(images, model)` prepares images so (`keras_vit.Preprocessing`; mean "
        "and std are of values from 0 to 1):"
    )
    return f"{text}\n\n{_table(dataclasses.asdict(recipe).items())}"


def _classes(output):
    names, head = output.class_names, "" if output.head is None else f"{code(output.head)}: "
    if not names and output.reading in ("values", None):
        return ""
    if not names:
        order = f", in the order of {output.label_set}" if output.label_set else ""
        return f"{head}{output.count}{order or '; their names are not recorded'}."
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    shown = ", ".join(f"{i}: {name}" for i, name in enumerate(names[:MOST_NAMES]))
    return head + markdown(shown + more)


def _limits(about):
    lines = [*about.limits]
    if any(output.reading == "softmax" for output in about.outputs):
        lines.append("An image of anything else is put into one of its classes.")
    if about.outcome.get("chosen_on") == "test":
        lines.append("The test images chose the best epoch: new images may well do worse.")
    lines.append(
        "Nothing is recorded of images other than those above, of damaged or hostile ones, or of "
        "errors that are more frequent for some groups of people."
    )
    return "\n".join(f"- {line}" for line in lines)


def _licence(about):
    license, source = about.license, about.source
    lines = []
    if license or not (source.licence and source.state == "published"):
        lines.append(f"This model: {license or 'unknown, as nobody has said it'}.")
    if source.name:
        lines.append(f"The checkpoint {source.link}: {source.licence or 'unknown here'}.")
    return "\n\n".join(lines)


def _table(rows, header=("field", "value")):
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(markdown, line))} |" for line in lines)


def _loading(about):
    """Code in Markdown that opens the weights, here and in the library of their format."""
    file, format, name = about.file, about.format, about.place or about.file.name
    is_read = about.outputs and all(output.reading for output in about.outputs)
    use = ['print(keras_vit.predict(model, ["image.jpg"]))'] if is_read else []
    if format is None:
        call = f"model = keras.saving.load_model({name!r}, compile=False)"
        settings = [] if hasattr(type(about.model), "preprocessing") else _settings(about)
        return _code("import keras", "import keras_vit", "", call, *settings, *use)
    arguments, settings, remark = _what_the_file_lacks(about.model, file)
    call = f"model = keras_vit.from_checkpoint({', '.join([repr(name), *arguments])})"
    text = remark + _code("import keras_vit", "", call, *settings, *use)
    repository = (about.place or "").removeprefix("hf://")
    if format == "google":
        return f"{text}\n\nThe names in the file are those of google-research's checkpoints."
    if format == "timm":
        arguments = {"model_name": f"hf-hub:{repository}", "pretrained": True}
        if not repository:
            config = read_json(file.parent / "config.json")
            arguments = {"model_name": config["architecture"], "checkpoint_path": file.name}
            arguments |= {"num_classes": config["num_classes"], **config["model_args"]}
        call = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        lines = ["import timm", "", f"model = timm.create_model({call})"]
    else:
        (name,) = read_json(file / "config.json")["architectures"]
        opened = f"from_pretrained({repository or file.name!r})"
        lines = [f"from transformers import AutoImageProcessor, {name}", ""]
        lines += [f"processor = AutoImageProcessor.{opened}", f"model = {name}.{opened}"]
    return f"{text}\n\nWith {LIBRARIES[format]}:\n\n{_code(*lines)}"


def _settings(about):
    """Lines for what a .keras file holds of models of this library alone."""
    lines = []
    if preprocessing := getattr(about.model, "preprocessing", None):
        lines.append(f"model.preprocessing = keras_vit.{preprocessing!r}")
    for name in ("reading", "class_names"):
        values = {each.head: getattr(each, name) for each in about.outputs if getattr(each, name)}
        if values:
            lines.append(f"model.{name} = {values.get(None, values)!r}")
    return lines


def _what_the_file_lacks(model, file):
    """Arguments of `from_checkpoint`, lines after it, and a remark, for what a file cannot say."""
    read, given, otherwise = read_back(open_checkpoint(file), model)
    remark = "The file alone does not say all of its architecture.\n\n"
    if read is None:
        return [], [], remark + "Give the arguments above that the error asks for.\n\n"
    remark = remark if given else ""
    given, lines = given | otherwise, []
    for name, (value, _) in differences(model, read).items():
        few = name != "class_names" or len(value) <= MOST_NAMES
        value = f"keras_vit.{value!r}" if name == "preprocessing" else repr(value if few else "...")
        lines.append(f"model.{name} = {value}")
    return [f"{name}={value!r}" for name, value in given.items()], lines, remark


def _code(*lines):
    # What is not code of ours lies in literals of Python: no HTML is left of it.
    return "\n".join(["```python", *(line.replace("<", "\\x3c") for line in lines), "```"])
