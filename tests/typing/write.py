"""Writes what editors, type checkers and the site show of models: `python -m tests.typing.write`.

`keras_vit/arguments.py` has the arguments of the models, `keras_vit/builders.pyi` the builders of
the tables and docs/api/builders.md a line for each. All follow from the dataclasses, the
constructors and the tables.
"""

import dataclasses
import inspect
import re
import subprocess
import sys

import keras_vit
from keras_vit import builders
from tests.support import ROOT

COMMAND = "Written by `python -m tests.typing.write`"
# What a builder takes for a field where it loads weights, beside the values of the field.
LOADING = {"interpolation": ("scipy_zoom",)}
MODELS = {"ViT": "VisionTransformer", "BiT": "BiT"}
OWN = ("num_classes", "image_size", "include_top")  # explicit arguments of a builder


def type_of(field):
    if choices := field.metadata.get("of"):
        choices += LOADING.get(field.name, ())
        choices += (None,) if "None" in str(field.type) else ()
        return f"Literal{list(dict.fromkeys(choices))!r}"
    return annotation(field.type)


def annotation(kind):
    text = inspect.formatannotation(kind)
    return re.sub(r"\b(?:keras_vit\.extensions|typing|collections\.abc)\.", "", text)


def typed_dict(name, base, text, types):
    lines = [f"    {key}: {kind}" for key, kind in types.items()]
    return "\n".join([f"class {name}({base}, total=False):", f'    """{text}"""', "", *lines])


def fields(variant):
    found = sorted(dataclasses.fields(variant), key=lambda field: field.kw_only)  # the paper first
    return {field.name: type_of(field) for field in found}


def options(model):
    """The keyword arguments of a model that no variant holds, without those of its builder."""
    parameters = inspect.signature(model).parameters.values()
    return {
        p.name: annotation(p.annotation)
        for p in parameters
        if p.name not in (*OWN, "variant") and p.kind is not p.VAR_KEYWORD
    }


def arguments():
    """The text of `keras_vit/arguments.py`, before ruff has formatted it."""
    parts = [
        f'"""Arguments of the models as types, for editors and type checkers.\n\n{COMMAND}.\n"""',
        "from collections.abc import Sequence\nfrom typing import Any, Literal, TypedDict",
        "from keras_vit.extensions import Rotary",
    ]
    for kind, model in MODELS.items():
        variant = keras_vit.BiTVariant if kind == "BiT" else keras_vit.Variant
        text = f"Fields of `keras_vit.{variant.__name__}`."
        parts.append(typed_dict(f"{kind}Fields", "TypedDict", text, fields(variant)))
        text = f"Further arguments of the builders of `keras_vit.{model}`."
        types = options(getattr(keras_vit, model))
        parts.append(typed_dict(f"{kind}Options", f"{kind}Fields", text, types))
    return "\n\n".join(parts) + "\n"


STUB = """
import os
from typing import Any, Protocol, Unpack

from keras_vit.arguments import BiTOptions, ViTOptions
from keras_vit.models import BiT, VisionTransformer

LATER: dict[str, ViTBuilder]

def build(
    variant: str, weights: str | os.PathLike[str] | None = None, **options: Any
) -> VisionTransformer | Any: ...
"""
BUILDER = '''
class {kind}Builder(Protocol):
    """What the builders of `keras_vit.{model}` take and return."""

    def __call__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        weights: str | os.PathLike[str] | None = None,
        include_top: bool = True,
        **options: Unpack[{kind}Options],
    ) -> {model}:
        """{text}"""
'''
TEXTS = {"ViT": builders.ViT_B16, "BiT": builders.BiT_R50x1}


def text_of(kind):
    """What is said of the arguments, without the title of the variant, indented as in the code."""
    text = TEXTS[kind].__doc__.partition("\n")[2]
    text = text.replace("16 must divide it", "the patches must fit").replace("\n    ", "\n        ")
    return f"A model of this variant.\n{text}"


def stub():
    """The text of `keras_vit/builders.pyi`, before ruff has formatted it."""
    parts = [f"# {COMMAND}.\n{STUB}", f"__all__ = {builders.__all__!r}"]
    for kind, model in MODELS.items():
        parts.append(BUILDER.format(kind=kind, model=model, text=text_of(kind)))
    for name in builders.__all__:
        if name != "build":
            kind = "BiT" if name.startswith("BiT") else "ViT"
            title = inspect.getdoc(getattr(builders, name)).splitlines()[0]
            parts.append(f'{name}: {kind}Builder\n"""{title}"""')
    return "\n".join(parts) + "\n"


def page():
    """The text of docs/api/builders.md, with the table as the builders are now."""
    table = "| builder | model | blocks | width | heads | MLP | patch |\n" + 7 * "|---" + "|\n"
    for name in builders.__all__[1:]:  # the first is `build`, of any variant
        build = getattr(builders, name)
        row = {p.name: p.default for p in inspect.signature(build).parameters.values()}
        title = build.__doc__.partition("\n")[0].rpartition(":")[0]
        cells = [f"`{name}`", title, row.get("depth") or sum(row["blocks"]), f"{row['width']:g}"]
        cells += [row.get("num_heads", ""), row.get("mlp_dim", ""), *row.get("patch_size", "")[:1]]
        cells += [""] * (7 - len(cells))
        table += f"| {' | '.join(map(str, cells))} |\n"
    text = (ROOT / "docs" / "api" / "builders.md").read_text("utf-8")
    return re.sub(r"(?ms)^\| builder .*^\|.*?\n", lambda _: table, text)


def formatted(text, name):
    """As ruff has it, with the settings of this project; a page as it is."""
    if name.endswith(".md"):
        return text
    for step in (["format"], ["check", "--fix", "--select", "I,RUF022"], ["format"]):
        command = [sys.executable, "-m", "ruff", *step, "--quiet", "--stdin-filename", name, "-"]
        done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr or done.stdout)
        text = done.stdout
    return text


FILES = {
    "keras_vit/arguments.py": arguments,
    "keras_vit/builders.pyi": stub,
    "docs/api/builders.md": page,
}

if __name__ == "__main__":
    for name, write in FILES.items():
        (ROOT / name).write_text(formatted(write(), name))
