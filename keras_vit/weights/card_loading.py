"""The part of a card that says how its weights are opened, here and in other libraries."""

import dataclasses

from keras_vit.checks import marked
from keras_vit.weights.files import read_json
from keras_vit.weights.load import read_file
from keras_vit.weights.reading import CheckpointError

MOST_NAMES = 20  # of classes that a card lists


def loading(about):
    """Code in Markdown that opens the weights of a card's `Contents`."""
    model, file, format = about.model, about.file, about.format
    name, first = about.place or file.name, ["import keras_vit", ""]
    use = ['print(keras_vit.predict(model, ["image.jpg"]))'] if about.outputs else []
    if format is None:
        call = f"model = keras.saving.load_model({name!r})"
        return _code("import keras", *first, call, *_what_keras_forgets(about), *use)
    arguments, lines, remark = _what_the_file_lacks(model, file)
    call = f"model = keras_vit.from_checkpoint({', '.join([repr(name), *arguments])})"
    text = remark + _code(*first, call, *lines, *use)
    if format == "google":
        return (
            f"{text}\n\nThe names in the file are those of google-research's published checkpoints."
        )
    repository = (about.place or "").removeprefix("hf://")
    if format == "timm":
        return f"{text}\n\nWith timm:\n\n{_code(*_by_timm(file, repository))}"
    return f"{text}\n\nWith transformers:\n\n{_code(*_by_transformers(file, repository))}"


def _by_timm(file, repository):
    if repository:
        call = f"model = timm.create_model('hf-hub:{repository}', pretrained=True)"
        return ["import timm", "", call]
    config = read_json(file.parent / "config.json")
    arguments = {"num_classes": config["num_classes"], **config["model_args"]}
    return [
        "import timm",
        "",
        f"arguments = {arguments!r}",
        f"arguments['checkpoint_path'] = {file.name!r}",
        f"model = timm.create_model({config['architecture']!r}, **arguments)",
    ]


def _by_transformers(file, repository):
    name, config = repository or file.name, read_json(file / "config.json")
    model_class = config["architectures"][0]
    return [
        f"from transformers import AutoImageProcessor, {model_class}",
        "",
        f"processor = AutoImageProcessor.from_pretrained({name!r})",
        f"model = {model_class}.from_pretrained({name!r})",
    ]


def _what_keras_forgets(about):
    """Lines for what a .keras file holds of models of this library alone."""
    model, lines = about.model, []
    if hasattr(type(model), "preprocessing"):
        return lines
    if preprocessing := getattr(model, "preprocessing", None):
        lines.append(f"model.preprocessing = keras_vit.{preprocessing!r}")
    for name in ("reading", "class_names"):
        values = {each.head: getattr(each, name) for each in about.outputs if getattr(each, name)}
        if values:
            lines.append(f"model.{name} = {values.get(None, values)!r}")
    return lines


def _what_the_file_lacks(model, file):
    """Arguments of `from_checkpoint`, lines after it, and a remark, for what a file cannot say."""
    v, remark = model.variant, ""
    fields = {**dataclasses.asdict(v), "image_size": model.image_size}
    unusual = [f.name for f in dataclasses.fields(v) if getattr(v, f.name) != f.default]
    for names in ([], ["image_size"], ["image_size", *unusual]):
        try:
            read = read_file(file, {name: fields[name] for name in names})
            break
        except CheckpointError:  # which asks for what is not in the file
            remark = "The file alone does not say all of its architecture.\n\n"
    else:
        return [], [], remark + "Give the arguments above that the error asks for.\n\n"
    compared = [*marked(type(v), "compared"), "image_size"]
    names += [n for n in compared if read.arguments.get(n, fields[n]) != fields[n]]
    lines = []
    if read.preprocessing != model.preprocessing:
        lines.append(f"model.preprocessing = keras_vit.{model.preprocessing!r}")
    if model.class_names and read.class_names != tuple(model.class_names):
        few = len(model.class_names) <= MOST_NAMES
        lines.append(f"model.class_names = {tuple(model.class_names) if few else '...'!r}")
    if model.reading not in (None, read.reading):
        lines.append(f"model.reading = {model.reading!r}")
    return [f"{name}={fields[name]!r}" for name in dict.fromkeys(names)], lines, remark


def _code(*lines):
    # What is not code of ours lies in literals of Python: no HTML is left of it.
    return "\n".join(["```python", *(line.replace("<", "\\x3c") for line in lines), "```"])
