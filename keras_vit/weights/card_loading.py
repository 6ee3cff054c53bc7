"""The part of a card that says how its weights are opened, here and in other libraries."""

import dataclasses

from keras_vit.checks import marked
from keras_vit.weights.files import CheckpointError, read_json
from keras_vit.weights.readers import read_checkpoint

MOST_NAMES = 20  # of classes that a card lists


def loading(model, file, place, format):
    """Code in Markdown that opens `file`; arguments as in `card.make_card`."""
    here, lines = place or file.name, []
    remark, call = "", f"keras.saving.load_model({here!r})"
    if format is not None:
        arguments, lines, remark = _what_the_file_lacks(model, file)
        call = f"keras_vit.from_checkpoint({', '.join([repr(here), *arguments])})"
    use = ['print(keras_vit.predict(model, ["image.jpg"]))'] * bool(model.num_classes)
    first = ["import keras"] if format is None else []
    text = remark + _code(*first, "import keras_vit", "", f"model = {call}", *lines, *use)
    other = _LIBRARIES.get(format)
    return text + (other(file, (place or "").removeprefix("hf://")) if other else "")


def _by_timm(file, repository):
    if repository:
        call = f"timm.create_model('hf-hub:{repository}', pretrained=True)"
        return "\n\nWith timm:\n\n" + _code("import timm", "", f"model = {call}")
    config = read_json(file.parent / "config.json")
    arguments = {"num_classes": config["num_classes"], **config["model_args"]}
    return "\n\nWith timm:\n\n" + _code(
        "import timm",
        "",
        f"arguments = {arguments!r}",
        f"arguments['checkpoint_path'] = {file.name!r}",
        f"model = timm.create_model({config['architecture']!r}, **arguments)",
    )


def _by_transformers(file, repository):
    name, kind = repository or file.name, read_json(file / "config.json")["architectures"][0]
    return "\n\nWith transformers:\n\n" + _code(
        f"from transformers import AutoImageProcessor, {kind}",
        "",
        f"processor = AutoImageProcessor.from_pretrained({name!r})",
        f"model = {kind}.from_pretrained({name!r})",
    )


def _by_google(file, repository):
    return "\n\nThe names in the file are those of google-research's published checkpoints."


_LIBRARIES = {"timm": _by_timm, "huggingface": _by_transformers, "google": _by_google}


def _what_the_file_lacks(model, file):
    """Arguments of `from_checkpoint`, lines after it, and a remark, for what a file cannot say."""
    v, remark = model.variant, ""
    said = {**dataclasses.asdict(v), "image_size": model.image_size}
    unusual = [f.name for f in dataclasses.fields(v) if getattr(v, f.name) != f.default]
    for known in ([], ["image_size"], ["image_size", *unusual]):
        try:
            found = read_checkpoint(file, {name: said[name] for name in known})
            break
        except CheckpointError:  # which asks for what is not in the file
            remark = "The file alone does not say all of its architecture.\n\n"
    else:
        return [], [], remark + "Give the arguments above that the error asks for.\n\n"
    compared = [*marked(type(v), "compared"), "image_size"]
    compared = [n for n in compared if found.architecture.get(n, said[n]) != said[n]]
    names = dict.fromkeys([*known, *compared])
    lines = []
    if found.preprocessing != model.preprocessing:
        lines.append(f"model.preprocessing = keras_vit.{model.preprocessing!r}")
    if model.class_names and found.class_names != tuple(model.class_names):
        few = len(model.class_names) <= MOST_NAMES
        lines.append(f"model.class_names = {tuple(model.class_names) if few else '...'!r}")
    if model.reading not in (None, found.reading):
        lines.append(f"model.reading = {model.reading!r}")
    return [f"{name}={said[name]!r}" for name in names], lines, remark


def _code(*lines):
    # What is not code of ours lies in literals of Python: no HTML is left of it.
    return "\n".join(["```python", *(line.replace("<", "\\x3c") for line in lines), "```"])
